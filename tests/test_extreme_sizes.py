"""Sizes at the ends of float64: the right answer, or a refusal, never zero in its place."""

from dataclasses import replace

import numpy as np
import pytest

import planted
import polyattn as pa
from polyattn.errors import FileFormatError, OutOfRange
from polyattn.form import Form
from polyattn.heads import best_heads, compress
from polyattn.heads.data_scale import GramScale, SampleScale
from polyattn.numerics.scaling import NEGLIGIBLE_RISK, TINY, as_doubt, as_risk, restored, rounded_up
from polyattn.sequences import MODES
from polyattn.stats.rows import Rows

KINDS = (pa.Moments, pa.TriangularFactor)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 5, 2))
FRESH = RNG.standard_normal((9, 4, 2))
TRUTH = pa.data.random_layer(2, mode="last", random_state=0)
Y = TRUTH(X)
NOISY = Y + 0.1 * RNG.standard_normal(Y.shape)
BESIDE = np.array([1.0, 1e-200])  # of this size are the outputs, in most tests of them


def column_errors(outputs, expected) -> np.ndarray:
    """The largest error of each output beside its largest value."""
    return np.abs(outputs - expected).max(axis=0) / np.abs(expected).max(axis=0)


def fits_of(targets) -> dict[str, pa.FitResult]:
    """The fit by every solver and from both statistics."""
    solvers = ("primal", "dual", "direct", "iterative")
    fits = {solver: pa.fit(X, targets, solver=solver) for solver in solvers}
    for make in KINDS:
        fits[make.__name__] = pa.fit(statistics=make(2, 2).update(X, targets))
    return fits


# One output that is tiny beside another ------------------------------------------------------


@pytest.mark.parametrize("sizes", [BESIDE, BESIDE[::-1], 1e90 * BESIDE, [1e110, 1e-110]])
def test_every_solver_meets_every_output(sizes):
    for name, result in fits_of(sizes * Y).items():
        assert np.all(column_errors(result.predict(FRESH), sizes * TRUTH(FRESH)) < 1e-9), name


@pytest.mark.parametrize("sizes", [BESIDE, BESIDE[::-1], [1e110, 1e-110]])
def test_the_layer_meets_every_output(sizes):
    for name, result in fits_of(sizes * Y).items():
        assert np.all(column_errors(result.layer(FRESH), sizes * TRUTH(FRESH)) < 1e-8), name
        assert result.heads.output_error < 1e-8


def test_what_heads_change_in_a_tiny_output_is_stated():
    """One head for a function of four: both outputs are off, and the statement is about both."""
    coef = pa.fit(X, RNG.standard_normal(Y.shape)).coef
    rows = Rows.build(X, Y, Form("last"))
    for data in (SampleScale.of(rows), GramScale.of(pa.Moments.of(rows))):
        plain, tiny = (
            best_heads(sizes[:, None, None] * coef, 1, data=data)
            for sizes in (np.ones(2), np.array([1.0, 2.0**-660]))
        )
        assert plain.output_error > 0.01
        assert tiny.output_error == pytest.approx(plain.output_error, rel=1e-6)
        found = compress(BESIDE[:, None, None] * TRUTH.coef, data=data)
        assert (found.n_heads, found.output_error < 1e-9) == (1, True)


@pytest.mark.parametrize(
    ("size", "weight"), [(1.0, 1.0), (1e-100, 1.0), (1e-165, 1.0), (1e-200, 1.0), (1e-23, 1e-280)]
)
def test_tiny_noise_does_not_agree_with_a_layer(size, weight):
    """The squares of the second output underflow, and zero is no residual of zero."""
    rng = np.random.default_rng(1)
    many = rng.standard_normal((1000, 4, 2))
    noise = rng.standard_normal(1000)
    weights = np.full(1000, weight)
    targets = np.stack([TRUTH(many)[:, 0], size * noise], axis=1)
    result = pa.fit(many, targets, sample_weight=weights)
    assert result.solver == "primal"
    expected = pa.fit(many, noise, solver="direct").coef[0]
    assert planted.relative_error(result.coef[1] / size, expected) < 1e-9
    exact = pa.fit(many, TRUTH(many) * [1.0, size])
    assert (exact.solver, exact.risk < 1e-28) == ("exact", True)


