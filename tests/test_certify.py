"""Certificates of the papers' layer: no verdict is wrong, by exact ranks of the features.

Data of every kind: small integers, integers behind large offsets, numbers made to mislead, tokens
of discrete domains, finite domains; every mode, with and without a bias, each method.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

MODES = oracle.MODES
NAMES = {"real": pa.domains.Real, "boolean": pa.domains.Boolean, "one_hot": pa.domains.OneHot}
SUMS = (pa.Moments, pa.TriangularFactor)
seeds = st.integers(0, 2**32 - 1)


def gaussian(n_sequences=60, n_tokens=4, n_dims=3, seed=0):
    return np.random.default_rng(seed).standard_normal((n_sequences, n_tokens, n_dims))


def flat(n_sequences=60, seed=0):
    """Tokens in a plane, at an angle to the axes; floats cannot hold it exactly."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_sequences, 4, 2)) @ rng.standard_normal((2, 3))


def boolean(n_sequences=200, n_tokens=3, n_dims=3, seed=0):
    return np.random.default_rng(seed).choice([-1, 1], size=(n_sequences, n_tokens, n_dims))


@cache
def features_of_domain(name, mode, bias, n_dims, lengths):
    return oracle.spanning(name, {"mode": mode, "bias": bias}, n_dims, lengths=lengths)


# Verdicts against exact ranks -------------------------------------------------------------------


