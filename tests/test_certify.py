"""Certificates of the papers' layer: no verdict is wrong, by exact ranks of the features.

Data of every kind: small integers, integers behind large offsets, numbers made to mislead, tokens
of discrete domains, finite domains; every mode, with and without a bias, each method.
"""

from functools import cache

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
def features_of_domain(name, mode, bias, n_dims, lengths=(1, 6)):
    return oracle.spanning(name, {"mode": mode, "bias": bias}, n_dims, lengths=lengths)


def judged(X, form, domain, everywhere, method):
    found = pa.certify(X, domain=domain, method=method, **form)
    real = features_of_domain("real", n_dims=X[0].shape[1], **form)
    assert oracle.wrong_claims(found, oracle.exact_design(X, form), everywhere, real) == [], found
    assert pa.verify(found, X)
    return found


def small_integers(rng, sizes, n_dims):
    """Anything from zeros to generic integers."""
    X = [rng.integers(-3, 4, (n, n_dims)).astype(float) for n in sizes]
    if rng.random() < 0.3:
        X = [X[i % max(1, len(X) // 3)] for i in range(len(X))]
    if rng.random() < 0.3:
        X = [x * (np.arange(n_dims) > 0) for x in X]
    return X


def large_integers(rng, sizes, n_dims):
    """Small differences behind large offsets, in one column or in all."""
    offset, width = rng.choice([0, 2**20, 2**50, 2**62]), int(rng.choice([1, 2, 6, 20]))
    X = [offset + rng.integers(2**width, size=(n, n_dims)) for n in sizes]
    if n_dims > 1 and rng.random() < 0.4:
        for x in X:
            x[:, -1] = x[:, 0] + (rng.random() < 0.1)
    return [x.astype(np.uint64) + np.uint64(2**63) for x in X] if rng.random() < 0.5 else X


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
    """(rng, X, form, longest) of a small problem near the border of what is determined."""
    rng = np.random.default_rng(seed)
    n_dims, mode = int(rng.integers(1, 4)), MODES[rng.integers(3)]
    bias, longest = bool(rng.random() < 0.25) and n_dims < 3, int(rng.integers(1, 5))
    width = n_dims + bias
    p = width * width * (width + 1) // 2
    count = int(rng.integers(max(1, p - 3), 2 * p + 6))
    sizes = [int(rng.integers(1, longest + 1)) for _ in range(count)]
    return rng, TOKENS[kind](rng, sizes, n_dims), {"mode": mode, "bias": bias}, longest


@pytest.mark.parametrize("kind", TOKENS)
@given(seed=seeds)
def test_no_verdict_is_wrong(kind, seed):
    """And none is left open where arithmetic is exact, or where nothing is near to rounding."""
    rng, X, form, longest = random_case(kind, seed)
    name = kind if kind in NAMES and rng.random() < 0.7 else "real"
    domain, lengths = NAMES[name](), (1, 6)
    if rng.random() < 0.4:
        lengths = (int(rng.choice([1, min(map(len, X))])), longest)
        domain = NAMES[name](lengths)
    method = str(rng.choice(["auto", "exact", "float"][: 2 + (kind != "large integers")]))
    everywhere = features_of_domain(name, n_dims=X[0].shape[1], lengths=lengths, **form)
    found = judged(X, form, domain, everywhere, method)
    if method != "float":
        assert found.verdict != "undecided", found
    elif oracle.exact_rank(X, form) == found.dimension == found.n_features:
        phi = oracle.design([x.astype(float) for x in X], form)
        sigma = np.linalg.svd(phi / np.linalg.norm(phi, axis=0), compute_uv=False)
        assert found.identifiable or sigma[-1] < 1e-4 * sigma[0]


@pytest.mark.parametrize("kind", TOKENS)
@given(seed=seeds)
def test_no_verdict_on_a_finite_domain_is_wrong(kind, seed):
    rng, X, form, _ = random_case(kind, seed)
    X = X[: int(rng.integers(1, 25))]
    asked = [X[i] for i in rng.integers(len(X), size=3)]
    if rng.random() < 0.5:
        asked += [rng.integers(0, 3, (2, X[0].shape[1])).astype(X[0].dtype)]
    everywhere = oracle.exact_design(asked, form)
    assert judged(X, form, pa.domains.Finite(asked), everywhere, "exact").verdict != "undecided"


@given(seed=seeds)
def test_of_rounded_numbers_a_verdict_is_true_of_them_or_of_what_was_rounded(seed):
    """Integers over 3, 5, 7: the planes that they lie in are lost in float64."""
    rng, X, form, _ = random_case("small integers", seed)
    n_dims = X[0].shape[1]
    if n_dims > 1 and rng.random() < 0.6:
        for x in X:
            x[:, -1] = x[:, 0]
    units = rng.choice([1, 3, 5, 7, 10], n_dims)
    rounded = [x / units for x in X]
    everywhere = features_of_domain("real", n_dims=n_dims, **form)
    truths = set()
    for psi in (oracle.exact_design(X, form), oracle.exact_design(rounded, form)):
        truths.add(oracle.rank_of(psi, everywhere) == oracle.rank_of(psi))
    found = pa.certify(rounded, **form)
    assert found.verdict == "undecided" or found.identifiable in truths
    assert pa.verify(found, rounded)


def test_exact_arithmetic_sees_what_rounding_hides_and_rounding_never_denies_it():
    """A coordinate that hides in another one, beside large integers, or where the other is not."""
    X = np.random.default_rng(2).integers(-9, 10, size=(60, 3, 2)).astype(float)
    slight, deep = (X @ [[1.0, 1.0], [0.0, 2.0**-shift]] for shift in (12, 40))
    beside = np.stack([gaussian()[:, :3, 0], 2.0**50 + X[..., 1]], axis=2)
    seldom = gaussian(400, 4, 2) * np.repeat(np.eye(2), 200, axis=0)[:, None]
    seldom[:, 0] = 1e-20 * gaussian(400, 1, 2, seed=1)[:, 0]
    for tokens, hidden in ((slight, False), (beside, False), (deep, True), (seldom, True)):
        in_floats = pa.certify(tokens, method="float").verdict
        assert in_floats == ("undecided" if hidden else "identifiable")
        found = pa.certify(tokens, method="exact")
        assert (found.verdict, found.rounding) == ("identifiable", 0.0)
    # Of many long numbers, too.
    X = np.random.default_rng(0).integers(-(2**40), 2**40, (9000, 2, 6))
    X[..., 5] = X[..., 0] + X[..., 1]
    found = pa.certify(X)
    assert (found.verdict, found.method, found.rank) == ("not_identifiable", "exact", 5 * 15)
    # Floats on both sides of 2^53 that are even above it are integers, and not rounded ones.
    rng = np.random.default_rng(0)
    large = 2**52 + rng.integers(2**51, size=(60, 3, 1)) * [1, 1] + 2 * rng.integers(2, size=(3, 2))
    large = np.where(rng.random((60, 3, 1)) < 0.5, large, 2 * large)
    assert pa.certify(large.astype(float)).verdict == pa.certify(large).verdict == "identifiable"


def test_a_plane_is_recognised_up_to_the_rounding_of_the_data():
    """And so is whatever else leaves a layer open; a witness shows it."""
    planes = [(flat(), mode) for mode in MODES]
    for X, mode in (
        *planes, (np.full((50, 3, 2), 0.1), "last"), (np.tile(gaussian(1), (50, 1, 1)), "full"),
        (gaussian(30)[:, :1], "causal"), (gaussian(17), "last"), (gaussian(9, 4, 40), "last"),
    ):  # fmt: skip
        found = pa.certify(X, mode)
        assert (found.verdict, found.lambda_min) == ("not_identifiable", 0.0)
        assert oracle.witness_fails(found.witness(), X, {"mode": mode}) == []
        assert pa.verify(found, X)
    assert pa.certify(flat()).rank == 6
    # However close to a line they are: nothing between is recognised and then not believed.
    for power in range(-56, -44):
        X = gaussian(40, 1 + power % 2, 2)
        X[..., 1] = X[..., 0] + 2.0**power * X[..., 1]
        found = pa.certify(X)
        assert pa.verify(found, X), (power, found)


def test_data_in_any_container_are_the_same_data(tmp_path):
    X = np.random.default_rng(3).integers(0, 2, (60, 3, 2)).astype(float)
    np.save(tmp_path / "X.npy", X)
    given_as = [X.astype(kind) for kind in (bool, np.uint64, np.float32)]
    given_as += [np.asfortranarray(X), X[:, ::-1][:, ::-1], list(X), np.where(X == 0.0, -0.0, X)]
    found = pa.certify(X)
    for each in (*given_as, pa.scan(tmp_path / "X.npy")):
        assert pa.certify(each).digest == found.digest
        assert pa.verify(found, each)
    assert pa.certify(np.where(X == 0.0, 1e-300, X)).digest != found.digest


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_spectrum_is_that_of_the_second_moment(mode, bias):
    """On a discrete domain: the part of it that is not zero."""
    words = np.eye(4)[np.random.default_rng(0).integers(4, size=(300, 5))]
    for name, X in (("real", gaussian(120)), ("boolean", 1.0 * boolean(300)), ("one_hot", words)):
        found = pa.certify(X, mode, name, bias=bias)
        psi = oracle.design(X, {"mode": mode, "bias": bias})
        expected = np.linalg.eigvalsh(oracle.second_moment(psi))[[-found.dimension, -1]]
        assert (found.identifiable, found.n_rows) == (True, len(psi))
        assert (found.verdict_on_real_inputs == "identifiable") == (name == "real")
        np.testing.assert_allclose([found.lambda_min, found.lambda_max], expected, rtol=1e-8)


@given(seed=seeds, power=st.integers(-60, 60))
def test_units_change_the_spectrum_alone_and_order_changes_nothing(seed, power):
    rng, X, form, _ = random_case("small integers", seed)
    mode = form["mode"]
    one = pa.certify(X, mode)
    order, signs = rng.permutation(X[0].shape[1]), rng.choice([-1.0, 1.0], X[0].shape[1])
    changed = [
        ([np.ldexp(x, power) for x in X], 2.0 ** (6 * power)),
        ([X[i] for i in rng.permutation(len(X))], 1.0),
        ([x[:, order] * signs for x in X], 1.0),
    ]
    if mode == "last":
        changed += [([np.concatenate([rng.permutation(x[:-1]), x[-1:]]) for x in X], 1.0)]
    for other_X, factor in changed:
        other = pa.certify(other_X, mode)
        for figure in ("verdict", "method", "rank", "dimension", "n_features"):
            assert getattr(other, figure) == getattr(one, figure), figure
        for figure in ("lambda_min", "lambda_max") if one.lambda_min is not None else ():
            rounding = 1e3 * oracle.EPS * one.n_features * one.lambda_max
            assert abs(getattr(other, figure) / factor - getattr(one, figure)) <= rounding
        assert pa.verify(other, other_X)
        same = all(np.array_equal(a, b) for a, b in zip(X, other_X, strict=True))
        assert pa.verify(one, other_X) == same


def test_sizes_beyond_float64_have_a_verdict_and_no_spectrum():
    found = pa.certify(1e60 * gaussian(90))
    assert (found.identifiable, found.lambda_min, found.lambda_max) == (True, None, None)
    # Units hide lambda_min, and hide nothing else.
    hidden = pa.certify(gaussian(300, 6, 5) * [1e3, 1e-3, 5e6, 1.0, 1e-5])
    assert (hidden.identifiable, hidden.lambda_min) == (True, None)


@given(seed=seeds, cut=st.integers(1, 60))
def test_sums_in_parts_prove_what_data_prove_and_never_more(seed, cut):
    rng, X, form, _ = random_case("misleading", seed)
    if rng.random() < 0.5:
        X = [rng.standard_normal(x.shape) for x in X]
    phi, rank = oracle.design(X, form), oracle.exact_rank(X, form)
    n_rows, p = phi.shape
    for kind in SUMS:
        sums = kind(X[0].shape[1], **form).update(X[:cut])
        if cut < len(X):
            sums = sums + kind(X[0].shape[1], **form).update(X[cut:])
        found = pa.certify(statistics=sums)
        assert found.verdict == "undecided" or found.identifiable == (rank == p)
        if n_rows >= p and np.all(np.any(phi, axis=0)):
            sigma = np.linalg.svd(phi / np.linalg.norm(phi, axis=0), compute_uv=False)
            assert found.identifiable or sigma[-1] < 1e-4 * sigma[0]


@pytest.mark.parametrize("kind", SUMS)
def test_sums_say_no_where_rows_are_too_few_and_claim_nothing_of_deficient_ones(kind):
    weighted = kind(3).update(gaussian(57), sample_weight=np.arange(57) < 17)
    for sums in (kind(3).update(gaussian(17)), weighted):
        few = pa.certify(statistics=sums)
        assert (few.verdict, few.method) == ("not_identifiable", "count")
        assert few.witness().difference == pytest.approx(1.0)
    tokens = kind(3).update(gaussian(90)[:, :1])
    for sums, single in (kind(3).update(gaussian(17)), False), (weighted, False), (tokens, True):
        counted = pa.certify(statistics=sums)
        assert (counted.method, "single token" in counted.outcome.sentence) == ("count", single)
    doubtful = pa.certify(statistics=kind(3).update(flat()))
    assert doubtful.verdict == "undecided"
    with pytest.raises(InvalidInput):
        doubtful.witness()
    enough = pa.certify(statistics=kind(3).update(gaussian(90)))
    assert enough.lambda_min == pytest.approx(pa.certify(gaussian(90)).lambda_min, rel=1e-8)


@pytest.mark.parametrize("kind", SUMS)
def test_sums_are_believed_about_a_domain_unless_they_contradict_it(kind):
    """Else a theorem about the domain would be applied to data outside it."""
    nearly = boolean(90, 4).astype(float)
    nearly[7, 2, 1] = 1.001
    for X, domain in (
        (gaussian(90), "one_hot"), (nearly, "boolean"),
        (gaussian(90), pa.domains.Real(lengths=1)), (boolean(90, 4), pa.domains.Boolean((1, 3))),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=r"domain|tokens"):
            pa.certify(statistics=kind(3).update(X), domain=domain)
    sums = kind(3).update(boolean(300))
    found = pa.certify(statistics=sums, domain="boolean")
    assert found.identifiable
    assert "taken from you" in found.note
    assert not pa.certify(boolean(300), domain="boolean").note
    assert found.verdict_on_real_inputs == "not_identifiable"
    single = pa.certify(statistics=kind(3).update(gaussian(90)[:, :1]), domain=pa.domains.Real(1))
    assert (single.identifiable, single.dimension) == (True, 10)


def test_a_finite_domain_is_judged_by_what_the_data_span():
    inside, outside = boolean(50, 4, seed=1), np.array([[2, 0, 0], [1, 1, 1]])
    assert pa.certify(boolean(), domain=pa.domains.Finite(iter(inside))).identifiable
    for X, asked in ((boolean(), [*boolean(5, 4), outside]), (flat(), gaussian(1))):
        witness = pa.certify(X, domain=pa.domains.Finite(asked)).witness()
        np.testing.assert_array_equal(witness.input, asked[-1])
        assert oracle.witness_fails(witness, X, {}) == []
    # In floats "inside" holds up to rounding alone.
    plane = flat(70, seed=1)
    assert pa.certify(plane[:50], domain=pa.domains.Finite(plane[50:])).verdict == "undecided"


def test_a_sampler_shows_disagreement_and_never_proves_agreement():
    same = pa.domains.Sampled(lambda rng: rng.choice([-1, 1], size=(rng.integers(2, 5), 3)), 200)
    assert pa.certify(boolean(), domain=same).verdict == "undecided"
    other = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 3)), n_samples=20)
    assert pa.certify(boolean(), domain=other).verdict == "not_identifiable"
    assert pa.certify(gaussian(90), domain=other).identifiable
    assert other.covered(0.99) ** 20 == pytest.approx(0.01)  # else all would hardly have agreed