@pytest.mark.parametrize("solver", ["primal", "dual", "direct", "iterative"])
def test_outputs_whose_products_underflow_are_refused(solver):
    with pytest.raises(OutOfRange, match=r"outputs of Y.*e-3\d\d to .*Rescale.*or fit them apart"):
        pa.fit(X, Y * [1.0, 1e-300], solver=solver)
    # Coordinates of different size allow less difference between outputs.
    sized = X * [1.0, 1e-40]
    assert pa.fit(sized, TRUTH(sized) * [1.0, 1e-60], solver=solver).risk < 1e-20
    with pytest.raises(OutOfRange, match="outputs of Y"):
        pa.fit(sized, TRUTH(sized) * [1.0, 1e-200], solver=solver)


@pytest.mark.parametrize("make", KINDS)
def test_statistics_refuse_outputs_that_do_not_fit_together(make):
    for first, second in (([1.0, 0.0], [0.0, 1e-300]), ([0.0, 1e-300], [1.0, 0.0])):
        one, other = (make(2, 2).update(X, Y * sizes) for sizes in (first, second))
        with pytest.raises(OutOfRange, match="outputs of Y"):
            one + other
    with pytest.raises(OutOfRange, match="outputs of Y"):
        make(2, 2).update(X, Y * [1.0, 1e-300])


def test_moments_of_targets_are_refused_where_they_are_zero():
    moments = pa.Moments(2, 2).update(X, Y * BESIDE)
    with pytest.raises(OutOfRange, match=r"outputs of Y.*squares"):
        moments.target_gram  # noqa: B018
    assert pa.Moments(2, 2).update(X, Y * [1.0, 1e-100]).target_gram[1, 1] > 0


# Risks that float64 cannot hold --------------------------------------------------------------


def test_a_risk_is_restored_or_refused():
    assert as_risk(0.0, -2000) == 0.0
    assert as_risk(0.5, -510) == 2.0**-1021
    assert as_risk(0.5, 512) == 2.0**1023
    with pytest.raises(OutOfRange, match="multiply targets"):
        as_risk(0.5, -511)
    with pytest.raises(OutOfRange, match="divide targets"):
        as_risk(1.0, 512)
    # What rounding leaves may vanish, where nothing is decided by it.
    assert as_risk(NEGLIGIBLE_RISK, -600) == 0.0
    with pytest.raises(OutOfRange):
        as_risk(NEGLIGIBLE_RISK, -600, negligible=0.0)
    with pytest.raises(OutOfRange):
        as_risk(2 * NEGLIGIBLE_RISK, -600)


def test_bounds_are_never_rounded_down():
    assert as_doubt(0.0, -600) == 0.0
    assert as_doubt(1.0, -600) == 5e-324
    assert as_doubt(1.0, -500) == 2.0**-1000
    with pytest.raises(OutOfRange):
        as_doubt(1.0, 600)
    bounds = rounded_up(
        np.array([0.0, 1.0, 1.0, 3.0, 1.0]), np.array([-2000, -2000, 2, -1075, 2000])
    )
    assert bounds.tolist() == [0.0, 5e-324, 4.0, 1.5e-323, np.inf]
    assert rounded_up(np.array([1.0]), np.array([-1022])) == TINY


@pytest.mark.parametrize("size", [1e-155, 1e-160, 1e-170, 1e-300])
def test_a_risk_that_underflows_is_refused(size):
    for options in ({}, {"ridge": "loo"}, {"ridge": "gcv"}, {"n_heads": "auto"}, {"n_heads": 1}):
        with pytest.raises(OutOfRange, match=r"risk would be.*multiply"):
            pa.fit(X, NOISY * size, **options)
    for make in KINDS:
        with pytest.raises(OutOfRange, match="multiply"):
            pa.fit(statistics=make(2, 2).update(X, NOISY * size))
    with pytest.raises(OutOfRange, match="multiply"):
        pa.audit(pa.LinearAttention(TRUTH.attn, size * TRUTH.value, "last"), X, NOISY * size)


