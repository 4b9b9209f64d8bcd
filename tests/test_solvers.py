"""Every road to the optimum, against exact rational arithmetic and against rival libraries.

Tokens, targets and weights are small integers, so the normal equations are solved exactly (in
fractions) and each solver is judged by its distance from the truth, not from another solver.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import hadamard
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

import planted
import polyattn as pa
from planted import EPS
from polyattn.errors import InvalidInput
from polyattn.features import kernel
from polyattn.features.pairs import n_features
from polyattn.reference import erm, features, layer
from polyattn.sequences import MODES
from polyattn.solve import auto, dual, iterative, plan, primal, spectral

# Roads that never square the condition number (primal by its refinement), and those that do.
ACCURATE = ("primal", "direct", "factor")
SQUARING = ("dual", "moments", "iterative")
ROADS = ACCURATE + SQUARING

KINDS = (
    "tall", "wide", "square", "flat", "duplicates", "constant", "zero column", "one token",
    "one hot", "ragged",
)  # fmt: skip
RIDGES = (0.0, 1e-6, 1.0)
VARIANTS = ("one output", "weights", "bias")


# Solver x problem ---------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ridge", RIDGES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("road", ROADS)
def test_every_road_finds_the_exact_optimum(road, kind, mode, ridge, variant):
    task = exact_task(kind, mode, ridge, variant)
    result = fit_by(road, task)
    assert planted.relative_error(result.coef * task.s, task.coef * task.s) < task.tolerance(road)
    assert result.risk == pytest.approx(task.risk, rel=1e-7, abs=task.risk_rounding(road))
    assert result.ridge == ridge
    if ridge > 0:
        assert (result.rank, result.outcome.name) == (None, "regularised")
    elif road == "iterative":
        assert (result.rank, result.outcome.name) == (None, "iterative")
    else:
        assert result.rank == task.rank
        full = task.rank == task.n_features
        assert result.outcome.name == ("unique" if full else "minimum_norm")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_tiny_ridge_all_roads_agree_to_nine_digits(kind, mode):
    """The tolerances of the table above are no excuses: these problems are well-conditioned."""
    for ridge in (0.0, 1.0):
        for variant in VARIANTS:
            task = exact_task(kind, mode, ridge, variant)
            assert task.condition < 2e3
            for road in (*ACCURATE, "dual", "moments"):
                error = planted.relative_error(fit_by(road, task).coef, task.coef)
                assert error < 1e-9, (ridge, variant, road, error)


def test_the_table_tells_a_wrong_answer():
    """Negative control: a perturbation in the eighth digit, or another ridge, is seen."""
    task = exact_task("tall", "last", 1.0, "one output")
    wrong = fit_by("direct", task).coef * (1 + 1e-8)
    assert planted.relative_error(wrong, task.coef) > max(map(task.tolerance, ACCURATE))
    other = exact_task("tall", "last", 0.0, "one output")
    assert planted.relative_error(other.coef, task.coef) > task.tolerance("moments")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tall", "wide", "flat"])
def test_the_exact_oracle_agrees_with_the_law(kind, mode):
    for ridge in RIDGES:
        task = exact_task(kind, mode, ridge, "weights")
        weights = np.repeat(task.weights, 1 if mode == "last" else [len(x) for x in task.X])
        law = erm.fit(task.X, task.rows, mode, ridge, weights)
        assert planted.relative_error(law, task.coef) < task.tolerance("direct")


# Planted problems from their singular values ------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("road", ["primal", "dual", "direct", "iterative"])
def test_planted_answers(road, kind, mode, ridge):
    task = planted.problem(kind, mode, ridge=ridge)
    result = pa.fit(task.X, task.Y, mode, ridge, solver=road)
    # CGLS stops at a gradient reduced by 1e-12, which kappa^2 turns into an error.
    tolerance = max(task.tolerance(squared=True), 1e-11 * task.condition**2)
    assert planted.relative_error(result.coef, task.coef) < tolerance
    assert result.risk == pytest.approx(task.risk, rel=1e-7, abs=1e-20)
    assert ridge > 0 or road == "iterative" or result.rank == task.rank


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("road", ["primal", "dual", "direct"])
def test_the_gradient_vanishes(road, kind, mode, ridge):
    task = planted.problem(kind, mode, ridge=ridge, noise=1.0, seed=3)
    phi, theta, targets = whitened(task, pa.fit(task.X, task.Y, mode, ridge, solver=road))
    residual = targets - phi @ theta
    gradient = phi.T @ residual - ridge * theta
    norm = np.linalg.norm(phi, 2)
    # Stable least squares leave a gradient of eps ||phi|| (||y|| + ||phi|| ||theta||), a kernel
    # solve eps ||phi||^3 ||alpha||, where alpha is residual / ridge.
    size = norm * (np.linalg.norm(targets) + norm * np.linalg.norm(theta))
    if road == "dual" and ridge:
        size += norm**3 * np.linalg.norm(residual) / ridge
    assert np.linalg.norm(gradient) < 30 * task.n_features * EPS * size


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("road", ["primal", "dual", "direct", "iterative"])
def test_without_ridge_the_solution_lies_in_the_row_space(road, kind, mode):
    task = planted.problem(kind, mode, noise=1.0, seed=3)
    phi, theta, _ = whitened(task, pa.fit(task.X, task.Y, mode, solver=road))
    outside = theta - np.linalg.pinv(phi, rcond=1e-10) @ (phi @ theta)
    assert np.linalg.norm(outside) < task.tolerance() * np.linalg.norm(theta)


# Rival libraries ----------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("kind", ["tall", "wide", "flat", "boolean"])
@pytest.mark.parametrize("road", ["primal", "dual", "direct", "iterative"])
def test_scikit_learn_ridge(road, kind, ridge, weighted):
    task = planted.problem(kind, noise=1.0)
    weights = np.random.default_rng(1).uniform(0, 3, len(task.X)) if weighted else None
    s = features.norm_weights(3)
    phi = erm.design(list(task.X), "last") / s
    rival = Ridge(alpha=ridge, fit_intercept=False, solver="svd")
    rival.fit(phi, task.Y, sample_weight=weights)
    found = pa.fit(task.X, task.Y, ridge=ridge, solver=road, sample_weight=weights)
    assert planted.relative_error(found.coef.reshape(2, -1) * s, rival.coef_) < 1e-9


@pytest.mark.parametrize("ridge", [1e-2, 1.0])
@pytest.mark.parametrize("kind", ["tall", "wide"])
@pytest.mark.parametrize("road", ["primal", "dual", "direct"])
def test_kernel_ridge(road, kind, ridge):
    task = planted.problem(kind, noise=1.0)
    fresh = np.random.default_rng(5).standard_normal((7, 6, 3))
    rows, new = ([features.summaries(x, "last")[0] for x in data] for data in (task.X, fresh))
    inner = np.array([[features.kernel(*a, *b) for b in rows] for a in rows])
    across = np.array([[features.kernel(*a, *b) for b in rows] for a in new])
    rival = KernelRidge(alpha=ridge, kernel="precomputed").fit(inner, task.Y)
    found = pa.fit(task.X, task.Y, ridge=ridge, solver=road)
    assert planted.relative_error(found.predict(fresh), rival.predict(across)) < 1e-9


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tall", "wide", "flat", "single", "one_hot"])
@pytest.mark.parametrize("road", ["primal", "dual", "direct"])
def test_numpy_lstsq_with_its_minimum_norm(road, kind, mode):
    task = planted.problem(kind, mode, noise=1.0, seed=2)
    s = features.norm_weights(3)
    phi = erm.design(list(task.X), mode) / s
    rival = np.linalg.lstsq(phi, task.Y.reshape(len(phi), -1), rcond=1e-10)[0]
    found = pa.fit(task.X, task.Y, mode, solver=road)
    assert planted.relative_error(found.coef.reshape(2, -1) * s, rival.T) < 1e-9


def test_the_norm_is_that_of_the_symmetric_tensor():
    """Among all coefficients of the same loss, ours has the least ||T||_F, not the least ||P||."""
    task = planted.problem("wide")
    coef = pa.fit(task.X, task.Y).coef
    plain = np.linalg.lstsq(erm.design(list(task.X), "last"), task.Y, rcond=None)[0]
    other = plain.T.reshape(coef.shape)
    assert np.linalg.norm(features.unfold(coef)) < np.linalg.norm(features.unfold(other)) - 1e-3
    assert np.linalg.norm(coef) > np.linalg.norm(other)


# Wild scales and bad conditions -------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("road", ["primal", "direct", "factor", "moments"])
def test_coordinates_of_different_scale_keep_their_accuracy(road, mode, ridge):
    """Tokens (1, 1e5): features from 1 to 1e15, but after equilibration nothing is wrong."""
    task = exact_task("units", mode, ridge, "one output")
    found = fit_by(road, task).coef
    # Each coefficient in units of its own column.
    assert planted.relative_error(found * task.columns, task.coef * task.columns) < 1e-9


@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("road", ["dual", "direct", "primal", "auto"])
def test_few_rows_with_coordinates_of_different_scale(road, ridge):
    """The kernel squares what is already 1e15: a road that cannot must not pretend it can."""
    task = exact_task("wide units", "last", ridge, "one output")
    result = fit_by(road, task)
    rows = result.predict(task.X)
    assert planted.relative_error(rows, task.predicted) < 1e-6
    assert result.risk == pytest.approx(task.risk, abs=1e-9 * float(np.mean(task.rows**2)))


@pytest.mark.parametrize("bits", [4, 6, 8, 10])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("road", ["primal", "direct", "factor", "auto"])
def test_ill_conditioned_features_are_solved_to_kappa_eps(road, mode, bits):
    """Tokens almost on a line: kappa(features) from 1e4 to 1e10, the Gram has its square."""
    task = exact_task(f"nearly flat {bits}", mode, 0.0, "one output")
    result = fit_by(road, task)
    assert planted.relative_error(result.coef * task.s, task.coef * task.s) < task.tolerance(road)
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
    for road in ACCURATE:
        result = fit_by(road, task)
        assert result.outcome.name == "minimum_norm"
        assert result.rank < task.n_features


@pytest.mark.parametrize("road", ["primal", "dual", "direct"])
def test_sequences_of_different_scale(road):
    """Rows from 1e-9 to 1: a Gram or kernel holds their squares."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2)) * np.logspace(-3, 0, 30)[:, None, None]
    truth = pa.data.random_layer(2, mode="last", random_state=1)
    found = pa.fit(X, truth(X), solver=road)
    assert planted.relative_error(found.coef, truth.coef) < 1e-9


