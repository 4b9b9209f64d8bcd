"""sample_size: grows as the theorem says, and its promises hold on simulated data."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.form.pairs import n_features

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def test_it_is_the_formula():
    d, e, t = 3, 2, math.log(1 / 0.05)
    k = n_features(d) * e
    expected = math.ceil(0.5**2 * (k + 2 * math.sqrt(k * t) + 2 * t) / 0.01)
    found = pa.sample_size(d, 0.01, confidence=0.95, n_outputs=e, noise=0.5, over="fitted")
    assert found == expected
    assert pa.sample_size(d, 0.01) == pa.sample_size(d, 0.01, 0.99, n_outputs=d, noise=1.0)
    assert pa.sample_size(d, 0.01) == pa.sample_size(d, 0.01, over="fresh", leverage=10.0)
    assert isinstance(pa.sample_size(np.int64(3), np.float64(0.5)), int)


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ({"error": 0.01}, {"error": 0.02}),
        ({"confidence": 0.999}, {"confidence": 0.99}),
        ({"n_outputs": 3}, {"n_outputs": 2}),
        ({"noise": 2.0}, {"noise": 1.0}),
        ({"n_dims": 5}, {"n_dims": 4}),
        ({"bias": True}, {"bias": False}),
    ],
)
@pytest.mark.parametrize("over", ["fresh", "fitted"])
def test_it_is_monotone(more, less, over):
    usual = {"n_dims": 4, "error": 0.01, "over": over}
    assert pa.sample_size(**usual | more) > pa.sample_size(**usual | less)


def test_the_constant_of_bias_counts_as_a_coordinate():
    # The same features and outputs.
    assert pa.sample_size(4, 0.1, n_outputs=2, bias=True) == pa.sample_size(5, 0.1, n_outputs=2)


def test_it_grows_like_the_fourth_power():
    ratio = pa.sample_size(128, 0.1, over="fitted") / pa.sample_size(64, 0.1, over="fitted")
    assert ratio == pytest.approx(16, rel=0.03)
    # For fresh sequences too, once the error is small: p log p is then little beside p d.
    assert pa.sample_size(128, 1e-6) / pa.sample_size(64, 1e-6) == pytest.approx(16, rel=0.03)


def test_noise_is_a_standard_deviation():
    """Twice the noise needs four times the positions."""
    few = pa.sample_size(8, 1e-6, over="fitted")
    assert pa.sample_size(8, 1e-6, noise=2.0, over="fitted") == pytest.approx(4 * few)


def test_the_logarithm_of_delta_only_adds():
    sizes = [pa.sample_size(16, 0.1, confidence=1 - 10.0**-k, over="fitted") for k in (2, 4, 8)]
    assert sizes[2] - sizes[1] < 0.1 * sizes[0]
    sizes = [pa.sample_size(16, 1e-6, confidence=1 - 10.0**-k) for k in (2, 4, 8)]
    assert sizes[2] - sizes[1] < 0.1 * sizes[0]


def test_features_are_needed_even_without_noise():
    assert pa.sample_size(4, 1.0, noise=0.0, over="fitted") == n_features(4)
    assert pa.sample_size(4, 1e9, over="fitted") == n_features(4)


def test_fresh_sequences_need_more_and_little_more_for_small_errors():
    for error, most in ((1.0, 30.0), (0.1, 6.0), (1e-5, 1.2), (1e-8, 1.04)):
        fitted, fresh = (pa.sample_size(4, error, over=each) for each in ("fitted", "fresh"))
        assert fitted < fresh < most * fitted
    few = pa.sample_size(4, 0.1, leverage=2.0)
    assert few < pa.sample_size(4, 0.1, leverage=10.0)


def failures(n_rows, error, noise, n_trials):
    """In how many of the trials the fit was farther from the truth than ``error``."""
    rng = np.random.default_rng(0)
    layer = pa.data.random_layer(2, mode="last", random_state=1)
    X = rng.standard_normal((n_rows, 3, 2))
    truth = layer(X)
    count = 0
    for _ in range(n_trials):
        noisy = truth + noise * rng.standard_normal(truth.shape)
        away = pa.fit(X, noisy).predict(X) - truth
        count += float(np.mean(np.sum(away**2, axis=1))) > error
    return count


def test_the_promise_holds():
    error, confidence, noise, n_trials = 0.05, 0.9, 0.55, 200
    n_rows = pa.sample_size(2, error, confidence, noise=noise, over="fitted")
    # Failures are binomial with at most 20 expected; 40 have a probability below 1e-5.
    assert failures(n_rows, error, noise, n_trials) <= 40


def test_far_fewer_positions_break_it():
    """Negative control: with a third of the positions the error is usually larger."""
    error, confidence, noise = 0.05, 0.9, 0.55
    n_rows = pa.sample_size(2, error, confidence, noise=noise, over="fitted")
    assert failures(n_rows // 3, error, noise, 40) > 20


@pytest.fixture(scope="module")
def normal():
    """Gaussian tokens of four coordinates, with their exact second moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        populations = importlib.import_module("_populations")
    return populations.Population(n_dims=4, n_tokens=6, n_outputs=4)


