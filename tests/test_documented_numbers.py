"""Numbers on pages of the documentation are those of the files and runs that they speak of."""

import json
import re
from pathlib import Path

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