def small_integers(rng, sizes, n_dims):
    """Anything from zeros to generic integers."""
    X = [rng.integers(-3, 4, (n, n_dims)).astype(float) for n in sizes]
    if rng.random() < 0.3:
        X = [X[i % max(1, len(X) // 3)] for i in range(len(X))]
    if rng.random() < 0.3:
        X = [x * (np.arange(n_dims) > 0) for x in X]
    return X


def large_integers(rng, sizes, n_dims):
    """Small differences behind large offsets; as int64, as uint64, or as floats of any unit."""
    width = int(rng.choice([1, 2, 6, 20]))
    X = [rng.integers(-(2**width), 2**width + 1, (n, n_dims)) for n in sizes]
    if n_dims > 1 and rng.random() < 0.4:
        for x in X:
            x[:, -1] = x[:, 0] + (x[:, -1] if rng.random() < 0.1 else 0)
    X = [x + rng.choice([0, 0, 2**20, 2**50]) for x in X]
    kind = rng.choice(["int64", "uint64", "units", "sequences"])
    if kind == "uint64":
        return [(np.abs(x) + 2**62).astype(np.uint64) for x in X]
    if kind == "units":
        units = rng.integers(-40, 41, n_dims)
        return [np.ldexp(x.astype(float), units) for x in X]
    if kind == "sequences" and max(np.abs(x).max() for x in X) < 2**40:
        return [np.ldexp(x.astype(float), int(rng.integers(-9, 10))) for x in X]
    return X


def misleading(rng, sizes, n_dims):
    """Dyadic floats that are deficient, nearly deficient, or badly scaled; all is exact."""
    bits = int(rng.integers(1, 12))
    X = [np.ldexp(rng.integers(-(2**bits), 2**bits + 1, (n, n_dims)), -bits // 2) for n in sizes]
    trick, shift = rng.integers(4), int(rng.integers(1, 22))
    if trick == 0:
        X[0] = np.ldexp(X[0], rng.integers(-30, 31, n_dims))
    if trick == 1:
        scales = rng.integers(-20, 21, n_dims)
        X = [np.ldexp(x, scales) for x in X]
    if trick > 1 and n_dims > 1:
        for x in X:
            x[:, -1] = x[:, 0] + (0.0 if trick == 2 else np.ldexp(x[:, -1], -shift))
    return X


def discrete(name):
    def tokens(rng, sizes, n_dims):
        n_free = int(rng.integers(1, n_dims + 1)) if rng.random() < 0.4 else n_dims
        X = [oracle.some_tokens(name, (n, n_free), rng) for n in sizes]
        rest = np.ones if name == "boolean" else np.zeros
        return [np.concatenate([x, rest((len(x), n_dims - n_free))], axis=1) for x in X]

    return tokens


TOKENS = {
    "small integers": small_integers, "large integers": large_integers, "misleading": misleading,
    "boolean": discrete("boolean"), "one_hot": discrete("one_hot"),
}  # fmt: skip


def random_case(kind, seed):
    """(rng, X, mode, bias, longest) of a small problem near the border of what is determined."""
    rng = np.random.default_rng(seed)
    n_dims, mode = int(rng.integers(1, 4)), MODES[rng.integers(3)]
    bias, longest = bool(rng.random() < 0.25) and n_dims < 3, int(rng.integers(1, 5))
    width = n_dims + bias
    p = width * width * (width + 1) // 2
    count = int(rng.integers(max(1, p - 3), 2 * p + 6))
    sizes = [int(rng.integers(1, longest + 1)) for _ in range(count)]
    return rng, TOKENS[kind](rng, sizes, n_dims), mode, bias, longest


@pytest.mark.parametrize("kind", TOKENS)
@given(seed=seeds)
def test_no_verdict_is_wrong(kind, seed):
    """And none is left open where arithmetic is exact, or where nothing is near to rounding."""
    rng, X, mode, bias, longest = random_case(kind, seed)
    n_dims, has_lengths = X[0].shape[1], bool(rng.random() < 0.3)
    name = kind if kind in NAMES and rng.random() < 0.7 else "real"
    lengths = (1, longest) if has_lengths else (1, 6)
    domain = NAMES[name](lengths=(1, longest) if has_lengths else None)
    held = kind != "large integers" or all(x.dtype == float for x in X)
    method = str(rng.choice(["auto", "exact", "float"] if held else ["auto", "exact"]))
    form = {"mode": mode, "bias": bias}
    psi = oracle.exact_design(X, form)
    everywhere = features_of_domain(name, mode, bias, n_dims, lengths)
    real = features_of_domain("real", mode, bias, n_dims, (1, 6))
    found = pa.certify(X, mode, domain, bias=bias, method=method)
    assert oracle.wrong_claims(found, psi, everywhere, real) == [], found
    assert pa.verify(found, X)
    if method != "float":
        assert found.verdict != "undecided", found
    elif oracle.rank_of(psi) == found.dimension == found.n_features:
        phi = oracle.design([x.astype(float) for x in X], form)
        sigma = np.linalg.svd(phi / np.linalg.norm(phi, axis=0), compute_uv=False)
        assert found.identifiable or sigma[-1] < 1e-4 * sigma[0]


@pytest.mark.parametrize("kind", TOKENS)
@given(seed=seeds)
def test_no_verdict_on_a_finite_domain_is_wrong(kind, seed):
    rng, X, mode, bias, _ = random_case(kind, seed)
    X = X[: int(rng.integers(1, 25))]
    asked = [X[i] for i in rng.integers(len(X), size=3)]
    if rng.random() < 0.5:
        asked += [rng.integers(0, 3, (2, X[0].shape[1])).astype(X[0].dtype)]
    form, domain = {"mode": mode, "bias": bias}, pa.domains.Finite(asked)
    psi, everywhere = oracle.exact_design(X, form), oracle.exact_design(asked, form)
    real = features_of_domain("real", mode, bias, X[0].shape[1], (1, 6))
    for method in ("auto", "exact"):
        found = pa.certify(X, mode, domain, bias=bias, method=method)
        assert oracle.wrong_claims(found, psi, everywhere, real) == [], found
        assert method == "auto" or found.verdict != "undecided"
        assert pa.verify(found, X)


@given(seed=seeds)
def test_of_rounded_numbers_a_verdict_is_true_of_them_or_of_what_was_rounded(seed):
    """Integers over 3, 5, 7: the planes that they lie in are lost in float64."""
    rng, X, mode, bias, _ = random_case("small integers", seed)
    n_dims = X[0].shape[1]
    if n_dims > 1 and rng.random() < 0.6:
        for x in X:
            x[:, -1] = x[:, 0]
    units = rng.choice([1, 3, 5, 7, 10], n_dims)
    rounded, form = [x / units for x in X], {"mode": mode, "bias": bias}
    everywhere = features_of_domain("real", mode, bias, n_dims, (1, 6))
    found = pa.certify(rounded, mode, bias=bias)
    truths = {
        oracle.rank_of(psi, everywhere) == oracle.rank_of(psi)
        for psi in (oracle.exact_design(X, form), oracle.exact_design(rounded, form))
    }
    assert found.verdict == "undecided" or found.identifiable in truths
    assert pa.verify(found, rounded)


@pytest.mark.parametrize("offset", [2**15, 2**40, 2**50, 2**53, 2**60, -(2**63)])
def test_small_differences_behind_a_large_offset_are_seen(offset):
    small = np.random.default_rng(0).integers(0, 4, size=(60, 4, 2))
    as_floats = (offset + small * (2**11 if abs(offset) > 2**52 else 1)).astype(float)
    for X in (offset + small, as_floats):
        assert pa.certify(X).identifiable
        assert pa.certify(X[:, :, [0, 0]]).verdict == "not_identifiable"
    if offset == 2**50:
        found = pa.certify(as_floats)
        assert found.lambda_min is None  # it is positive, and below what float64 resolves
        assert pa.certify(as_floats, method="float").verdict == "undecided"


def test_coordinates_are_judged_one_by_one():
    """What only an exact coordinate could explain by moving is no rounding."""
    rng = np.random.default_rng(1)
    X = np.stack([rng.standard_normal((80, 4)), 2.0**50 + rng.integers(0, 4, (80, 4))], axis=2)
    for method in ("auto", "float"):
        assert pa.certify(X, method=method).verdict != "not_identifiable"
    assert pa.certify(X, method="exact").identifiable


def test_exact_arithmetic_sees_what_rounding_hides_and_rounding_never_denies_it():
    """The last coordinate hides ever deeper in another one, down to the last bits."""
    rng = np.random.default_rng(2)
    for shift in range(1, 47, 3):
        X = rng.integers(-9, 10, size=(60, 3, 2)).astype(float)
        X[..., 1] = X[..., 0] + np.ldexp(X[..., 1], -shift)
        in_floats = pa.certify(X, method="float")
        assert in_floats.verdict == "identifiable" if shift <= 12 else "undecided"
        assert in_floats.verdict != "not_identifiable"
        assert pa.certify(X, method="exact").identifiable
    for exponent, verdict in ((-3, "identifiable"), (-6, "undecided"), (-12, "undecided")):
        X = gaussian(90)
        X[..., 2] = X[..., 1] + 10.0**exponent * X[..., 2]
        assert pa.certify(X).verdict == verdict
        found = pa.certify(X, method="exact")
        assert (found.verdict, found.rounding) == ("identifiable", 0.0)


def test_features_that_are_tiny_in_every_row_claim_nothing():
    """Two coordinates that hardly ever occur together: their products are of size^2."""
    for size in (1e-20, 1e-145):
        X = gaussian(400, 4, 2)
        X[:200, :, 0], X[200:, :, 1] = 0.0, 0.0
        X[:, 0] = size * gaussian(400, 1, 2, seed=1)[:, 0]
        assert pa.certify(X, method="float").verdict == "undecided"
        assert pa.certify(X, method="exact").identifiable


def test_a_plane_is_recognised_up_to_the_rounding_of_the_data():
    for mode in MODES:
        found = pa.certify(flat(), mode)
        assert (found.verdict, found.rank, found.n_features) == ("not_identifiable", 6, 18)
        assert found.lambda_min == 0.0
        assert oracle.witness_fails(found.witness(), flat(), {"mode": mode}) == []
    more = flat() * (1 + 1e-16 * np.random.default_rng(0).standard_normal((60, 4, 3)))
    assert pa.certify(more, method="float").verdict == "not_identifiable"
    copied = flat()[:, :, [0, 1, 1]]
    assert pa.certify(copied, method="exact").verdict == "not_identifiable"


DEGENERATE = {
    "one row": np.ones((1, 3, 2)), "ones": np.ones((50, 3, 2)), "zeros": np.zeros((50, 2, 2)),
    "a zero": np.zeros((1, 1, 1)), "rounded ones": np.full((50, 3, 2), 0.1),
    "ragged": [np.ones((1, 2)), np.ones((5, 2))], "repeated": np.tile(gaussian(1), (50, 1, 1)),
    "single tokens": gaussian(30)[:, :1], "axes": np.array([[[0.5, 0.0]], [[0.0, 0.25]]] * 10),
    "subnormal": 5e-324 * np.ones((9, 2, 2)), "few": gaussian(17), "wide": gaussian(30, 4, 40),
}  # fmt: skip


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data_leave_the_layer_open_and_a_witness_shows_it(name):
    X = DEGENERATE[name]
    for mode in MODES if name not in ("wide", "few") else ("last",):
        found = pa.certify(X, mode)
        assert found.verdict == "not_identifiable"
        if name != "subnormal":
            witness = found.witness()
            assert witness.difference > 0.5
            assert witness.training_disagreement < 1e-8
        assert np.isinf(found.bound(X[0], 1.0)).all()
        assert pa.verify(found, X)


def test_numbers_of_every_type_are_the_numbers_that_they_are():
    rng = np.random.default_rng(3)
    whole = rng.integers(0, 2, (60, 3, 2))
    digests = {pa.certify(whole.astype(kind)).digest for kind in (bool, np.int8, np.uint64, float)}
    assert len(digests) == 1
    single = gaussian(200).astype(np.float32)
    assert pa.certify(single).digest == pa.certify(single.astype(float)).digest
    X = gaussian()
    X[:, 0] = 0.0
    assert pa.certify(X).digest == pa.certify(np.where(X == 0.0, -0.0, X)).digest
    assert pa.certify(X).digest != pa.certify(np.where(X == 0.0, 1e-300, X)).digest


def test_data_in_any_container_are_the_same_data(tmp_path):
    X = gaussian(200)
    np.save(tmp_path / "X.npy", X)
    given_as = [X, np.asfortranarray(X), list(X), np.load(tmp_path / "X.npy", mmap_mode="r"),
                X[:, ::-1][:, ::-1], pa.SequenceBatch.from_sequences(list(X)),
                pa.scan(tmp_path / "X.npy")]  # fmt: skip
    found = [pa.certify(each) for each in given_as]
    assert len({each.digest for each in found}) == 1
    np.testing.assert_allclose([each.lambda_min for each in found], found[0].lambda_min, rtol=1e-12)
    for each in given_as:
        assert pa.verify(found[0], each)


# The spectrum, units and order ------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_spectrum_is_that_of_the_second_moment(mode, bias):
    X = gaussian(120)
    found = pa.certify(X, mode, bias=bias)
    assert found.verdict == found.verdict_on_real_inputs == "identifiable"
    assert found.rank == found.dimension == found.n_features
    assert 0 < found.rounding < 1e-9
    psi = oracle.design(X, {"mode": mode, "bias": bias})
    expected = np.linalg.eigvalsh(oracle.second_moment(psi))
    assert found.lambda_min == pytest.approx(expected[0], rel=1e-8)
    assert found.lambda_max == pytest.approx(expected[-1], rel=1e-8)
    assert (found.n_sequences, found.n_rows) == (120, len(psi))


def test_on_a_discrete_domain_the_spectrum_is_the_part_that_is_not_zero():
    words = np.eye(4)[np.random.default_rng(0).integers(4, size=(300, 5))]
    for name, X, bias, dimension in (
        ("boolean", boolean(300, 3, 4), False, 28), ("one_hot", words, False, 16),
        ("one_hot", words, True, 16), ("boolean", boolean(300, 3, 2), True, 12),
    ):  # fmt: skip
        found = pa.certify(X, domain=name, bias=bias)
        psi = oracle.design(np.asarray(X, dtype=float), {"bias": bias})
        expected = np.linalg.eigvalsh(oracle.second_moment(psi))
        assert (found.identifiable, found.dimension) == (True, dimension)
        assert found.verdict_on_real_inputs == "not_identifiable"
        assert found.lambda_min == pytest.approx(expected[-dimension], rel=1e-8)
        assert found.lambda_max == pytest.approx(expected[-1], rel=1e-8)


@given(seed=seeds, power=st.integers(-60, 60))
def test_units_change_the_spectrum_alone_and_order_changes_nothing(seed, power):
    rng, X, mode, _, _ = random_case("small integers", seed)
    one = pa.certify(X, mode)
    order, signs = rng.permutation(X[0].shape[1]), rng.choice([-1.0, 1.0], X[0].shape[1])
    changed = {
        "units": [np.ldexp(x, power) for x in X],
        "sequences": [X[i] for i in rng.permutation(len(X))],
        "coordinates": [x[:, order] * signs for x in X],
    }
    if mode == "last":
        changed["earlier tokens"] = [np.concatenate([rng.permutation(x[:-1]), x[-1:]]) for x in X]
    for name, other_X in changed.items():
        other = pa.certify(other_X, mode)
        factor = 2.0 ** (6 * power) if name == "units" else 1.0
        for figure in ("verdict", "method", "rank", "dimension", "n_features"):
            assert getattr(other, figure) == getattr(one, figure), (name, figure)
        rounding = 1e3 * oracle.EPS * one.n_features * (one.lambda_max or 0.0)
        for figure in ("lambda_min", "lambda_max"):
            if getattr(one, figure) is None:
                assert getattr(other, figure) is None
            else:
                assert abs(getattr(other, figure) / factor - getattr(one, figure)) <= rounding
        assert pa.verify(other, other_X)
        same = all(np.array_equal(a, b) for a, b in zip(X, other_X, strict=True))
        assert pa.verify(one, other_X) == same
    twice = pa.certify(X * 2, mode)
    assert (twice.verdict, twice.rank) == (one.verdict, one.rank)


def test_sizes_beyond_float64_have_a_verdict_and_no_spectrum():
    for scale in (1e-150, 1e-60, 1e60, 1e150):
        found = pa.certify(scale * gaussian(90))
        assert (found.identifiable, found.lambda_min, found.lambda_max) == (True, None, None)
        witness = pa.certify(scale * flat()).witness()
        assert witness.difference == pytest.approx(1.0, rel=1e-6)
        assert witness.training_disagreement < 1e-8
    lowest = pa.certify(np.zeros((30, 2, 2)), method="float")
    assert (lowest.lambda_min, lowest.lambda_max) == (0.0, 0.0)
    units = pa.certify(gaussian(200) * [1.0, 1e-9, 1e9])
    assert units.identifiable
    # Units hide lambda_min, and hide nothing else: a fit finds the layer.
    X, scale = gaussian(300, 6, 5, seed=7), np.array([1e3, 1e-3, 5e6, 1.0, 1e-5])
    hidden, Y = pa.certify(X * scale), np.random.default_rng(7).standard_normal((300, 1))
    assert (hidden.identifiable, hidden.lambda_min) == (True, None)
    assert "may miss" not in hidden.sentence
    expected = pa.fit(X, Y).predict(X)
    assert oracle.relative_error(pa.fit(X * scale, Y).predict(X * scale), expected) < 1e-8


# Sums instead of data ---------------------------------------------------------------------------


@given(seed=seeds, cuts=st.lists(st.integers(1, 60), max_size=3))
def test_sums_in_parts_prove_what_data_prove_and_never_more(seed, cuts):
    rng, X, mode, bias, _ = random_case("misleading", seed)
    if rng.random() < 0.5:
        X = [rng.standard_normal(x.shape) for x in X]
    psi = oracle.exact_design(X, {"mode": mode, "bias": bias})
    p = psi.ncols()
    for kind in SUMS:
        borders = [0, *sorted({cut % len(X) for cut in cuts} - {0}), len(X)]
        parts = [kind(X[0].shape[1], mode=mode, bias=bias).update(X[i:j])
                 for i, j in pairwise(borders)]  # fmt: skip
        sums = parts[0]
        for part in parts[1:]:
            sums = sums + part
        found = pa.certify(statistics=sums)
        if found.verdict != "undecided":
            assert found.identifiable == (oracle.rank_of(psi) == p)
        phi = oracle.design(X, {"mode": mode, "bias": bias})
        if psi.nrows() >= p and np.all(np.any(phi, axis=0)):
            sigma = np.linalg.svd(phi / np.linalg.norm(phi, axis=0), compute_uv=False)
            assert found.identifiable or sigma[-1] < 1e-4 * sigma[0]


def test_sums_say_no_where_rows_are_too_few_and_claim_nothing_of_deficient_ones():
    for kind in SUMS:
        few = pa.certify(statistics=kind(3).update(gaussian(17)))
        assert (few.verdict, few.method) == ("not_identifiable", "count")
        assert few.witness().difference == pytest.approx(1.0)
        doubtful = pa.certify(statistics=kind(3).update(flat()))
        assert doubtful.verdict == "undecided"
        with pytest.raises(InvalidInput):
            doubtful.witness()
        assert "already" not in doubtful.next_data().sentence
        enough = pa.certify(statistics=kind(3).update(gaussian(90)))
        assert enough.lambda_min == pytest.approx(pa.certify(gaussian(90)).lambda_min, rel=1e-8)
    weights = np.concatenate([np.ones(17), np.zeros(40)])
    sums = pa.Moments(3, 1).update(gaussian(57), np.zeros(57), weights)
    assert pa.certify(statistics=sums).method == "count"
    wide = np.random.default_rng(0).standard_normal((740, 3, 10))
    moments = pa.Moments(11).update(np.concatenate([wide, wide[..., :1]], axis=2))
    found = pa.certify(statistics=moments)
    assert (found.verdict, found.lambda_min < 1e-12 * found.lambda_max) == ("undecided", True)


@pytest.mark.parametrize("kind", SUMS)
def test_sums_are_believed_about_a_domain_unless_they_contradict_it(kind):
    """Else a theorem about the domain would be applied to data outside it."""
    nearly = boolean(90, 4).astype(float)
    nearly[7, 2, 1] = 1.001
    for X, domain in (
        (gaussian(90), "boolean"), (gaussian(90), "one_hot"), (nearly, "boolean"),
        (gaussian(90), pa.domains.Real(lengths=1)), (boolean(90, 4), pa.domains.Boolean((1, 3))),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=r"domain|tokens"):
            pa.certify(statistics=kind(3).update(X), domain=domain)
    sums = kind(3).update(boolean(300))
    found = pa.certify(statistics=sums, domain="boolean")
    assert found.identifiable
    assert found.verdict_on_real_inputs == "not_identifiable"
    assert "taken from you" in found.sentence  # a premise that the sums cannot show
    one = kind(1).update(gaussian(20, 3, 1))
    for domain in ("boolean", "one_hot"):
        assert "taken from you" in pa.certify(statistics=one, domain=domain).sentence
    single = pa.certify(statistics=kind(3).update(gaussian(90)[:, :1]), domain=pa.domains.Real(1))
    assert (single.identifiable, single.dimension) == (True, 10)
    assert "taken from you" not in single.sentence


# Domains ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_dimension_of_a_domain_is_the_rank_of_its_features(name, bias):
    for n_dims in (1, 2, 3, 4):
        X = [oracle.some_tokens(name, (2, n_dims), np.random.default_rng(0))]
        for lengths in (1, 2, (1, 2), (2, 4), None):
            ends = lengths if isinstance(lengths, tuple) else (lengths or 1, lengths or 6)
            sequences = [x[:1] for x in X] if lengths == 1 else X
            found = pa.certify(sequences, "last", NAMES[name](lengths), bias=bias)
            everywhere = features_of_domain(name, "last", bias, n_dims, ends)
            assert found.dimension == oracle.rank_of(everywhere)


def test_a_finite_domain_is_any_iterable_of_sequences():
    words = np.eye(3)[np.random.default_rng(0).integers(3, size=(100, 4))]
    everything = (np.eye(3)[[a, b]] for a in range(3) for b in range(3))
    domain = pa.domains.Finite(everything)
    assert pa.certify(words, domain=domain).identifiable
    assert len(domain.batch) == 9
    for given_as in (words, list(words), tuple(words), iter(words)):
        batch = pa.domains.Finite(given_as).batch
        np.testing.assert_array_equal(batch.values, words.reshape(-1, 3))


def test_a_finite_domain_is_judged_by_what_the_data_span():
    inside, X = pa.domains.Finite(boolean(50, 4, seed=1)), boolean()
    found = pa.certify(X, domain=inside)
    assert found.identifiable
    assert found.verdict_on_real_inputs == "not_identifiable"
    outside = [*boolean(5, 4), np.array([[2, 0, 0], [1, 1, 1]])]
    witness = pa.certify(X, domain=pa.domains.Finite(outside)).witness()
    np.testing.assert_array_equal(witness.input, outside[-1])
    assert oracle.witness_fails(witness, X, {}) == []
    # In floats "inside" holds up to rounding alone.
    plane = flat(70, seed=1)
    assert pa.certify(plane[:50], domain=pa.domains.Finite(plane[50:])).verdict == "undecided"
    beyond = pa.certify(flat(), domain=pa.domains.Finite(gaussian(5)))
    assert beyond.verdict == "not_identifiable"
    assert any(np.array_equal(beyond.witness().input, x) for x in gaussian(5))
    # What all real inputs determine, every set of them does.
    assert pa.certify(gaussian(90), domain=pa.domains.Finite(gaussian(5))).identifiable


def test_a_sampler_shows_disagreement_and_never_proves_agreement():
    same = pa.domains.Sampled(lambda rng: rng.choice([-1, 1], size=(rng.integers(2, 5), 3)), 200)
    found = pa.certify(boolean(), domain=same)
    assert found.verdict == "undecided"
    assert "99 %" in found.sentence
    other = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 3)), n_samples=20)
    assert pa.certify(boolean(), domain=other).verdict == "not_identifiable"
    assert pa.certify(gaussian(90), domain=other).identifiable
    plane = np.array([[1.0, 0.3, 0.7], [0.1, 1.0, -0.6]])
    near = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 2)) @ plane, n_samples=20)
    rounded = pa.certify(np.random.default_rng(0).standard_normal((60, 4, 2)) @ plane, domain=near)
    assert rounded.verdict == "undecided"
    assert "99 %" not in rounded.sentence  # nothing was determined, only near to it