@pytest.mark.parametrize("rule", ["loo", "gcv"])
def test_a_rule_chooses_the_same_ridge_or_refuses(rule):
    plain = pa.fit(X, NOISY, ridge=rule)
    small = pa.fit(X, 1e-150 * NOISY, ridge=rule)
    assert small.ridge == small.ridge_path.best == plain.ridge
    # Errors that are rounding would be equal as zeros, and another ridge would be the best.
    with pytest.raises(OutOfRange, match="risk"):
        pa.fit(X, 1e-150 * Y, ridge=rule)
    with pytest.raises(OutOfRange, match="the ridges would be of size"):
        pa.fit(np.ldexp(X, -170), NOISY, ridge=rule)


@pytest.mark.parametrize("size", [1e-150, 1e-200, 1e-290])
def test_exact_targets_of_any_size_are_fitted(size):
    result = pa.fit(X, size * Y)
    assert result.risk <= 1e-28 * size * size
    assert np.all(column_errors(result.predict(FRESH) / size, TRUTH(FRESH)) < 1e-9)
    layer = pa.LinearAttention(TRUTH.attn, size * TRUTH.value, "last")
    audit = pa.audit(layer, X, size * Y)
    assert audit.consistent
    assert audit.gap <= audit.rounding
    assert audit.rounding > 0.0
    assert "optimal up to rounding" in audit.sentence


def test_targets_that_are_zero_have_risk_zero():
    for result in fits_of(0.0 * Y).values():
        assert result.risk == 0.0
    assert pa.fit(X, 0.0 * Y, ridge="loo").risk == 0.0
    assert pa.fit(np.ldexp(X, 90), 0.0 * Y, n_heads=1).risk == 0.0


@pytest.mark.parametrize("size", [1e-80, 1e-150])
def test_as_many_heads_for_small_targets(size):
    task = pa.data.planted(300, 8, 3, n_heads=1, mode="last", noise=0.05, random_state=1)
    assert pa.fit(task.X, task.Y * size, n_heads="auto").layer.n_heads == 1


def test_the_gap_of_heads_is_not_zero_by_underflow():
    gram = pa.Moments(2, 2).update(X, Y).gram
    coef = pa.fit(X, RNG.standard_normal(Y.shape)).coef
    assert best_heads(1e-150 * coef, 1, gram).risk_gap > 0.0
    with pytest.raises(OutOfRange, match="multiply the targets"):
        best_heads(1e-200 * coef, 1, gram)


# Coefficients of which digits are lost -------------------------------------------------------


def test_coefficients_that_lose_digits_are_refused():
    """Beside a coordinate of 1e50, that of 1e90 has coefficients of 1e-310: digits are lost."""
    sizes = np.array([1e90, 1e50])
    targets = 1e-40 * NOISY
    with pytest.raises(OutOfRange, match="the coefficients would be of size about"):
        pa.fit(X * sizes, targets)
    result = pa.fit(X * sizes, 1e10 * targets)
    assert (
        planted.relative_error(result.predict(X * sizes) * 1e30, pa.fit(X, NOISY).predict(X)) < 1e-9
    )


def test_what_counts_little_may_underflow():
    """Of pi 2^-1070 a few bits are left: enough beside pi 2^-1010, unless that counts little."""
    array, counts = np.pi * np.array([[1.0, 2.0**-60]]), np.ones(2)
    assert restored(array, -1010, "it", counts)[0, 0] == np.pi * 2.0**-1010
    with pytest.raises(OutOfRange, match="it would be of size about 1e-322"):
        restored(array, -1010, "it", np.array([2.0**-60, 1.0]))
    with pytest.raises(OutOfRange, match="it would be of size about 1e-322"):
        restored(np.concatenate([array, 2.0**-60 * array]), -1010, "it", counts)


