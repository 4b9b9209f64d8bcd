"""What outcomes of fits warn of: heads beside a ridge, the edge of a grid, sizes far apart."""

import numpy as np
import pytest

import polyattn as pa
from exact_least_squares import ExactProblem
from polyattn.errors import InvalidInput, OutOfRange


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


def test_a_sequence_of_the_smallest_integers_is_large():
    """-2^31 of int32 has no magnitude of its own type."""
    X = np.random.default_rng(0).integers(-1, 2, size=(400, 4, 2)).astype(np.int32)
    X[0] = -(2**31)
    assert "times larger than most" in pa.fit(X, np.ones((400, 1))).sentence


def test_one_weight_that_hides_the_others_is_named():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 5, 3)), rng.standard_normal((60, 1))
    outcome = pa.fit(X, Y, sample_weight=np.append(1e300, np.ones(59))).outcome
    assert "largest sample_weight is about 1e+300 times larger than most" in outcome.sentence
    assert "do not vary" not in outcome.sentence


@pytest.mark.parametrize("solver", ["primal", "direct"])
@pytest.mark.parametrize("power", range(1, 7))
def test_the_risk_of_nearly_dependent_features_is_that_of_the_layer(power, solver):
    """Rounded coefficients may miss the error that the factor promises; zeros never lose."""
    rng = np.random.default_rng(power)
    X, Y = rng.standard_normal((150, 3, 2)), rng.standard_normal((150, 1))
    X[..., 1] = X[..., 0] * (1 + 1e-9 * rng.standard_normal((150, 3)))
    X[0] *= 10.0**power
    result = pa.fit(X, Y, bias=True, solver=solver)
    assert result.risk == pytest.approx(np.mean((result.predict(X) - Y) ** 2), rel=1e-4)
    assert result.risk <= np.mean(Y**2) * (1 + 1e-6)
    if "rounding adds" in result.outcome.sentence:
        assert not result.outcome.ok


