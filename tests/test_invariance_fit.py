"""Predictions change with the data exactly as theory says, by every solver and statistic.

The answer to a changed problem is brought back and judged by the rational optimum of the original
one, to a multiple of eps times the condition number that the fit states.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

import polyattn as pa
from exact_cases import SOLVERS, Case, draw
from exact_judge import Answer, Geometry, Judge
from invariances import (
    CHANGES,
    Change,
    few_and_many,
    hold,
    in_parts,
    numbers_of_cases,
    seeds,
    signed_factors,
)
from planted import EPS


def check_change(change: Change, number: int, factor: float, seed: int) -> None:
    case = change.case(number)
    changed, back = change.make(case, factor, np.random.default_rng(seed))
    judge, geometry = Judge(case), Geometry.of_case(changed, case.exact.rank)
    for solver in SOLVERS:
        answer = back(Answer.of(changed.fit(solver), changed))
        wrong = judge.complaints(answer, solver, geometry)
        assert wrong == [], (change.name, case.number, solver)


@few_and_many
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_changed_problem_has_the_changed_answer(examples, change):
    hold(
        partial(check_change, change=change),
        examples,
        number=numbers_of_cases,
        factor=signed_factors,
        seed=seeds,
    )


def test_a_change_that_is_not_undone_is_seen():
    """Negative control: each change that moves the answer is noticed if nobody goes back."""
    rng = np.random.default_rng(0)
    for change in CHANGES:
        if change.name in ("tokens x c", "targets x c", "sequences permuted"):
            case = change.case(3)
            changed, _ = change.make(case, 3.0, rng)
            answer = Answer.of(changed.fit("direct"), changed)
            assert Judge(case).complaints(answer, "direct"), change.name


# Powers of two ------------------------------------------------------------------------------


def check_powers_of_two(number: int, tokens: int, targets: int, weights: int) -> None:
    """Multiplication by powers of two commutes with rounding: every bit is the same."""
    case = next(c for c in map(draw, range(number, number + 100)) if not c.bias)
    given_weights = np.ones(len(case.X)) if case.weights is None else case.weights
    case = Case(**vars_of(case) | {"weights": given_weights})
    scaled = Case(**vars_of(case) | {
        "X": [np.ldexp(x, tokens) for x in case.X], "rows": np.ldexp(case.rows, targets),
        "weights": np.ldexp(given_weights, 2 * weights),
        "ridge": float(np.ldexp(case.ridge, 6 * tokens + 2 * weights)),
    })  # fmt: skip
    for solver in SOLVERS:
        one, other = case.fit(solver), scaled.fit(solver)
        assert one.outcome.name == other.outcome.name
        assert (one.rank, one.condition) == (other.rank, other.condition), solver
        assert np.array_equal(np.ldexp(one.coef, targets - 3 * tokens), other.coef), solver
        assert np.ldexp(one.risk, 2 * targets) == other.risk, solver


powers = st.integers(-60, 60)


@few_and_many
def test_powers_of_two_change_no_bit(examples):
    hold(
        check_powers_of_two,
        examples,
        number=numbers_of_cases,
        tokens=powers,
        targets=powers,
        weights=powers,
    )


# Batches ------------------------------------------------------------------------------------

cut_lists = st.lists(st.integers(1, 50), max_size=4)


def check_parts(number: int, cuts: list[int], merged: bool) -> None:
    case = draw(number)
    judge = Judge(case)
    for make, solver in ((pa.Moments, "moments"), (pa.TriangularFactor, "factor")):
        statistics = in_parts(case, make, cuts, merged)
        answer = Answer.of(pa.fit(statistics=statistics, ridge=case.ridge), case)
        assert judge.complaints(answer, solver) == [], solver
        assert statistics.n_sequences == len(case.X)
        assert statistics.n_rows == len(case.rows)


@few_and_many
def test_parts_add_up(examples):
    hold(check_parts, examples, number=numbers_of_cases, cuts=cut_lists, merged=st.booleans())


# Wide tokens, where the default is the dual ---------------------------------------------------


@pytest.mark.parametrize("ridge", [0.0, 1e-2, "loo", "gcv"])
@pytest.mark.parametrize(("size", "weight"), [(1e-3, 1.0), (1e-6, 1.0), (1e-9, 1e-40), (1e9, 1e40)])
def test_wide_tokens_and_weights_of_any_size(size, weight, ridge):
    """16 coordinates, 60 sequences: an exact fit, or the same ridge in other units."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((60, 5, 16)), rng.standard_normal((60, 2))
    fresh, weights = rng.standard_normal((5, 5, 16)), rng.uniform(1, 2, 60)
    unit = size**6 * weight
    moved = ridge if isinstance(ridge, str) else ridge * 1e6 * unit
    plain = ridge if isinstance(ridge, str) else ridge * 1e6
    one = pa.fit(X, Y, ridge=plain, sample_weight=weights, solver="dual")
    other = pa.fit(X * size, Y, ridge=moved, sample_weight=weights * weight, solver="dual")
    tolerance = 1e3 * EPS * one.condition * np.abs(Y).max()
    assert np.abs(other.predict(X * size) - one.predict(X)).max() <= tolerance
    assert np.abs(other.predict(fresh * size) - one.predict(fresh)).max() <= tolerance
    assert other.ridge == pytest.approx(one.ridge * unit, rel=1e-9)
    if ridge == 0.0:
        assert np.abs(other.predict(X * size) - Y).max() <= tolerance
        assert other.risk <= tolerance**2


# Kinds of numbers ---------------------------------------------------------------------------


def check_float32_is_the_float64_of_the_same_value(number) -> None:
    case = draw(number)
    short = [x.astype(np.float32) for x in case.X]
    if not all(np.isfinite(x).all() for x in short):
        return
    narrow = Case(**vars_of(case) | {"X": short, "rows": case.rows.astype(np.float32)})
    wide = Case(**vars_of(case) | {
        "X": [x.astype(np.float64) for x in short], "rows": narrow.rows.astype(np.float64),
    })  # fmt: skip
    for solver in SOLVERS:
        one, other = narrow.fit(solver), wide.fit(solver)
        assert np.array_equal(one.coef, other.coef), solver
        assert one.risk == other.risk
        for x, y in zip(one.predict(short), other.predict(wide.X), strict=True):
            assert np.array_equal(x, y)


@few_and_many
def test_float32_is_the_float64_of_the_same_value(examples):
    hold(check_float32_is_the_float64_of_the_same_value, examples, number=numbers_of_cases)


def vars_of(case: Case) -> dict:
    """The fields of a case, without what was computed of them."""
    return {name: getattr(case, name) for name in case.__dataclass_fields__}
