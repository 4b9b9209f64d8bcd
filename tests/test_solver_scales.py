"""Every solver to the optimum where sizes differ by many orders, or features nearly depend."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import hadamard

import planted
import polyattn as pa
from exact_least_squares import ExactProblem, nearest, numbers
from planted import EPS
from polyattn.features import products
from polyattn.form.pairs import n_features
from polyattn.reference import erm
from polyattn.sequences import MODES
from polyattn.solve import direct, dual, planning, primal, solving
from solver_tasks import ACCURATE, exact_task, fit_by


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", ["primal", "direct", "factor", "moments"])
def test_coordinates_of_different_scale_keep_their_accuracy(solver, mode, ridge):
    """Tokens (1, 1e5): features from 1 to 1e15, but after equilibration nothing is wrong."""
    task = exact_task("units", mode, ridge, "one output")
    found = fit_by(solver, task).coef
    # Each coefficient in units of its own column.
    assert planted.relative_error(found * task.columns, task.coef * task.columns) < 1e-9


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("solver", ["dual", "direct", "primal", "auto"])
def test_few_rows_with_coordinates_of_different_scale(solver, ridge):
    """The kernel squares what is already 1e15: a solver that cannot must not pretend it can."""
    task = exact_task("wide units", "last", ridge, "one output")
    result = fit_by(solver, task)
    rows = result.predict(task.X)
    assert planted.relative_error(rows, task.predicted) < 1e-6
    assert result.risk == pytest.approx(task.risk, abs=1e-9 * float(np.mean(task.rows**2)))


@pytest.mark.parametrize("bits", [4, 6, 8, 10])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("solver", ["primal", "direct", "factor", "auto"])
def test_ill_conditioned_features_are_solved_to_kappa_eps(solver, mode, bits):
    """Tokens almost on a line: kappa(features) from 1e4 to 1e10, the Gram has its square."""
    task = exact_task(f"nearly flat {bits}", mode, 0.0, "one output")
    result = fit_by(solver, task)
    assert planted.relative_error(result.coef * task.s, task.coef * task.s) < task.tolerance(solver)
    assert (result.rank, result.outcome.name) == (task.n_features, "unique")
    assert task.condition / 100 < result.condition < task.condition * 100


@pytest.mark.parametrize("bits", [6, 10, 14])
def test_a_kernel_is_refined_to_kappa_eps(bits):
    """Two sequences almost the same: the kernel alone would leave an error of kappa^2 eps."""
    task = exact_task(f"nearly alike {bits}", "last", 0.0, "one output")
    result = fit_by("dual", task)
    assert 2**bits < task.condition < 2 ** (bits + 9)
    # Rows are brought to one size, which may lower the condition number.
    assert result.condition < 10 * task.condition
    error = planted.relative_error(result.coef * task.s, task.coef * task.s)
    assert error < task.tolerance("direct")
    assert result.risk < (10 * EPS * task.condition) ** 2 * float(np.mean(task.rows**2))


@pytest.mark.parametrize("ridge", [0.0, "loo", 1.0])
@pytest.mark.parametrize("scale", [1e-11, 1e-6, 1e-3, 1e5])
def test_the_dual_does_not_depend_on_the_size_of_tokens(scale, ridge):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 5, 12)), rng.standard_normal((40, 2))
    fresh = rng.standard_normal((9, 5, 12))
    scaled_ridge = ridge if isinstance(ridge, str) else ridge * scale**6
    expected = pa.fit(X, Y, ridge=ridge, solver="direct")
    found = pa.fit(scale * X, Y, ridge=scaled_ridge, solver="dual")
    error = planted.relative_error(found.predict(scale * fresh), expected.predict(fresh))
    assert error < 1e-12
    assert found.risk == pytest.approx(expected.risk, rel=1e-9, abs=1e-28)


@pytest.mark.parametrize("weights", ["tiny", "huge", "of all sizes"])
def test_the_dual_does_not_depend_on_the_size_of_weights(weights):
    """Independent rows are met exactly, whatever they weigh."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 5, 12)), rng.standard_normal((40, 2))
    sizes = {"tiny": 1e-40, "huge": 1e40, "of all sizes": 10.0 ** rng.uniform(-40, 0, 40)}
    sample_weight = np.broadcast_to(sizes[weights], 40)
    found = pa.fit(X, Y, solver="dual", sample_weight=sample_weight)
    assert planted.relative_error(found.coef, pa.fit(X, Y, solver="direct").coef) < 1e-12


