"""Lorenz's system: what its series must have, whatever the seed."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.data.chaos import LORENZ_EXPONENT
from polyattn.errors import InvalidInput


def test_a_series_is_on_the_attractor_and_follows_the_equations():
    X = pa.data.lorenz(400, dt=0.01, random_state=1)
    assert np.abs(X[:, :2]).max() < 30
    assert 0 < X[:, 2].min() < X[:, 2].max() < 50
    x, y, z = X[1:-1].T
    slopes = np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=1)
    central = (X[2:] - X[:-2]) / 0.02
    np.testing.assert_allclose(central, slopes, atol=0.03 * np.abs(slopes).max())


def test_tokens_of_twice_the_distance_are_every_second():
    one, two = pa.data.lorenz(21, 0.02), pa.data.lorenz(11, 0.04)
    np.testing.assert_allclose(one[::2], two, rtol=1e-6)
    assert not np.allclose(pa.data.lorenz(5, random_state=1), pa.data.lorenz(5, random_state=2))
    np.testing.assert_array_equal(pa.data.lorenz(5), pa.data.lorenz(5))


def test_a_forecast_finds_the_exponent_and_knows_how_long_it_is_right():
    X = pa.data.lorenz(1200, random_state=3)
    known, truth = X[:900], X[900:]
    form = pa.Form(mode="causal", lags=3, window=3, bias=True)
    Z = (known - known.mean(axis=0)) / known.std(axis=0)
    result = pa.fit(Z[None, :-1], np.diff(Z, axis=0)[None], form=form, ridge=1e-5)
    ahead = pa.forecast(result, Z, 300, increments=True)
    assert 0.5 * LORENZ_EXPONENT < ahead.exponents[0] / 0.025 < 2.0 * LORENZ_EXPONENT
    errors = (ahead.values * known.std(axis=0) + known.mean(axis=0) - truth) / known.std(axis=0)
    wrong = np.sqrt(np.mean(errors**2, axis=1))
    valid = int(np.argmax(wrong > 0.4)) if np.any(wrong > 0.4) else 300
    assert valid > 150
    # Expected errors are those that come, within a factor of ten, as long as they are small.
    ratios = ahead.expected_error[0, 20:150] / wrong[20:150]
    assert np.all(np.abs(np.log10(ratios)) < 1.0)


def test_misuse_is_named():
    for arguments, word in (((0,), "n_tokens"), ((5, 0.0), "dt"), ((5, -1.0), "dt")):
        with pytest.raises(InvalidInput, match=word):
            pa.data.lorenz(*arguments)