def test_samples_come_from_a_seed_or_a_generator_that_goes_on():
    def drawn(*random_state):
        domain = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 3)), 4, *random_state)
        return domain.batch.values

    np.testing.assert_array_equal(drawn(), gaussian(4, 2).reshape(8, 3))  # files name samples
    np.testing.assert_array_equal(drawn(3), drawn(np.random.default_rng(3)))
    rng = np.random.default_rng(3)
    assert np.any(drawn(rng) != drawn(rng))
    for n_samples in (1, 20, 300):  # with a smaller share, all would hardly have agreed
        domain = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 3)), n_samples)
        assert domain.covered(0.99) ** n_samples == pytest.approx(0.01)


# What never occurs ------------------------------------------------------------------------------


def prompts(rng, n_prompts=400, n_dims=3):
    """In-context regression: the last token asks, and its label is 0."""
    X = rng.standard_normal((n_prompts, 6, n_dims + 1))
    X[..., -1] = np.einsum("pnd,pd->pn", X[..., :-1], rng.standard_normal((n_prompts, n_dims)))
    X[:, -1, -1] = 0.0
    return X


def test_features_that_never_occur_are_left_out_and_the_rest_is_decided():
    rng = np.random.default_rng(8)
    X = prompts(rng)
    found = pa.certify(X)
    structure = found.structure
    assert (found.verdict, structure.rest) == ("not_identifiable", "identifiable")
    assert (structure.n_zero, structure.n_multiples, structure.queries) == (10, 0, (3,))
    assert found.rank == 30
    assert "coordinate 3" in found.sentence
    assert sorted(set(found.direction)) == [0, 1]
    assert found.witness().training_disagreement == 0.0
    assert pa.verify(found, X)
    # On prompts all is determined; on anything that breaks the rule it is not.
    others = prompts(rng, 20)
    inside = pa.certify(X, domain=pa.domains.Finite(others))
    assert (inside.identifiable, inside.verdict_on_real_inputs) == (True, "not_identifiable")
    assert pa.verify(inside, X)
    others[3, -1, -1] = 1.0
    outside = pa.certify(X, domain=pa.domains.Finite(others))
    assert outside.verdict == "not_identifiable"
    assert pa.verify(outside, X)
    drawn = pa.domains.Sampled(lambda rng: prompts(rng, 1)[0], 50)
    assert pa.certify(X, domain=drawn).verdict == "undecided"
    # A layer that never reads what never occurs is determined.
    form = pa.Form(include_query=False, mean=True, query=slice(0, 3), value=[3])
    assert pa.certify(X, form=form).identifiable


