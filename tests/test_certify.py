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
    """Small differences behind large offsets, in one column or in all."""
    offset, width = rng.choice([0, 2**20, 2**50, 2**62]), int(rng.choice([1, 2, 6, 20]))
    X = [offset + rng.integers(2**width, size=(n, n_dims)) for n in sizes]
    if n_dims > 1 and rng.random() < 0.4:
        for x in X:
            x[:, -1] = x[:, 0] + (rng.random() < 0.1)
    return [x.astype(np.uint64) for x in X] if rng.random() < 0.5 else X


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
    n_dims, has_lengths = X[0].shape[1], bool(rng.random() < 0.4)
    name = kind if kind in NAMES and rng.random() < 0.7 else "real"
    lengths = (int(rng.choice([1, min(map(len, X))])), longest) if has_lengths else (1, 6)
    domain = NAMES[name](lengths if has_lengths else None)
    method = str(rng.choice(["auto", "exact", "float"][: 2 + (kind != "large integers")]))
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
    found = pa.certify(X, mode, domain, bias=bias, method="exact")
    assert oracle.wrong_claims(found, psi, everywhere, real) == [], found
    assert found.verdict != "undecided"
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
        found = pa.certify(X, method="exact")
        assert (found.verdict, found.rounding) == ("identifiable", 0.0)
    X = gaussian(90)
    X[..., 2] = X[..., 1] + 1e-6 * X[..., 2]
    assert pa.certify(X).verdict == "undecided"


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
    copied = flat()[:, :, [0, 1, 1]]
    assert pa.certify(copied, method="exact").verdict == "not_identifiable"


def test_degenerate_data_leave_the_layer_open_and_a_witness_shows_it():
    for X in (
        np.zeros((1, 1, 1)), np.full((50, 3, 2), 0.1), [np.ones((1, 2)), np.ones((5, 2))],
        np.tile(gaussian(1), (50, 1, 1)), gaussian(30)[:, :1], gaussian(17), gaussian(30, 4, 40),
        5e-324 * np.ones((9, 2, 2)),
    ):  # fmt: skip
        found = pa.certify(X)
        assert found.verdict == "not_identifiable"
        if X[0].max() != 5e-324:
            witness = found.witness()
            assert witness.difference > 0.5
            assert witness.training_disagreement < 1e-8
        assert np.isinf(found.bound(X[0], 1.0)).all()
        assert pa.verify(found, X)


def test_data_in_any_container_are_the_same_data(tmp_path):
    X = gaussian(200)
    np.save(tmp_path / "X.npy", X)
    given_as = [X, np.asfortranarray(X), X[:, ::-1][:, ::-1], list(X), pa.scan(tmp_path / "X.npy")]
    found = [pa.certify(each) for each in given_as]
    assert len({each.digest for each in found}) == 1
    assert all(pa.verify(found[0], each) for each in given_as)
    whole = np.random.default_rng(3).integers(0, 2, (60, 3, 2)).astype(float)
    same = [whole.astype(kind) for kind in (bool, np.uint64, np.float32)] + [whole - 0.0 * whole]
    assert {pa.certify(each).digest for each in same} == {pa.certify(whole).digest}
    assert pa.certify(np.where(whole == 0.0, 1e-300, whole)).digest != pa.certify(whole).digest


# The spectrum, units and order ------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_the_spectrum_is_that_of_the_second_moment(mode, bias):
    """On a discrete domain: the part of it that is not zero."""
    words = np.eye(4)[np.random.default_rng(0).integers(4, size=(300, 5))]
    for name, X in (("real", gaussian(120)), ("boolean", 1.0 * boolean(300)), ("one_hot", words)):
        found = pa.certify(X, mode, name, bias=bias)
        psi = oracle.design(X, {"mode": mode, "bias": bias})
        expected = np.linalg.eigvalsh(oracle.second_moment(psi))
        assert (found.identifiable, found.rank) == (True, found.dimension)
        assert (found.verdict_on_real_inputs == "identifiable") == (name == "real")
        assert found.lambda_min == pytest.approx(expected[-found.dimension], rel=1e-8)
        assert found.lambda_max == pytest.approx(expected[-1], rel=1e-8)
        assert (found.n_sequences, found.n_rows) == (len(X), len(psi))


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
        for figure in ("lambda_min", "lambda_max") if one.lambda_min is not None else ():
            rounding = 1e3 * oracle.EPS * one.n_features * one.lambda_max
            assert abs(getattr(other, figure) / factor - getattr(one, figure)) <= rounding
        assert pa.verify(other, other_X)
        same = all(np.array_equal(a, b) for a, b in zip(X, other_X, strict=True))
        assert pa.verify(one, other_X) == same


def test_sizes_beyond_float64_have_a_verdict_and_no_spectrum():
    for scale in (1e-150, 1e60):
        found = pa.certify(scale * gaussian(90))
        assert (found.identifiable, found.lambda_min, found.lambda_max) == (True, None, None)
        witness = pa.certify(scale * flat()).witness()
        assert witness.difference == pytest.approx(1.0, rel=1e-6)
        assert witness.training_disagreement < 1e-8
    # Units hide lambda_min, and hide nothing else: a fit finds the layer.
    X, scale = gaussian(300, 6, 5, seed=7), np.array([1e3, 1e-3, 5e6, 1.0, 1e-5])
    hidden, Y = pa.certify(X * scale), np.random.default_rng(7).standard_normal((300, 1))
    assert (hidden.identifiable, hidden.lambda_min) == (True, None)
    expected = pa.fit(X, Y).predict(X)
    assert oracle.relative_error(pa.fit(X * scale, Y).predict(X * scale), expected) < 1e-8