@pytest.mark.parametrize("power", [6, 5, 4, 3])
@pytest.mark.parametrize("size", [1e-3, 1e-8])
@pytest.mark.parametrize("solver", ["auto", "dual", "direct", "primal"])
def test_few_rows_beside_a_constant_of_another_size(solver, size, power):
    """Features from 1 down to 1e-24: residuals are those of the minimiser for every ridge."""
    rng = np.random.default_rng(3)
    X, Y = size * rng.standard_normal((12, 3, 2)), rng.standard_normal((12, 1))
    ridge = size**power
    found = pa.fit(X, Y, bias=True, ridge=ridge, solver=solver)
    exact = ExactProblem.of(list(X), Y, "last", ridge, bias=True)
    np.testing.assert_allclose(found.predict(X), numbers(exact.predicted), atol=1e-9)
    assert found.risk == pytest.approx(nearest(exact.risk), rel=1e-9, abs=1e-18)
    assert ("beyond float64" in str(found.outcome)) == (found.condition >= 1e13)
    assert found.outcome.ok == (found.condition < 1e13)


def test_sequences_of_zeros_leave_the_dual_as_it_is():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 5, 12)), rng.standard_normal((40, 2))
    padded = np.concatenate([X, np.zeros((2, 5, 12))])
    found = pa.fit(padded, np.concatenate([Y, np.ones((2, 2))]), solver="dual")
    expected = pa.fit(X, Y, solver="dual")
    np.testing.assert_allclose(found.coef, expected.coef, rtol=1e-12)
    assert (found.rank, found.solver) == (40, "dual")
    assert found.risk == pytest.approx(4 / 42)


@pytest.mark.parametrize("ridge", [0.0, 1e-28])
def test_a_singular_kernel_too_wide_for_its_features(monkeypatch, ridge):
    """Repeated sequences: without a penalty eigenvalues find the mean of unlike targets."""
    monkeypatch.setattr(dual, "FEATURE_NUMBERS", 0)
    rng = np.random.default_rng(0)
    X = 1e-3 * np.repeat(rng.standard_normal((20, 5, 12)), 2, axis=0)
    Y = rng.standard_normal((40, 2)) if ridge == 0 else rng.standard_normal((20, 2)).repeat(2, 0)
    found = pa.fit(X, Y, ridge=ridge, solver="dual")
    expected = pa.fit(X, Y, ridge=ridge, solver="direct")
    assert planted.relative_error(found.coef, expected.coef) < 1e-9
    assert found.risk == pytest.approx(expected.risk, rel=1e-9, abs=1e-20)
    assert found.rank == expected.rank
    assert "singular to working precision" in str(found.outcome)


@pytest.mark.parametrize("ridge", [0.0, 1e-12])
@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-8])
def test_what_a_singular_kernel_hides_is_said(monkeypatch, apart, ridge):
    """Nearly equal sequences of unlike targets: squares of their differences are rounding."""
    monkeypatch.setattr(dual, "FEATURE_NUMBERS", 0)
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.standard_normal((8, 3, 6)), 2, axis=0), rng.standard_normal((16, 2))
    X += apart * rng.standard_normal(X.shape)
    found = pa.fit(X, Y, ridge=ridge, solver="dual")
    least = ExactProblem.of(list(X), Y, "last", ridge)
    excess = (found.risk - nearest(least.risk)) / np.mean(np.sum(Y**2, axis=1))
    words = str(found.outcome)
    said = re.search(r"squared error by (\S+) of the power", words)
    # What is said is an estimate, and rounding differs from one BLAS to the next.
    assert excess < (4 * float(said[1]) if said else 1e-9)
    assert ("approached" in words) == (said is not None)
    if apart == 1e-8:
        assert excess > 0.01
        assert not found.outcome.ok
    if apart == 0.0:
        assert said is None


