"""Pages and sentences that said more than is true, held to what is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def cells(text):
    """The cells of the rows of Markdown tables."""
    return [[cell.strip() for cell in row.split("|")] for row in ROW.findall(text)]


def number(text):
    return int(text.replace(",", ""))


class TestProposals:
    """0.3.0 said "Collect 12 more sequences": any twelve, for all that one could read."""

    def test_the_sentence_names_the_proposed_sequences(self):
        rng = np.random.default_rng(0)
        flat = rng.standard_normal((100, 5, 2)) @ rng.standard_normal((2, 3))
        certificate = pa.certify(flat)
        advice = certificate.next_data()
        words = f"Collect the {len(advice)} proposed sequences (.sequences): then the data"
        assert advice.sentence.startswith(words)
        # Others of the same plane, as many, are not what is meant.
        assert not pa.certify([*flat, *flat[: len(advice)]]).identifiable
        assert pa.certify([*flat, *advice.sequences]).identifiable

    def test_also_where_nothing_is_missing(self):
        X = np.random.default_rng(0).standard_normal((60, 5, 2))
        sentence = pa.certify(X).next_data(n_sequences=1).sentence
        assert "With the 1 proposed sequence (.sequences) lambda_min would be" in sentence


class TestRealData:
    """0.3.0 said that the figures of a recipe were those of the estimators with their defaults."""

    def test_the_page_shows_the_estimator_as_it_is(self):
        rows = json.loads(read("examples/real_data/results.json"))["rows"]
        scores = {
            row["data"]: row["score"] for row in rows
            if (row["method"], row["split"]) == ("default estimator", 0)
        }  # fmt: skip
        assert len(scores) == 13
        table = cells(read("docs/real_data.md").split("<!-- accuracies -->")[1].split("<!--")[0])
        column = table[0].index("default estimator")
        shown = {row[0]: row[column].split(" ")[0] for row in table[2:]}
        assert shown == {name: f"{100 * scores[name]:.1f}" for name in shown}
        assert shown["BasicMotions"] == "47.5"

    def test_the_recipe_is_called_one(self):
        page = read("docs/real_data.md")
        assert "Each method is used with its defaults" not in page
        assert "344 lines" in page
        lines = [len(read(f"examples/real_data/{name}.py").splitlines()) for name in RECIPE]
        assert sum(lines) == 344


RECIPE = ("attention", "tokens")


class TestQueries:
    """0.3.0 set queries that are answered with 384 numbers beside queries for one number each."""

    def test_numbers_stand_beside_queries(self):
        section = read("docs/benchmarks.md").split("## Softmax heads from queries")[1]
        head, _, *rows = cells(section.split("With rounded answers")[0])
        assert len(rows) >= 8
        for row in rows:
            shape, *others = row[0].split(", ")
            d, n_heads = int(shape), int(others[0])
            found = dict(zip(head, row, strict=True))
            n_outputs = 1 if "one output" in row[0] else d
            assert number(found["numbers"]) == n_outputs * number(found["queries"])
            assert number(found["4Hd² − 2H + 1"]) == 4 * n_heads * d**2 - 2 * n_heads + 1

    @pytest.mark.parametrize("name", ["README.md", "docs/benchmarks.md"])
    def test_the_literature_is_said_to_ask_for_one_number(self, name):
        (row,) = [row for row in cells(read(name)) if "12 heads" in row[0] and "384" in row[0]]
        assert "one number each" in row[1]
        assert "384 numbers each" in row[2]
        assert "with one output" in read(name)


def test_the_benchmark_of_prompts_times_what_users_get():
    """0.3.0 timed solver="iterative" alone, where the default is another solver."""
    command = [sys.executable, "benchmarks/letey.py", "--dims", "8", "--large", "0"]
    command += ["--repeats", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "faster by default" in done.stdout
    assert done.stdout.count("agree") == 2
    (row,) = [row for row in cells(read("docs/benchmarks.md")) if "letey.py" in row[-1]]
    assert "by default" in row[2]
    assert 'solver="iterative"' in row[2]


def test_pages_and_results_agree_on_what_is_kept(tmp_path):
    """0.3.0 said in one place that results keep no sequences, and in another that they do."""
    task = pa.data.planted(60, 5, 2, mode="last", random_state=0)
    result = pa.fit(task.X, task.Y)
    assert np.shares_memory(result.training.batch.values, task.X)
    assert pa.LinearAttentionRegressor().fit(task.X, task.Y).result_.training is None
    pa.save(result, tmp_path / "result.safetensors")
    assert pa.load(tmp_path / "result.safetensors").training is None
    result.report(tmp_path / "page.html")  # shows no sequences, though they are kept
    assert "What is not shown" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "keeps no sequences" not in read("docs/report.md")
    assert "up to 64 MB" in read("docs/guides/fit.md")
