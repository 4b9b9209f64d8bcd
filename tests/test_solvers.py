"""Every solver to the optimum, against exact rational arithmetic and against rival libraries."""

from itertools import product

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

import planted
import polyattn as pa
from planted import EPS
from polyattn.reference import erm, features
from polyattn.sequences import MODES
from solver_tasks import ACCURATE, SOLVERS, exact_task, fit_by

KINDS = (
    "tall", "wide", "square", "flat", "duplicates", "constant", "zero column", "one token",
    "one hot", "ragged",
)  # fmt: skip
RIDGES = (0.0, 1e-6, 1.0)
VARIANTS = ("one output", "weights", "bias")


# Solver x problem ---------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_the_exact_optimum(solver, kind, ridge):
    for mode, variant in product(MODES, VARIANTS):
        task, where = exact_task(kind, mode, ridge, variant), (mode, variant)
        result = fit_by(solver, task)
        error = planted.relative_error(result.coef * task.s, task.coef * task.s)
        assert error < task.tolerance(solver), where
        risk = pytest.approx(task.risk, rel=1e-7, abs=task.risk_rounding(solver))
        assert result.risk == risk, where
        assert result.ridge == ridge, where
        assert (result.rank, result.outcome.name) == said_of(task, solver, ridge), where


def said_of(task, solver, ridge):
    """The rank and the outcome of a fit to an exact task."""
    if ridge > 0:
        return None, "regularised"
    if solver == "iterative":
        return None, "iterative"
    return task.rank, "unique" if task.rank == task.n_features else "minimum_norm"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_tiny_ridge_all_solvers_agree_to_nine_digits(kind, mode):
    """The tolerances of the table above are no excuses: these problems are well-conditioned."""
    for ridge in (0.0, 1.0):
        for variant in VARIANTS:
            task = exact_task(kind, mode, ridge, variant)
            assert task.condition < 2e3
            for solver in (*ACCURATE, "dual", "moments"):
                error = planted.relative_error(fit_by(solver, task).coef, task.coef)
                assert error < 1e-9, (ridge, variant, solver, error)


def test_the_table_tells_a_wrong_answer():
    """Negative control: a perturbation in the eighth digit, or another ridge, is seen."""
    task = exact_task("tall", "last", 1.0, "one output")
    wrong = fit_by("direct", task).coef * (1 + 1e-8)
    assert planted.relative_error(wrong, task.coef) > max(map(task.tolerance, ACCURATE))
    other = exact_task("tall", "last", 0.0, "one output")
    assert planted.relative_error(other.coef, task.coef) > task.tolerance("moments")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tall", "wide", "flat"])
def test_the_exact_oracle_agrees_with_the_reference(kind, mode):
    for ridge in RIDGES:
        task = exact_task(kind, mode, ridge, "weights")
        weights = np.repeat(task.weights, 1 if mode == "last" else [len(x) for x in task.X])
        reference = erm.fit(task.X, task.rows, mode, ridge, weights)
        assert planted.relative_error(reference, task.coef) < task.tolerance("direct")


# Planted problems from their singular values ------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("solver", ["primal", "dual", "direct", "iterative"])
def test_planted_answers(solver, kind, mode, ridge):
    task = planted.problem(kind, mode, ridge=ridge)
    result = pa.fit(task.X, task.Y, mode, ridge, solver=solver)
    # CGLS stops at a gradient reduced by 1e-12, which kappa^2 turns into an error.
    tolerance = max(task.tolerance(squared=True), 1e-11 * task.condition**2)
    assert planted.relative_error(result.coef, task.coef) < tolerance
    assert result.risk == pytest.approx(task.risk, rel=1e-7, abs=1e-20)
    assert ridge > 0 or solver == "iterative" or result.rank == task.rank


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("solver", ["primal", "dual", "direct"])
def test_the_gradient_vanishes(solver, kind, mode, ridge):
    task = planted.problem(kind, mode, ridge=ridge, noise=1.0, seed=3)
    phi, theta, targets = whitened(task, pa.fit(task.X, task.Y, mode, ridge, solver=solver))
    residual = targets - phi @ theta
    gradient = phi.T @ residual - ridge * theta
    norm = np.linalg.norm(phi, 2)
    # Stable least squares leave a gradient of eps ||phi|| (||y|| + ||phi|| ||theta||), a kernel
    # solve eps ||phi||^3 ||alpha||, where alpha is residual / ridge.
    size = norm * (np.linalg.norm(targets) + norm * np.linalg.norm(theta))
    if solver == "dual" and ridge:
        size += norm**3 * np.linalg.norm(residual) / ridge
    assert np.linalg.norm(gradient) < 30 * task.n_features * EPS * size


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("solver", ["primal", "dual", "direct", "iterative"])
def test_without_ridge_the_solution_lies_in_the_row_space(solver, kind, mode):
    task = planted.problem(kind, mode, noise=1.0, seed=3)
    phi, theta, _ = whitened(task, pa.fit(task.X, task.Y, mode, solver=solver))
    outside = theta - np.linalg.pinv(phi, rcond=1e-10) @ (phi @ theta)
    assert np.linalg.norm(outside) < task.tolerance() * np.linalg.norm(theta)


