"""What outcomes of fits warn of: heads beside a ridge, the edge of a grid, sizes far apart."""

import numpy as np
import pytest

import polyattn as pa


@pytest.mark.parametrize("n_heads", [1, 2, "auto"])
@pytest.mark.parametrize("ridge", [1.0, 1e3, 1e5])
def test_limited_heads_with_a_ridge_state_their_own_risk(ridge, n_heads):
    """The minimiser with a ridge is not the least of the error, and nobody says so."""
    task = pa.data.planted(200, 4, 3, n_heads=2, noise=0.1, mode="last", random_state=0)
    result = pa.fit(task.X, task.Y, ridge=ridge, n_heads=n_heads)
    measured = np.mean(np.sum((task.Y - result.predict(task.X)) ** 2, axis=1))
    assert result.risk == pytest.approx(measured, rel=1e-9)
    assert "no layer can beat" not in str(result.outcome)
    assert "minimiser with this ridge" in str(result.outcome)


@pytest.mark.parametrize("ridge", [1e-6, 1e-3, 1.0, 1e5, 1e15])
def test_limited_heads_are_no_worse_than_zeros(ridge):
    """Coordinates of sizes 1e-5 to 5e6: no search can weigh them beside a ridge, and it says so."""
    rng = np.random.default_rng(7)
    Z = rng.standard_normal((300, 5, 4))
    Y = pa.data.random_layer(4, 1, 1, mode="last", random_state=0)(Z)
    Y = Y + 0.3 * np.std(Y) * rng.standard_normal(Y.shape)
    result = pa.fit(Z * [1e3, 1e-3, 5e6, 1e-5], Y, ridge=ridge, n_heads=1)
    assert result.risk <= (1 + 1e-12) * np.mean(Y**2)
    assert "bring the coordinates to a similar size" in str(result.outcome)
    alike = pa.fit(Z, Y, ridge=1e-3, n_heads=1)
    assert "similar size" not in str(alike.outcome)


def test_the_smallest_ridge_of_a_grid_is_named():
    rng = np.random.default_rng(0)
    Z, noise = rng.standard_normal((200, 5, 3)), rng.standard_normal((200, 1))
    Y = pa.data.random_layer(3, 1, 1, mode="last", random_state=0)(Z) + 5.0 * noise
    inside = pa.fit(Z, Y, ridge="loo", ridge_grid=np.logspace(-3, 6, 10)).outcome
    assert "smallest of them" not in str(inside)
    edge = pa.fit(Z, Y, ridge="loo", ridge_grid=[1e4, 1e5, 1e6]).outcome
    assert "It is the smallest of them: a smaller one, or ridge=0, may be better." in str(edge)
    assert "coordinates differ" not in str(edge)
    grid = np.logspace(10, 22, 13)  # for features of up to 1e9
    units = pa.fit(Z * [1e3, 1.0, 1e-3], Y, ridge="loo", ridge_grid=grid).outcome
    assert "differ in size by a factor of about 1e+06" in str(units)


def test_one_sequence_that_hides_the_others_is_named():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 5, 3)), rng.standard_normal((60, 1))
    X[0] *= 1e6
    outcome = pa.fit(X, Y).outcome
    assert outcome.name == "minimum_norm"
    assert "times larger than most" in outcome.sentence
    assert "do not vary" not in outcome.sentence
    assert pa.certify(X).verdict == "identifiable"
    X[..., 0] = X[..., 1]
    flat = pa.fit(np.delete(X, 0, axis=0), Y[1:]).outcome
    assert "always a multiple of another" in flat.sentence