def test_multiples_of_features_are_found_exactly():
    X = np.random.default_rng(10).standard_normal((300, 4, 3))
    X[..., 2] = -4.0 * X[..., 1]
    found = pa.certify(X)
    assert (found.verdict, found.structure.n_multiples) == ("not_identifiable", 12)
    assert found.structure.rest == "identifiable"
    assert np.count_nonzero(found.direction) == 2
    assert not np.any(oracle.design(X, {}) @ np.array(found.direction, dtype=float))
    assert pa.verify(found, X)
    X[0, 0, 2] = np.nextafter(X[0, 0, 2], 9.0)  # nearly a multiple is none
    assert pa.certify(X).structure is None or pa.certify(X).structure.n_multiples < 12
    both = prompts(np.random.default_rng(1))
    both[..., 2] = 2.0 * both[..., 1]
    structure = pa.certify(both).structure
    assert (structure.queries, structure.rest) == ((3,), "identifiable")
    assert structure.n_zero + structure.n_multiples == 40 - pa.certify(both[..., [0, 1, 3]]).rank


def test_distances_that_no_sequence_has_never_occur():
    for n_tokens, n_zero in ((2, 12), (3, 6), (4, 0)):
        found = pa.certify(gaussian(200, n_tokens, 2), form=pa.Form(lags=3))
        assert (0 if found.structure is None else found.structure.n_zero) == n_zero
        assert pa.verify(found, gaussian(200, n_tokens, 2))