@pytest.mark.parametrize("bits", [4, 6, 8, 10])
def test_moments_alone_are_right_or_say_what_they_cannot_see(bits):
    task = exact_task(f"nearly flat {bits}", "last", 0.0, "one output")
    result = fit_by("moments", task)
    if result.outcome.name == "unique":
        error = planted.relative_error(result.coef * task.s, task.coef * task.s)
        assert error < task.tolerance("moments")
    else:
        assert "TriangularFactor" in str(result.outcome)
        assert "second moments" in str(result.outcome)
    # Whatever the coefficients, the risk is theirs, up to the cancellation of <theta, M theta>.
    loss = np.mean(np.sum((task.rows - result.predict(task.X)) ** 2, axis=1))
    rounding = EPS * np.linalg.norm(result.coef) ** 2 * np.trace(result.statistics.second_moment)
    assert result.risk == pytest.approx(loss, rel=1e-9, abs=10 * rounding)
    assert (bits < 8) == (result.outcome.name == "unique")


def test_a_condition_beyond_float64_is_called_rank_deficient():
    task = exact_task("nearly flat 20", "last", 0.0, "one output")
    assert task.rank == task.n_features
    for solver in ACCURATE:
        result = fit_by(solver, task)
        assert result.outcome.name == "minimum_norm"
        assert result.rank < task.n_features


@pytest.mark.parametrize("solver", ["primal", "dual", "direct"])
def test_sequences_of_different_scale(solver):
    """Rows from 1e-9 to 1: a Gram or kernel holds their squares."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2)) * np.logspace(-3, 0, 30)[:, None, None]
    truth = pa.data.random_layer(2, mode="last", random_state=1)
    found = pa.fit(X, truth(X), solver=solver)
    assert planted.relative_error(found.coef, truth.coef) < 1e-9


def test_the_iterative_solver_says_how_far_it_came(monkeypatch):
    task = planted.problem("tall", noise=1.0)
    monkeypatch.setattr(solving, "MAX_PASSES", 3)
    monkeypatch.setattr(planning, "memory_limit", lambda: 6000)
    result = pa.fit(task.X, task.Y, solver="iterative")
    assert "stopped after 3 passes" in str(result.outcome)
    assert "approximation" in str(result.outcome)
    monkeypatch.undo()
    result = pa.fit(task.X, task.Y, solver="iterative")
    assert "passes over the data" in str(result.outcome)
    assert "approximation" not in str(result.outcome)


@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_the_iterative_solver_takes_weights_and_outputs_of_any_size(weight):
    """An output of zeros is met at once, and the others are not kept waiting by it."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 2)), rng.standard_normal((60, 2)) * [1.0, 0.0]
    expected = pa.fit(X, Y, solver="direct")
    found = pa.fit(X, Y, solver="iterative", sample_weight=np.full(60, weight))
    assert planted.relative_error(found.coef, expected.coef) < 1e-9
    assert "approximation" not in str(found.outcome)


@pytest.mark.parametrize(("closeness", "passes"), [(1.0, 1), (0.05, 2)])
def test_normal_equations_are_refined_until_corrections_are_small(closeness, passes, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 4, 2)), rng.standard_normal((200, 2))
    X[..., 1] = X[..., 0] + closeness * X[..., 1]
    seen = []
    true = primal.residual_pass
    monkeypatch.setattr(primal, "residual_pass", lambda *given: seen.append(1) or true(*given))
    found = pa.fit(X, Y, solver="primal")
    assert len(seen) == passes
    expected = pa.fit(X, Y, solver="direct")
    limit = 10.0 * EPS * found.condition
    assert planted.relative_error(found.coef, expected.coef) < limit


@pytest.mark.parametrize("spare", [0, -1])
def test_a_singular_kernel_is_given_up_where_its_features_fit(spare, monkeypatch):
    X = np.repeat(np.random.default_rng(0).standard_normal((20, 5, 6)), 2, axis=0)
    monkeypatch.setattr(dual, "FEATURE_NUMBERS", 40 * n_features(6) + spare)
    found = pa.fit(X, np.random.default_rng(1).standard_normal(40), solver="dual")
    assert ("singular to working precision" in str(found.outcome)) == (spare < 0)
    assert found.rank == 20