# Sums instead of data ---------------------------------------------------------------------------


@given(seed=seeds, cut=st.integers(1, 60))
def test_sums_in_parts_prove_what_data_prove_and_never_more(seed, cut):
    rng, X, mode, bias, _ = random_case("misleading", seed)
    if rng.random() < 0.5:
        X = [rng.standard_normal(x.shape) for x in X]
    psi = oracle.exact_design(X, {"mode": mode, "bias": bias})
    p = psi.ncols()
    for kind in SUMS:
        sums = kind(X[0].shape[1], mode=mode, bias=bias).update(X[:cut])
        if cut < len(X):
            sums = sums + kind(X[0].shape[1], mode=mode, bias=bias).update(X[cut:])
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
        enough = pa.certify(statistics=kind(3).update(gaussian(90)))
        assert enough.lambda_min == pytest.approx(pa.certify(gaussian(90)).lambda_min, rel=1e-8)
    sums = pa.Moments(3).update(gaussian(57), sample_weight=np.arange(57) < 17)
    assert pa.certify(statistics=sums).method == "count"


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
    assert found.verdict_on_real_inputs == "not_identifiable"
    single = pa.certify(statistics=kind(3).update(gaussian(90)[:, :1]), domain=pa.domains.Real(1))
    assert (single.identifiable, single.dimension) == (True, 10)


# Domains ----------------------------------------------------------------------------------------


def test_a_finite_domain_is_judged_by_what_the_data_span():
    X, inside = boolean(), pa.domains.Finite(iter(boolean(50, 4, seed=1)))
    assert len(inside.batch) == 50
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
    beyond = pa.certify(flat(), domain=pa.domains.Finite(gaussian(1))).witness()
    np.testing.assert_array_equal(beyond.input, gaussian(1)[0])


def test_a_sampler_shows_disagreement_and_never_proves_agreement():
    same = pa.domains.Sampled(lambda rng: rng.choice([-1, 1], size=(rng.integers(2, 5), 3)), 200)
    assert pa.certify(boolean(), domain=same).verdict == "undecided"
    other = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 3)), n_samples=20)
    assert pa.certify(boolean(), domain=other).verdict == "not_identifiable"
    assert pa.certify(gaussian(90), domain=other).identifiable
    plane = np.array([[1.0, 0.3, 0.7], [0.1, 1.0, -0.6]])
    near = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 2)) @ plane, n_samples=20)
    assert pa.certify(gaussian(60, 4, 2) @ plane, domain=near).verdict == "undecided"
    assert other.covered(0.99) ** 20 == pytest.approx(0.01)  # else all would hardly have agreed
    # Samples come from a seed, or from a generator that goes on.
    rng, draws = np.random.default_rng(3), []
    for random_state in (0, 3, np.random.default_rng(3), rng, rng):
        domain = pa.domains.Sampled(lambda rng: rng.standard_normal((2, 3)), 4, random_state)
        draws.append(domain.batch.values)
    np.testing.assert_array_equal(draws[0], gaussian(4, 2).reshape(8, 3))  # files name samples
    assert [np.array_equal(draws[1], each) for each in draws[2:]] == [True, True, False]


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
    assert sorted(set(found.direction)) == [0, 1]
    assert found.witness().training_disagreement == 0.0
    assert pa.verify(found, X)
    # On prompts all is determined; on anything that breaks the rule it is not.
    others = prompts(rng, 20)
    assert pa.certify(X, domain=pa.domains.Finite(others)).identifiable
    others[3, -1, -1] = 1.0
    outside = pa.certify(X, domain=pa.domains.Finite(others))
    assert outside.verdict == "not_identifiable"
    assert pa.verify(outside, X)
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


def test_distances_that_no_sequence_has_never_occur():
    for n_tokens, n_zero in ((2, 12), (3, 6), (4, 0)):
        found = pa.certify(gaussian(200, n_tokens, 2), form=pa.Form(lags=3))
        assert (0 if found.structure is None else found.structure.n_zero) == n_zero


def test_one_row_of_many_is_seen():
    X = np.ones((20_000, 2, 2), dtype=np.int8)
    few = pa.certify(X[:9]).rank
    X[12_345] = [[1, 0], [2, 1]]
    for mode in MODES:
        assert pa.certify(X, mode).rank > few
        assert pa.verify(pa.certify(X, mode), X)


# Associative memory [yau2024: section 4.2, figure 2] --------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("unitary", "expected"), [(0.95, 0.061), (0.0, 2.5)])
def test_smallest_eigenvalues_of_the_paper(unitary, expected):
    X = pa.data.associative_memory(2**14, 4, unitary=unitary, random_state=0).X
    found = pa.certify(X)
    assert (found.verdict, found.n_features) == ("identifiable", 288)
    assert found.lambda_min == pytest.approx(expected, rel=0.1)


# Misuse -----------------------------------------------------------------------------------------

ONES = np.ones((3, 2, 2))
MISUSE = [
    ({}, "sequences X"), ({"X": ONES * np.nan}, "X"), ({"X": ONES, "method": "guess"}, "method"),
    ({"X": ONES, "statistics": pa.Moments(2)}, "statistics"),
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
    with pytest.raises(InvalidType, match="draw"):
        pa.domains.Sampled(3)
    with pytest.raises(InvalidInput, match="n_samples"):
        pa.domains.Sampled(lambda rng: rng.random((1, 1)), n_samples=0)
