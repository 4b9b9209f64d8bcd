"""Degenerate, extreme and huge data: the right answer or a refusal, and no claim that is wrong."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import polyattn as pa
from oracle import EPS, MODES, relative_error
from polyattn import Form
from polyattn.errors import InvalidInput, OutOfRange

KINDS = (pa.Moments, pa.TriangularFactor)
SOLVERS = ("primal", "dual", "direct", "iterative")
WAYS = (*SOLVERS, *KINDS)
TINY, HUGE = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 5, 2))
FRESH = RNG.standard_normal((9, 4, 2))
TRUTH = pa.data.random_layer(2, mode="last", random_state=0)
Y = TRUTH(X)
NOISY = Y + 0.1 * RNG.standard_normal(Y.shape)


def fit_by(way, tokens, targets, mode="last", **more):
    """The fit by a solver, or from sums of either kind."""
    if isinstance(way, str):
        return pa.fit(tokens, targets, mode, solver=way, **more)
    return pa.fit(statistics=way(tokens[0].shape[1], np.shape(targets)[-1], mode).update(
        tokens, targets, more.pop("sample_weight", None)), **more)  # fmt: skip


def column_errors(outputs, expected):
    """The largest error of each output beside its largest value."""
    outputs, expected = (np.reshape(each, (-1, np.shape(each)[-1])) for each in (outputs, expected))
    return np.abs(outputs - expected).max(axis=0) / np.abs(expected).max(axis=0)


def moved(figures, power):
    """Figures times a power of two, infinite or zero where float64 ends."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(figures, power)


powers = st.one_of(st.integers(-600, 400), st.integers(-600, -500), st.integers(-60, 60))


