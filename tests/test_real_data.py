"""The comparison on real series: its page says what its results say, its parts do what they say."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "real_data"
PYTHON = ROOT / ".venv-optional" / "bin" / "python"
ROWS = json.loads((FOLDER / "results.json").read_text())["rows"]
METHODS = ["attention recipe", "with decay and log-loss", "default estimator",
           "default aeon adapter", "ridge on summaries", "1NN-DTW", "MiniRocket"]  # fmt: skip


@pytest.fixture
def tables(monkeypatch):
    """The module of the example that writes the page."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "tables", raising=False)
    yield importlib.import_module("tables")
    sys.modules.pop("tables", None)


def test_the_page_has_the_tables_of_the_results(tables):
    page = (ROOT / "docs" / "real_data.md").read_text()
    results = tables.Results(ROWS)
    assert tables.with_tables(page, tables.tables(results)) == page
    for field in ("score", "fit_seconds", "predict_seconds"):
        others = [row | {field: 0.5 * row[field]} for row in ROWS]
        assert tables.with_tables(page, tables.tables(tables.Results(others))) != page
    made = {(row["data"], row["method"], row["split"]) for row in ROWS}
    names = {name for name, *_ in made}
    assert len(made) == len(ROWS)
    whole = [n for n in names if all((n, m, i) in made for m in METHODS for i in range(5))]
    assert len(whole) >= 10
    # The page says: never worse than summaries by more than a standard error over splits.
    for name in results.sets:
        difference = results.losses(name, METHODS[0]) - results.losses(name, METHODS[4])
        assert difference.mean() <= tables.standard_error(difference), name


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="`make real-data` has made no environment yet")
def test_the_comparison_runs(tmp_path):
    sets = ["--only", "CardanoSentiment", "--only", "UnitTest", "--splits", "2"]
    command = [PYTHON, "-W", "ignore", "compare.py", *sets, "--out", tmp_path / "rows.json"]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    scores = {(row["data"], row["split"], row["method"]): row["score"] for row in ROWS}
    assert len(rows) == 2 * 2 * 7
    for row in rows:  # a twentieth of UnitTest is one series, which rounding may move
        expected = scores[row["data"], row["split"], row["method"]]
        assert row["score"] == pytest.approx(expected, abs=0.06), row
