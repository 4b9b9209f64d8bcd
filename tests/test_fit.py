"""fit: the optimum is the optimum, and the result says what it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from oracle import EPS, MODES
from polyattn.errors import InvalidInput, PolyattnError

#: Every way to a solution: the solvers by name, and sums of which parts were added up.
WAYS = ("auto", "primal", "dual", "direct", "iterative", "moments", "factor")
SOLVERS = WAYS[1:5]


@dataclass(frozen=True)
class Problem:
    """Sequences, targets (rows, e), and all that ``fit`` is told of them."""

    X: list
    rows: np.ndarray
    form: dict
    ridge: float = 0.0
    weights: np.ndarray | None = None
    contexts: list | None = None
    alike: bool = True  # whether features are of similar size

    @property
    def n_rows(self) -> list[int]:
        return [len(oracle.predicted(len(x), self.form["mode"])) for x in self.X]

    @property
    def targets(self) -> Any:
        cuts = np.cumsum(self.n_rows)[:-1]
        return self.rows if self.form["mode"] == "last" else np.split(self.rows, cuts)

    @property
    def row_weights(self) -> np.ndarray:
        each = np.ones(len(self.X)) if self.weights is None else self.weights
        return np.repeat(each, self.n_rows)

    @cached_property
    def exact(self) -> oracle.ExactFit:
        given = (self.X, self.rows, self.form, self.ridge, self.weights, self.contexts)
        return oracle.ExactFit.of(*given)

    def fit(self, way: str) -> pa.FitResult:
        """The fit by one of WAYS; sums are made of two parts and added."""
        form = pa.Form(**self.form)
        if way not in ("moments", "factor"):
            return pa.fit(
                self.X, self.targets, form=form, ridge=self.ridge, sample_weight=self.weights,
                solver=way, context=self.contexts,
            )  # fmt: skip
        make = pa.Moments if way == "moments" else pa.TriangularFactor
        sizes = (self.X[0].shape[1], self.rows.shape[1])
        other = None if self.contexts is None else self.contexts[0].shape[1]
        cut, data = len(self.X) // 2, (self.X, self.targets, self.weights, self.contexts)
        total = make(*sizes, form=form, n_context_dims=other)
        for part in (slice(cut), slice(cut, None))[cut == 0 :]:
            given = (None if each is None else each[part] for each in data)
            total = total + make(*sizes, form=form, n_context_dims=other).update(*given)
        return pa.fit(statistics=total, ridge=self.ridge)


@dataclass(frozen=True)
class Answer:
    """What a fit says of a problem: outputs (rows, e), coefficients (p, e) or None, figures."""

    outputs: np.ndarray
    theta: np.ndarray | None
    risk: float
    rank: int | None
    condition: float | None

    @classmethod
    def of(cls, result: pa.FitResult, problem: Problem) -> Answer:
        outputs = rows_of(result.predict(problem.X, context=problem.contexts))
        theta = oracle.features_of(result.coef, problem.form)
        return cls(outputs, theta, result.risk, result.rank, result.condition)


class Judge:
    """How far a fit may be from the rational optimum: what rounding explains, and no more."""

    def __init__(self, problem: Problem) -> None:
        exact = self.exact = problem.exact
        self.problem, self.rank, self.p = problem, exact.rank, exact.psi.ncols()
        sizes = np.array([oracle.nearest(size) for size in exact.sizes])
        self.s, self.root = np.sqrt(sizes)[:, None], np.sqrt(problem.row_weights)[:, None]
        self.phi = self.root * oracle.numbers(exact.psi) / self.s.T
        self.theta = self.s * oracle.numbers(exact.coef)
        self.predicted = self.root * oracle.numbers(exact.predicted)
        self.size = float(np.linalg.norm(self.root * problem.rows))
        self.power, self.total = oracle.nearest(exact.residual_power), float(np.sum(self.root**2))
        self.is_unique = problem.ridge > 0 or self.rank == self.p
        columns, self.condition, self.kernel = self.geometry(problem.ridge)
        self.units = columns if self.is_unique else np.full_like(columns, columns.max())

    def geometry(self, ridge: float) -> tuple[np.ndarray, float, float]:
        """Sizes of the features (p, 1), the condition number of the equilibrated, and of rows."""
        stacked = np.concatenate([self.phi, np.sqrt(ridge) * np.eye(self.p)])
        norms = np.linalg.norm(stacked, axis=0)
        columns = np.where(norms > 0, norms, 1.0)
        kept = self.p if ridge else self.rank
        surplus = ridge > 0 and len(self.phi) > self.rank
        beside = np.linalg.norm(stacked, 2) / np.sqrt(ridge) if surplus else 1.0
        plain = max(condition_of(stacked, kept), beside)
        return columns[:, None], condition_of(stacked / columns, kept), plain

    def complaints(self, answer: Answer, way: str) -> list[str]:
        true, by_kernel = self.condition, max(self.condition, self.kernel)
        stated = true if way == "iterative" else answer.condition
        if way == "moments" and answer.rank is not None and answer.rank < self.rank:
            stated = true  # what it did not see of the features is not in its condition number
        if stated > 100 * self.p * by_kernel:
            return [f"states condition {stated:.1e}, true {by_kernel:.1e}"]
        level = 20 * self.p * EPS * stated
        if way == "moments":
            level *= stated
        if way == "iterative":
            level = 20 * 1e-12 * max(true, 1.0)
        if level > 1e-3:  # so that nothing can be known
            return []
        outputs = level * self.size
        if not (self.problem.alike or self.is_unique):
            outputs += 2 * EPS * self.p * float(np.linalg.norm(self.units * self.theta))
        risk = outputs**2 + 2 * outputs * np.sqrt(self.power) + 20 * EPS * self.power
        if way == "moments":
            risk += level * self.size**2
        found = {
            "outputs": (np.linalg.norm(self.root * answer.outputs - self.predicted), outputs),
            "risk": (abs(answer.risk * self.total - self.power), risk),
        }
        if answer.theta is not None and (self.is_unique or self.problem.alike):
            error = np.linalg.norm(self.units * (self.s * answer.theta - self.theta))
            found["coefficients"] = (error, self.coefficient_limit(way, level))
        known = self.problem.ridge == 0 and way != "iterative" and self.condition < 1e6
        if known and answer.rank is not None:
            found["rank"] = (abs(answer.rank - self.rank), 0.5)
        tiny = float(np.finfo(np.float64).tiny)
        return [
            f"{what}: off by {error:.1e}, allowed {limit:.1e}"
            for what, (error, limit) in found.items()
            if error > max(limit, tiny)
        ]

    def coefficient_limit(self, way: str, level: float) -> float:
        """eps kappa (||D theta|| + kappa ||r||), or what normal equations allow."""
        size = float(np.linalg.norm(self.units * self.theta))
        if way == "iterative":
            return level * self.condition * (size + self.size)
        if way == "moments":
            return level * (size + self.size)
        left = self.power + self.problem.ridge * float(np.sum(self.theta**2))
        return level * (size + self.condition * np.sqrt(left))


def condition_of(matrix: np.ndarray, rank: int) -> float:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    return float(sigma[0] / max(sigma[rank - 1], EPS * sigma[0])) if rank else 1.0


def rows_of(outputs: Any) -> np.ndarray:
    """Outputs of any form as (rows, e)."""
    return np.concatenate([np.reshape(part, (-1, np.shape(part)[-1])) for part in outputs])


@st.composite
def problems(draw: Any) -> Problem:
    """Problems of all forms; tokens, targets, weights and ridges of many sizes."""
    n_dims = draw(st.sampled_from([1, 2, 2, 3]))
    form = draw(oracle.forms(n_dims=n_dims, exact=True))
    form, width = oracle.split_context({**oracle.DEFAULTS, **form})
    X = draw(oracle.sequences(n_dims=n_dims, max_sequences=9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):  # enough to determine all coefficients
        X = X + [rng.standard_normal((n, n_dims)) for n in rng.integers(1, 5, 24)]
    constant = form["bias"] or form["skip"] or form["intercept"]
    power = 0 if draw(st.booleans()) else int(rng.integers(-36, 37)) // (9 if constant else 1)
    # Coordinates may have units of their own.
    units = rng.integers(-9, 10, n_dims) if draw(st.booleans()) else np.zeros(n_dims, int)
    X = [np.ldexp(x, power + units) for x in X]
    contexts = oracle.contexts_for(X, form, width)
    n_rows = sum(len(oracle.predicted(len(x), form["mode"])) for x in X)
    rows = rng.standard_normal((n_rows, int(rng.integers(1, 3)))) * draw(sizes(12))
    weights = draw(st.sampled_from([None, "real", "whole"]))
    if weights is not None:
        some = rng.uniform(0.5, 2.0, len(X)), rng.integers(0, 3, len(X)).astype(float)
        weights = some[weights == "whole"] * draw(sizes(30))
        weights[0] = weights.max() or 1.0
    ridge = 0.0
    if draw(st.booleans()):
        psi = oracle.design(X, form, contexts)
        heaviest = 1.0 if weights is None else weights.max()
        ridge = float(10.0 ** rng.uniform(-6, 2) * np.mean(psi**2) * heaviest)
    alike = not units.any() and (not constant or power == 0)
    return Problem(X, rows, form, ridge, weights, contexts, alike)


def sizes(digits: int) -> st.SearchStrategy[float]:
    return st.one_of(st.just(1.0), st.floats(-digits, digits).map(lambda x: float(10.0**x)))


@given(problems())
def test_every_way_finds_the_rational_optimum(problem):
    judge = Judge(problem)
    for way in WAYS:
        result = problem.fit(way)
        assert judge.complaints(Answer.of(result, problem), way) == [], way
        assert not result.outcome.ok or result.rank in (None, judge.rank)
        assert (result.ridge, result.n_features) == (problem.ridge, judge.p)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bits", [4, 6, 8, 10])
def test_tokens_almost_on_a_line_are_solved_to_kappa_eps(bits, mode):
    """Of condition numbers from 1e4 to 1e10, of which sums of squares see the square."""
    rng = np.random.default_rng(bits)

    def flat(bits):
        X = np.repeat(2.0**bits * rng.integers(-3, 4, (18, 3, 1)), 2, axis=2)
        X[..., 1] += rng.integers(-3, 4, (18, 3))
        n_rows = 18 if mode == "last" else 54
        rows = rng.integers(-9, 10, (n_rows, 1)).astype(float)
        return Problem(list(X), rows, {**oracle.DEFAULTS, "mode": mode})

    problem, beyond = flat(bits), flat(20)
    judge = Judge(problem)
    assert judge.rank == Judge(beyond).rank == 6
    for way in ("auto", "primal", "direct", "factor", "moments"):
        found = problem.fit(way)
        assert judge.complaints(Answer.of(found, problem), way) == [], way
        assert (found.rank == 6) == (way != "moments" or bits < 8)
        assert (found.outcome.name == "unique") == (found.rank == 6)
        assert way == "moments" or judge.condition / 100 < found.condition
        assert way == "auto" or beyond.fit(way).outcome.name == "minimum_norm"


def test_the_judge_sees_what_is_wrong():
    """Negative control: another ridge, a wrong rank, a risk or coefficients that are off."""
    rng = np.random.default_rng(0)
    X, rows = list(rng.standard_normal((30, 3, 2))), rng.standard_normal((30, 1))
    problem = Problem(X, rows, {**oracle.DEFAULTS}, 1.0)
    judge, good = Judge(problem), Answer.of(problem.fit("direct"), problem)
    assert judge.complaints(good, "direct") == []
    for wrong in (
        Answer.of(replace(problem, ridge=1.0001).fit("direct"), problem),
        replace(good, theta=good.theta * (1 + 1e-10)),
        replace(good, risk=good.risk * (1 + 1e-9)),
        replace(good, condition=1e9 * good.condition),
    ):
        assert judge.complaints(wrong, "direct")
    free = replace(problem, ridge=0.0)
    assert Judge(free).complaints(replace(Answer.of(free.fit("direct"), free), rank=5), "direct")


RNG = np.random.default_rng(0)


def read_only(array):
    """Data of this file, so that whatever writes into what it is given raises."""
    array.setflags(write=False)
    return array


TOKENS, TARGETS = (read_only(RNG.standard_normal(shape)) for shape in ((30, 4, 2), (30, 2)))


#: Tokens whose products their own dtype cannot hold.
DTYPES = (
    (1e38 * TOKENS / np.abs(TOKENS).max()).astype(np.float32),
    RNG.choice(np.array([-128, -1, 0, 1, 127], np.int8), TOKENS.shape),
    # Multiples of 2^11 are float64, however large; others are refused.
    RNG.integers(2**52, 2**53, TOKENS.shape, np.uint64) << np.uint64(11),
)


@pytest.mark.parametrize("tokens", DTYPES, ids=lambda tokens: tokens.dtype.name)
def test_every_real_dtype_is_its_float64(tokens):
    targets = np.random.default_rng(2).integers(-100, 100, (30, 2))
    for solver, kind in (("auto", np.int16), ("direct", np.float32), ("dual", np.int16)):
        expected = pa.fit(tokens.astype(float), targets.astype(float), solver=solver)
        found = pa.fit(tokens, targets.astype(kind), solver=solver)
        np.testing.assert_array_equal(found.coef, expected.coef)
        np.testing.assert_array_equal(found.predict(tokens), expected.predict(tokens.astype(float)))


def test_the_seed_is_kept_and_gives_the_same_result_again():
    for state in (np.random.default_rng(3), None):
        result = pa.fit(TOKENS, TARGETS, n_heads=1, random_state=state)
        again = pa.fit(TOKENS, TARGETS, n_heads=1, random_state=result.random_state)
        assert type(result.random_state) is int
        np.testing.assert_array_equal(result.coef, again.coef)
        assert (result.layer, result.outcome) == (again.layer, again.outcome)
    generator = np.random.default_rng(0)  # which advances
    seeds = {pa.fit(TOKENS, TARGETS, random_state=generator).random_state for _ in range(2)}
    assert len(seeds) == 2


X = read_only(RNG.standard_normal((120, 5, 3)))
LAYER = pa.data.random_layer(3, 2, 2, mode="last", random_state=1)
Y = read_only(LAYER(X) + 0.3 * RNG.standard_normal((120, 2)) + [3.0, -1.0])
WEIGHTS = read_only(RNG.random(120) * (np.arange(120) != 7))
LABELS = RNG.integers(0, 3, 120)


def spread(targets, weights=None):
    """The weighted variance, added up over outputs, in rational numbers."""
    rows = oracle.rationals(np.reshape(np.asarray(targets, dtype=float), (len(targets), -1)))
    shares = oracle.rationals(np.ones(len(rows)) if weights is None else weights)[:, None]
    means = (shares * rows).sum(axis=0) / shares.sum()
    return oracle.nearest((shares * (rows - means) ** 2).sum() / shares.sum())


def sums_of(kind=pa.Moments, weights=None, **of_second):
    sums = kind(3, 2)
    for name, some, more in (("a", slice(50), {}), ("b", slice(50, 120), of_second)):
        each = None if weights is None else weights[some]
        sums.update(X[some], Y[some], each, chunk=name, **more)
    return sums


FORGOTTEN = np.where(np.arange(120) < 50, 0.25, 1.0)
FIRST = pa.Moments(3, 2).update(X[:50], Y[:50], chunk="a")
HELD_AGAINST = {
    # a fit, and the weights of sequences with which the mean is taken
    **{w: (lambda w=w: pa.fit(X, Y, solver=w, sample_weight=WEIGHTS), WEIGHTS) for w in SOLVERS},
    "a chosen ridge": (lambda: pa.fit(X, Y, ridge="loo"), None),
    "a chosen decay": (lambda: pa.fit(X, Y, form=pa.Form(decay="loo", skip=True)), None),
    "moments": (lambda: pa.fit(statistics=sums_of(weights=WEIGHTS)), WEIGHTS),
    "a factor": (lambda: pa.fit(statistics=sums_of(pa.TriangularFactor)), None),
    "a chunk taken out": (lambda: pa.fit(statistics=sums_of() - FIRST), np.arange(120) >= 50),
    "an old chunk": (lambda: pa.fit(statistics=sums_of(forget=0.25)), FORGOTTEN),
}  # fmt: skip


@pytest.mark.parametrize("way", HELD_AGAINST)
def test_every_way_to_fit_is_held_against_the_mean(way):
    call, weights = HELD_AGAINST[way]
    result, own = call(), np.ones(120) if weights is None else np.asarray(weights, dtype=float)
    assert result.baseline_risk == pytest.approx(spread(Y, own), rel=1e-11)
    assert result.r2 == 1.0 - result.risk / result.baseline_risk
    zero_risk = np.average(np.sum(Y**2, axis=1), weights=own)
    assert result.zero_risk == pytest.approx(zero_risk, rel=1e-11)
    errors = np.sum((Y - result.predict(X)) ** 2, axis=1)
    assert result.risk == pytest.approx(np.average(errors, weights=own), rel=1e-8)


def test_rows_that_are_all_met_do_not_know_their_weights():
    weights, options = 10.0 ** np.linspace(-8, 8, 14), {"form": pa.Form(intercept=True)}
    one, other = (
        pa.fit(X[:14], Y[:14], solver="dual", sample_weight=w, **options) for w in (None, weights)
    )
    assert other.condition < 2 * one.condition
    assert oracle.relative_error(other.coef, one.coef) < 1e-11


def test_positions_and_classes_are_held_against_their_own_mean():
    rows = np.random.default_rng(1).standard_normal((120, 5, 2))
    found = pa.fit(X, rows, mode="causal", sample_weight=WEIGHTS)
    each = np.repeat(WEIGHTS, 5)
    assert found.baseline_risk == pytest.approx(spread(rows.reshape(-1, 2), each), rel=1e-12)
    found = pa.fit(X, LABELS, loss="logistic", ridge=1e-2, sample_weight=WEIGHTS)
    shares = np.array([WEIGHTS[k == LABELS].sum() for k in range(3)]) / WEIGHTS.sum()
    assert found.baseline_risk == pytest.approx(-np.sum(shares * np.log(shares)), rel=1e-13)
    assert found.zero_risk == pytest.approx(np.log(3))
    # Sums of squares less squares of sums would be rounding alone.
    y, sums = rows[:, 0, :1] - 1e12, pa.Moments(3, 1)
    for first in range(0, 120, 17):
        sums.update(X[first : first + 17], y[first : first + 17])
    for found in (pa.fit(X, y, bias=True), pa.fit(statistics=sums)):
        # By so much targets themselves are rounded.
        assert found.baseline_risk == pytest.approx(spread(y), rel=1e12 * EPS)


@pytest.mark.parametrize("offset", [1e3, 1e9])
def test_rounding_of_sums_does_not_explain_targets(offset):
    """Beside a large mean the risk of moments is rounding; a factor keeps the digits."""
    y = offset + np.random.default_rng(1).standard_normal(120)
    sums, factor = (
        pa.fit(statistics=kind(3, 1, bias=True).update(X, y))
        for kind in (pa.Moments, pa.TriangularFactor)
    )
    best = pa.fit(X, y, bias=True)
    assert 0.0 < best.r2 < 0.9
    assert best.outcome.ok
    assert factor.r2 == pytest.approx(best.r2, rel=1e-6)
    assert abs(sums.risk - best.risk) <= sums.risk_rounding
    if offset > 1e6:
        assert (sums.r2, sums.outcome.ok) == (None, False)
    else:
        assert sums.r2 == pytest.approx(best.r2, abs=0.02)
        assert sums.outcome.ok


def test_a_fit_that_a_constant_beats_is_not_ok():
    labels, rare = LABELS.astype(float), (np.arange(120) < 12).astype(int)
    constant = pa.Form(intercept=True)
    for found in (
        pa.fit(X, labels), pa.fit(X, 10.0 + labels, form=constant, ridge=1e4),
        pa.fit(0 * X, labels, form=constant), pa.fit(X, rare, loss="logistic", ridge=1.0),
    ):  # fmt: skip
        assert not found.outcome.ok
        assert found.r2 <= 1e-9
    for found in (
        pa.fit(X, labels, bias=True), pa.fit(X, labels, form=constant), pa.fit(X, LAYER(X)),
        pa.fit(X, rare, loss="logistic", ridge=1.0, form=constant),
    ):  # fmt: skip
        assert found.outcome.ok
        assert found.r2 > 0


def test_targets_without_spread_have_an_r2_that_is_no_nan():
    for value in (0.0, 0.1, 1e8):
        y = np.full(120, value)
        computed, missed = pa.fit(X, y, bias=True), pa.fit(X, y)
        assert (computed.baseline_risk, computed.r2, computed.outcome.ok) == (0.0, 1.0, True)
        assert missed.r2 == (1.0 if value == 0.0 else -np.inf)
        assert missed.outcome.ok == (value == 0.0)
        parts = [pa.Moments(3, 1).update(X[i : i + 7], y[i : i + 7]) for i in range(0, 120, 7)]
        assert pa.fit(statistics=sum(parts)).baseline_risk == 0.0
    alone = pa.fit(X[:1], Y[:1], ridge=1.0)
    assert (alone.baseline_risk, alone.r2, alone.outcome.ok) == (0.0, -np.inf, True)
    beyond = pa.fit(X, LAYER(X) * 1e-170)  # whose squares float64 cannot hold
    assert (beyond.baseline_risk, beyond.r2) == (None, None)


def test_shapes_that_look_exchanged_are_mentioned():
    """Channels in the place of tokens, targets of tokens in mode last, few targets."""
    rng = np.random.default_rng(1)
    series, y, few = (rng.standard_normal(size) for size in ((30, 4, 50), 160, (160, 5, 4)))
    for words, doubted, sensible in (
        ("50 coordinates", (series, y[:30]), (series.transpose(0, 2, 1), y[:30])),
        ("causal", (X, Y[:, [0] * 5]), (X, Y[:, [0] * 4])),
        ("generalisation", (few[:60], y[:60]), (few, y)),
    ):
        assert words in pa.fit(*doubted).outcome.next_step
        assert words not in pa.fit(*sensible).outcome.next_step


def test_the_outcome_is_what_was_found():
    few, flat = (TOKENS[:4], TARGETS[:4]), TOKENS * [1, 0]
    for found, name, ok, rank in (
        (pa.fit(TOKENS, TARGETS), "unique", True, 6), (pa.fit(*few), "minimum_norm", False, 4),
        (pa.fit(statistics=pa.Moments(2, 2).update(flat, TARGETS)), "minimum_norm", False, 1),
        (pa.fit(TOKENS, TARGETS, ridge="loo"), "regularised", True, None),
        (pa.fit(TOKENS, TARGETS, solver="iterative"), "iterative", True, None),
        (pa.fit(TOKENS, TARGETS, n_heads=1), "limited_heads", True, 6),
        (pa.fit(*few, n_heads=1), "limited_heads", False, 4),
        (pa.fit(TOKENS @ [[1, 1], [0, 1e-4]], TARGETS), "unique", True, 6),
    ):  # fmt: skip
        assert (found.outcome.name, found.outcome.ok, found.rank) == (name, ok, rank)


ONE, TWO = np.ones((3, 4, 2)), np.ones((3, 2))
FITTED = pa.fit(TOKENS, TARGETS)
SUMS = pa.Moments(2, 2).update(ONE, TWO)

#: What arrays may hold is asked of every taker in test_sequences.
REFUSED = [
    (lambda: pa.fit(ONE), "X and Y"),
    (lambda: pa.fit(ONE, np.ones((3, 5, 1)), "full"), "4 tokens", "5 targets"),
    (lambda: pa.fit(ONE, np.ones((3, 0))), "Y", "zero outputs"),
    (lambda: pa.fit(ONE, TWO, ridge=-1e-9), "ridge", "-1e-09"),
    (lambda: pa.fit(ONE, TWO, mode="cross"), "mode", "context"),
    (lambda: pa.fit(ONE, TWO, head_rank=0), "head_rank"),
    (lambda: pa.fit(ONE, TWO, random_state=-1), "random_state", "-1"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[1.0]), "sample_weight", "(3,)", "(1,)"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[0, 0, 0]), "sample_weight", "zero"),
    (lambda: pa.fit(ONE, TWO, context=ONE[:2]), "context", "2"),
    (lambda: pa.fit(ONE, ONE, "causal", context=np.ones((3, 5, 2))), "context", "5"),
    (lambda: pa.fit(ONE, TWO, bias=True, form=pa.Form()), "bias", "Form"),
    (lambda: pa.fit(ONE, TWO, statistics=SUMS), "either X and Y", "statistics"),
    (lambda: pa.fit(statistics=pa.Moments(2, 2)), "empty", "update"),
    (lambda: pa.fit(statistics=SUMS, solver="dual"), "solver", "dual"),
    (lambda: pa.fit(ONE, TWO, alpha=1.0), "alpha", "ridge"),
    (lambda: FITTED.predict(np.ones((3, 4, 5))), "X", "2 coordinates", "5"),
    (lambda: FITTED.predict(ONE, context=ONE), "context"),
]


def test_misuse_is_refused_by_an_error_that_names_the_argument():
    for call, *words in REFUSED:
        with pytest.raises(PolyattnError) as refusal:
            call()
        for word in words:
            assert word in str(refusal.value), (word, str(refusal.value))


def test_results_keep_64_megabytes_of_their_data_and_no_more():
    rng = np.random.default_rng(0)
    X, Y = np.ones((1000, 4300, 2)) * rng.standard_normal((1000, 1, 2)), rng.standard_normal(1000)
    with pytest.raises(InvalidInput, match="give them again"):
        pa.fit(X, Y).generalisation()
    assert pa.fit(X[:, :2000], Y).generalisation() is not None


def test_heads_are_looked_for_when_they_are_asked_for_and_those_that_are_zero_are_counted(tmp_path):
    tokens, one = X[:, :, :2], pa.data.random_layer(2, 2, 1, "last", random_state=0)
    result = pa.fit(tokens, one(tokens), n_heads=6)
    assert "the others are zero" in result.sentence
    found = pa.fit(X, Y)
    pa.save(found, tmp_path / "fit")
    assert found.found_heads is None
    assert pa.load(tmp_path / "fit").found_heads is None