def missed_on_fresh(population, n_sequences, error, n_trials):
    """In how many of the trials a fit is farther from the truth over the population."""
    rng = np.random.default_rng(2)
    fits = (pa.fit(*population.draw(rng, n_sequences)) for _ in range(n_trials))
    return sum(population.excess(fit.coef) > error for fit in fits)


def test_the_promise_over_fresh_sequences_holds(normal):
    assert missed_on_fresh(normal, pa.sample_size(4, 1.0), 1.0, 10) == 0


def test_the_number_for_fitted_positions_is_too_small_for_fresh_sequences(normal):
    """What the words once promised of it: the error over fresh sequences is mostly missed."""
    n_fitted = pa.sample_size(4, 1.0, over="fitted")
    assert n_fitted == 224
    assert missed_on_fresh(normal, n_fitted, 1.0, 40) > 15


@pytest.mark.parametrize(("leverage", "most", "least"), [(20.0, 20, 0), (1.0, 200, 40)])
def test_rare_features_need_the_leverage_they_have(leverage, most, least):
    """Tokens that are zero but for one in twenty: leverage 20 where they are not."""
    confidence, noise, error, chance, n_trials = 0.9, 1e-3, 1e-2, 0.05, 200
    n_rows = pa.sample_size(1, error, confidence, noise=noise, leverage=leverage)
    rng = np.random.default_rng(0)
    misses = 0
    for _ in range(n_trials):
        seen = rng.binomial(n_rows, chance)
        # y = x^3 + noise: the fitted coefficient is off by noise / sqrt(seen), or not known at all.
        away = 1.0 if seen == 0 else noise**2 / seen * rng.standard_normal() ** 2
        misses += chance * away > error
    assert least <= misses <= most


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_dims": 0}, "n_dims must be an integer of at least 1; got 0"),
        ({"n_dims": 2.0}, "n_dims"),
        ({"n_dims": True}, "n_dims"),
        ({"n_outputs": 0}, "n_outputs must be an integer"),
        ({"error": 0.0}, "error must be a number > 0"),
        ({"error": float("nan")}, "error must be finite"),
        ({"error": 1e-308, "noise": 1e300}, "allow a larger error"),
        ({"confidence": 1.0}, "confidence must lie between 0 and 1"),
        ({"confidence": 0.0}, "confidence"),
        ({"noise": -1.0}, "noise must be a standard deviation >= 0"),
        ({"over": "all"}, "over must be one of 'fresh', 'fitted'; got 'all'"),
        ({"leverage": 0.5}, "leverage is at least 1, the mean; got 0.5"),
        ({"leverage": float("inf")}, "leverage must be finite"),
    ],
)
def test_misuse_is_named(options, message):
    with pytest.raises(InvalidInput, match=message):
        pa.sample_size(**{"n_dims": 2, "error": 0.1} | options)


def test_wrong_types_are_named():
    with pytest.raises(InvalidType, match="error must be a number; got '1'"):
        pa.sample_size(2, "1")
    with pytest.raises(InvalidType, match="bias"):
        pa.sample_size(2, 0.1, bias=1)
