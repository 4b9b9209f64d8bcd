"""fit: the optimum is the optimum, moves as theory says, and the result says what it is."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

import oracle
import polyattn as pa
from oracle import EPS, MODES, relative_error
from polyattn.errors import PolyattnError

#: Every way to a solution: the solvers by name, and sums of which parts were added up.
WAYS = ("auto", "primal", "dual", "direct", "iterative", "moments", "factor")
SOLVERS = WAYS[1:5]

#: Laws that draw a problem for each of many changes need fewer of them.
some = settings(max_examples=max(3, settings().max_examples // 6))


# ------------------------------------------------------------------ problems and their judge


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
        return np.repeat(
            np.ones(len(self.X)) if self.weights is None else self.weights, self.n_rows
        )

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
        cut, total = len(self.X) // 2, make(*sizes, form=form, n_context_dims=other)
        for part in (slice(0, cut), slice(cut, None)):
            if not self.X[part]:
                continue
            weights, context = (
                None if each is None else each[part] for each in (self.weights, self.contexts)
            )
            empty = make(*sizes, form=form, n_context_dims=other)
            total = total + empty.update(self.X[part], self.targets[part], weights, context=context)
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

    def complaints(self, answer: Answer, way: str, changed: Judge | None = None) -> list[str]:
        """All that is wrong; ``changed`` judges the problem that was solved in place of this."""
        true = max(each.condition for each in (self, changed or self))
        by_kernel = max(true, self.kernel, (changed or self).kernel)
        stated = true if way == "iterative" else answer.condition
        if stated > 100 * self.p * by_kernel:
            return [f"states condition {stated:.1e}, true {by_kernel:.1e}"]
        level = 20 * self.p * EPS * stated
        if way == "moments":
            level *= stated
        if way == "iterative":
            level = 20 * 1e-12 * max(true, 1.0)
        if level > 1e-3:
            return self.own_risk(answer)
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

    def own_risk(self, answer: Answer) -> list[str]:
        """Where the truth cannot be known, the stated risk is at least that of the outputs."""
        own = np.linalg.norm(self.root * (answer.outputs - self.problem.rows)) ** 2
        slack = (np.linalg.norm(self.root * answer.outputs) + self.size) ** 2
        wrong = abs(own - answer.risk * self.total) > EPS * self.p * slack * answer.condition**2
        return ["own risk"] if wrong else []


def condition_of(matrix: np.ndarray, rank: int) -> float:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    return float(sigma[0] / max(sigma[rank - 1], EPS * sigma[0])) if rank else 1.0


def rows_of(outputs: Any) -> np.ndarray:
    """Outputs of any form as (rows, e)."""
    return np.concatenate([np.reshape(part, (-1, np.shape(part)[-1])) for part in outputs])


@st.composite
def problems(draw: Any, plain: bool = False, n_dims: int = 2) -> Problem:
    """Problems of all forms; tokens, targets, weights and ridges of many sizes.

    plain : what is seen of a token is the token itself
    """
    form = draw(oracle.forms(n_dims=n_dims, exact=True))
    if plain:
        form |= dict.fromkeys(("query", "key", "value"))
    form, width = oracle.split_context({**oracle.DEFAULTS, **form})
    X = draw(oracle.sequences(n_dims=n_dims, max_sequences=9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):  # enough to determine all coefficients
        X = X + [rng.standard_normal((n, n_dims)) for n in rng.integers(1, 5, 24)]
    constant = form["bias"] or form["skip"] or form["intercept"]
    power = 0 if draw(st.booleans()) else int(rng.integers(-36, 37)) // (9 if constant else 1)
    X = [np.ldexp(x, power) for x in X]
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
    return Problem(X, rows, form, ridge, weights, contexts, alike=not constant or power == 0)


def sizes(digits: int) -> st.SearchStrategy[float]:
    return st.one_of(st.just(1.0), st.floats(-digits, digits).map(lambda x: float(10.0**x)))


# ------------------------------------------------------------------ the optimum


@given(problems())
def test_every_way_finds_the_rational_optimum(problem):
    """Of all forms, with weights and ridges; by every solver, and from sums of parts."""
    judge = Judge(problem)
    for way in WAYS:
        result = problem.fit(way)
        assert judge.complaints(Answer.of(result, problem), way) == [], way
        assert result.ridge == problem.ridge
        assert result.n_features == judge.p


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
    good = Answer.of(free.fit("direct"), free)
    assert Judge(free).complaints(replace(good, rank=5), "direct")


# ------------------------------------------------------------------ changes of a problem
#
# Each gives the changed problem and the way back: what an answer to it says of the original one.


def _of_tokens(problem, change, **more):
    contexts = problem.contexts and [change(z) for z in problem.contexts]
    return replace(problem, X=[change(x) for x in problem.X], contexts=contexts, **more)


def _of_rows(problem, order):
    starts = np.cumsum([0, *problem.n_rows])
    return np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])


def _weights(problem):
    return np.ones(len(problem.X)) if problem.weights is None else problem.weights


def _with_sequences(problem, more, rows, weights):
    """The same with more sequences at the end; the way back leaves their outputs out."""
    own = problem.contexts and problem.contexts + [problem.contexts[i] for i in more]
    changed = replace(
        problem, X=problem.X + [problem.X[i] for i in more], contexts=own, weights=weights,
        rows=np.concatenate([problem.rows, rows]),
    )  # fmt: skip
    return changed, lambda a: replace(a, outputs=a.outputs[: len(problem.rows)])


def scale_tokens(problem, factor, _):
    """Features are cubic, moments of sixth degree."""
    changed = _of_tokens(problem, lambda x: x * factor, ridge=problem.ridge * factor**6)
    return changed, lambda a: replace(a, theta=a.theta * factor**3)


def scale_targets(problem, factor, _):
    return replace(problem, rows=problem.rows * factor), lambda a: replace(
        a, outputs=a.outputs / factor, theta=a.theta / factor, risk=a.risk / factor**2
    )


def scale_weights(problem, factor, _):
    size = abs(factor) ** 3
    return replace(problem, weights=_weights(problem) * size, ridge=problem.ridge * size), None


def scale_one_coordinate(problem, factor, _):
    """Without a penalty the optimum does not know units."""
    scale = np.array([np.cbrt(factor), 1.0])
    return _of_tokens(problem, lambda x: x * scale, alike=False), lambda a: replace(a, theta=None)


def rotate(problem, _, rng):
    """The norm of T does not change under rotations."""
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    return _of_tokens(problem, lambda x: x @ turn), lambda a: replace(a, theta=None)


def append_a_zero_coordinate(problem, *_):
    """The minimiser of least norm has no coefficient for what is always zero."""
    changed = _of_tokens(problem, lambda x: np.pad(x, ((0, 0), (0, 1))))
    return changed, lambda a: replace(a, theta=None)


def permute_coordinates(problem, *_):
    return _of_tokens(problem, lambda x: x[:, ::-1]), lambda a: replace(a, theta=None)


def permute_sequences(problem, _, rng):
    order = rng.permutation(len(problem.X))
    rows = _of_rows(problem, order)
    changed = replace(
        problem, X=[problem.X[i] for i in order], rows=problem.rows[rows],
        weights=_weights(problem)[order], contexts=problem.contexts and [
            problem.contexts[i] for i in order
        ],
    )  # fmt: skip
    return changed, lambda a: replace(a, outputs=a.outputs[np.argsort(rows)])


def reorder_earlier_tokens(problem, _, rng):
    """A layer that predicts the last token sees the others only as a set."""
    return _of_tokens(problem, lambda x: np.concatenate([rng.permutation(x[:-1]), x[-1:]])), None


def double_all_sequences(problem, *_):
    halves = np.tile(_weights(problem) / 2, 2)
    return _with_sequences(problem, range(len(problem.X)), problem.rows, halves)


def repeat_for_a_weight_of_three(problem, _, rng):
    i, weights = int(rng.integers(len(problem.X))), _weights(problem).copy()
    weights[i] /= 4
    rows, third = problem.rows[_of_rows(problem, [i])], 3 * weights[i]
    return _with_sequences(problem, [i], rows, np.append(weights, third))


def add_sequences_of_weight_zero(problem, _, rng):
    rows = problem.rows[_of_rows(problem, [0])]
    wild = rng.standard_normal(rows.shape) * np.abs(problem.rows).max()
    return _with_sequences(problem, [0], wild, np.append(_weights(problem), 0.0))


def mix_outputs(problem, _, rng):
    """Outputs are fitted independently of each other, and linearly."""
    mix = rng.standard_normal((problem.rows.shape[1],) * 2) + 3 * np.eye(problem.rows.shape[1])
    back = np.linalg.inv(mix)
    return replace(problem, rows=problem.rows @ mix), lambda a: replace(
        a, outputs=a.outputs @ back, theta=a.theta @ back,
        risk=float(np.average(np.sum((a.outputs @ back - problem.rows) ** 2, axis=1),
                              weights=problem.row_weights)),
    )  # fmt: skip


def _homogeneous(problem):
    return not any(problem.form[name] for name in ("bias", "skip", "intercept"))


def _in_units(problem):
    n_features = problem.exact.psi.ncols()
    return problem.ridge == 0 and problem.contexts is None and problem.exact.rank == n_features


def _own_tokens(problem):
    return problem.contexts is None and problem.alike


def _a_set(problem):
    named = ("window", "decay", "lags")
    return problem.form["mode"] == "last" and all(problem.form[name] is None for name in named)


CHANGES = {
    "tokens x c": (scale_tokens, _homogeneous),
    "targets x c": (scale_targets, None),
    "weights x c": (scale_weights, None),
    "one coordinate x c": (scale_one_coordinate, _in_units),
    "rotation": (rotate, _own_tokens),
    "a zero coordinate": (append_a_zero_coordinate, None),
    "coordinates permuted": (permute_coordinates, None),
    "sequences permuted": (permute_sequences, None),
    "earlier tokens permuted": (reorder_earlier_tokens, _a_set),
    "sequences doubled": (double_all_sequences, None),
    "repeated for weight three": (repeat_for_a_weight_of_three, None),
    "sequences of weight zero": (add_sequences_of_weight_zero, None),
    "outputs mixed": (mix_outputs, None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_problem_has_the_changed_answer(name):
    change, applies = CHANGES[name]

    @some
    @given(problems(plain=True), st.floats(-4, 4), st.sampled_from([1, -1]), st.integers(0, 99))
    def holds(problem, digits, sign, seed):
        assume(applies is None or applies(problem))
        changed, back = change(problem, sign * float(10.0**digits), np.random.default_rng(seed))
        judge, other = Judge(problem), Judge(changed)
        for way in WAYS:
            answer = Answer.of(changed.fit(way), changed)
            answer = answer if back is None else back(answer)
            assert judge.complaints(answer, way, other) == [], way

    holds()


def test_powers_of_two_change_no_bit():
    """Multiplication by powers of two commutes with rounding, in every solver and all sums."""

    @some
    @given(problems(), *[st.integers(-60, 60)] * 3)
    def holds(problem, tokens, targets, weights):
        assume(_homogeneous(problem))
        problem = replace(problem, weights=_weights(problem))
        scaled = replace(
            _of_tokens(problem, lambda x: np.ldexp(x, tokens)),
            rows=np.ldexp(problem.rows, targets),
            weights=np.ldexp(problem.weights, 2 * weights),
            ridge=float(np.ldexp(problem.ridge, 6 * tokens + 2 * weights)),
        )
        for way in WAYS:
            one, other = problem.fit(way), scaled.fit(way)
            assert one.outcome.name == other.outcome.name
            assert (one.rank, one.condition) == (other.rank, other.condition), way
            assert np.array_equal(np.ldexp(one.coef, targets - 3 * tokens), other.coef), way
            assert np.ldexp(one.risk, 2 * targets) == other.risk, way

    holds()


# ------------------------------------------------------------------ planted layers, and rivals


@pytest.mark.parametrize("mode", MODES)
def test_planted_layers_of_any_width_come_back(mode):
    """On sequences never seen, from one output or many, with a constant or without."""
    for d, e, n_heads, bias in (
        (1, 1, 1, False), (1, 2, 2, True), (2, 1, 4, False), (3, 3, 2, True), (6, 2, 3, False),
        (12, 12, 4, False),
    ):  # fmt: skip
        form = {"mode": mode, "bias": bias}
        truth = oracle.random_layer(form, d, n_heads=n_heads, n_outputs=e, seed=d)
        rng, width = np.random.default_rng([d, e]), d + bias
        # Lengths must vary to tell the constant three times.
        wanted = width * width * (width + 1) // (1 if mode == "last" or d < 4 else 2 * d)
        lengths = rng.integers(1, 2 * d + 4, wanted + 20)
        X = [rng.standard_normal((n, d)) for n in lengths]
        Y = [oracle.forward(truth, x, form) for x in X] if d < 12 else None
        layer = pa.LinearAttention(truth["attn"], truth["value"], mode, bias=bias)
        Y = layer(X) if Y is None else (np.concatenate(Y) if mode == "last" else Y)
        result = pa.fit(X, Y, mode, bias=bias)
        assert result.outcome.name == "unique"
        assert pa.same_function(result.layer, layer)
        fresh = [rng.standard_normal((n, d)) for n in (1, 3, 5)]
        expected = np.concatenate([oracle.forward(truth, x, form) for x in fresh])
        assert relative_error(rows_of(result.predict(fresh)), expected) < 1e-9
        assert relative_error(result.coef, oracle.coefficients(truth, d, form)) < 1e-9


@pytest.mark.parametrize(("mode", "n_heads"), [("last", 1), ("last", 4), ("causal", 2)])
def test_no_gradient_run_gets_below_the_closed_form(mode, n_heads):
    """On pure noise; enough heads reach it, and fewer reach the best that fit found."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 4, 2))
    Y = rng.standard_normal((50, 2) if mode == "last" else (50, 4, 2))
    optimum, limited = pa.fit(X, Y, mode).risk, pa.fit(X, Y, mode, n_heads=n_heads)
    psi, rows = oracle.design(list(X), {"mode": mode}), Y.reshape(-1, 2)

    def residuals(parameters):
        attn, value = parameters.reshape(2, n_heads, 2, 2)
        coef = oracle.coefficients({"attn": attn, "value": value}, 2, {})
        return (psi @ oracle.features_of(coef, {}) - rows).ravel()

    starts = rng.standard_normal((3, 8 * n_heads))
    reached = min(2 * least_squares(residuals, x, max_nfev=50).cost for x in starts) / len(rows)
    assert reached > optimum * (1 - 1e-9)
    assert reached == pytest.approx(limited.risk, rel=1e-3)
    assert limited.risk < reached * (1 + 1e-6)
    assert limited.optimal_risk == pytest.approx(optimum, rel=1e-9)
    assert limited.gap == pytest.approx(limited.risk - optimum, rel=1e-6, abs=1e-9)
    assert (limited.gap > 1e-3) == (n_heads == 1)
    assert limited.layer.n_heads <= n_heads


