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
QUICK, THOROUGH = "attention recipe", "with decay and log-loss"
BY_DEFAULT = ["default estimator", "default aeon adapter"]


@pytest.fixture(scope="module")
def parts():
    """The modules that need neither aeon nor sktime, by name."""
    names = ("tokens", "attention", "tables")
    before = {name: sys.modules.pop(name, None) for name in names}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)
            if before[name] is not None:
                sys.modules[name] = before[name]


@pytest.fixture(scope="module")
def rows():
    return json.loads((FOLDER / "results.json").read_text())["rows"]


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "real_data.md").read_text()


class TestPage:
    def test_the_tables_are_those_of_the_results(self, parts, rows, page):
        tables = parts["tables"]
        made = tables.tables(tables.Results(rows))
        assert tables.with_tables(page, made) == page
        assert all(table in page for table in made.values())

    @pytest.mark.parametrize("field", ["score", "fit_seconds", "predict_seconds"])
    def test_other_results_would_make_another_page(self, parts, rows, page, field):
        tables, others = parts["tables"], copy.deepcopy(rows)
        for row in others:
            row[field] *= 0.5
        assert tables.with_tables(page, tables.tables(tables.Results(others))) != page

    def test_a_page_without_the_place_of_a_table_is_refused(self, parts, page):
        with pytest.raises(ValueError, match="ranks"):
            parts["tables"].with_tables(page.replace("<!-- ranks -->", ""), {"ranks": "| |"})

    def test_the_results_are_whole(self, rows):
        splits = {}
        for row in rows:
            splits.setdefault((row["data"], row["method"]), []).append(row["split"])
        assert all(each == list(range(5)) for each in splits.values())
        methods = [QUICK, THOROUGH, *BY_DEFAULT, "ridge on summaries", "1NN-DTW", "MiniRocket"]
        whole = {data for data, _ in splits if all((data, m) in splits for m in methods)}
        assert len(whole) >= 10
        assert {"JapaneseVowels", "BasicMotions"} <= whole
        assert {data for data, _ in splits} - whole <= {"PLAID"}

    def test_the_recipe_is_never_worse_than_ridge_on_summaries(self, parts, rows):
        """By no more than one standard error of the difference over splits; the page says so."""
        tables = parts["tables"]
        results = tables.Results(rows)
        for name in results.sets:
            difference = results.losses(name, QUICK) - results.losses(name, "ridge on summaries")
            assert difference.mean() <= tables.standard_error(difference), name

    def test_ties_share_their_ranks(self, parts):
        scores = {"a": 0.9, "b": 0.8, "c": 0.8, "d": 0.1}
        rows = [
            {"data": "one", "split": split, "method": method, "measure": "accuracy"}
            | {"score": score, "fit_seconds": 2.0 if method == "a" else 0.1, "predict_seconds": 0}
            for split in range(2)
            for method, score in scores.items()
        ]
        tables = parts["tables"]
        results = tables.Results(rows)
        ranks = tables.mean_ranks(results, results.methods)
        assert ranks == ({"a": 1, "b": 2.5, "c": 2.5, "d": 4}, 1)
        assert tables.mean_ranks(results, results.quick()) == ({"b": 1.5, "c": 1.5, "d": 3}, 1)