def test_of_data_that_show_nothing_nothing_is_said_to_be_determined():
    X, Y = np.zeros((30, 4, 2)), np.ones((30, 1))
    one = pa.certify(np.ones((30, 1, 2)), form=pa.Form(include_query=False))
    for found in (pa.certify(X), one, pa.certify(statistics=pa.Moments(2, 1).update(X, Y))):
        assert (found.verdict, found.structure.n_zero) == ("not_identifiable", 6)
        assert "others are determined" not in found.sentence
    nowhere = pa.certify(X, domain=pa.domains.Finite(X[:2]))
    assert (nowhere.verdict, nowhere.rank) == ("identifiable", 0)
    assert not pa.certify(X, domain=pa.domains.Finite(X[:2] + 1.0)).identifiable


def test_one_row_of_many_is_seen():
    X = np.ones((20_000, 2, 2), dtype=np.int8)
    few = pa.certify(X[:9]).rank
    X[12_345] = [[1, 0], [2, 1]]
    for mode in MODES:
        assert pa.certify(X, mode).rank > few
        assert pa.verify(pa.certify(X, mode), X)


# Associative memory [yau2024: section 4.2, figure 2] --------------------------------------------


def memory(unitary, n_sequences=2**12, seed=0):
    return pa.data.associative_memory(n_sequences, 4, unitary=unitary, random_state=seed)