def test_features_that_never_occur_are_left_out_and_the_rest_is_decided():
    """In-context regression: the last token asks, and its label is 0."""
    rng = np.random.default_rng(8)
    X, others = np.split(rng.standard_normal((420, 6, 4)), [400])
    X[:, -1, -1] = others[:, -1, -1] = 0.0
    found = pa.certify(X)
    structure = found.structure
    assert (found.verdict, structure.rest) == ("not_identifiable", "identifiable")
    assert (structure.n_zero, structure.n_multiples, structure.queries) == (10, 0, (3,))
    assert found.rank == 30
    assert sorted(set(found.direction)) == [0, 1]
    assert found.witness().training_disagreement == 0.0
    # On prompts all is determined; on anything that breaks the rule it is not.
    assert pa.certify(X, domain=pa.domains.Finite(others)).identifiable
    others[3, -1, -1] = 1.0
    outside = pa.certify(X, domain=pa.domains.Finite(others))
    assert outside.verdict == "not_identifiable"
    assert pa.verify(outside, X)
    # A layer that never reads what never occurs is determined.
    form = pa.Form(include_query=False, mean=True, query=slice(0, 3), value=[3])
    assert pa.certify(X, form=form).identifiable


def test_multiples_of_features_are_found_exactly():
    X = gaussian(300)
    X[..., 2] = -4.0 * X[..., 1]
    found = pa.certify(X)
    assert (found.verdict, found.structure.n_multiples) == ("not_identifiable", 12)
    assert found.structure.rest == "identifiable"
    assert np.count_nonzero(found.direction) == 2
    assert not np.any(oracle.design(X, {}) @ np.array(found.direction, dtype=float))
    X[0, 0, 2] = np.nextafter(X[0, 0, 2], 9.0)  # nearly a multiple is none
    assert pa.certify(X).structure is None or pa.certify(X).structure.n_multiples < 12