def some_series(n=24, n_channels=2, seed=0, lengths=(20, 41)):
    """Waves of two frequencies in noise, of unequal lengths, with their labels and frequencies."""
    rng = np.random.default_rng(seed)
    labels = np.tile(["fast", "slow"], n // 2)
    rates = np.where(labels == "fast", 1.5, 0.4)
    series = []
    for rate in rates:
        length = rng.integers(*lengths)
        phases = rate * np.arange(length) + rng.uniform(0, 6.3, (n_channels, 1))
        series.append(np.cos(phases) + 0.2 * rng.standard_normal((n_channels, length)))
    return series, labels, rates


class TestTokens:
    @pytest.fixture
    def full_view(self, parts):
        return parts["tokens"].View("together", n_waves=3, lags=2, normed=True, n_signs=24)

    def test_parts_stand_side_by_side(self, parts, full_view):
        series, _, _ = some_series()
        found = parts["tokens"].Tokens(full_view).fit_transform(series)
        assert [len(one) for one in found] == [one.shape[1] for one in series]
        assert {one.shape[1] for one in found} == {1 + 3 + 2 * 2 + 24}
        tokens = np.concatenate(found)
        assert np.all(tokens[:, 0] == 1)
        assert np.all(np.abs(tokens[:, 8:]) == 1)
        shares = np.mean(tokens[:, 8:] > 0, axis=0)  # thresholds are quantiles 0.1 to 0.9
        assert 0.05 < shares.min() < 0.2
        assert 0.8 < shares.max() < 0.95

    def test_a_series_is_seen_alike_alone_and_among_others(self, parts, full_view):
        series, _, _ = some_series()
        maker = parts["tokens"].Tokens(full_view)
        maker.fit_transform(series[:12])
        among = maker.transform(series[12:])
        for one, tokens in zip(series[12:], among, strict=True):
            np.testing.assert_array_equal(maker.transform([one])[0], tokens)

    def test_units_of_channels_do_not_matter(self, parts, full_view):
        series, _, _ = some_series()
        units = np.array([[1e6], [1e-7]])
        plain, scaled = (
            parts["tokens"].Tokens(full_view).fit_transform(each)
            for each in (series, [units * one + units for one in series])
        )
        np.testing.assert_allclose(np.concatenate(scaled), np.concatenate(plain), atol=1e-6)

    def test_half_of_the_signs_do_not_see_the_level(self, parts):
        view = parts["tokens"].View("together", n_signs=24)
        series, _, _ = some_series(n_channels=1)
        maker = parts["tokens"].Tokens(view)
        maker.fit_transform(series)
        low = np.concatenate(maker.transform(series))
        high = np.concatenate(maker.transform([one + 100.0 for one in series]))
        n_each = 24 // len(maker.steps)
        blind = np.arange(low.shape[1] - 1) % n_each % 2 == 0
        np.testing.assert_array_equal(low[:, 1:][:, blind], high[:, 1:][:, blind])
        assert np.mean(np.ptp(high[:, 1:][:, ~blind], axis=0) == 0) > 0.7  # far above, or below

    def test_pieces_go_on_with_the_end_values(self, parts):
        one = np.arange(5.0)[None]
        found = parts["tokens"]._pieces(one, np.array([0, 4]), np.array([1, 2]))
        np.testing.assert_array_equal(found[0, 0], [0, 0, 0, 0, 0, 1, 2, 3, 4])
        np.testing.assert_array_equal(found[1, 1], [0, 0, 0, 2, 4, 4, 4, 4, 4])

    @pytest.mark.parametrize("scaled", ["together", "each"])
    def test_degenerate_series(self, parts, scaled):
        view = parts["tokens"].View(scaled, n_waves=16, lags=6, n_signs=12)
        series = [np.full((1, 1), 7.0), np.full((1, 30), 1e8 / 3), np.arange(3.0)[None]]
        found = parts["tokens"].Tokens(view).fit_transform(series)
        assert [len(one) for one in found] == [1, 30, 3]
        assert all(np.isfinite(one).all() for one in found)
        assert max(np.abs(one).max() for one in found) < 10

    def test_long_series_are_seen_at_some_moments(self, parts):
        view = parts["tokens"].View("each", lags=1)
        (found,) = parts["tokens"].Tokens(view).fit_transform([np.arange(1000.0)[None]])
        assert len(found) == parts["tokens"].MOST_TOKENS
        assert found[0, 1] == -found[-1, 1] < 0  # both ends are seen


class TestAttention:
    def test_summaries_are_a_layer(self, parts):
        """The linear form of one token is ridge regression on standardised summaries."""
        series, _, rates = some_series()
        attention, tokens = parts["attention"], parts["tokens"]
        X = tokens.Summaries().fit_transform(series)
        y = rates - rates.mean()
        layer = pa.fit(X, y, form=attention.LINEAR, ridge=0.3)
        table = StandardScaler().fit_transform(tokens.summaries(series))
        known = Ridge(0.3).fit(table, y)  # columns of mean zero: the constant is zero
        np.testing.assert_allclose(layer.predict(X)[:, 0], known.predict(table), atol=1e-9)

    @pytest.mark.parametrize(
        "method", ["Attention", pytest.param("SlowAttention", marks=pytest.mark.slow)]
    )
    def test_classes(self, parts, method):
        series, labels, _ = some_series(n_channels=1)
        model = getattr(parts["attention"], method)(False).fit(series[:16], labels[:16])
        assert np.all(model.predict(series[16:]) == labels[16:])
        assert "view" in model.chosen
        if method == "SlowAttention":
            chances = model.predict_proba(series[16:])
            np.testing.assert_allclose(chances.sum(axis=1), 1.0)
            assert model.chosen["ridge"] in parts["attention"].RIDGES

    @pytest.mark.parametrize(
        "method", ["Attention", pytest.param("SlowAttention", marks=pytest.mark.slow)]
    )
    def test_numbers(self, parts, method):
        series, _, rates = some_series()
        model = getattr(parts["attention"], method)(True).fit(series[:16], 1e3 + rates[:16])
        error = model.predict(series[16:]) - 1e3 - rates[16:]
        assert np.sqrt(np.mean(error**2)) < 0.5 * rates.std()

    @pytest.mark.parametrize("doubt", [1.0, 1.3])
    def test_the_least_error_is_chosen_or_summaries(self, parts, doubt, monkeypatch):
        """Levels tell the labels: some view is better than summaries by chance, but not by much."""
        attention = parts["attention"]
        monkeypatch.setattr(attention, "DOUBT", doubt)
        labels = np.tile(["high", "low"], 20)
        rng = np.random.default_rng(7)
        series = [rng.standard_normal((1, 20)) + 0.5 * (label == "high") for label in labels]
        model = attention.Attention(False).fit(series, labels)
        errors = {
            name: model._estimator(form).fit(tokens.fit_transform(series), labels)
            .result_.ridge_path.errors.min()
            for name, tokens, form in attention.candidates(series)
        }  # fmt: skip
        best = min(errors, key=errors.get)
        assert errors[best] < errors["summaries"] < 1.3 * errors[best]
        assert model.chosen["view"].startswith(best if doubt == 1.0 else "summaries")

    def test_many_signs_weigh_as_few_or_more(self, parts):
        attention, tokens = parts["attention"], parts["tokens"]
        few = tokens.Tokens(tokens.View("each", n_waves=16, lags=1, n_signs=36))
        light, alone = (each.view for each in attention.with_many_signs(few).values())
        assert light.n_signs * light.sign_size**2 == pytest.approx(36)
        assert (light.n_waves, light.lags, light.scaled) == (16, 1, "each")
        assert (alone.n_signs, alone.sign_size, alone.scaled) == (120, 1.0, "each")
        assert attention.with_many_signs(tokens.Summaries()) == {}

    def test_series_that_are_standardised_are_not_scaled_twice(self, parts):
        series, _, _ = some_series(n_channels=1)
        each = [(one - one.mean()) / one.std() for one in series]
        attention = parts["attention"]
        assert sum("each" in name for name, _, _ in attention.candidates(series)) == 3
        assert not any("each" in name for name, _, _ in attention.candidates(each))


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason="`make real-data` has made no environment yet")
def test_the_comparison_runs(tmp_path):
    out = tmp_path / "rows.json"
    sets = ["--only", "CardanoSentiment", "--only", "UnitTest"]
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "compare.py", *sets, "--splits", "2", "--out", out],
        cwd=FOLDER, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    known = json.loads((FOLDER / "results.json").read_text())["rows"]
    scores = {(row["data"], row["split"], row["method"]): row["score"] for row in known}
    assert len(rows) == 2 * 2 * 7
    for row in rows:
        expected = scores[row["data"], row["split"], row["method"]]
        # A twentieth of UnitTest is one series, which rounding may move.
        assert row["score"] == pytest.approx(expected, abs=0.06), row
