"""Powers of two far from one, in all targets or in single ones: the same answer, or a refusal.

A refusal counts only where something that is asked for leaves the normal numbers of float64.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

import polyattn as pa
from exact_cases import SOLVERS, Case
from invariances import few_and_many, hold, seeds
from polyattn.errors import OutOfRange
from polyattn.numerics.scaling import COMPARABLE_PRODUCTS
from polyattn.sequences import MODES

TINY, HUGE = np.finfo(np.float64).tiny, np.finfo(np.float64).max

#: Of all targets, of one output beside the others, and of new inputs.
target_powers = st.one_of(st.integers(-600, 400), st.integers(-600, -500))
output_powers = st.sampled_from([-700, -500, -300, 300, 500, 700])
input_powers = st.integers(-340, 340)

#: Errors beside one another: what one solver leaves of an output, and what heads do.
DIGITS = {"iterative": 1e-6}
FEW_DIGITS = 1e-8


def some_case(seed: int, noise: float = 0.1) -> Case:
    """Two outputs of a layer with two heads, two coordinates, any mode."""
    rng = np.random.default_rng(seed)
    mode = MODES[seed % 3]
    X = rng.standard_normal((40, 3, 2))
    truth = pa.data.random_layer(2, n_heads=2, mode=mode, random_state=seed % 1000)
    rows = truth(X).reshape(-1, 2)
    rows = rows + noise * rng.standard_normal(rows.shape)
    return Case(seed, list(X), rows, mode, False, 0.0, None, list(X[:5]), False)


def with_rows(case: Case, rows: NDArray) -> Case:
    return Case(
        **{name: getattr(case, name) for name in case.__dataclass_fields__} | {"rows": rows}
    )


def answer_or_refusal(ask: Callable[[], object], *sizes: float) -> object | None:
    """The answer; None where it is refused because one of the sizes is not a normal number."""
    try:
        return ask()
    except OutOfRange:
        assert any(not TINY <= size <= HUGE for size in sizes), "refused without need"
        return None


def moved(figure: float, power: int) -> float:
    with np.errstate(over="ignore"):
        return float(np.ldexp(figure, power))


# All targets --------------------------------------------------------------------------------


def check_solvers(seed: int, power: int, noise: float) -> None:
    case = some_case(seed, noise)
    scaled = with_rows(case, np.ldexp(case.rows, power))
    for solver in SOLVERS:
        one = case.fit(solver)
        sizes = [moved(one.risk, 2 * power), moved(np.abs(one.coef).min(), power)]
        other = answer_or_refusal(partial(scaled.fit, solver), *sizes)
        if other is not None:
            assert one.outcome == other.outcome
            assert np.array_equal(np.ldexp(one.coef, power), other.coef), solver
            assert sizes[0] == other.risk, solver
            # Of exact targets the risk is rounding, and may vanish.
            assert noise == 0.0 or other.risk >= TINY, solver


@few_and_many
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_solvers_and_statistics(examples, noise):
    hold(partial(check_solvers, noise=noise), examples, seed=seeds, power=target_powers)


def check_rules(seed: int, power: int, rule: str) -> None:
    case = some_case(seed)
    one = pa.fit(case.X, case.targets, case.mode, rule)
    errors = [moved(error, 2 * power) for error in one.ridge_path.errors]
    Y = with_rows(case, np.ldexp(case.rows, power)).targets
    other = answer_or_refusal(
        lambda: pa.fit(case.X, Y, case.mode, rule),
        *errors, moved(one.risk, 2 * power), moved(np.abs(one.coef).min(), power),
    )  # fmt: skip
    if other is not None:
        assert one.ridge == other.ridge == other.ridge_path.best
        assert errors == other.ridge_path.errors.tolist()
        assert min(errors) >= TINY
        assert np.array_equal(np.ldexp(one.coef, power), other.coef)


@few_and_many
@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_rules_for_the_ridge(examples, rule):
    hold(partial(check_rules, rule=rule), examples, seed=seeds, power=target_powers)


def check_heads(seed: int, power: int, n_heads: int | str | None) -> None:
    case = some_case(seed)
    one = pa.fit(case.X, case.targets, case.mode, n_heads=n_heads)
    Y = with_rows(case, np.ldexp(case.rows, power)).targets
    other = answer_or_refusal(
        lambda: pa.fit(case.X, Y, case.mode, n_heads=n_heads),
        moved(one.risk, 2 * power), moved(one.optimal_risk, 2 * power),
        moved(np.abs(one.coef).min(), power),
    )  # fmt: skip
    if other is not None:
        assert one.layer.n_heads == other.layer.n_heads
        assert moved(one.risk, 2 * power) == pytest.approx(other.risk, rel=1e-9, abs=0)
        assert other.risk >= other.optimal_risk >= TINY
        outputs = np.concatenate([np.atleast_2d(y) for y in other.layer(case.X)])
        expected = np.concatenate([np.atleast_2d(y) for y in one.predict(case.X)])
        assert np.all(errors_of(np.ldexp(outputs, -power), expected) < FEW_DIGITS)


@few_and_many
@pytest.mark.parametrize("n_heads", [None, 1, "auto"])
def test_heads(examples, n_heads):
    check = partial(check_heads, n_heads=n_heads)
    hold(check, min(examples, 40), seed=seeds, power=target_powers)


def check_audit(seed: int, power: int) -> None:
    case = some_case(seed)
    layer = pa.data.random_layer(2, mode=case.mode, random_state=seed % 99)
    one = pa.audit(layer, case.X, case.targets)
    other = answer_or_refusal(
        lambda: pa.audit(
            pa.LinearAttention(layer.attn, np.ldexp(layer.value, power), case.mode),
            case.X, with_rows(case, np.ldexp(case.rows, power)).targets,
        ),
        moved(one.risk, 2 * power), moved(one.optimal_risk, 2 * power),
        moved(np.abs(layer.coef).min(), power),
    )  # fmt: skip
    if other is not None:
        assert other.consistent
        assert ("could be better" in one.sentence) == ("could be better" in other.sentence)
        for name in ("risk", "optimal_risk", "gap", "rounding"):
            expected = moved(getattr(one, name), 2 * power)
            assert getattr(other, name) == pytest.approx(expected, rel=1e-6, abs=1e-323), name
        for first, second in ((one, other), (one.implied, other.implied)):
            assert moved(first.distance, power) == pytest.approx(second.distance, rel=1e-6, abs=0)


@few_and_many
def test_audits(examples):
    hold(check_audit, examples, seed=seeds, power=target_powers)


# Single outputs -----------------------------------------------------------------------------


def errors_of(outputs: NDArray, expected: NDArray) -> NDArray:
    """The largest error of each output beside its largest value."""
    return np.abs(outputs - expected).max(axis=0) / np.abs(expected).max(axis=0)


def check_one_output(seed: int, power: int, output: int, noise: float) -> None:
    case = some_case(seed, noise)
    shifts = np.array([power, 0] if output == 0 else [0, power])
    scaled = with_rows(case, np.ldexp(case.rows, shifts))
    for solver in SOLVERS:
        one = case.fit(solver)
        risk = moved(one.risk, 2 * max(power, 0))
        other = answer_or_refusal(partial(scaled.fit, solver), risk)
        if other is None:
            continue
        coef = np.ldexp(other.coef, -shifts[:, None, None])
        size = np.abs(one.coef).max(axis=(1, 2), keepdims=True)
        assert np.all(np.abs(coef - one.coef) <= DIGITS.get(solver, 1e-10) * size), solver
        outputs = np.concatenate([np.atleast_2d(y) for y in other.layer(case.X)])
        expected = np.concatenate([np.atleast_2d(y) for y in other.predict(case.X)])
        assert np.all(errors_of(outputs, expected) < FEW_DIGITS), solver


@few_and_many
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_single_outputs(examples, noise):
    hold(
        partial(check_one_output, noise=noise),
        examples,
        seed=seeds,
        power=output_powers,
        output=st.integers(0, 1),
    )


@pytest.mark.parametrize("power", [-900, 900])
def test_single_outputs_out_of_reach_are_refused_everywhere(power):
    assert abs(power) > COMPARABLE_PRODUCTS
    case = some_case(0)
    scaled = with_rows(case, np.ldexp(case.rows, [power, 0]))
    for solver in SOLVERS:
        with pytest.raises(OutOfRange, match="outputs of Y"):
            scaled.fit(solver)
    for options in ({"ridge": "loo"}, {"ridge": "gcv"}, {"n_heads": "auto"}, {"n_heads": 1}):
        with pytest.raises(OutOfRange, match="outputs of Y"):
            pa.fit(scaled.X, scaled.targets, scaled.mode, **options)
    with pytest.raises(OutOfRange, match="outputs of Y"):
        pa.audit(pa.data.random_layer(2, mode=case.mode), scaled.X, scaled.targets)


def check_rules_beside(seed: int, rule: str) -> None:
    """Errors of all outputs are added: beside a large one a tiny one has no say in the ridge."""
    case = some_case(seed)
    scaled = with_rows(case, np.ldexp(case.rows, [0, -500]))
    large = with_rows(case, case.rows[:, :1])
    one, other = (pa.fit(c.X, c.targets, c.mode, rule) for c in (large, scaled))
    assert one.ridge == other.ridge
    assert np.allclose(one.ridge_path.errors, other.ridge_path.errors, rtol=1e-9, atol=0)
    alone = pa.fit(case.X, with_rows(case, case.rows[:, 1:]).targets, case.mode, one.ridge)
    coef = np.ldexp(other.coef[1], 500)
    assert np.abs(coef - alone.coef[0]).max() <= 1e-10 * np.abs(coef).max()


@few_and_many
@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_rules_for_the_ridge_beside_a_tiny_output(examples, rule):
    hold(partial(check_rules_beside, rule=rule), examples, seed=seeds)


# Bounds -------------------------------------------------------------------------------------


def check_bound(seed: int, power: int, risk: int, kind: str) -> None:
    """Every bit is the same, unless the bound is below the normal numbers: then never less."""
    case = some_case(seed)
    certificate = pa.certify(case.X, mode=case.mode)
    plain, bound = (
        np.concatenate([np.atleast_1d(b) for b in certificate.bound(x, eps, kind=kind)])
        for x, eps in (
            (case.fresh, 1.0), ([np.ldexp(x, power) for x in case.fresh], 4.0**risk),
        )
    )  # fmt: skip
    with np.errstate(over="ignore"):
        expected = np.ldexp(plain, 3 * power + risk)
    normal = expected >= TINY
    assert np.array_equal(bound[normal], expected[normal])
    assert np.all(bound[~normal] > 0)
    assert np.all(bound[~normal] <= expected[~normal] + 1e-323)
    assert np.all(bound[~normal] >= expected[~normal])


@few_and_many
@pytest.mark.parametrize("kind", ["leverage", "worst_case"])
@pytest.mark.filterwarnings("error")
def test_bounds(examples, kind):
    hold(
        partial(check_bound, kind=kind),
        examples,
        seed=seeds,
        power=input_powers,
        risk=st.integers(-500, 500),
    )


# Shards -------------------------------------------------------------------------------------

shard_powers = st.sampled_from([-300, -170, -60, 0, 60, 170, 300])


def check_shards(seed: int, tokens: list[int], targets: list[int]) -> None:
    """Shards with other powers of two in each coordinate and output: as if fitted together."""
    case = some_case(seed, 0.0)
    X = np.array(case.X)
    Y = case.rows.reshape(len(X), -1, 2) if case.mode != "last" else case.rows
    parts = [
        (
            np.ldexp(X[i::2], tokens[2 * i : 2 * i + 2]),
            np.ldexp(Y[i::2], targets[2 * i : 2 * i + 2]),
        )
        for i in range(2)
    ]
    together = [np.concatenate(both) for both in zip(*parts, strict=True)]
    for make in (pa.Moments, pa.TriangularFactor):

        def at_once(make=make) -> pa.Moments | pa.TriangularFactor:
            return make(2, 2, case.mode).update(*together)

        def added(make=make) -> pa.Moments | pa.TriangularFactor:
            one, other = (make(2, 2, case.mode).update(*part) for part in parts)
            return one + other

        def in_turn(make=make) -> pa.Moments | pa.TriangularFactor:
            return make(2, 2, case.mode).update(*parts[0]).update(*parts[1])

        answers = [_sums_or_refusal(make_sums) for make_sums in (at_once, added, in_turn)]
        for other in answers[1:]:
            assert (other is None) == (answers[0] is None) or _part_refused(make, case, parts)
            if other is not None and answers[0] is not None:
                assert other.token_exponent == answers[0].token_exponent
                assert other.target_exponent == answers[0].target_exponent
                assert np.array_equal(other.coordinate_sizes, answers[0].coordinate_sizes)
                assert np.array_equal(other.output_sizes, answers[0].output_sizes)


def _sums_or_refusal(make_sums: Callable) -> pa.Moments | pa.TriangularFactor | None:
    try:
        return make_sums()
    except OutOfRange:
        return None


def _part_refused(make: Callable, case: Case, parts: list) -> bool:
    """Whether one of the shards is refused by itself already."""
    return any(
        _sums_or_refusal(partial(make(2, 2, case.mode).update, *part)) is None for part in parts
    )


@few_and_many
def test_shards(examples):
    hold(
        check_shards,
        examples,
        seed=seeds,
        tokens=st.lists(shard_powers, min_size=4, max_size=4),
        targets=st.lists(shard_powers, min_size=4, max_size=4),
    )


def test_a_needless_refusal_and_a_wrong_figure_are_seen():
    """Negative control."""

    def refuse() -> None:
        raise OutOfRange("for no reason")

    with pytest.raises(AssertionError, match="without need"):
        answer_or_refusal(refuse, 1.0, 1e300)
    assert answer_or_refusal(refuse, 1.0, 1e-310) is None
    assert errors_of(np.ones((3, 2)), np.array([[1.0, 2.0]] * 3)).tolist() == [0.0, 0.5]