@pytest.mark.parametrize(("roundings", "rank"), [(40, 1), (400, 2)])
def test_rounding_is_that_of_as_many_terms_as_there_are_features(roundings, rank):
    """Two rows of 64 features of equal size: the second singular value is rounding, or not."""
    signs = hadamard(64)[1:3] / 8.0
    root = np.diag([1.0, roundings * EPS]) @ signs
    solution = direct.solve_root(root, np.ones((2, 1)), 0.0, n_rows=2)
    assert (solution.rank, solution.ridge) == (rank, 0.0)


@pytest.mark.parametrize(("roundings", "rank"), [(5e3, 1), (5e5, 2)])
def test_rounding_of_moments_is_beside_the_largest_eigenvalue(roundings, rank):
    """64 features that nearly agree: their moments have one eigenvalue of 64."""
    signs = hadamard(64)[:2].astype(float)
    gram = np.outer(signs[0], signs[0]) + roundings * EPS / 64 * np.outer(signs[1], signs[1])
    solution = primal.solve_gram(gram, gram[:, :1], 1.0, 0.0, np.ones(64))
    assert solution.rank == rank


@given(st.floats(1e-150, 1e150))
def test_scales_are_powers_of_two_near_the_sizes(size):
    (scale, one) = direct.column_scale(np.array([size, 0.0]))
    assert one == 1.0
    assert np.frexp(scale)[0] == 0.5
    assert 0.5**0.5 * (1 - EPS) <= size / scale <= 2**0.5 * (1 + EPS)


def test_the_iterative_solver_takes_features_of_very_different_size():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 2)) * [1.0, 1e4], rng.standard_normal((60, 1))
    found, expected = (pa.fit(X, Y, solver=solver) for solver in ("iterative", "direct"))
    assert "no other optimum" in str(found.outcome)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-9)


def test_the_iterative_solver_makes_no_pass_for_targets_of_zeros():
    X = np.random.default_rng(0).standard_normal((60, 4, 2))
    found = pa.fit(X, np.zeros((60, 1)), solver="iterative")
    assert "It took 0 passes" in str(found.outcome)
    np.testing.assert_array_equal(found.coef, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_ridge_that_steadies_moments_is_added(seed):
    """Where moments alone are nearly singular the penalty halves what they hardly see."""
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((200, 4, 2)), rng.standard_normal((200, 1))
    X[..., 1] = X[..., 0] + 0.02 * X[..., 1]
    moments = pa.Moments(2, 1).update(X, Y)
    ridge = 3e-13 * float(np.trace(moments.gram))
    found, expected = (
        pa.fit(statistics=moments, ridge=ridge),
        pa.fit(X, Y, ridge=ridge, solver="direct"),
    )
    assert planted.relative_error(found.coef, expected.coef) < 1e-2
    without = pa.fit(X, Y, solver="direct")
    assert np.linalg.norm(expected.coef) < 0.9 * np.linalg.norm(without.coef)


@pytest.mark.parametrize("n_rows", [1, 6, 7, 8, 14, 15, 40])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_the_blocks_of_the_dual(monkeypatch, n_rows, ridge):
    """The kernel is finished and added up in blocks, here of 7 columns instead of 512."""
    monkeypatch.setattr(dual, "COLUMN_BLOCK", 7)
    monkeypatch.setattr(products, "COLUMN_BLOCK", 7)
    rng = np.random.default_rng(n_rows)
    X, Y = rng.standard_normal((n_rows, 3, 4)), rng.standard_normal((n_rows, 2))
    found = pa.fit(X, Y, ridge=ridge, solver="dual")
    assert planted.relative_error(found.coef, erm.fit(list(X), Y, "last", ridge)) < 1e-8


@pytest.mark.parametrize("n_rows", [512, 513, 600])
def test_more_rows_than_a_block_of_the_dual(n_rows):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n_rows, 6, 11)), rng.standard_normal((n_rows, 2))  # p = 726
    found, other = (pa.fit(X, Y, ridge=1.0, solver=solver) for solver in ("dual", "direct"))
    assert planted.relative_error(found.coef, other.coef) < 1e-9