def test_one_row_of_many_is_seen():
    X = np.ones((20_000, 2, 2), dtype=np.int8)
    few = pa.certify(X[:9]).rank
    X[12_345] = [[1, 0], [2, 1]]
    for mode in MODES:
        assert pa.certify(X, mode).rank > few
        assert pa.verify(pa.certify(X, mode), X)


@pytest.mark.slow
@pytest.mark.parametrize(("unitary", "expected"), [(0.95, 0.061), (0.0, 2.5)])
def test_smallest_eigenvalues_of_the_paper(unitary, expected):
    """Of associative memory [yau2024: section 4.2, figure 2]."""
    X = pa.data.associative_memory(2**14, 4, unitary=unitary, random_state=0).X
    found = pa.certify(X)
    assert (found.verdict, found.n_features) == ("identifiable", 288)
    assert found.lambda_min == pytest.approx(expected, rel=0.1)


ONES = np.ones((3, 2, 2))
MISUSE = [
    ({}, "sequences X"), ({"X": ONES, "statistics": pa.Moments(2)}, "statistics"),
    ({"statistics": pa.Moments(2).update(ONES), "method": "exact"}, "sequences X"),
    ({"statistics": pa.Moments(2).update(ONES), "domain": pa.domains.Finite(ONES)}, "sequences"),
    ({"X": np.ones((1, 30_000, 35)), "mode": "causal", "method": "float"}, "GB"),
    ({"X": 2**60 + np.arange(80).reshape(20, 2, 2), "method": "float"}, "X"),
    ({"X": 0 * ONES, "domain": "boolean"}, "domain"), ({"X": ONES, "domain": "one_hot"}, "domain"),
    ({"X": ONES, "domain": pa.domains.Real(lengths=3)}, "2 tokens"),
    ({"X": gaussian(90), "domain": pa.domains.Finite(ONES)}, "coordinates"),
]  # fmt: skip


def test_misuse_is_refused_by_name():
    for arguments, words in MISUSE:
        with pytest.raises(InvalidInput, match=words):
            pa.certify(**arguments)
    for lengths in (0, (3, 2), (1, 2.5)):
        with pytest.raises((InvalidInput, InvalidType), match="lengths"):
            pa.domains.Boolean(lengths=lengths)
    with pytest.raises(InvalidInput, match="n_samples"):
        pa.domains.Sampled(gaussian, n_samples=0)