def test_the_iterative_road_says_how_far_it_came(monkeypatch):
    task = planted.problem("tall", noise=1.0)
    monkeypatch.setattr(iterative, "MAX_PASSES", 3)
    result = pa.fit(task.X, task.Y, solver="iterative")
    assert "stopped after 3 passes" in str(result.outcome)
    assert "approximation" in str(result.outcome)
    monkeypatch.undo()
    result = pa.fit(task.X, task.Y, solver="iterative")
    assert "passes over the data" in str(result.outcome)
    assert "approximation" not in str(result.outcome)


@pytest.mark.parametrize("weight", [1e-100, 1e100])
def test_the_iterative_road_takes_weights_and_outputs_of_any_size(weight):
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


@pytest.mark.parametrize("room", [0, -1])
def test_a_singular_kernel_is_given_up_where_its_features_fit(room, monkeypatch):
    X = np.repeat(np.random.default_rng(0).standard_normal((20, 5, 6)), 2, axis=0)
    monkeypatch.setattr(dual, "FEATURE_NUMBERS", 40 * n_features(6) + room)
    found = pa.fit(X, np.random.default_rng(1).standard_normal(40), solver="dual")
    assert ("singular to working precision" in str(found.outcome)) == (room < 0)
    assert found.rank == 20


@pytest.mark.parametrize(("roundings", "rank"), [(40, 1), (400, 2)])
def test_rounding_is_that_of_as_many_terms_as_there_are_features(roundings, rank):
    """Two rows of 64 features of equal size: the second singular value is rounding, or not."""
    signs = hadamard(64)[1:3] / 8.0
    root = np.diag([1.0, roundings * EPS]) @ signs
    solution = spectral.solve_root(root, np.ones((2, 1)), 0.0, n_rows=2)
    assert (solution.rank, solution.ridge) == (rank, 0.0)


