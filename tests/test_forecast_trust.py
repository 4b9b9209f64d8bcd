"""What a forecast says of itself, held against what comes."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.fitting.forecasting.error_trend import error_trend

HOLDING = pa.Form(mode="causal", window=1, skip=True)


def growing(seed, n_tokens=500):
    """A series that grows by a hundredth a step, with errors of a twentieth of it."""
    noise = np.random.default_rng(seed).standard_normal(n_tokens)
    return np.exp(0.01 * np.arange(n_tokens)) * (1.0 + 0.05 * noise)


def waves_and_noise(n_tokens=400):
    """Five sines, and a coordinate that nothing can predict."""
    t = np.arange(n_tokens)
    sines = [np.sin((0.1 + 0.05 * k) * t) for k in range(5)]
    return np.column_stack([*sines, np.random.default_rng(0).standard_normal(n_tokens)])


# ---------------------------------------------------------------- errors that grow


@pytest.mark.parametrize("seed", [0, 4])
def test_errors_that_grow_along_the_series_are_extrapolated_and_doubted(seed):
    x = growing(seed)[:, None]
    ahead = pa.forecast(x[:400], 60)
    errors = (ahead.values - x[400:460]) / x[:400].std()
    actual = float(np.sqrt(np.mean(errors**2)))
    assert 0.9 * actual < ahead.expected_error.max() < 2.0 * actual
    assert not ahead.outcome.ok
    assert "grow along the sequences" in ahead.sentence
    assert "forecast logarithms" in ahead.sentence


def test_logarithms_of_the_same_series_are_not_doubted():
    """Negative control, and the advice that is given."""
    ahead = pa.forecast(np.log(growing(0))[:400, None], 60)
    assert ahead.outcome.ok
    assert not ahead.doubt
    assert "an estimate and no bound" in ahead.sentence
    assert "at most" not in ahead.sentence


@pytest.mark.parametrize("factor", [1e-150, 1.0, 1e150])
def test_the_trend_is_seen_in_the_coordinate_that_has_it(factor):
    rng = np.random.default_rng(1)
    errors = rng.standard_normal((400, 3)) * [1.0, 2.0, 0.0]
    errors[:, 1] *= 1.0 + 3.0 * np.arange(400) / 400
    trend = error_trend([factor * errors], factor * np.ones(3))
    assert trend.grows.tolist() == [False, True, False]
    assert "of coordinate 1 over one step" in trend.sentence
    levels = trend.levels(100)
    # Root mean squares at the end are 4, and 4.75 after 100 steps, times 2; overall 2 * 2.65.
    np.testing.assert_allclose(levels[[0, -1], 1], [4.0 / 2.65, 4.75 / 2.65], rtol=0.1)
    assert np.all(levels[:, 2] == 1.0)
    assert np.ptp(levels[:, 0]) == 0.0
    # In the opposite order they fade: nothing is doubted, and nothing made smaller.
    back = error_trend([factor * errors[::-1]], factor * np.ones(3))
    assert not back.sentence
    assert np.all(back.levels(100) >= 1.0)


def test_errors_that_stay_the_same_are_hardly_ever_said_to_grow():
    rng = np.random.default_rng(2)
    for n_errors in (1, 2, 7, 40, 300):
        found = [
            error_trend([rng.standard_t(4, (n_errors, 2))], np.ones(2)).grows.any()
            for _ in range(60)
        ]
        assert np.mean(found) < 0.05
    # Nor does one burst, wherever it is.
    for start in range(0, 300, 20):
        burst = rng.standard_normal((300, 1))
        burst[start : start + 20] *= 20.0
        assert not error_trend([burst], np.ones(1)).grows.any()
    many = [rng.standard_normal((4, 1)) for _ in range(50)]
    assert not error_trend(many, np.ones(1)).grows.any()
    # Many short sequences show it, too.
    assert error_trend([each * [[1], [1], [3], [3]] for each in many], np.ones(1)).grows.all()


# ---------------------------------------------------------------- one coordinate among others


def test_the_worst_coordinate_counts_and_is_named():
    X = waves_and_noise()
    ahead = pa.forecast(X[:350], 40)
    assert ahead.coordinate_errors.shape == (1, 40, 6)
    np.testing.assert_array_equal(ahead.expected_error, ahead.coordinate_errors.max(axis=2))
    assert ahead.expected_error.min() > 0.5
    assert np.mean(ahead.expected_error) > 0.8
    assert ahead.one_step_error > 0.7
    assert ahead.valid_steps.tolist() == [0]
    assert ahead.outcome.name == "beyond_tolerance"
    assert "errors of coordinate 5 add up to 0.4 at the first step" in ahead.sentence
    assert "forecast.coordinate_errors" in ahead.outcome.next_step
    # Negative control: the same without that coordinate.
    others = pa.forecast(X[:350, :5], 40)
    assert others.outcome.ok
    assert others.valid_steps.tolist() == [40]
    assert np.abs(others.values - X[350:390, :5]).max() < 0.1


def test_errors_of_each_coordinate_are_its_own():
    """Two walks that do not know of each other, one with errors three times as large."""
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(np.zeros((2, 2)), np.zeros((2, 2)), form=HOLDING, skip=np.eye(2))
    X = np.cumsum(rng.standard_normal((3000, 2)), axis=0)
    spread, steps = X.std(axis=0), np.arange(1, 31)
    found = pa.forecast(layer, X, 30).coordinate_errors[0] * spread
    assert np.all(np.abs(np.log(found / np.sqrt(steps)[:, None])) < 0.5)
    both = np.stack([X[:, 0], X[:, 0] + 0.5 * spread[0] * rng.standard_normal(3000)], axis=1)
    worse = pa.forecast(layer, both, 5)
    assert np.all(worse.coordinate_errors[0].argmax(axis=1) == 1)
    assert "of coordinate 1" in worse.sentence


def test_files_keep_the_errors_of_each_coordinate(tmp_path):
    ahead = pa.forecast(waves_and_noise(60)[:, :2], 4)
    pa.save(ahead, tmp_path / "ahead")
    again = pa.load(tmp_path / "ahead")
    np.testing.assert_array_equal(again.coordinate_errors, ahead.coordinate_errors)
    assert again.sentence == ahead.sentence


# ---------------------------------------------------------------- words, and one column


def test_a_factor_that_is_shown_as_one_is_no_growth():
    X = np.cumsum(np.random.default_rng(0).standard_normal((300, 1)), axis=0)
    for factor, words in (
        (1.0004, "neither grow nor fade"), (0.9996, "neither grow nor fade"),
        (1.01, "grow by a factor of 1.01"), (0.99, "fade by a factor of 1.01"),
    ):  # fmt: skip
        layer = pa.LinearAttention([[0.0]], [[0.0]], form=HOLDING, skip=[[factor]])
        assert f"Errors {words}" in pa.forecast(layer, X, 8).sentence


def test_a_column_of_numbers_is_a_series_of_one_coordinate():
    pandas = pytest.importorskip("pandas")
    x = np.sin(np.arange(60) / 5)
    wanted = pa.forecast(x[:, None], 5)
    column = pandas.Series(x, index=pandas.date_range("2024-01-01", periods=60), name="wave")
    for given in (x, column, column.to_frame(), x.tolist()):
        ahead = pa.forecast(given, 5)
        np.testing.assert_array_equal(ahead.values, wanted.values)
        assert ahead.values.shape == (5, 1)
    whole = pa.forecast(np.arange(20), 2)
    np.testing.assert_allclose(whole.values[:, 0], [20.0, 21.0], atol=0.1)
    layer = pa.LinearAttention([[0.0]], [[0.0]], form=HOLDING, skip=[[1.0]])
    np.testing.assert_array_equal(pa.forecast(layer, column, 2).values, [[x[-1]], [x[-1]]])


def test_columns_of_something_else_are_refused_in_words():
    pandas = pytest.importorskip("pandas")
    for given, words in (
        (pandas.Series([1.0, np.nan, 2.0, 3.0]), "token 1, coordinate 0, which is NaN"),
        (pandas.Series(["a", "b", "c", "d"]), "the first argument must hold real numbers"),
        (np.array([]), "each needs at least one"),
        (np.array(3.0), r"got shape \(\)"),
    ):
        with pytest.raises((InvalidInput, InvalidType), match=words):
            pa.forecast(given, 2)
    # An array of arrays is as many sequences.
    ragged = np.array([np.ones((9, 1)), np.zeros((7, 1))], dtype=object)
    assert pa.forecast(ragged, 2).values.shape == (2, 2, 1)
