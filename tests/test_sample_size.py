"""sample_size: grows as the theorem says, and its promise holds on simulated noise."""

import math

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.form.pairs import n_features


def test_it_is_the_formula():
    d, e, t = 3, 2, math.log(1 / 0.05)
    k = n_features(d) * e
    expected = math.ceil(0.5**2 * (k + 2 * math.sqrt(k * t) + 2 * t) / 0.01)
    assert pa.sample_size(d, 0.01, confidence=0.95, n_outputs=e, noise=0.5) == expected
    assert pa.sample_size(d, 0.01) == pa.sample_size(d, 0.01, 0.99, n_outputs=d, noise=1.0)
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
def test_it_is_monotone(more, less):
    usual = {"n_dims": 4, "error": 0.01}
    assert pa.sample_size(**usual | more) > pa.sample_size(**usual | less)


def test_the_constant_of_bias_counts_as_a_coordinate():
    # The same features and outputs.
    assert pa.sample_size(4, 0.1, n_outputs=2, bias=True) == pa.sample_size(5, 0.1, n_outputs=2)


def test_it_grows_like_the_fourth_power():
    ratio = pa.sample_size(128, 0.1) / pa.sample_size(64, 0.1)
    assert ratio == pytest.approx(16, rel=0.03)


def test_noise_is_a_standard_deviation():
    """Twice the noise needs four times the positions."""
    assert pa.sample_size(8, 1e-6, noise=2.0) == pytest.approx(4 * pa.sample_size(8, 1e-6))


def test_the_logarithm_of_delta_only_adds():
    sizes = [pa.sample_size(16, 0.1, confidence=1 - 10.0**-k) for k in (2, 4, 8)]
    assert sizes[2] - sizes[1] < 0.1 * sizes[0]


def test_features_are_needed_even_without_noise():
    assert pa.sample_size(4, 1.0, noise=0.0) == n_features(4)
    assert pa.sample_size(4, 1e9) == n_features(4)


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
    n_rows = pa.sample_size(2, error, confidence, noise=noise)
    # Failures are binomial with at most 20 expected; 40 have a probability below 1e-5.
    assert failures(n_rows, error, noise, n_trials) <= 40


def test_far_fewer_positions_break_it():
    """Negative control: with a third of the positions the error is usually larger."""
    error, confidence, noise = 0.05, 0.9, 0.55
    n_rows = pa.sample_size(2, error, confidence, noise=noise)
    assert failures(n_rows // 3, error, noise, 40) > 20


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
