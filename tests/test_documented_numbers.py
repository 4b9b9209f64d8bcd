"""Numbers on pages of the documentation are those of the files and runs that they speak of."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa

ROOT = Path(__file__).resolve().parent.parent


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def cells(text):
    """The cells of the rows of Markdown tables."""
    rows = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


def number(text):
    return int(text.replace(",", ""))


def test_real_data_are_shown_with_the_estimator_as_it_is():
    rows = json.loads(read("examples/real_data/results.json"))["rows"]
    scores = {row["data"]: row["score"] for row in rows
              if (row["method"], row["split"]) == ("default estimator", 0)}  # fmt: skip
    page = read("docs/real_data.md")
    table = cells(page.split("<!-- accuracies -->")[1].split("<!--")[0])
    column = table[0].index("default estimator")
    shown = {row[0]: row[column].split(" ")[0] for row in table[2:]}
    assert shown == {name: f"{100 * scores[name]:.1f}" for name in shown}
    assert len(scores) == 13
    lines = sum(len(read(f"examples/real_data/{name}.py").splitlines())
                for name in ("attention", "tokens"))  # fmt: skip
    assert f"{lines} lines" in page


def test_numbers_stand_beside_queries():
    """Queries that are answered with many numbers are not set beside queries for one each."""
    section = read("docs/benchmarks.md").split("## Softmax heads from queries")[1]
    head, _, *rows = cells(section.split("With rounded answers")[0])
    assert len(rows) >= 8
    for row in rows:
        shape, *others = row[0].split(", ")
        d, n_heads, found = int(shape), int(others[0]), dict(zip(head, row, strict=True))
        n_outputs = 1 if "one output" in row[0] else d
        assert number(found["numbers"]) == n_outputs * number(found["queries"])
        assert number(found["4Hd² − 2H + 1"]) == 4 * n_heads * d**2 - 2 * n_heads + 1
    for name in ("README.md", "docs/benchmarks.md"):
        (row,) = [row for row in cells(read(name)) if "12 heads" in row[0] and "384" in row[0]]
        assert "one number each" in row[1]
        assert "384 numbers each" in row[2]


@pytest.mark.slow
def test_the_benchmark_of_prompts_times_what_users_get():
    command = [sys.executable, "benchmarks/letey.py", "--dims", "8", "--large", "0"]
    done = subprocess.run(
        [*command, "--repeats", "1"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "faster by default" in done.stdout
    assert done.stdout.count("agree") == 2


def test_pages_and_results_agree_on_what_is_kept(tmp_path):
    task = pa.data.planted(60, 5, 2, mode="last", random_state=0)
    result = pa.fit(task.X, task.Y)
    assert np.shares_memory(result.training.batch.values, task.X)
    assert pa.LinearAttentionRegressor().fit(task.X, task.Y).result_.training is None
    pa.save(result, tmp_path / "result.safetensors")
    assert pa.load(tmp_path / "result.safetensors").training is None
    assert "keeps no sequences" not in read("docs/report.md")
    assert "up to 64 MB" in read("docs/guides/fit.md")