@given(st.integers(0, 99), st.integers(-330, 330), powers, st.sampled_from([0.0, 0.1]))
@settings(max_examples=max(3, settings().max_examples // 4))  # each is many fits
def test_tokens_and_targets_of_any_size_have_the_same_answer_or_none(seed, tokens, targets, noise):
    rng = np.random.default_rng(seed)
    mode = MODES[seed % 3]
    x = rng.standard_normal((30, 3, 2))
    layer = pa.data.random_layer(2, n_heads=2, mode=mode, random_state=seed)
    y = layer(x)
    y = y + noise * rng.standard_normal(y.shape)
    for way in WAYS:
        one = fit_by(way, x, y, mode)
        coef, risk = moved(one.coef, targets - 3 * tokens), moved(one.risk, 2 * targets)
        try:
            other = fit_by(way, np.ldexp(x, tokens), np.ldexp(y, targets), mode)
        except OutOfRange:
            sizes = np.abs([*coef.ravel(), risk])
            assert np.any((sizes < TINY) | (sizes > HUGE)), "refused without need"
            continue
        assert np.array_equal(other.coef, coef), way
        assert (other.outcome.name, other.rank) == (one.outcome.name, one.rank)
        # Of exact targets the risk is rounding, and may vanish.
        assert other.risk == risk
        assert noise == 0.0 or other.risk >= TINY
        outputs = np.ldexp(other.predict(np.ldexp(x, tokens)), -targets)
        assert np.all(column_errors(outputs, one.predict(x)) < 1e-12)


@pytest.mark.parametrize("power", [-300, 300])
def test_a_tiny_output_beside_a_large_one_is_met_as_if_alone(power):
    for way in WAYS:
        one, shifts = fit_by(way, X, NOISY), np.array([power, 0])
        other = fit_by(way, X, np.ldexp(NOISY, shifts))
        coef = np.ldexp(other.coef, -shifts[:, None, None])
        assert relative_error(coef, one.coef) < (1e-6 if way == "iterative" else 1e-10)
    assert np.all(column_errors(other.layer(FRESH), other.predict(FRESH)) < 1e-8)
    assert other.heads.output_error < 1e-8
    alone = pa.fit(X, NOISY[:, :1], ridge="loo")
    both = pa.fit(X, np.ldexp(NOISY, [0, -500]), ridge="loo")
    assert both.ridge == alone.ridge  # beside a large output a tiny one has no say


def test_weights_hide_no_row_that_can_be_met():
    x, y, weights = X[:3, :3], NOISY[:3], np.array([1e300, 1e-300, 1.0])
    exact = oracle.ExactFit.of(list(x), y, {}, weights=weights)
    for solver in ("auto", "direct", "dual"):
        found = pa.fit(x, y, sample_weight=weights, solver=solver)
        assert found.rank == exact.rank == 3
        theta = oracle.features_of(found.coef, {})
        assert relative_error(theta, oracle.numbers(exact.coef)) < 1e-12
    # Nor do large rows hide one of a billionth, where features are too many to hold.
    wide = np.random.default_rng(0).standard_normal((90, 2, 93))
    wide[0] *= 1e-3
    assert pa.fit(wide, np.ones(90), solver="dual").rank == 90


def test_constants_beside_tokens_of_any_size_keep_all_digits():
    form = Form(skip=True, intercept=True, mean=True)
    plain = pa.fit(X, NOISY, form=form)
    for tokens in (np.ldexp(X, -50), np.ldexp(X, 50)):
        assert np.array_equal(pa.fit(tokens, NOISY, form=form).predict(tokens), plain.predict(X))


TINY_QUERIES = X * np.where(np.arange(5) == 4, 1e-200, 1.0)[:, None]
LIGHT = {"sample_weight": np.full(100, 1e-280)}
OUT_OF_RANGE = {
    "coefficients": [
        lambda: pa.fit(1e150 * X, NOISY), lambda: pa.fit(5e-324 * np.ones((4, 1, 1)), np.ones(4)),
    ],
    "risk": [
        lambda: pa.fit(X, 1e160 * NOISY), lambda: pa.fit(X, 1e160 * NOISY, n_heads=1),
        lambda: pa.fit(X, 1e-160 * NOISY), lambda: pa.fit(X, 1e-150 * Y, ridge="loo"),
        lambda: pa.audit(pa.LinearAttention(TRUTH.attn, 1e-160 * TRUTH.value), X, 1e-160 * NOISY),
    ],
    "ridge": [
        lambda: pa.fit(1e-100 * X, NOISY, ridge=1.0),
        lambda: pa.fit(np.ldexp(X, -170), NOISY, ridge="loo"),
    ],
    "coordinates of X": [
        lambda: pa.fit(X * [1.0, 1e-150], Y), lambda: pa.fit(1e-100 * X, Y, bias=True),
        *(lambda make=make: make(2, 2).update(X * [1e60, 0.0], Y)
          + make(2, 2).update(X * [0.0, 1.0], Y) for make in KINDS),
    ],
    "outputs of Y": [
        *(lambda make=make: make(2, 2).update(X, Y * [1.0, 1e-300]) for make in KINDS),
        *(lambda options=options: pa.fit(X, Y * [1.0, 1e-300], **options)
          for options in ({"ridge": "loo"}, {"ridge": "gcv"}, {"n_heads": "auto"}, {})),
        lambda: pa.audit(TRUTH, X, Y * [1.0, 1e-300]),
    ],
    "sample_weight": [
        *(lambda way=way: fit_by(way, X * [1.0, 1e-40], Y, **LIGHT) for way in WAYS),
    ],
    # Queries of 1e-200 beside their context: rank 0 would be a wrong answer.
    "squares of all features": [
        *(lambda solver=solver: pa.fit(TINY_QUERIES[:5], Y[:5], solver=solver)
          for solver in ("auto", "dual", "direct", "primal")),
    ],
    "float64": [lambda: pa.Moments(1).update(np.full((2, 1, 1), 1e100)).gram],
    "apart": [lambda: pa.certify(X).bound(np.concatenate([FRESH, FRESH * 1e-150]), 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_what_float64_cannot_hold_is_refused_by_name_and_size(what):
    for call in OUT_OF_RANGE[what]:
        with pytest.raises(OutOfRange) as refusal:
            call()
        assert what in str(refusal.value)
        size = re.search(r"\de[-+]?\d|2(\^|\*\*)-?\d", str(refusal.value))
        assert size or what.startswith("squares"), "no size"


@pytest.mark.parametrize("apart", [-150, -175])
def test_coordinates_may_differ_by_2_to_the_160_everywhere_alike(apart):
    """docs/guarantees.md: a fit and both sums take and refuse the same."""
    tokens, plain = np.ldexp(X, [0, apart]), pa.fit(X, Y)
    fits = [lambda make=make: pa.fit(statistics=make(2, 2).update(tokens, Y)) for make in KINDS]
    for fit in (lambda: pa.fit(tokens, Y), *fits):
        if apart > -160:
            np.testing.assert_allclose(fit().predict(tokens), plain.predict(X), rtol=1e-8)
        else:
            with pytest.raises(OutOfRange, match="coordinates"):
                fit()


def test_exact_data_are_recognised_and_one_disagreement_is_not_missed():
    """A sample that determines the layer is believed only where all others agree with it."""
    task = pa.data.planted(1300, 7, 3, n_heads=2, mode="causal", random_state=0)
    x, y = np.asarray(task.X), np.array(task.Y)
    sums = pa.fit(x, y, "causal", solver="primal")
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(x))
    for size, more in ((1.0, {}), (1.0, {"sample_weight": weights}), (1e-120, {})):
        found = pa.fit(x, size * y, "causal", **more)
        assert relative_error(found.coef / size, sums.coef) < 1e-12
        assert (found.rank, found.outcome.name) == (18, "unique")
        assert found.risk <= 1e-26 * np.mean((size * y) ** 2)
    one_row, tiny_output, noisy, zero = (y.copy() for _ in range(4))
    one_row[-1, -1] += 1e-6
    # Whose squares underflow: zero is no residual of zero.
    tiny_output[..., 0] = 1e-200 * np.random.default_rng(1).standard_normal(y.shape[:2])
    noisy += 1e-9 * np.random.default_rng(2).standard_normal(y.shape)
    zero[..., 1] = 0.0
    for targets in (one_row, tiny_output, noisy, zero):
        found = pa.fit(x, targets, "causal")
        expected = pa.fit(x, targets, "causal", solver="direct")
        sizes = np.abs(expected.coef).max(axis=(1, 2), keepdims=True) + 1e-300
        assert np.all(np.abs(found.coef - expected.coef) <= 1e-9 * sizes)
        assert found.risk == pytest.approx(expected.risk, rel=1e-6, abs=1e-26)
    # Light sequences disagree as heavy ones do, and heavy ones overflow nothing.
    for weight in (1e-250, 1e250):
        light = pa.fit(x, noisy, "causal", sample_weight=np.full(len(x), weight))
        assert light.risk == pytest.approx(pa.fit(x, noisy, "causal").risk, rel=1e-6)
    # Sums are kept where they were asked for.
    assert pa.fit(x, y, "causal", try_exact=False).statistics.n_rows == y[..., 0].size


@pytest.mark.parametrize("kind", ["leverage", "worst_case"])
def test_bounds_know_inputs_of_another_size_than_the_data(kind):
    certificate = pa.certify(X)
    plain, small = (certificate.bound(size * FRESH, 1.0, kind=kind) for size in (1.0, 1e-50))
    np.testing.assert_allclose(small, 1e-150 * plain, rtol=1e-9)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_zeros_and_repetitions(way):
    rng = np.random.default_rng(0)
    for mode in MODES:
        shape = (2,) if mode == "last" else (5, 2)
        y = rng.standard_normal((100, *shape))
        # Tokens of zeros explain nothing, and targets of zeros are met by zero.
        for more, rank in (({}, 0), ({"ridge": 1.0}, None)):
            blind = fit_by(way, 0 * X, y, mode, **more)
            assert not blind.coef.any()
            assert blind.risk == pytest.approx(np.mean(np.sum(y**2, axis=-1)))
            assert blind.rank == (None if way == "iterative" else rank)
        zero = fit_by(way, X, 0 * y, mode)
        assert (zero.coef.any(), zero.risk) == (False, 0)
        # One sequence that comes again and again is met by its mean.
        x, many = rng.standard_normal((1, 2, 3)), rng.standard_normal((50, *shape))[:, :2]
        again = fit_by(way, np.repeat(x, 50, axis=0), many, mode)
        assert relative_error(again.predict(x[0]), many.mean(axis=0)) < 1e-9
        assert not again.outcome.ok
    # Of one feature, as large as the root of the penalty in each row.
    signs = rng.choice([-1.0, 1.0], (100, 1, 1))
    found, wanted = fit_by(way, signs, y[:, 0], "last", ridge=1.0), signs[:, 0].T @ y[:, 0] / 101
    assert relative_error(found.predict(np.ones((1, 1, 1))), wanted) < 1e-12


PROMPTS = RNG.standard_normal((300, 6, 4))
PROMPTS[:, -1, -1] = 0.0  # the label of the query is not given
DOUBLED = np.round(64 * RNG.standard_normal((300, 6, 4))) / 64
DOUBLED[..., 3] = 3.0 * DOUBLED[..., 2]
STRUCTURES = {
    # tokens, form, features that never occur, and those that are multiples of others
    "a query without label": (PROMPTS, {}, 10, 0),
    "signs": (RNG.choice([-1.0, 1.0], size=(300, 6, 4)), {"mode": "causal"}, 0, 12),
    "one-hot": (np.eye(4)[RNG.integers(0, 4, (300, 6))], {"mode": "causal"}, 24, 0),
    "single tokens": (RNG.standard_normal((300, 1, 4)), {}, 0, 20),
    "a coordinate three times another": (DOUBLED, {}, 0, 22),
    "a zero coordinate": (DOUBLED * [1.0, 0.0, 1.0, 1.0], {}, 22, 12),
    "lag 0 of whole tokens": (DOUBLED[..., :3], {"mode": "causal", "lags": 1}, 0, 8),
    "a map to zero": (PROMPTS, {"query": np.zeros((4, 2))}, 20, 0),
    "nothing to attend to": (PROMPTS[:, :1], {"include_query": False}, 40, 0),
    "two constants": (
        DOUBLED[..., :2], {"mode": "full", "bias": True, "mean": True, "intercept": True}, 0, 1
    ),
}  # fmt: skip


def noise_for(x, form, n_outputs=2):
    last = {**oracle.DEFAULTS, **form}["mode"] == "last"
    rng = np.random.default_rng(len(x))
    return rng.standard_normal((len(x), n_outputs) if last else (*x.shape[:2], n_outputs))


@pytest.mark.parametrize("name", STRUCTURES)
def test_structure_is_counted_and_the_answer_is_that_of_an_orthogonal_factorisation(name):
    x, fields, n_zero, n_repeated = STRUCTURES[name]
    y, form = noise_for(x, fields), Form(**fields)
    for ridge in (0.1, 0.0):
        expected = pa.fit(x, y, form=form, ridge=ridge, solver="direct")
        found = pa.fit(x, y, form=form, ridge=ridge, solver="primal")
        assert relative_error(found.coef, expected.coef) < 1e-8
        assert found.risk == pytest.approx(expected.risk, rel=1e-11)
        assert found.rank == expected.rank
    assert found.rank == oracle.exact_rank(list(x[:40]), fields)
    assert found.rank == found.n_features - n_zero - n_repeated
    assert (found.outcome.name, found.outcome.ok) == ("minimum_norm", False)
    counts = {str(n) for n in (n_zero, n_repeated) if n}
    assert counts <= set(re.findall(r"\d+", str(found.outcome)))
    # Sums alone know the zeros, and what never occurs has coefficient zero exactly.
    sums = pa.Moments(x.shape[2], 2, form=form).update(x, y)
    absent = sums.gram.diagonal() == 0
    assert np.count_nonzero(absent) == n_zero
    assert n_repeated or relative_error(pa.fit(statistics=sums).coef, found.coef) < 1e-8
    for each in (found, expected):
        assert not oracle.features_of(each.coef, fields)[absent].any()


def test_what_is_nearly_structure_is_told_apart():
    """Features that agree to 1e-9, large sequences and units make no feature a multiple."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 5, 3))
    y, close, large = noise_for(x, {}), x.copy(), x.copy()
    close[..., 2] = x[..., 1] * (1.0 + 1e-9 * rng.standard_normal(x.shape[:2]))
    large[7] *= 1e6
    summed = x @ [[1, 0, 1], [0, 1, 1], [0, 0, 0]]
    for tokens, rank in (
        (summed, 6), (x * [1e8, 1.0, 1e-8], 18), (x[..., [0, 1, 1]] * [1e8, 1.0, 1.0], 6),
    ):  # fmt: skip
        assert pa.fit(tokens, y, solver="primal").rank == rank
    primal, direct = (pa.fit(close, y, solver=solver) for solver in ("primal", "direct"))
    assert primal.rank > 6
    assert primal.risk == pytest.approx(direct.risk, rel=1e-6)
    assert not pa.fit(large, y).outcome.ok
    assert pa.certify(large).verdict == "identifiable"


@pytest.mark.parametrize("kind", KINDS)
def test_sums_call_absent_only_what_never_had_a_term(kind):
    """Not what underflows, has faded, or is rounded to zero by a matrix."""
    x = np.random.default_rng(12).standard_normal((150, 4, 3))

    def sums(tokens, **fields):
        return kind(tokens.shape[2], 0, form=Form(**fields)).update(tokens)

    unlabelled, tiny, faded = x.copy(), x.copy(), x.copy()
    unlabelled[:, -1, 0] = 0.0
    for tokens in (unlabelled, unlabelled[:14]):
        proved = pa.certify(statistics=sums(tokens))
        assert (proved.verdict, proved.structure.rest) == ("not_identifiable", "identifiable")
        assert proved.structure.n_zero == 6
    assert pa.certify(statistics=sums(unlabelled) + sums(x)).verdict == "identifiable"
    tiny[:, -1, 0] *= 1e-170
    faded[:, 1:-1] = 0.0
    equal = np.repeat(x[:, :, :1], 2, axis=2)
    for open_one in (
        sums(tiny), sums(faded, decay=1e-200, include_query=False),
        sums(faded, decay=[1e-200, 1e-100], include_query=False),
        sums(equal, key=np.array([[1.0], [-1.0]])),
        sums(faded, mode="causal", decay=1e-200, include_query=False),
    ):  # fmt: skip
        assert pa.certify(statistics=open_one).verdict == "undecided"


def test_one_sequence_or_weight_that_hides_the_others_is_named():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 5, 3)), rng.standard_normal((60, 1))
    large, heavy = x.copy(), {"sample_weight": np.append(1e300, np.ones(59))}
    large[0] *= 1e6
    for found, size in (
        (pa.fit(large, y), "1e+0"), (pa.fit(x, y, **heavy), "1e+300"),
        (pa.fit(x, y, solver="iterative", **heavy), "1e+300"),
    ):  # fmt: skip
        assert size in found.outcome.sentence
        assert not found.outcome.ok


def test_the_risk_of_nearly_dependent_features_is_that_of_the_layer():
    """Rounded coefficients may miss the error that a factor promises; zeros never lose."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((150, 3, 2)), rng.standard_normal((150, 1))
    x[..., 1] = x[..., 0] * (1 + 1e-9 * rng.standard_normal((150, 3)))
    for solver, size in itertools.product(("primal", "direct"), (1e3, 1e5)):
        large = np.concatenate([size * x[:1], x[1:]])
        result = pa.fit(large, y, bias=True, solver=solver)
        assert result.risk == pytest.approx(np.mean((result.predict(large) - y) ** 2), rel=1e-4)
        assert result.risk <= np.mean(y**2) * (1 + 1e-6)


@pytest.mark.parametrize("unit", [1e-4, 1e-12])
def test_the_smallest_norm_is_that_in_true_coordinates(unit):
    """A coordinate twice, once in other units: rounding in the small one is not magnified."""
    rng = np.random.default_rng(0)
    for n_tokens, bias in ((1, False), (2, True)):
        x, y = rng.standard_normal((200, n_tokens, 2)), rng.standard_normal((200, 1))
        x[..., 1] = unit * x[..., 0]
        one, other = (pa.fit(x, y, bias=bias, solver=solver) for solver in ("direct", "primal"))
        form = {"bias": bias}
        s = np.sqrt(oracle.squared_sizes(form, 2, 2 + bias))[:, None]
        norms = [np.linalg.norm(s * oracle.features_of(r.coef, form)) for r in (one, other)]
        assert norms[0] == pytest.approx(norms[1], rel=1e-9)
        assert one.risk == pytest.approx(other.risk, rel=1e-12)


@pytest.mark.parametrize("kind", ["rank", "repeated", "plain"])
def test_a_ridge_that_leaves_coefficients_to_rounding_is_not_ok(kind):
    """What is called found is near the truth in rational numbers."""
    # The primal solver takes what is a multiple but for rounding for a multiple.
    solvers = SOLVERS if kind == "repeated" else SOLVERS[1:]
    for noise, solver in itertools.product((0.0, 1e-14), solvers):
        rng = np.random.default_rng(0)
        x = rng.standard_normal((40, 4, 2))
        if kind == "rank":
            x[..., 1] = 3.0 * x[..., 0]
        elif kind == "repeated":  # of fewer rows than features
            x = np.tile(rng.standard_normal((5, 4, 4)), (2, 1, 1))
        x = x + noise * rng.standard_normal(x.shape)
        y, doubts = rng.standard_normal((len(x), 1)), []
        for ridge in (1e-4, 1e-9, 1e-14):
            truth = oracle.numbers(oracle.ExactFit.of(list(x), y, {}, ridge).coef)
            found = pa.fit(x, y, ridge=ridge, solver=solver)
            doubts.append(not found.outcome.ok)
            assert relative_error(oracle.features_of(found.coef, {}), truth) < 2e-2 or doubts[-1]
        assert not doubts[0]
        assert doubts[-1] or kind != "repeated"
        assert doubts[-1] == (kind != "plain") or not noise or solver != "iterative"


@pytest.mark.parametrize("bits", [6, 10, 14])
def test_a_kernel_is_refined_to_kappa_eps(bits):
    """Two sequences almost the same: the kernel alone would leave an error of kappa^2 eps."""
    rng = np.random.default_rng(bits)
    X, Y = rng.integers(-3, 4, (4, 3, 2)) * 2.0**bits, rng.integers(-9, 10, (4, 1)).astype(float)
    X[1] = X[0] + rng.integers(1, 4, size=(3, 2))
    phi = oracle.plain_design(X)
    condition = np.linalg.cond(phi / np.linalg.norm(phi, axis=0))
    assert 2**bits < condition < 2 ** (bits + 9)
    found, rounding = pa.fit(X, Y, solver="dual"), 10 * EPS * condition
    assert found.condition < 10 * condition
    assert relative_error(found.predict(X), Y) < rounding
    wanted = oracle.numbers(oracle.ExactFit.of(list(X), Y, {}).coef)
    assert relative_error(oracle.features_of(found.coef, {}), wanted) < 6 * rounding
    assert found.risk < rounding**2 * float(np.mean(Y**2))


@pytest.mark.parametrize("power", [6, 5, 3])
@pytest.mark.parametrize("size", [1e-3, 1e-8])
def test_few_rows_beside_a_constant_of_another_size(size, power):
    """Features from 1 down to 1e-24: outputs are the minimiser's, and rounding is told of."""
    rng = np.random.default_rng(3)
    X, Y, ridge = size * rng.standard_normal((12, 3, 2)), rng.standard_normal((12, 1)), size**power
    exact = oracle.ExactFit.of(list(X), Y, {"bias": True}, ridge)
    for solver in ("auto", "dual", "direct", "primal"):
        found = pa.fit(X, Y, bias=True, ridge=ridge, solver=solver)
        np.testing.assert_allclose(found.predict(X), oracle.numbers(exact.predicted), atol=1e-9)
        assert found.risk == pytest.approx(oracle.nearest(exact.risk), rel=1e-9, abs=1e-18)
        assert found.outcome.ok == (found.condition < 1e13)


def test_a_small_ridge_that_steadies_moments_is_added():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((200, 4, 2)), rng.standard_normal((200, 1))
    X[..., 1] = X[..., 0] + 0.02 * X[..., 1]
    ridge = 3e-13 * float(np.sum(oracle.plain_design(X) ** 2))
    found = pa.fit(statistics=pa.Moments(2, 1).update(X, Y), ridge=ridge)
    expected, without = (pa.fit(X, Y, ridge=each, solver="direct") for each in (ridge, 0.0))
    assert relative_error(found.coef, expected.coef) < 1e-2
    assert np.linalg.norm(expected.coef) < 0.9 * np.linalg.norm(without.coef)


@pytest.mark.parametrize("apart", [0.0, 1e-6, 1e-8])
def test_a_singular_kernel_finds_the_mean_or_says_what_it_hides(apart):
    """Repeated sequences of unlike targets, with features too many to hold (p = 864,000)."""
    rng = np.random.default_rng(0)
    X, Y = np.repeat(rng.standard_normal((20, 3, 120)), 2, axis=0), rng.standard_normal((40, 2))
    X += apart * rng.standard_normal(X.shape)
    found = pa.fit(X, Y, solver="dual")
    outputs = found.predict(X)
    assert found.risk == pytest.approx(np.mean(np.sum((outputs - Y) ** 2, axis=1)), rel=1e-6)
    if apart == 0.0:
        wanted = np.repeat((Y[::2] + Y[1::2]) / 2, 2, axis=0)
        assert relative_error(outputs, wanted) < 1e-9
        assert (found.rank, found.outcome.name) == (20, "minimum_norm")
    else:
        # All rows could be met.
        excess = found.risk / np.mean(np.sum(Y**2, axis=1))
        assert excess < 1e-6 or not found.outcome.ok


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
@pytest.mark.parametrize(("n_rows", "n_dims"), [(60, 20), (513, 11)])
def test_kernels_of_few_rows_and_of_more_than_a_block(n_rows, n_dims, penalty):
    """Around a mean, some of them zero or repeated; there are 4200 features, or 726."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n_rows, 3, n_dims)) + 1.0, rng.standard_normal((n_rows, 2))
    fresh = rng.standard_normal((9, 3, n_dims)) + 1.0
    X[:3], X[10:12], Y[10:12] = 0.0, X[12:14], Y[12:14]
    root = np.sqrt(oracle.squared_sizes({}, n_dims, n_dims))
    phi, new = oracle.plain_design(X) / root, oracle.plain_design(fresh) / root
    ridge = penalty * float(np.sum(phi**2))
    kernel = phi @ phi.T + ridge * np.eye(n_rows)
    wanted = new @ phi.T @ np.linalg.lstsq(kernel, Y, rcond=1e-11)[0]
    for solver in ("iterative", "dual"):
        found = pa.fit(X, Y, solver=solver, ridge=ridge)
        assert relative_error(found.predict(fresh), wanted) < 1e-7
        assert np.all(found.predict(X)[:3] == 0.0)


BIG = np.array([[[2**60 + 1, 3], [5, 2**53 + 1]], [[1, 2], [3, 4]]])
SMALL = np.ones((2, 2, 2))
ROUNDED = [
    *(lambda change=change: pa.fit(change(BIG), np.ones(2)) for change in (
        pa.SequenceBatch.from_array, lambda a: a.astype(np.uint64), lambda a: [a[0], SMALL[0]],
    )),
    *(lambda targets=targets: pa.fit(SMALL, targets)
      for targets in (np.array([-(2**53) - 1, 0]), [2**53 + 1, 0.5])),
    lambda: pa.fit(SMALL, np.ones(2), sample_weight=np.array([2**53 + 1, 1])),
    *(lambda make=make: make(2, 0).update(BIG) for make in KINDS),
    lambda: TRUTH(BIG), lambda: pa.audit(TRUTH, BIG, SMALL[0]),
    lambda: pa.LinearAttention(BIG, np.ones((2, 2, 1))), lambda: pa.learn_softmax(BIG, BIG),
    lambda: pa.certify(np.repeat(BIG, 9, axis=0), method="float"),
    lambda: pa.certify([[[2**64, -1]]]), lambda: pa.certify(BIG).witness(),
]  # fmt: skip


def test_integers_that_would_be_rounded_are_refused():
    for call in ROUNDED:
        with pytest.raises(InvalidInput, match=r"round|64-bit"):
            call()


def test_integers_beyond_float64_are_certified_as_they_are():
    whole = 2**60 + np.random.default_rng(0).integers(0, 4, (60, 4, 2))
    certificate = pa.certify(whole)
    assert (certificate.verdict, certificate.method) == ("identifiable", "exact")
    assert pa.verify(certificate, whole.astype(">i8").tolist())
    assert not pa.verify(certificate, whole.astype(float))
    assert np.all(np.isinf(certificate.bound(np.ones((1, 2, 2)), risk=1.0)))