@pytest.mark.slow
@pytest.mark.parametrize(("unitary", "expected"), [(0.95, 0.061), (0.0, 2.5)])
def test_smallest_eigenvalues_of_the_paper(unitary, expected):
    for seed in (0, 1):
        found = pa.certify(memory(unitary, 2**14, seed).X)
        assert (found.verdict, found.n_features) == ("identifiable", 288)
        assert found.lambda_min == pytest.approx(expected, rel=0.1)


# Misuse -----------------------------------------------------------------------------------------

ONES = np.ones((3, 2, 2))
MISUSE = [
    ({}, "sequences X"),
    ({"X": np.full((2, 2, 2), np.nan)}, "X"),
    ({"X": np.ones((2, 2))}, "X"),
    ({"X": np.ones((0, 2, 2))}, "X"),
    ({"X": []}, "X"),
    ({"X": ONES, "mode": "first"}, "mode"),
    ({"X": ONES, "method": "guess"}, "method"),
    ({"X": ONES, "statistics": pa.Moments(2)}, "statistics"),
    ({"statistics": pa.Moments(2)}, "statistics"),
    ({"statistics": pa.Moments(2).update(ONES), "method": "exact"}, "sequences X"),
    ({"statistics": pa.Moments(2).update(ONES), "domain": pa.domains.Finite(ONES)}, "sequences"),
    ({"X": np.ones((1, 30_000, 35)), "mode": "causal"}, "GB"),
    ({"X": np.ones((1, 30_000, 35)), "mode": "causal", "method": "float"}, "GB"),
    ({"X": 2**60 + np.arange(80).reshape(20, 2, 2), "method": "float"}, "X"),
    ({"X": np.zeros((3, 2, 2)), "domain": "boolean"}, "domain"),
    ({"X": ONES, "domain": "one_hot"}, "domain"),
    ({"X": np.zeros((3, 2, 2)), "domain": "one_hot"}, "domain"),
    ({"X": ONES, "domain": pa.domains.Real(lengths=3)}, "2 tokens"),
    ({"X": ONES, "domain": pa.domains.Boolean(lengths=(3, None))}, "tokens"),
    ({"X": ONES, "domain": "complex"}, "domain"),
    ({"X": flat(), "domain": pa.domains.Finite(ONES)}, "coordinates"),
    ({"X": gaussian(90), "domain": pa.domains.Finite(ONES)}, "coordinates"),
]


@pytest.mark.parametrize(("arguments", "words"), MISUSE)
def test_misuse_is_refused_by_name(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        pa.certify(**arguments)


@pytest.mark.parametrize("lengths", [0, -1, (3, 2), (0, 1), 1.5, "two", (1, 2.5), True])
def test_impossible_lengths_are_refused(lengths):
    with pytest.raises((InvalidInput, InvalidType), match="lengths"):
        pa.domains.Boolean(lengths=lengths)
    with pytest.raises(InvalidType, match="draw"):
        pa.domains.Sampled(3)
    with pytest.raises(InvalidInput, match="n_samples"):
        pa.domains.Sampled(lambda rng: rng.random((1, 1)), n_samples=0)