# Coordinates and weights ---------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[2.0**-39, 2.0**-190], [2.0**-20, 2.0**-175], [2.0**38, 1e-30]])
def test_a_small_coordinate_beside_ordinary_ones_below_one(sizes):
    """Ordinary tokens are not scaled; then 2^-190 would vanish in sums of sixth degree."""
    sized = X * sizes
    for solver in ("primal", "dual", "direct", "iterative"):
        result = pa.fit(sized, Y, solver=solver)
        assert np.all(column_errors(result.predict(sized), Y) < 1e-9), solver
        assert np.all(column_errors(result.layer(sized), Y) < 1e-8), solver
    for make in KINDS:
        parts = [make(2, 2).update(sized[i::2] * [1.0, i], Y[i::2]) for i in range(2)]
        together = pa.fit(sized * np.array([[1.0, 0.0], [1.0, 1.0]] * 50)[:, None], Y)
        expected = together.predict(sized[1::2])
        for merged in (parts[0] + parts[1], parts[1] + parts[0]):
            outputs = pa.fit(statistics=merged).predict(sized[1::2])
            assert np.all(column_errors(outputs, expected) < 1e-9)


@pytest.mark.parametrize("weight", [1e-100, 1e-280])
def test_small_weights_on_small_coordinates_or_outputs_are_refused(weight):
    """Each is bearable; together they vanish, and the coordinate with them."""
    sized, weights = X * [1.0, 1e-40], np.full(len(X), weight)
    for solver in ("primal", "dual", "direct", "iterative"):
        with pytest.raises(OutOfRange, match=r"sample_weight of 1e-.*Multiply all weights"):
            pa.fit(sized, Y, sample_weight=weights, solver=solver)
        with pytest.raises(OutOfRange, match=r"sample_weight of 1e-.*Multiply all weights"):
            pa.fit(X, Y * [1.0, 1e-210], sample_weight=weights, solver=solver)
    for make in KINDS:
        small = make(2, 2).update(X * [0.0, 1e-40], Y, weights)
        with pytest.raises(OutOfRange, match="Multiply all weights"):
            make(2, 2).update(X * [1.0, 0.0], Y, weights) + small
        with pytest.raises(OutOfRange, match="Multiply all weights"):
            make(2, 2).update(X * [1.0, 0.0], Y, weights).update(X * [0.0, 1e-40], Y, weights)


# Audits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "targets"),
    [(1e40, 1e-60), (1e30, 1e-70), (1e50, 1.0), (1e-50, 1.0), (1e-50, 1e10), (1.0, 1e-150)],
)
def test_an_audit_of_any_size_says_the_same(tokens, targets):
    layer = pa.LinearAttention(1.01 * TRUTH.attn, TRUTH.value, "last")
    sized = pa.LinearAttention(layer.attn / tokens**2, layer.value / tokens * targets, "last")
    one, other = pa.audit(layer, X, NOISY), pa.audit(sized, X * tokens, NOISY * targets)
    assert one.consistent
    assert other.consistent
    assert other.gap / targets / targets == pytest.approx(one.gap, rel=1e-6)
    unit = targets / tokens / tokens / tokens
    assert other.distance / unit == pytest.approx(one.distance, rel=1e-6)
    assert other.implied.distance / unit == pytest.approx(one.implied.distance, rel=1e-6)


def test_an_audit_sees_outputs_that_are_not_those_of_the_coefficients():
    """Negative control, at the sizes at which a correct layer was accused."""
    result = pa.fit(X * 1e40, NOISY * 1e-60)
    wrong = replace(result, coef=result.coef * 1.5)
    object.__setattr__(wrong, "predict", result.predict)
    assert pa.audit(result, X * 1e40, NOISY * 1e-60).consistent
    assert not pa.audit(wrong, X * 1e40, NOISY * 1e-60).consistent