@pytest.mark.parametrize("unit", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("n_tokens", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_the_smallest_norm_is_that_in_true_coordinates(bias, n_tokens, unit):
    """A coordinate twice, once in other units: rounding in the small one must not be magnified."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, n_tokens, 2)), rng.standard_normal((200, 1))
    X[..., 1] = unit * X[..., 0]
    by_factor, by_structure = (
        pa.fit(X, Y, bias=bias, solver=solver) for solver in ("direct", "primal")
    )
    norms = [np.linalg.norm(each.layout.as_theta(each.coef)) for each in (by_factor, by_structure)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-9)
    assert by_factor.risk == pytest.approx(by_structure.risk, rel=1e-12)


def test_statistics_are_not_contradicted():
    rng = np.random.default_rng(0)
    moments = pa.Moments(2, 1).update(rng.standard_normal((20, 3, 2)), rng.standard_normal((20, 1)))
    assert pa.fit(statistics=moments, mode="last").mode == "last"
    for given in ({"mode": "causal"}, {"bias": True}):
        with pytest.raises(InvalidInput, match="was given beside a form"):
            pa.fit(statistics=moments, **given)


@pytest.mark.parametrize("solver", ["auto", "dual", "direct"])
def test_features_whose_squares_vanish_are_refused(solver):
    """Queries of 1e-200 beside their context: rank 0 would be a wrong answer."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((10, 4, 3)), rng.standard_normal(10)
    X[:, -1] *= 1e-200
    with pytest.raises(OutOfRange, match="squares of all features vanish"):
        pa.fit(X, Y, solver=solver)
    assert pa.fit(np.zeros((5, 4, 3)), Y[:5], solver=solver).rank == 0


@pytest.mark.parametrize("solver", ["auto", "direct", "dual", "primal"])
@pytest.mark.parametrize("ridge", [1e-6, 1e-12])
def test_a_ridge_that_leaves_coefficients_to_rounding_is_named(solver, ridge):
    """Repeated sequences of unlike targets: errors that remain, over a ridge near rounding."""
    rng = np.random.default_rng(0)
    X, Y = np.tile(rng.standard_normal((5, 4, 4)), (2, 1, 1)), rng.standard_normal((10, 1))
    found = pa.fit(X, Y, ridge=ridge, solver=solver)
    # The same objective but for a constant, without a repetition.
    weights = np.full(5, 2.0)
    truth = pa.fit(X[:5], (Y[:5] + Y[5:]) / 2, ridge=ridge, sample_weight=weights)
    error = np.linalg.norm(found.coef - truth.coef) / np.linalg.norm(truth.coef)
    assert truth.outcome.ok
    assert found.outcome.ok == (error < 1e-4) == (ridge > 1e-9)
    assert ("uncertain" in str(found.outcome)) == (ridge < 1e-9)


KINDS = ("rank", "equal", "repeated", "signs", "few", "plain")


def nearly_dependent(kind, rng, noise):
    """Tokens (N, 5, 3) whose features depend on each other, but for noise; or do not."""
    X = rng.standard_normal((12 if kind == "few" else 60, 5, 3))
    if kind == "rank":
        X = X[..., :2] @ rng.standard_normal((2, 3))
    elif kind == "equal":
        X[..., 2] = X[..., 1]
    elif kind == "repeated":
        X = np.repeat(X[:9], 7, axis=0)
    elif kind == "signs":
        X = np.sign(X)
    return X + noise * rng.standard_normal(X.shape)


@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-14])
@pytest.mark.parametrize("kind", KINDS)
def test_an_iteration_names_what_a_small_ridge_leaves_open(kind, noise):
    """The truth is computed in rational numbers: what is called found is near it."""
    rng = np.random.default_rng(0)
    X = nearly_dependent(kind, rng, noise)
    Y, doubts = rng.standard_normal((len(X), 1)), []
    for ridge in (1e-4, 1e-9, 1e-12, 1e-14):
        truth = ExactProblem.of(list(X), Y, "last", ridge).coefficients()
        found = pa.fit(X, Y, ridge=ridge, solver="iterative")
        error = np.linalg.norm(found.coef - truth) / np.linalg.norm(truth)
        doubts.append(not found.outcome.ok)
        assert error < 2e-2 or "ridge is so small" in found.outcome.sentence
        assert found.outcome.sentence.count("ridge is so small") == doubts[-1]
    assert not doubts[0]
    if kind in ("few", "plain"):
        assert not any(doubts)
    elif noise:
        assert doubts[-1]


@pytest.mark.parametrize(
    "weights", [[1e150, 1e-200, 1.0], [1.0, 1e-200, 1.0], [1e300, 1e-300, 1.0], [1e40, 1e-40, 1.0]]
)
def test_weights_hide_no_row_that_can_be_met(weights):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 3, 2)), rng.standard_normal((3, 1))
    exact = ExactProblem.of(list(X), Y, "last", 0.0, weights=np.array(weights))
    for solver in ("auto", "direct", "dual"):
        found = pa.fit(X, Y, sample_weight=weights, solver=solver)
        assert found.rank == exact.rank == 3
        np.testing.assert_allclose(found.coef, exact.coefficients(), rtol=1e-12, atol=1e-13)
        assert found.risk < 1e-28


@pytest.mark.parametrize("solver", ["direct", "primal", "iterative"])
def test_weights_beyond_all_ratios_are_named(solver):
    """Equal rows depend on each other, and a ratio of weights overflows."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, 3, 2)), rng.standard_normal((5, 1))
    X[4] = X[3]
    found = pa.fit(X, Y, sample_weight=[1e300, 1e-200, 1e-200, 1e-200, 1e-200], solver=solver)
    assert "largest sample_weight is about 1e+500 times larger than most" in found.outcome.sentence
    assert not found.outcome.ok
    even = pa.fit(X, Y, solver=solver)
    assert "sample_weight" not in even.outcome.sentence
