"""The comparison on real series: its page says what its results say, its parts do what they say."""

import copy
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
        others = [row | {field: 0.5 * row[field]} for row in copy.deepcopy(ROWS)]
        assert tables.with_tables(page, tables.tables(tables.Results(others))) != page
    with pytest.raises(ValueError, match="ranks"):
        tables.with_tables(page.replace("<!-- ranks -->", ""), {"ranks": "| |"})
    splits = {(r["data"], r["method"]): [] for r in ROWS}
    for row in ROWS:
        splits[row["data"], row["method"]].append(row["split"])
    assert all(each == list(range(5)) for each in splits.values())
    whole = {data for data, _ in splits if all((data, method) in splits for method in METHODS)}
    assert len(whole) >= 10
    # The page says: never worse than summaries by more than a standard error over splits.
    for name in results.sets:
        difference = results.losses(name, METHODS[0]) - results.losses(name, METHODS[4])
        assert difference.mean() <= tables.standard_error(difference), name


def test_views_of_series_and_the_layers_of_them(parts):
    tokens, attention, _ = parts
    rng, labels = np.random.default_rng(0), np.tile(["fast", "slow"], 12)
    rates, series = np.where(labels == "fast", 1.5, 0.4), []
    for rate in rates:
        phases = rate * np.arange(rng.integers(20, 41)) + rng.uniform(0, 6.3, (2, 1))
        series.append(np.cos(phases) + 0.2 * rng.standard_normal(phases.shape))
    view = tokens.View("together", n_waves=3, lags=2, normed=True, n_signs=24)
    maker = tokens.Tokens(view)
    found = np.concatenate(maker.fit_transform(series))
    assert found.shape[1] == 1 + 3 + 2 * 2 + 24
    assert np.all(np.abs(found[:, [0, *range(8, 32)]]) == 1)
    assert np.array_equal(maker.transform([series[3]])[0], maker.transform(series)[3])
    units = np.array([[1e6], [1e-7]])
    scaled = tokens.Tokens(view).fit_transform([units * one + units for one in series])
    np.testing.assert_allclose(np.concatenate(scaled), found, atol=1e-6)
    for one in (np.full((1, 1), 7.0), np.full((1, 30), 1e8 / 3), np.arange(1000.0)[None]):
        (short,) = tokens.Tokens(tokens.View("each", 16, 6, n_signs=12)).fit_transform([one])
        assert len(short) == min(one.shape[1], tokens.MOST_TOKENS)
        assert np.abs(short).max() < 10
    # The linear form of one token is ridge regression on standardised summaries.
    table = StandardScaler().fit_transform(tokens.summaries(series))
    layer = pa.fit(tokens.Summaries().fit_transform(series), rates - rates.mean(),
                   form=attention.LINEAR, ridge=0.3)  # fmt: skip
    known = Ridge(0.3).fit(table, rates - rates.mean())
    np.testing.assert_allclose(
        layer.predict(tokens.Summaries().fit_transform(series))[:, 0],
        known.predict(table),
        atol=1e-9,
    )
    model = attention.Attention(False).fit(series[:16], labels[:16])
    assert np.all(model.predict(series[16:]) == labels[16:])
    model = attention.Attention(True).fit(series[:16], 1e3 + rates[:16])
    error = model.predict(series[16:]) - 1e3 - rates[16:]
    assert np.sqrt(np.mean(error**2)) < 0.5 * rates.std()


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
