"""Leave-one-out and generalised cross-validation against rational arithmetic, at every scale.

Every sequence is left out in turn, with its copies, and the rest solved exactly; the traces and
residuals of cross-validation are rationals too.  Chosen ridges then change with the data as theory
says.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from flint import fmpq

import polyattn as pa
from exact_cases import Case, draw
from exact_least_squares import (
    ExactProblem,
    diagonal,
    nearest,
    numbers,
    rational,
    squared_norm_weights,
)
from invariances import CHANGES, few_and_many, hold, numbers_of_cases, seeds, signed_factors
from planted import EPS
from polyattn.reference.features import norm_weights

SHARES = (1e-6, 1e-3, 1.0)

#: Changes under which the errors stay what they are, in units of the targets.
KEPT = ("tokens x c", "targets x c", "weights x c", "rotation", "coordinates permuted",
        "sequences permuted", "earlier tokens permuted")  # fmt: skip


def n_different(case: Case) -> int:
    return len({(x + 0.0).tobytes() for x in case.X})


def small_case(number: int) -> Case:
    """The first case of up to twelve sequences, two different, of positive weight, not all zero."""
    return next(
        case for case in map(draw, range(number, number + 1000))
        if len(case.X) <= 12 and np.all(case.row_weights > 0) and case.exact.rank > 0
        and n_different(case) > 1
    )  # fmt: skip


def grid_of(case: Case) -> list[float]:
    """Shares of the mean eigenvalue of the moments."""
    phi = numbers(case.exact.psi) / norm_weights(case.exact.width)
    mean = float(np.sum(case.row_weights[:, None] * phi**2)) / phi.shape[1]
    return [share * mean for share in SHARES]


def exact_left_out(case: Case, ridge: float) -> float:
    """The weighted mean of squared errors at sequences that were left out."""
    total, power = sum(map(rational, case.row_weights), fmpq(0)), fmpq(0)
    ends = np.cumsum([1 if case.mode == "last" else len(x) for x in case.X])
    weights = np.ones(len(case.X)) if case.weights is None else case.weights
    for i in range(len(case.X)):
        own = np.arange(ends[i - 1] if i else 0, ends[i])
        others = [j for j, x in enumerate(case.X) if not np.array_equal(x, case.X[i])]
        rows = np.split(case.rows, ends[:-1])
        rest = ExactProblem.of(
            [case.X[j] for j in others], np.concatenate([rows[j] for j in others]), case.mode,
            ridge, case.bias, weights[others],
        )  # fmt: skip
        held = ExactProblem.of([case.X[i]], case.rows[own], case.mode, ridge, case.bias)
        left = (held.targets - held.psi * rest.coef).tolist()
        power += rational(weights[i]) * sum((v * v for row in left for v in row), fmpq(0))
    return nearest(power / total)


def exact_gcv(case: Case, ridge: float) -> float:
    """(sum w ||r||^2 / W) / (1 - tr H / N)^2."""
    problem = replace(case, ridge=ridge).exact
    gram = problem.gram
    hat = (gram + problem.ridge * diagonal(squared_norm_weights(problem.width))).solve(gram)
    trace = sum((hat[i, i] for i in range(hat.nrows())), fmpq(0))
    return nearest(problem.risk / (1 - trace / len(case.rows)) ** 2)


def rounding_of(case: Case, rule: str, ridge: float) -> float:
    """What eigenvalues that err by eps times the largest leave of an error, relative.

    Cross-validation divides by the eigenvalues themselves, leaving out by those plus the ridge.
    """
    phi = np.sqrt(case.row_weights)[:, None] * numbers(case.exact.psi)
    values = np.linalg.svd(phi / norm_weights(case.exact.width), compute_uv=False) ** 2
    smallest = ridge if rule == "loo" else min(ridge, float(values[case.exact.rank - 1]))
    return 1e3 * EPS * phi.shape[1] * (1 + float(values[0]) / smallest)


def path_of(case: Case, rule: str, grid: list[float]) -> pa.FitResult:
    return pa.fit(
        case.X, case.targets, case.mode, rule, bias=case.bias, sample_weight=case.weights,
        ridge_grid=grid,
    )  # fmt: skip


def check_exact(number: int, rule: str) -> None:
    case = small_case(number)
    grid = grid_of(case)
    result = path_of(case, rule, grid)
    exact = exact_left_out if rule == "loo" else exact_gcv
    power = float(np.sum(case.row_weights[:, None] * case.rows**2) / np.sum(case.row_weights))
    truth = [exact(case, ridge) for ridge in grid]
    assert np.allclose(result.ridge_path.ridges, grid, rtol=4 * EPS, atol=0)
    for ridge, found, true in zip(grid, result.ridge_path.errors, truth, strict=True):
        assert abs(found - true) <= rounding_of(case, rule, ridge) * (true + power), (
            case.number,
            ridge,
        )
    chosen = truth[int(np.argmin(np.abs(np.array(grid) - result.ridge)))]
    assert chosen <= min(truth) + rounding_of(case, rule, grid[0]) * (min(truth) + power)


@few_and_many
@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_errors_are_those_of_rational_arithmetic(examples, rule):
    hold(partial(check_exact, rule=rule), examples, number=numbers_of_cases)


def check_change(rule: str, name: str, number: int, factor: float, seed: int) -> None:
    """The default grid moves with the data, and the chosen ridge with it."""
    change = next(change for change in CHANGES if change.name == name)
    case = next(c for c in map(small_case, range(number, number + 200)) if change.applies(c))
    changed, _ = change.make(replace(case, ridge=1.0), factor, np.random.default_rng(seed))
    if n_different(changed) != n_different(case):
        return  # sequences are copies in one order of their tokens, and not in another
    one, other = (path_of(c, rule, None).ridge_path for c in (case, changed))
    assert np.allclose(other.ridges, one.ridges * changed.ridge, rtol=1e-9, atol=0)
    squared = factor**2 if name == "targets x c" else 1.0
    power = float(np.sum(case.row_weights[:, None] * case.rows**2) / np.sum(case.row_weights))
    for ridge, a, b in zip(one.ridges, one.errors * squared, other.errors, strict=True):
        limit = rounding_of(case, rule, ridge)
        assert limit > 1e-3 or abs(a - b) <= limit * (abs(a) + power * squared), (
            case.number,
            ridge,
        )


@few_and_many
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_the_path_moves_with_the_data(examples, rule, name):
    hold(
        partial(check_change, rule=rule, name=name),
        examples,
        number=numbers_of_cases,
        factor=signed_factors,
        seed=seeds,
    )


@pytest.mark.parametrize("power", [-70, 60])
@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_errors_have_the_units_of_the_targets(rule, power):
    """Targets beyond 2**40 are scaled on the way; their errors were not scaled back."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 1))
    one, other = (pa.fit(X, y, ridge=rule).ridge_path for y in (Y, np.ldexp(Y, power)))
    assert np.allclose(np.ldexp(one.errors, 2 * power), other.errors, rtol=1e-12, atol=0)
    assert np.array_equal(one.ridges, other.ridges)
    # Errors below float64 would all be zero, and the largest ridge would be the best.
    with pytest.raises(pa.errors.OutOfRange, match="multiply targets"):
        pa.fit(X, 1e-170 * Y, ridge=rule)


def test_another_ridge_has_another_error():
    """Negative control."""
    case = small_case(0)
    grid = grid_of(case)
    path = path_of(case, "loo", grid).ridge_path
    assert abs(path.errors[2] - exact_left_out(case, grid[2] * 1.01)) > 0
    assert (
        abs(path.errors[2] - exact_left_out(case, grid[1])) > rounding_of(case, "loo", grid[1]) * 10
    )