@pytest.mark.parametrize(("roundings", "rank"), [(5e3, 1), (5e5, 2)])
def test_rounding_of_moments_is_beside_the_largest_eigenvalue(roundings, rank):
    """64 features that nearly agree: their moments have one eigenvalue of 64."""
    signs = hadamard(64)[:2].astype(float)
    gram = np.outer(signs[0], signs[0]) + roundings * EPS / 64 * np.outer(signs[1], signs[1])
    solution = spectral.solve_gram(gram, gram[:, :1], 1.0, 0.0, np.ones(64))
    assert solution.rank == rank


@given(st.floats(1e-150, 1e150))
def test_scales_are_powers_of_two_near_the_sizes(size):
    (scale, one) = spectral.column_scale(np.array([size, 0.0]))
    assert one == 1.0
    assert np.frexp(scale)[0] == 0.5
    assert 0.5**0.5 * (1 - EPS) <= size / scale <= 2**0.5 * (1 + EPS)


def test_the_iterative_road_takes_features_of_very_different_size():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 4, 2)) * [1.0, 1e4], rng.standard_normal((60, 1))
    found, expected = (pa.fit(X, Y, solver=road) for road in ("iterative", "direct"))
    assert "brought to equal size" in str(found.outcome)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-9)


def test_the_iterative_road_makes_no_pass_for_targets_of_zeros():
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
    monkeypatch.setattr(kernel, "COLUMN_BLOCK", 7)
    rng = np.random.default_rng(n_rows)
    X, Y = rng.standard_normal((n_rows, 3, 4)), rng.standard_normal((n_rows, 2))
    found = pa.fit(X, Y, ridge=ridge, solver="dual")
    assert planted.relative_error(found.coef, erm.fit(list(X), Y, "last", ridge)) < 1e-8