# Rival libraries ----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("kind", ["tall", "wide", "flat", "boolean"])
@pytest.mark.parametrize("solver", ["primal", "dual", "direct", "iterative"])
def test_scikit_learn_ridge(solver, kind, ridge, weighted):
    task = planted.problem(kind, noise=1.0)
    weights = np.random.default_rng(1).uniform(0, 3, len(task.X)) if weighted else None
    s = features.norm_weights(3)
    phi = erm.design(list(task.X), "last") / s
    rival = Ridge(alpha=ridge, fit_intercept=False, solver="svd")
    rival.fit(phi, task.Y, sample_weight=weights)
    found = pa.fit(task.X, task.Y, ridge=ridge, solver=solver, sample_weight=weights)
    assert planted.relative_error(found.coef.reshape(2, -1) * s, rival.coef_) < 1e-9


@pytest.mark.parametrize("ridge", [1e-2, 1.0])
@pytest.mark.parametrize("kind", ["tall", "wide"])
@pytest.mark.parametrize("solver", ["primal", "dual", "direct"])
def test_kernel_ridge(solver, kind, ridge):
    task = planted.problem(kind, noise=1.0)
    fresh = np.random.default_rng(5).standard_normal((7, 6, 3))
    rows, new = ([features.summaries(x, "last")[0] for x in data] for data in (task.X, fresh))
    inner = np.array([[features.kernel(*a, *b) for b in rows] for a in rows])
    across = np.array([[features.kernel(*a, *b) for b in rows] for a in new])
    rival = KernelRidge(alpha=ridge, kernel="precomputed").fit(inner, task.Y)
    found = pa.fit(task.X, task.Y, ridge=ridge, solver=solver)
    assert planted.relative_error(found.predict(fresh), rival.predict(across)) < 1e-9


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tall", "wide", "flat", "single", "one_hot"])
@pytest.mark.parametrize("solver", ["primal", "dual", "direct"])
def test_numpy_lstsq_with_its_minimum_norm(solver, kind, mode):
    task = planted.problem(kind, mode, noise=1.0, seed=2)
    s = features.norm_weights(3)
    phi = erm.design(list(task.X), mode) / s
    rival = np.linalg.lstsq(phi, task.Y.reshape(len(phi), -1), rcond=1e-10)[0]
    found = pa.fit(task.X, task.Y, mode, solver=solver)
    assert planted.relative_error(found.coef.reshape(2, -1) * s, rival.T) < 1e-9


def test_the_norm_is_that_of_the_symmetric_tensor():
    """Among all coefficients of the same loss, ours has the least ||T||_F, not the least ||P||."""
    task = planted.problem("wide")
    coef = pa.fit(task.X, task.Y).coef
    plain = np.linalg.lstsq(erm.design(list(task.X), "last"), task.Y, rcond=None)[0]
    other = plain.T.reshape(coef.shape)
    assert np.linalg.norm(features.unfold(coef)) < np.linalg.norm(features.unfold(other)) - 1e-3
    assert np.linalg.norm(coef) > np.linalg.norm(other)


# Streaming ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [pa.Moments, pa.TriangularFactor])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tall", "wide", "flat", "single"])
def test_streaming_equals_the_batch(make, kind, mode):
    for ridge in (0.0, 0.5):
        task = planted.problem(kind, mode, ridge=ridge)
        cut = len(task.X) // 3
        first = make(3, 2, mode).update(task.X[:cut], task.Y[:cut]) if cut else make(3, 2, mode)
        rest = make(3, 2, mode)
        for x, y in zip(task.X[cut:], task.Y[cut:], strict=True):
            rest.update(x[None], y[None])
        streamed = pa.fit(statistics=first + rest, ridge=ridge)
        whole = pa.fit(task.X, task.Y, mode, ridge)
        assert planted.relative_error(streamed.coef, whole.coef) < 1e-9
        assert streamed.risk == pytest.approx(whole.risk, rel=1e-9, abs=1e-13 * np.mean(task.Y**2))
        assert streamed.outcome.name == whole.outcome.name
        assert streamed.rank == whole.rank


def whitened(task: planted.Problem, result: pa.FitResult):
    """Features and coefficients in the coordinates of the norm, and the targets as rows."""
    s = features.norm_weights(task.X.shape[2])
    phi = erm.design(list(task.X), task.mode) / s
    theta = result.coef.reshape(len(result.coef), -1).T * s[:, None]
    return phi, theta, task.Y.reshape(len(phi), -1)