# Bounds --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["leverage", "worst_case"])
@pytest.mark.parametrize("size", [1e-100, 1e-60, 1e-20, 1.0, 1e20, 1e60, 1e100])
@pytest.mark.parametrize("risk", [1.0, 1e-100, 1e-300])
def test_a_bound_has_the_size_of_its_input(kind, size, risk):
    certificate = pa.certify(X)
    plain = certificate.bound(FRESH, risk=1.0, kind=kind)
    bound = certificate.bound(FRESH * size, risk=risk, kind=kind)
    root = 10.0 ** (0.5 * np.log10(risk))
    # The slack of a bound is rounding; what is below the numbers of float64 is rounded up.
    expected = plain * root * size * size * size
    assert np.all(bound > 0.0)
    assert np.all(bound >= expected * (1 - 1e-6))
    assert np.all(bound <= expected * (1 + 1e-6) + 1e-323)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [1e-100, 1e-60, 1e60, 1e100])
def test_a_bound_for_inputs_of_another_size_than_the_data(size):
    plain = pa.certify(X).bound(FRESH, risk=1e-6)
    bound = pa.certify(X * size).bound(FRESH, risk=1e-6)
    assert bound * size * size * size == pytest.approx(plain, rel=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_bounds_with_a_constant_and_of_single_rows(mode):
    """A query that is tiny beside the tokens, zeros, and inputs far from the constant."""
    certificate = pa.certify(RNG.standard_normal((200, 4, 2)), mode=mode)
    x = np.array(FRESH[0])
    x[-1] *= 1e-170
    bound, plain = certificate.bound(x, 1.0), certificate.bound(FRESH[0], 1.0)
    last = (bound, plain) if mode == "last" else (bound[-1], plain[-1])
    assert 0.0 < last[0] < 1e-160 * last[1]
    assert np.all(certificate.bound(0.0 * x, 1.0) == 0.0)
    constant = pa.certify(RNG.standard_normal((200, 4, 2)), mode=mode, bias=True)
    assert np.all(np.isfinite(constant.bound(1e90 * x, 1.0)))
    near = constant.bound(1e-200 * x, 1.0)
    assert near == pytest.approx(constant.bound(0.0 * x, 1.0), rel=1e-9)


def test_sequences_too_different_for_one_bound_are_refused():
    certificate = pa.certify(X)
    together = np.concatenate([FRESH, FRESH * 1e-150])
    with pytest.raises(OutOfRange, match=r"X holds sequences.*apart"):
        certificate.bound(together, 1.0)
    assert np.all(certificate.bound(FRESH * 1e-150, 1e300) > 0.0)
    # What is zero has bound zero, and is not in the way.
    assert certificate.bound(np.concatenate([FRESH, 0.0 * FRESH]), 1.0)[-1] == 0.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bias", [False, True])
def test_the_beginning_of_a_sequence_is_not_lost_beside_its_end(bias):
    certificate = pa.certify(X, mode="causal", bias=bias)
    x = np.array([[1e-100, 2e-100], [1.0, -1.0]])
    plain = certificate.bound(x[:1], 1.0)
    assert certificate.bound(x, 1.0)[0] == pytest.approx(plain[0], rel=1e-6, abs=0)
    x *= [[1e-100], [1e100 if bias else 1.0]]
    if bias:
        assert certificate.bound(x, 1.0)[0] == pytest.approx(plain[0], rel=1e-6, abs=0)
        x[1] *= 1e100
    with pytest.raises(OutOfRange, match="beginnings of sequences"):
        certificate.bound(x, 1.0)


# Statistics of shards that do not fit together -----------------------------------------------

SHARDS = [
    (np.array([1e60, 0.0]), np.array([0.0, 1.0])),
    (np.array([0.0, 1.0]), np.array([1e60, 0.0])),
    (np.array([1e-60, 0.0]), np.array([1e10, 1.0])),
]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(("first", "second"), SHARDS[:2])
def test_shards_of_incomparable_coordinates_are_refused_as_by_fit(make, first, second):
    with pytest.raises(OutOfRange, match="coordinates of X") as refusal:
        pa.fit(np.concatenate([X * first, X * second]), np.concatenate([Y, Y]))
    one, other = make(2, 2).update(X * first, Y), make(2, 2).update(X * second, Y)
    before = one.to_record()
    for attempt in (lambda: one + other, lambda: other + one, lambda: one.update(X * second, Y)):
        with pytest.raises(OutOfRange) as again:
            attempt()
        assert str(again.value) == str(refusal.value)
    after = one.to_record()
    assert before.metadata == after.metadata
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(after.arrays[name], array)


@pytest.mark.parametrize("make", KINDS)
def test_shards_of_which_the_larger_has_all_coordinates_add_up(make):
    """The small coordinate is nothing beside the other shard, for fit as for statistics."""
    first, second = SHARDS[2]
    merged = make(2, 2).update(X * first, Y) + make(2, 2).update(X * second, Y)
    together = pa.fit(np.concatenate([X * first, X * second]), np.concatenate([Y, Y]))
    assert planted.relative_error(pa.fit(statistics=merged).coef, together.coef) < 1e-9
    np.testing.assert_array_equal(merged.coordinate_sizes, np.abs(X * second).max(axis=(0, 1)))


@pytest.mark.parametrize("make", KINDS)
def test_sizes_are_kept_in_files_and_estimated_where_they_lack(make, tmp_path):
    stats = make(2, 2, bias=True).update(1e5 * X, Y * [1.0, 1e-9])
    stats.save(tmp_path / "stats")
    np.testing.assert_array_equal(make.load(tmp_path / "stats").output_sizes, stats.output_sizes)
    np.testing.assert_array_equal(
        make.load(tmp_path / "stats").coordinate_sizes, stats.coordinate_sizes
    )
    record = stats.to_record()
    older = {k: v for k, v in record.metadata.items() if not k.endswith("_sizes")}
    read = make.from_record(replace(record, metadata=older))
    for name in ("coordinate_sizes", "output_sizes"):
        ratio = getattr(read, name) / getattr(stats, name)
        assert np.all((ratio > 0.1) & (ratio < 10)), name
    for wrong in ([1.0], [1.0, 2.0, -1.0], [1.0, 2.0, "3"], 1.0):
        metadata = record.metadata | {"coordinate_sizes": wrong}
        with pytest.raises(FileFormatError, match="coordinate_sizes"):
            make.from_record(replace(record, metadata=metadata))


@pytest.mark.parametrize("make", KINDS)
def test_old_files_of_incomparable_shards_are_refused_together(make):
    one, other = make(2, 2).update(X * SHARDS[0][0], Y), make(2, 2).update(X * SHARDS[0][1], Y)
    records = [each.to_record() for each in (one, other)]
    one, other = (
        make.from_record(replace(record, metadata={
            k: v for k, v in record.metadata.items() if not k.endswith("_sizes")
        }))
        for record in records
    )  # fmt: skip
    with pytest.raises(OutOfRange, match="coordinates of X"):
        one + other


@pytest.mark.parametrize("power", [100, 290, 320, 400, 500])
@pytest.mark.parametrize("kind", [pa.LinearAttention, pa.SoftmaxAttention])
@pytest.mark.parametrize("mode", MODES)
def test_layers_in_units_far_apart_are_right_or_refused(kind, mode, power):
    """Tokens divided and heads multiplied by the same power of two: the same outputs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 4, 2))
    attn, value = rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2, 1))
    expected = kind(attn, value, mode=mode)(X)
    small, most = np.array([0, power]), 300 if kind is pa.LinearAttention else 450
    attn = np.ldexp(attn, small[:, None] + small)
    layer = kind(attn, np.ldexp(value, small[:, None]), mode=mode)
    try:
        found = layer(np.ldexp(X, -small))
    except OutOfRange as refusal:
        assert "differ in size" in str(refusal)  # noqa: PT017
        assert power > most
    else:
        assert power <= most
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    # A tiny coordinate that counts for nothing is no reason to refuse.
    plain = kind(rng.standard_normal((2, 2, 2)), value, mode=mode)
    np.testing.assert_array_equal(plain(X * [1.0, 1e-200]), plain(X * [1.0, 0.0]))