@pytest.mark.parametrize("n_rows", [512, 513, 600])
def test_more_rows_than_a_block_of_the_dual(n_rows):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n_rows, 6, 11)), rng.standard_normal((n_rows, 2))  # p = 726
    found, other = (pa.fit(X, Y, ridge=1.0, solver=road) for road in ("dual", "direct"))
    assert planted.relative_error(found.coef, other.coef) < 1e-9


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


# The plan -----------------------------------------------------------------------------------

GIB = 1 << 30

PLANS = {
    # rows, width, outputs, memory limit -> road, a word of the reason
    "tall": (10_000, 8, 8, 12 * GIB, "primal", "p x p"),
    "just tall": (288, 8, 1, 12 * GIB, "primal", "288 rows for 288 features"),
    "one row short": (287, 8, 1, 12 * GIB, "direct", "287 rows for 288 features"),
    "few rows": (100, 16, 16, 12 * GIB, "direct", "few enough to hold"),
    "many rows, wide": (8192, 64, 64, 12 * GIB, "dual", "N x N"),
    "few rows, very wide": (1000, 64, 1, 12 * GIB, "dual", "N x N"),
    "tall, no memory for p x p": (20_000, 32, 1, 4 * GIB, "dual", "N x N"),
    "neither fits": (1_000_000, 32, 1, 4 * GIB, "iterative", "fit into"),
    "one row": (1, 1, 1, GIB, "primal", "1 rows for 1 features"),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_plan_chooses_by_size_and_says_why(monkeypatch, name):
    n_rows, width, n_outputs, limit, road, reason = PLANS[name]
    monkeypatch.setattr(auto, "memory_limit", lambda: limit)
    chosen = plan(n_rows, width, n_outputs)
    assert chosen.solver == road
    assert reason in chosen.reason
    assert str(chosen).startswith(f"{road}: ")
    assert 0 < chosen.bytes <= limit
    assert "about" in str(chosen)


def test_the_plan_refuses_what_fits_nowhere(monkeypatch):
    monkeypatch.setattr(auto, "memory_limit", lambda: GIB)
    with pytest.raises(InvalidInput, match=r"do not fit into 1 GB.*(reduce|one by one)"):
        plan(10**6, 256, 64)


@pytest.mark.parametrize("road", auto.SOLVERS)
def test_a_named_solver_is_kept(road):
    chosen = plan(10, 3, 1, road)
    assert (chosen.solver, chosen.reason) == (road, "asked for by name")
    task = planted.problem("wide")
    assert pa.fit(task.X, task.Y, solver=road).solver == road


def test_the_plan_refuses_an_unknown_solver():
    with pytest.raises(ValueError, match=r"solver.*'primal'.*'magic'"):
        plan(10, 3, 1, "magic")


@pytest.mark.parametrize(
    ("limit", "road"), [(GIB, "primal"), (8_000, "dual"), (4_000, "iterative"), (1_000, None)]
)
def test_fit_follows_the_plan(monkeypatch, limit, road):
    """Less and less memory, the same optimum, and at the end a refusal."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 4, 3)), rng.standard_normal((20, 2))  # 18 features
    monkeypatch.setattr(auto, "memory_limit", lambda: limit)
    if road is None:
        with pytest.raises(InvalidInput, match="do not fit"):
            pa.fit(X, Y)
        return
    result = pa.fit(X, Y)
    assert result.solver == road
    assert planted.relative_error(result.coef, erm.fit(list(X), Y, "last")) < 1e-8


def test_the_memory_limit_is_half_of_the_machine(monkeypatch):
    assert auto.memory_limit() > 1 << 28

    def unknown(_):
        raise OSError

    monkeypatch.setattr(auto.os, "sysconf", unknown)
    assert auto.memory_limit() == 4 * GIB


def whitened(task: planted.Problem, result: pa.FitResult):
    """Features and coefficients in the coordinates of the norm, and the targets as rows."""
    s = features.norm_weights(task.X.shape[2])
    phi = erm.design(list(task.X), task.mode) / s
    theta = result.coef.reshape(len(result.coef), -1).T * s[:, None]
    return phi, theta, task.Y.reshape(len(phi), -1)


# Exact problems -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ExactTask:
    """Integer data and the exact minimiser of least norm, rounded once at the end."""

    X: list[NDArray]
    Y: NDArray | list[NDArray]
    rows: NDArray  # (rows, e)
    mode: str
    ridge: float
    weights: NDArray | None
    bias: bool
    coef: NDArray  # (e, q, d)
    predicted: NDArray  # (rows, e)
    risk: float
    rank: int
    condition: float  # of the weighted (and penalised, or equilibrated) features
    misfit: float  # ||residual|| / (||phi|| ||theta||)
    dual_condition: float  # how the rounding of a kernel solve reaches the coefficients
    columns: NDArray  # (q, d): norms of the feature columns

    @property
    def n_features(self) -> int:
        return self.columns.size

    @property
    def s(self) -> NDArray:
        """The weights of the norm, (q, d)."""
        return features.norm_weights(self.columns.shape[1]).reshape(self.columns.shape)

    def risk_rounding(self, road: str) -> float:
        """Below this a risk cannot be told from zero; it is quadratic in the error, but for the
        dual, whose residuals y - K alpha cancel where alpha is large.
        """
        relative = self.tolerance(road) if road == "dual" else 1e-13 * self.condition
        return relative * float(np.mean(np.sum(self.rows**2, axis=1)))

    def tolerance(self, road: str) -> float:
        """The error that perturbations of size eps explain, times a modest constant.

        Least squares: eps (kappa + kappa^2 misfit) [Wedin 1973]; normal equations: eps kappa^2;
        conjugate gradients stop at 1e-12 instead of eps; the dual has a condition of its own.
        """
        linear = self.condition + self.condition**2 * self.misfit
        factor = {"dual": self.dual_condition}.get(
            road, self.condition**2 if road in SQUARING else linear
        )
        return factor * (1e-12 if road == "iterative" else 10 * EPS * self.n_features)


@cache
def exact_task(kind: str, mode: str, ridge: float, variant: str) -> ExactTask:
    """A problem of one of the KINDS whose optimum is computed in rational arithmetic."""
    rng = np.random.default_rng(sum(map(ord, kind + variant)))
    bias = variant == "bias"
    X = integer_sequences(kind, mode, 2, n_features(2 + bias), rng)
    n_outputs = 1 if variant == "one output" else 3
    lengths = [1 if mode == "last" else len(x) for x in X]
    rows = rng.integers(-9, 10, size=(sum(lengths), n_outputs)).astype(float)
    weights = rng.integers(0, 4, size=len(X)).astype(float) if variant == "weights" else None
    if weights is not None:
        weights[0] = 2.0
    row_weights = np.repeat(np.ones(len(X)) if weights is None else weights, lengths)
    tokens = [layer.with_constant(x) if bias else x for x in X]
    coef, rank = exact_minimiser(tokens, rows, row_weights, mode, ridge)
    psi = erm.design(tokens, mode)
    predicted = psi @ coef.reshape(n_outputs, -1).T
    power = float(np.sum(row_weights[:, None] * (rows - predicted) ** 2))
    s = features.norm_weights(2 + bias)
    root = np.sqrt(row_weights)[:, None] * psi / s
    targets = np.sqrt(row_weights)[:, None] * rows
    dual_condition = kernel_condition(root, targets, ridge, rank)
    root = np.concatenate([root, np.sqrt(ridge) * np.eye(len(s))]) if ridge else root
    norms = np.linalg.norm(root, axis=0)
    # A penalty fixes the units; without one, columns may be brought to equal size.
    scale = np.where(norms > 0, norms, 1.0) if not ridge else np.ones_like(norms)
    sigma = np.linalg.svd(root / scale, compute_uv=False)
    sigma = sigma if ridge else sigma[:rank]
    theta_size = float(np.linalg.norm(coef.reshape(n_outputs, -1) * s * scale))
    ends = np.cumsum(lengths)[:-1]
    shape = coef.shape[1:]
    return ExactTask(
        X=X,
        Y=rows if mode == "last" else np.split(rows, ends),
        rows=rows,
        mode=mode,
        ridge=ridge,
        weights=weights,
        bias=bias,
        coef=coef,
        predicted=predicted,
        risk=power / float(row_weights.sum()),
        rank=rank,
        condition=float(sigma[0] / sigma[-1]) if len(sigma) else 1.0,
        misfit=float(np.sqrt(power)) / (float(sigma[0]) * theta_size) if theta_size else 0.0,
        dual_condition=dual_condition,
        columns=np.where(norms > 0, norms * s, 1.0).reshape(shape),
    )


def kernel_condition(root: NDArray, targets: NDArray, ridge: float, rank: int) -> float:
    """||K|| ||alpha|| / ((sigma + ridge / sigma) ||theta||), with (K + ridge) alpha = y.

    A kernel solve leaves a residual of eps ||K|| ||alpha||, which Phi^T (K + ridge)^-1 turns
    into coefficients.  A tall problem with a small ridge has large alpha = residual / ridge.
    """
    left, sigma, _ = np.linalg.svd(root, full_matrices=False)
    if not ridge:
        left, sigma = left[:, :rank], sigma[:rank]
    sigma = np.maximum(sigma, EPS * sigma[0])
    inside = left.T @ targets
    theta = inside * (sigma / (sigma**2 + ridge))[:, None]
    alpha = np.linalg.norm(inside / (sigma**2 + ridge)[:, None])
    if ridge:
        alpha += np.linalg.norm(targets - left @ inside) / ridge
    reach = 1.0 / np.min(sigma + ridge / sigma)
    return float(sigma[0] ** 2 * alpha * reach / (np.linalg.norm(theta) or 1.0))


def integer_sequences(kind: str, mode: str, d: int, p: int, rng: np.random.Generator) -> list:
    """Integer tokens as floats; lists, since some are ragged."""
    per_sequence = 1 if mode == "last" else 3
    many = 2 * p + 6
    shape = {
        "wide": (max(1, p // (2 * per_sequence)), 3, d),
        "wide units": (4, 3, d),
        "nearly alike": (4, 3, d),
        "square": (p // per_sequence, 3, d),
        "one token": (many, 1, d),
        "duplicates": (p // (2 * per_sequence), 3, d),
    }.get(kind.rstrip(" 0123456789"), (many, 3, d))
    X = rng.integers(-3, 4, size=shape).astype(float)
    if kind == "flat":
        X[..., 1] = -X[..., 0]
    elif kind == "duplicates":
        X = np.repeat(X, 5, axis=0)
    elif kind == "constant":
        X[..., 0] = 2.0
    elif kind == "zero column":
        X[..., 0] = 0.0
    elif kind == "one hot":
        X = np.eye(d)[rng.integers(d, size=shape[:2])]
    elif kind.endswith("units"):
        X[..., 1] *= 1e5
    elif kind.startswith("nearly flat"):
        scale = 2.0 ** int(kind.rsplit(maxsplit=1)[-1])
        X[..., 0] = scale * rng.integers(-3, 4, size=shape[:2])
        X[..., 1] += X[..., 0]
    elif kind.startswith("nearly alike"):
        X *= 2.0 ** int(kind.rsplit(maxsplit=1)[-1])
        X[1] = X[0] + rng.integers(1, 4, size=X[1].shape)
    elif kind == "ragged":
        return [x[: 1 + i % 3] for i, x in enumerate(X)]
    return list(X)


def exact_minimiser(tokens, rows, row_weights, mode, ridge):
    """P (e, q, d) and the rank of the features, in exact arithmetic on integer data.

    (M + ridge C^-1) P = b with C = 1 on the diagonal and 2 off it.  For ridge = 0 the solution
    of least norm is P = C M z for any z with M C M z = b.
    """
    d, n_outputs = tokens[0].shape[1], rows.shape[1]
    psi = exact_design([exact_integers(x) for x in tokens], mode)
    weighted = psi * exact_integers(row_weights[:, None])
    gram, right = psi.T @ weighted, weighted.T @ exact_integers(rows)
    norm = np.array([1 if j == k else 2 for j, k in features.pairs(d) for _ in range(d)], object)
    if ridge:
        penalty = np.array([Fraction(ridge) / int(c) for c in norm], object)
        solution, _ = rational_solve(gram + np.diag(penalty), right)
        rank = len(gram)
    else:
        _, rank = rational_solve(gram, right)
        z, _ = rational_solve(gram @ (norm[:, None] * gram), right)
        solution = norm[:, None] * (gram @ z)
    return solution.astype(float).T.reshape(n_outputs, -1, d), rank


def rational_solve(matrix, right):
    """A solution (free unknowns zero) of a consistent system, and the rank of the matrix."""
    n = len(matrix)
    work = np.array([[Fraction(v) for v in row] for row in np.hstack([matrix, right])], object)
    pivots = []
    for column in range(n):
        row = len(pivots)
        found = next((i for i in range(row, n) if work[i, column] != 0), None)
        if found is None:
            continue
        work[[row, found]] = work[[found, row]]
        work[row] = work[row] / work[row, column]
        for i in range(n):
            if i != row and work[i, column] != 0:
                work[i] = work[i] - work[i, column] * work[row]
        pivots.append(column)
    assert all(v == 0 for v in work[len(pivots) :, n:].ravel())
    solution = np.full(right.shape, Fraction(0), object)
    solution[pivots] = work[: len(pivots), n:]
    return solution, len(pivots)


def exact_design(tokens, mode):
    """psi of every predicted position in Python integers (rows, p)."""
    rows = []
    for x in tokens:
        for t in [len(x) - 1] if mode == "last" else range(len(x)):
            seen = x[: t + 1] if mode == "causal" else x
            gram = seen.T @ seen
            rows.append([gram[j, k] * v for j, k in features.pairs(x.shape[1]) for v in x[t]])
    return np.array(rows, object)


def exact_integers(array: NDArray) -> NDArray:
    """Floats that are integers, as Python integers."""
    assert np.all(array == np.round(array))
    return np.array([int(v) for v in array.ravel()], object).reshape(array.shape)


def fit_by(road: str, task: ExactTask) -> pa.FitResult:
    """The fit by one of the ROADS (or ``auto``)."""
    if road in ("moments", "factor"):
        make = pa.Moments if road == "moments" else pa.TriangularFactor
        sums = make(task.X[0].shape[1], task.rows.shape[1], task.mode, task.bias)
        sums.update(task.X, task.Y, task.weights)
        return pa.fit(statistics=sums, ridge=task.ridge)
    return pa.fit(
        task.X, task.Y, task.mode, task.ridge,
        solver=road, bias=task.bias, sample_weight=task.weights,
    )  # fmt: skip
