"""The comparison on real series: its page says what its results say, its parts do what they say."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

import polyattn as pa

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "real_data"
PYTHON = ROOT / ".venv-optional" / "bin" / "python"
ROWS = json.loads((FOLDER / "results.json").read_text())["rows"]
METHODS = ["attention recipe", "with decay and log-loss", "default estimator",
           "default aeon adapter", "ridge on summaries", "1NN-DTW", "MiniRocket"]  # fmt: skip


@pytest.fixture
def parts(monkeypatch):
    """The modules of the example that need no toolbox."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("tokens", "attention", "tables")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield [importlib.import_module(name) for name in names]
    for name in names:
        sys.modules.pop(name, None)


def test_the_page_has_the_tables_of_the_results(parts):
    tables, page = parts[2], (ROOT / "docs" / "real_data.md").read_text()
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


def test_a_view_does_not_know_units_or_other_series_and_its_layer_tells_classes(parts):
    tokens, attention, _ = parts
    rng, labels = np.random.default_rng(0), np.tile(["fast", "slow"], 12)
    rates, series = np.where(labels == "fast", 1.5, 0.4), []
    for rate in rates:
        phases = rate * np.arange(rng.integers(20, 41)) + rng.uniform(0, 6.3, (2, 1))
        series.append(np.cos(phases) + 0.2 * rng.standard_normal(phases.shape))
    maker = tokens.Tokens(tokens.View("together", n_waves=3, lags=2, normed=True, n_signs=24))
    found = maker.fit_transform(series)
    assert np.array_equal(maker.transform([series[3]])[0], found[3])
    units = np.array([[1e6], [1e-7]])
    scaled = maker.fit_transform([units * one + units for one in series])
    np.testing.assert_allclose(np.concatenate(scaled), np.concatenate(found), atol=1e-6)
    # The linear form of one token is ridge regression on standardised summaries.
    X, y = tokens.Summaries().fit_transform(series), rates - rates.mean()
    table = StandardScaler().fit_transform(tokens.summaries(series))
    outputs = pa.fit(X, y, form=attention.LINEAR, ridge=0.3).predict(X)[:, 0]
    np.testing.assert_allclose(outputs, Ridge(0.3).fit(table, y).predict(table), atol=1e-9)
    model = attention.Attention(False).fit(series[:16], labels[:16])
    assert np.all(model.predict(series[16:]) == labels[16:])


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
