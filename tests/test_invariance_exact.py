"""Every solver and statistic against exact rational least squares, at every scale.

Tokens, targets and weights are float64 of sizes from 1e-12 to 1e12 (weights 1e-40 to 1e40), single
coordinates in units of their own, and the truth is computed in rationals.  See ``exact_cases``.
"""

from dataclasses import replace

import numpy as np
import pytest

import planted
import polyattn as pa
from exact_cases import SOLVERS, Case, draw
from exact_judge import Answer, Judge
from exact_least_squares import ExactProblem, nearest, numbers, squared_norm_weights
from polyattn.reference import erm, features
from polyattn.sequences import MODES

FEW, MANY, CHUNK = 32, 5040, 120


def complaints_of(first: int, stop: int) -> list[str]:
    """All that is wrong with the fits of some cases by all solvers."""
    found = []
    for number in range(first, stop):
        case = draw(number)
        judge = Judge(case)
        for solver in SOLVERS:
            wrong = judge.complaints(Answer.of(case.fit(solver), case), solver)
            found += [f"case {number}, {solver}: {text}" for text in wrong]
    return found


@pytest.mark.parametrize("first", range(0, FEW, 8))
def test_every_solver_finds_the_rational_optimum(first):
    assert complaints_of(first, first + 8) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, MANY + FEW, CHUNK))
def test_every_solver_finds_the_rational_optimum_of_many(first):
    """5,040 problems, each by seven ways."""
    assert complaints_of(first, first + CHUNK) == []


def test_the_judge_sees_what_is_wrong():
    """Negative controls: another ridge, coefficients or a risk that are a little off."""
    cases = [case for case in map(draw, range(60)) if 1e-3 < _share(case) < 1e3]
    assert len(cases) > 10
    for case in cases:
        judge, good = Judge(case), Answer.of(case.fit("direct"), case)
        assert judge.complaints(good, "direct") == []
        other = Answer.of(replace(case, ridge=2 * case.ridge).fit("direct"), case)
        assert judge.complaints(other, "direct")
        size = np.linalg.norm(judge.columns[:, None] * judge.theta)
        allowed = judge.coefficient_limit("direct", judge.level(good, "direct")) / size
        wrong = replace(good, coef=good.coef * (1 + 3 * allowed))
        assert any("coefficients" in text for text in judge.complaints(wrong, "direct"))
        wrong = replace(good, risk=good.risk + 0.1 * float(np.mean(case.rows**2)))
        assert any("risk" in text for text in judge.complaints(wrong, "direct"))


def test_the_judge_sees_a_wrong_rank():
    case = next(c for c in map(draw, range(60)) if c.ridge == 0)
    good = Answer.of(case.fit("direct"), case)
    wrong = replace(good, rank=good.rank + 1)
    assert any("rank" in text for text in Judge(case).complaints(wrong, "direct"))


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
def test_the_rationals_agree_with_the_reference(kind, mode, ridge):
    """Two oracles, one by definition in rationals, one by singular values."""
    task = planted.problem(kind, mode, ridge=ridge)
    X, weights = list(task.X), np.arange(1.0, len(task.X) + 1)
    rows = task.Y.reshape(task.n_rows, -1)
    exact = ExactProblem.of(X, rows, mode, ridge, weights=weights)
    if kind != "flat":  # whose dependence is rounded away
        assert exact.rank == task.rank
    repeated = np.repeat(weights, task.n_rows // len(X))
    expected = erm.fit(X, rows, mode, ridge, repeated)
    if kind != "flat" or ridge:
        assert planted.relative_error(exact.coefficients(), expected) < 1e-8
        left = rows - numbers(exact.psi) @ numbers(exact.coef)
        power = float(np.sum(repeated[:, None] * left**2))
        assert nearest(exact.residual_power) == pytest.approx(power, rel=1e-8, abs=1e-16)
    psi = np.concatenate([erm.design([x], mode) for x in X])
    assert planted.relative_error(numbers(exact.psi), psi) < 1e-13
    assert np.array_equal(
        [nearest(s) for s in squared_norm_weights(3)], np.round(features.norm_weights(3) ** 2, 9)
    )


# What these cases have found ----------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_coordinate_that_is_always_zero_gets_no_coefficient(solver, size):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 10, size=(40, 4, 3)).astype(float) * size
    X[..., 2] = 0.0
    case = Case(0, list(X), rng.standard_normal((40, 1)), "last", False, 0.0, None, [], False)
    coef = case.fit(solver).coef
    unseen = np.abs(coef).max() * 1e-12
    assert np.all(np.abs(coef[:, :, 2]) <= unseen)
    assert np.all(np.abs(coef[:, [2, 4, 5]]) <= unseen)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
@pytest.mark.parametrize("size", [1e-6, 1e-4, 1e4, 1e6])
def test_the_iterative_solver_sees_small_features_beside_large_ones(size, ridge):
    rng = np.random.default_rng(0)
    X, rows = rng.standard_normal((60, 4, 3)), rng.standard_normal((60, 1))
    X[..., 2] *= size
    case = Case(0, list(X), rows, "last", False, ridge, None, list(X[:3]), True)
    answer = Answer.of(case.fit("iterative"), case)
    assert Judge(case).complaints(answer, "iterative") == []
    assert "approximation" not in answer.said
    assert ("no other optimum" in answer.said) == (ridge == 0)


def test_the_smallest_norm_is_reached_where_features_differ_moderately():
    """A column of 2446 beside one of 5, a constant and a zero coordinate: rank 5 of 18."""
    case = draw(3395)
    judge = Judge(case)
    for solver in ("direct", "factor", "primal"):
        result = case.fit(solver)
        assert judge.complaints(Answer.of(result, case), solver) == []
        size = np.linalg.norm(result.coef.reshape(len(result.coef), -1) * judge.s)
        assert size == pytest.approx(np.linalg.norm(judge.theta), rel=1e-9)
        assert "would cost more than rounding" not in str(result.outcome)


def test_where_the_smallest_norm_would_cost_residuals_the_outcome_says_so():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 4, 3))
    X[..., 2] = 1e6 * (X[..., 0] + X[..., 1])
    result = pa.fit(X, rng.standard_normal(40), solver="direct")
    assert result.outcome.name == "minimum_norm"
    assert "rounding hides which minimiser" in str(result.outcome)


def test_moments_know_the_risk_where_dependent_features_differ_in_size():
    """Sizes from 1e-10 to 10, rank 10 of 18: the risk was wrong in the fourth digit."""
    case = draw(1284)
    assert case.exact.rank < case.exact.psi.ncols()
    assert case.fit("moments").risk == pytest.approx(nearest(case.exact.risk), rel=1e-9)


def test_few_rows_of_a_factor_state_their_condition():
    """Rows of a triangular factor err relative to the largest, whatever their own size."""
    case = draw(122)
    assert 1e4 < case.fit("factor").condition < 1e6


def _share(case: Case) -> float:
    """The ridge beside the mean power of the features."""
    weights = 1.0 if case.weights is None else float(case.weights.max())
    return case.ridge / (float(np.mean(numbers(case.exact.psi) ** 2)) * weights)


def test_the_statistics_are_among_the_solvers():
    assert {type(draw(0).fit(name).statistics) for name in ("moments", "factor")} == {
        pa.Moments, pa.TriangularFactor,
    }  # fmt: skip
