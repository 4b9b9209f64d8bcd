"""The ridge chosen by the data: the best of a grid, at any scale, and what is refused."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.sequences import MODES
from polyattn.solve.decomposition import DEFAULT_GRID
from polyattn.solve.ridge import RidgePath
from ridge_tasks import (
    RIDGES,
    Task,
    fitted,
    make_task,
)


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_the_best_of_the_grid_is_used(rule, shape):
    task = make_task(shape, "causal")
    result = fitted(task, ridge=rule)
    best = int(np.argmin(result.ridge_path.errors))
    assert result.ridge == result.ridge_path.best == pytest.approx(RIDGES[best])
    fixed = fitted(task, ridge=result.ridge, ridge_grid=None)
    np.testing.assert_allclose(result.coef, fixed.coef, rtol=1e-10)
    assert result.outcome.name == "regularised"


def test_ties_go_to_the_larger_ridge():
    path = RidgePath(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 1.0, 2.0]), "loo")
    assert path.best == 3.0


def test_the_default_grid_follows_the_scale_of_the_data():
    task = make_task("tall", "last")
    paths = []
    for scale in (1.0, 10.0):
        result = pa.fit([scale * x for x in task.X], task.Y, ridge="loo")
        assert len(result.ridge_path.ridges) == len(DEFAULT_GRID)
        paths.append(result.ridge_path)
    np.testing.assert_allclose(paths[1].ridges, 1e6 * paths[0].ridges)
    np.testing.assert_allclose(paths[1].errors, paths[0].errors, rtol=1e-4)


def test_a_grid_is_sorted_and_its_repetitions_dropped():
    task = make_task("tall", "last")
    path = fitted(task, ridge="loo", ridge_grid=[3, 1, 3, 2]).ridge_path
    np.testing.assert_allclose(path.ridges, [1.0, 2.0, 3.0])


def test_noise_asks_for_a_ridge_and_clean_data_do_not():
    rng = np.random.default_rng(0)
    truth = pa.data.random_layer(2, mode="last", random_state=1)
    X = rng.standard_normal((12, 4, 2))
    clean = pa.fit(X, truth(X), ridge="loo")
    assert clean.ridge == clean.ridge_path.ridges[0]
    noisy = pa.fit(X, truth(X) + 30 * rng.standard_normal((12, 2)), ridge="loo")
    assert noisy.ridge > 1e3 * clean.ridge


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_scaled_tokens_choose_the_same_function(scale):
    task = make_task("tall", "last")
    plain = pa.fit(task.X, task.Y, ridge="loo")
    scaled = pa.fit([scale * x for x in task.X], task.Y, ridge="loo")
    assert scaled.ridge / scale**3 / scale**3 == pytest.approx(plain.ridge, rel=1e-9)
    np.testing.assert_allclose(scaled.coef * scale**3, plain.coef, rtol=1e-8)
    np.testing.assert_allclose(scaled.ridge_path.errors, plain.ridge_path.errors, rtol=1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_one_sequence_cannot_be_left_out(mode):
    task = make_task(([3], 2), mode)
    with pytest.raises(ValueError, match=r"ridge='loo'.*at least two"):
        fitted(task, ridge="loo")
    assert fitted(task, ridge="gcv").ridge_path.kind == "gcv"
    task = make_task(([3, 3, 3], 2), mode)
    message = r"ridge='loo'.*two different ones of positive weight\. One long series is cut"
    with pytest.raises(ValueError, match=message):
        pa.fit(task.X, task.Y, mode, "loo", sample_weight=[0.0, 1.0, 0.0])


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", ["tall", "wide"])
def test_zero_targets(rule, mode, shape):
    task = make_task(shape, mode)
    zero = Task(task.X, 0 * task.rows, task.lengths, mode, None, False)
    result = fitted(zero, ridge=rule)
    assert np.all(result.coef == 0)
    assert np.all(result.ridge_path.errors == 0)
    assert result.risk == 0


@pytest.mark.parametrize("rule", ["loo", "gcv"])
@pytest.mark.parametrize("mode", MODES)
def test_zero_tokens(rule, mode):
    # Of different lengths, or nothing is left when one goes with all its copies.
    task = make_task((list(range(2, 12)), 2), mode)
    zero = Task([0 * x for x in task.X], task.rows, task.lengths, mode, None, False)
    for grid in (None, RIDGES):
        result = fitted(zero, ridge=rule, ridge_grid=grid)
        assert np.all(result.coef == 0)
        assert np.all(np.isfinite(result.ridge_path.errors))
        power = float(np.mean(np.sum(task.rows**2, axis=1)))
        np.testing.assert_allclose(result.ridge_path.errors, power)


@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_one_coordinate(rule):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 2, 1)), rng.standard_normal(9)
    result = pa.fit(X, Y, ridge=rule)
    eigenvalue = float(pa.Moments(1).update(X).gram[0, 0])
    np.testing.assert_allclose(result.ridge_path.ridges, DEFAULT_GRID * eigenvalue)
    assert result.coef.shape == (1, 1, 1)
    assert np.all(np.isfinite(result.ridge_path.errors))


@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_a_ridge_that_vanishes_beside_huge_tokens(rule):
    """Tokens of 1e100 have moments of 1e600: a ridge of 1 is zero beside them."""
    task = make_task("tall", "last")
    X = [1e100 * np.column_stack([x, x[:, 0]]) for x in task.X]
    try:
        result = pa.fit(X, 1e100 * task.Y, ridge=rule, ridge_grid=[1.0])
    except ValueError as refusal:
        assert "ridge" in str(refusal)  # noqa: PT017
    else:
        assert np.all(np.isfinite(result.ridge_path.errors))


REFUSED = {
    "negative": (-1.0, None, ValueError, r"ridge.*not negative.*-1"),
    "nan": (float("nan"), None, ValueError, r"ridge.*finite.*nan"),
    "inf": (float("inf"), None, ValueError, r"ridge.*finite.*inf"),
    "beyond float": (10**400, None, ValueError, r"ridge"),
    "text": ("cv", None, TypeError, r"ridge.*'loo'.*'gcv'.*'cv'"),
    "bool": (True, None, TypeError, r"ridge.*True"),
    "none": (None, None, TypeError, r"ridge.*None"),
    "list": ([1.0], None, TypeError, r"ridge.*\[1.0\].*ridge_grid"),
    "grid without rule": (1.0, [1.0], ValueError, r"ridge_grid.*'loo'"),
    "empty grid": ("loo", [], ValueError, r"ridge_grid.*at least one"),
    "zero in grid": ("loo", [0.0, 1.0], ValueError, r"ridge_grid.*positive"),
    "nan in grid": ("loo", [np.nan, 1.0], ValueError, r"ridge_grid.*NaN"),
    "text grid": ("gcv", ["a"], TypeError, r"ridge_grid.*text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    ridge, grid, kind, words = REFUSED[name]
    task = make_task("tall", "last")
    with pytest.raises(kind, match=words):
        fitted(task, ridge=ridge, ridge_grid=grid)


def test_statistics_and_rules():
    task = make_task("tall", "last")
    factor = pa.TriangularFactor(2, 2).update(task.X, task.Y)
    moments = pa.Moments(2, 2).update(task.X, task.Y)
    with pytest.raises(ValueError, match=r"'loo'.*sequences.*'gcv'"):
        pa.fit(statistics=moments, ridge="loo")
    with pytest.raises(ValueError, match=r"'gcv'.*Moments.*TriangularFactor"):
        pa.fit(statistics=factor, ridge="gcv")