# ------------------------------------------------------------------ what goes in and comes out

RNG = np.random.default_rng(0)
TOKENS, TARGETS = RNG.standard_normal((30, 4, 2)), RNG.standard_normal((30, 2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_all_ways_to_give_data_are_one_and_predictions_have_their_form(mode, n_outputs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4, 2))
    shape = (30, n_outputs) if mode == "last" else (30, 4, n_outputs)
    Y = rng.standard_normal(shape)
    result = pa.fit(X, Y, mode)
    expected = result.predict(X)
    assert expected.shape == shape
    batches = (
        pa.SequenceBatch.from_sequences(list(X)), pa.SequenceBatch.from_array(X),
        pa.SequenceBatch.from_padded(
            np.concatenate([X, np.full((30, 2, 2), np.nan)], axis=1), np.full(30, 4)
        ),
    )  # fmt: skip
    for given_X in (list(X), tuple(X), X.tolist(), np.asfortranarray(X), *batches):
        other = pa.fit(given_X, Y, mode)
        assert relative_error(other.coef, result.coef) < 1e-10
        outputs = result.predict(given_X)
        assert isinstance(outputs, list) == (mode != "last" and type(given_X) is not np.ndarray)
        assert relative_error(np.stack(outputs), expected) < 1e-12
    for given_Y in (Y.tolist() if mode == "last" else list(Y), np.asfortranarray(Y)):
        assert relative_error(pa.fit(X, given_Y, mode).coef, result.coef) < 1e-10
    if n_outputs == 1:
        assert relative_error(pa.fit(X, Y[..., 0], mode).coef, result.coef) < 1e-10
    single = result.predict(X[5])
    assert single.shape == shape[1:]
    assert relative_error(single, expected[5]) < 1e-12
    ragged = result.predict([x[:n] for x, n in zip(X, (1, 3, 2), strict=False)])
    lengths = [(n_outputs,)] * 3 if mode == "last" else [(n, n_outputs) for n in (1, 3, 2)]
    assert [np.shape(y) for y in ragged] == lengths


DTYPES = {
    "float32": (1e38 * TOKENS / np.abs(TOKENS).max()).astype(np.float32),
    "float16": (1e4 * TOKENS / np.abs(TOKENS).max()).astype(np.float16),
    "int8": RNG.choice(np.array([-128, -1, 0, 1, 127], np.int8), TOKENS.shape),
    "int32": RNG.integers(-(2**31), 2**31, TOKENS.shape, np.int32),
    # Multiples of 2^11 are float64, however large; others are refused.
    "int64": RNG.integers(-(2**52), 2**52, TOKENS.shape, np.int64) << 11,
    "uint64": RNG.integers(2**52, 2**53, TOKENS.shape, np.uint64) << np.uint64(11),
    "bool": TOKENS > 0,
    "big endian": TOKENS.astype(">f4"),
}


def test_every_real_dtype_is_its_float64():
    targets = np.random.default_rng(2).integers(-100, 100, (30, 2))
    for name, tokens in DTYPES.items():
        wide = tokens.astype(np.float64)
        for solver in ("auto", "direct", "dual"):
            expected = pa.fit(wide, targets.astype(float), solver=solver)
            for kind in (np.int16, np.float32):
                found = pa.fit(tokens, targets.astype(kind), solver=solver)
                assert np.array_equal(found.coef, expected.coef), name
                assert found.risk == expected.risk
                assert np.array_equal(found.predict(tokens), expected.predict(wide)), name


@pytest.mark.parametrize("solver", SOLVERS)
def test_inputs_are_never_modified(solver):
    arrays = [TOKENS.copy(), TARGETS.copy(), np.arange(30.0), np.array([3.0, 1.0])]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    X, Y, weights, grid = arrays
    result = pa.fit(X, Y, "last", "loo", 1, solver, True, weights, ridge_grid=grid)
    result.predict(X), result.layer(X)
    for array, old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_results_cannot_be_changed():
    result = pa.fit(TOKENS, TARGETS)
    for name in ("coef", "risk", "outcome", "statistics", "ridge"):
        with pytest.raises(FrozenInstanceError):
            setattr(result, name, None)
    for array in (result.coef, result.layer.attn, result.layer.value, result.layer.coef):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0.0


def test_the_seed_is_kept_and_gives_the_same_result_again():
    one, other = (pa.fit(TOKENS, TARGETS, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(one.coef, other.coef)
    assert (one.layer, one.outcome) == (other.layer, other.outcome)
    for state in (np.int64(7), np.random.default_rng(3)):
        result = pa.fit(TOKENS, TARGETS, n_heads=1, random_state=state)
        again = pa.fit(TOKENS, TARGETS, n_heads=1, random_state=result.random_state)
        assert type(result.random_state) is int
        np.testing.assert_array_equal(result.coef, again.coef)
    generator = np.random.default_rng(0)  # which advances
    seeds = {pa.fit(TOKENS, TARGETS, random_state=generator).random_state for _ in range(2)}
    assert len(seeds) == 2
    assert type(pa.fit(TOKENS, TARGETS, random_state=None).random_state) is int
    # The optimum itself needs no seed.
    one, other = (pa.fit(TOKENS, TARGETS, random_state=seed) for seed in (1, 2))
    np.testing.assert_array_equal(one.coef, other.coef)


# ------------------------------------------------------------------ beside the mean


X = RNG.standard_normal((120, 5, 3))
LAYER = pa.data.random_layer(3, 2, 2, mode="last", random_state=1)
Y = LAYER(X) + 0.3 * RNG.standard_normal((120, 2)) + [3.0, -1.0]
WEIGHTS = RNG.random(120) * (np.arange(120) != 7)
LABELS = RNG.integers(0, 3, 120)


def spread(targets, weights=None):
    """The weighted variance, added up over outputs, in rational numbers."""
    rows = oracle.rationals(np.reshape(np.asarray(targets, dtype=float), (len(targets), -1)))
    shares = oracle.rationals(np.ones(len(rows)) if weights is None else weights)[:, None]
    means = (shares * rows).sum(axis=0) / shares.sum()
    return oracle.nearest((shares * (rows - means) ** 2).sum() / shares.sum())


def sums_of(kind=pa.Moments, weights=None, **of_second):
    """Sums of two chunks."""
    sums = kind(3, 2)
    for name, some, more in (("a", slice(50), {}), ("b", slice(50, 120), of_second)):
        each = None if weights is None else weights[some]
        sums.update(X[some], Y[some], each, chunk=name, **more)
    return sums


FORGOTTEN = np.where(np.arange(120) < 50, 0.25, 1.0)
FIRST = pa.Moments(3, 2).update(X[:50], Y[:50], chunk="a")
HELD_AGAINST = {
    # a fit, and the weights of sequences with which the mean is taken
    **{w: (lambda w=w: pa.fit(X, Y, solver=w), None) for w in SOLVERS},
    **{f"{w}, weights": (lambda w=w: pa.fit(X, Y, solver=w, sample_weight=WEIGHTS), WEIGHTS)
       for w in ("primal", "dual")},
    "a chosen ridge": (lambda: pa.fit(X, Y, ridge="loo"), None),
    "one head": (lambda: pa.fit(X, Y, n_heads=1), None),
    "a chosen decay": (lambda: pa.fit(X, Y, form=pa.Form(decay="loo", skip=True)), None),
    "a context": (lambda: pa.fit(X, Y, context=X), None),
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
    assert result.zero_risk == pytest.approx(
        np.average(np.sum(Y**2, axis=1), weights=own), rel=1e-11
    )
    outputs = result.predict(X, context=X) if way == "a context" else result.predict(X)
    errors = np.sum((Y - outputs) ** 2, axis=1)
    assert result.risk == pytest.approx(np.average(errors, weights=own), rel=1e-8)
    assert "5 tokens of 3 coordinates" in result.data_sizes


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
    for offset in (0.0, 1e8, -1e12):
        for scale in (1.0, 1e-150, 1e140):
            y, sums = (offset + rows[:, 0, :1]) * scale, pa.Moments(3, 1)
            for first in range(0, 120, 17):
                sums.update(X[first : first + 17], y[first : first + 17])
            for found in (pa.fit(X, y, bias=True), pa.fit(statistics=sums)):
                rounded = 1e-13 + EPS * abs(offset)  # by so much targets themselves are rounded
                assert found.baseline_risk == pytest.approx(spread(y), rel=rounded)


@pytest.mark.parametrize("offset", [1e3, 1e7, 1e9])
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
    rng = np.random.default_rng(1)
    ragged = [rng.standard_normal((n, 2)) for n in rng.integers(1, 9, 60)]
    level = 10.0 + 0.01 * rng.standard_normal(60)
    constant = pa.Form(intercept=True)
    beaten = {
        "no constant": pa.fit(X, labels),
        "one head": pa.fit(X, labels, n_heads=1),
        "a constant that grows": pa.fit(ragged, level, bias=True, ridge=10.0),
        "a large ridge": pa.fit(ragged, level, form=constant, ridge=1e4),
        "nothing to see": pa.fit(np.zeros((9, 2, 2)), np.arange(9.0), form=constant),
        "log-loss": pa.fit(X, rare, loss="logistic", ridge=1.0),
    }
    for name, found in beaten.items():
        assert not found.outcome.ok, name
        assert found.r2 <= 1e-9, name
    assert beaten["no constant"].outcome.name == "unique"
    for found in (
        pa.fit(X, labels, bias=True), pa.fit(X, labels, form=constant),
        pa.fit(X, labels - labels.mean()), pa.fit(X, LAYER(X)), pa.fit(X, Y, bias=True),
        pa.fit(X, rare, loss="logistic", ridge=1.0, form=constant),
    ):  # fmt: skip
        assert found.outcome.ok
        assert found.r2 > 0


def test_targets_without_spread_have_an_r2_that_is_no_nan():
    for value in (0.0, 5.0, 1e8, 0.1):
        y = np.full(120, value)
        computed, missed = pa.fit(X, y, bias=True), pa.fit(X, y)
        assert (computed.baseline_risk, computed.r2, computed.outcome.ok) == (0.0, 1.0, True)
        assert missed.r2 == (1.0 if value == 0.0 else -np.inf)
        assert missed.outcome.ok == (value == 0.0)
        parts = [pa.Moments(3, 1).update(X[i : i + 7], y[i : i + 7]) for i in range(0, 120, 7)]
        assert pa.fit(statistics=sum(parts)).baseline_risk == 0.0
    alone = pa.fit(X[:1], Y[:1], ridge=1.0)
    assert (alone.baseline_risk, alone.r2, alone.outcome.ok) == (0.0, -np.inf, True)
    for scale in (1e156, 1e-170):  # whose squares float64 cannot hold
        found = pa.fit(X, LAYER(X) * scale)
        assert (found.baseline_risk, found.r2) == (None, None)


def test_shapes_that_look_exchanged_are_mentioned():
    """Channels in the place of tokens, targets of tokens in mode last, few targets."""
    rng = np.random.default_rng(1)
    series, y = rng.standard_normal((30, 4, 50)), rng.standard_normal(30)
    doubted = {"50 coordinates": pa.fit(series, y), "causal": pa.fit(X, Y[:, [0] * 5])}
    few, many = rng.standard_normal((60, 5, 4)), rng.standard_normal((160, 5, 4))
    doubted["generalisation"] = pa.fit(few, rng.standard_normal(60))
    sensible = {
        "50 coordinates": pa.fit(series.transpose(0, 2, 1), y), "causal": pa.fit(X, Y[:, [0] * 4]),
        "generalisation": pa.fit(many, rng.standard_normal(160)),
    }  # fmt: skip
    for words, found in doubted.items():
        assert words in found.outcome.next_step, words
        assert words not in sensible[words].outcome.next_step, words
    planted = pa.data.random_layer(4, n_heads=2, mode="last", random_state=0)
    assert "generalisation" not in pa.fit(few, planted(few)).outcome.next_step


# ------------------------------------------------------------------ outcomes and refusals

OUTCOMES = {
    "unique": (lambda: pa.fit(TOKENS, TARGETS), "unique", True, 6),
    "few rows": (lambda: pa.fit(TOKENS[:4], TARGETS[:4]), "minimum_norm", False, 4),
    "flat tokens": (lambda: pa.fit(TOKENS * [1, 0], TARGETS), "minimum_norm", False, 1),
    "moments": (
        lambda: pa.fit(statistics=pa.Moments(2, 2).update(TOKENS * [1, 0], TARGETS)),
        "minimum_norm", False, 1,
    ),
    "ridge": (lambda: pa.fit(TOKENS, TARGETS, ridge=0.5), "regularised", True, None),
    "loo": (lambda: pa.fit(TOKENS, TARGETS, ridge="loo"), "regularised", True, None),
    "iterative": (lambda: pa.fit(TOKENS, TARGETS, solver="iterative"), "iterative", True, None),
    "heads": (lambda: pa.fit(TOKENS, TARGETS, n_heads=1), "limited_heads", True, 6),
    "heads, few rows": (
        lambda: pa.fit(TOKENS[:4], TARGETS[:4], n_heads=1), "limited_heads", False, 4
    ),
    "ill conditioned": (
        lambda: pa.fit(TOKENS @ [[1, 1], [0, 1e-4]], TARGETS), "unique", True, 6
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTCOMES)
def test_the_outcome_is_what_was_found(case):
    call, name, ok, rank = OUTCOMES[case]
    result = call()
    assert (result.outcome.name, result.outcome.ok, result.rank) == (name, ok, rank)
    assert name in repr(result)


ONE, TWO = np.ones((3, 4, 2)), np.ones((3, 2))
FITTED = pa.fit(TOKENS, TARGETS)


def with_bad(value, like):
    """A copy whose last number is bad."""
    array = np.array(like, dtype=np.result_type(like, type(value)))
    array.flat[-1] = value
    return array


REFUSED = [
    (lambda: pa.fit(with_bad(np.nan, ONE), TWO), "X", "NaN", "1 of 24"),
    (lambda: pa.fit(with_bad(np.inf, ONE), TWO), "X", "infinity"),
    (lambda: pa.fit(np.ma.masked_array(ONE), TWO), "X", "masked"),
    (lambda: pa.fit(np.ones((0, 4, 2)), np.ones((0, 2))), "X", "empty"),
    (lambda: pa.fit([], []), "X", "empty"),
    (lambda: pa.fit(np.ones((3, 0, 2)), TWO), "X", "zero tokens"),
    (lambda: pa.fit([np.ones((2, 2)), np.ones((0, 2))], TWO[:2]), "sequence 1", "0 tokens"),
    (lambda: pa.fit(np.ones((3, 4, 0)), TWO), "coordinate"),
    (lambda: pa.fit([np.ones((2, 2)), np.ones((2, 3))], TWO[:2]), "X[1]", "3"),
    (lambda: pa.fit(np.ones((4, 2)), TWO), "X", "(4, 2)", "n_tokens"),
    (lambda: pa.fit(None, TWO), "X and Y"),
    (lambda: pa.fit(ONE), "X and Y"),
    (lambda: pa.fit(ONE, with_bad(np.nan, TWO)), "Y", "NaN", "1 of 6"),
    (lambda: pa.fit(ONE, TWO[:2]), "3 sequences", "2 targets"),
    (lambda: pa.fit(ONE, ONE[:2], "causal"), "3 sequences", "Y has 2"),
    (lambda: pa.fit(ONE, ONE), "(3, 4, 2)", "causal"),
    (lambda: pa.fit(ONE, np.ones(3), "causal"), "Y", "(3,)", "last"),
    (lambda: pa.fit(ONE, TWO, "full"), "4 tokens", "2 targets"),
    (lambda: pa.fit(ONE, np.ones((3, 5, 1)), "full"), "4 tokens", "5 targets"),
    (lambda: pa.fit(ONE, np.ones((3, 0))), "Y", "zero outputs"),
    (lambda: pa.fit(ONE, TWO, ridge=-1e-9), "ridge", "-1e-09"),
    (lambda: pa.fit(ONE, TWO, ridge=np.nan), "ridge"),
    (lambda: pa.fit(ONE, TWO, mode="cross"), "mode", "context"),
    (lambda: pa.fit(ONE, TWO, n_heads=0), "n_heads", "0"),
    (lambda: pa.fit(ONE, TWO, head_rank=0), "head_rank"),
    (lambda: pa.fit(ONE, TWO, random_state=-1), "random_state", "-1"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[1.0]), "sample_weight", "(3,)", "(1,)"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[1, 1, -1]), "sample_weight", "-1"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[0, 0, 0]), "sample_weight", "zero"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[1, 1, np.nan]), "sample_weight", "NaN"),
    (lambda: pa.fit(ONE, TWO, sample_weight=[1e308] * 3), "sample_weight"),
    (lambda: pa.fit(1e-5 * ONE, TWO, sample_weight=[1e-290] * 3), "sample_weight", "1e-290"),
    (lambda: pa.fit(1e5 * ONE, TWO, sample_weight=[1e290] * 3), "sample_weight", "1e+290"),
    (lambda: pa.fit(ONE, TWO, context=ONE[:2]), "context", "2"),
    (lambda: pa.fit(ONE, ONE, "causal", context=np.ones((3, 5, 2))), "context", "5"),
    (lambda: pa.fit(ONE, TWO, "full", form=pa.Form(mode="causal")), "mode", "Form"),
    (lambda: pa.fit(ONE, TWO, bias=True, form=pa.Form()), "bias", "Form"),
    (lambda: pa.fit(ONE, TWO, statistics=pa.Moments(2, 2)), "either X and Y", "statistics"),
    (lambda: pa.fit(statistics=pa.Moments(2, 2)), "empty", "update"),
    (lambda: pa.fit(statistics=pa.Moments(2, 2).update(ONE, TWO), solver="dual"), "solver", "dual"),
    (lambda: pa.fit(statistics=pa.Moments(2, 2).update(ONE, TWO), mode="causal"), "mode"),
    (lambda: pa.fit(statistics=pa.Moments(2, 2).update(ONE, TWO), bias=True), "bias"),
    (lambda: pa.fit(ONE, TWO, mask=True), "mask", "window"),
    (lambda: pa.fit(ONE, TWO, alpha=1.0), "alpha", "ridge"),
    (lambda: pa.fit(ONE, TWO, window=3), "window", "Form"),
    (lambda: FITTED.predict(np.ones((3, 4, 5))), "X", "2 coordinates", "5"),
    (lambda: FITTED.predict(with_bad(np.nan, ONE)), "X", "NaN"),
    (lambda: FITTED.predict(ONE, context=ONE), "context"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_misuse_is_refused_by_an_error_that_names_the_argument(number):
    call, *words = REFUSED[number]
    with pytest.raises(PolyattnError) as refusal:
        call()
    for word in words:
        assert word in str(refusal.value), (word, str(refusal.value))
