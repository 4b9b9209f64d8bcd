"""Certificates of every form of layer, of contexts, of functions of tokens, and of token ids.

The general certificate [yau2024: Lemma E.1]: outputs are linear in the coefficients of a form's
features, and data whose features span those of the domain leave one minimiser.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput

SUMS = (pa.Moments, pa.TriangularFactor)
EXACT = {name: each for name, each in oracle.FORMS.items() if name != "own-function"}


def some_data(form, n_context_dims, n_sequences=40, seed=1, n_dims=3, n_tokens=6):
    """Normal sequences, enough of them, of two lengths, and their contexts or None."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((n_tokens - i % min(2, n_tokens), n_dims)) for i in range(n_sequences)]
    if n_context_dims is None:
        return X, None
    longer = 0 if form.get("mode") == "causal" else 3
    return X, [rng.standard_normal((len(x) + longer, n_context_dims)) for x in X]


def flat(outputs):
    return np.concatenate([np.ravel(each) for each in outputs])


@given(fields=oracle.forms(n_dims=2, exact=True), X=oracle.sequences(n_dims=2, exact=True),
       repeat=st.integers(1, 4), method=st.sampled_from(["auto", "exact", "float"]))  # fmt: skip
def test_no_verdict_is_wrong_whatever_the_form(fields, X, repeat, method):
    form, n_context_dims = oracle.split_context(fields)
    rng = np.random.default_rng(len(X))
    X = [*X, *(np.roll(x, 1, axis=0) + rng.integers(-1, 2, x.shape) for x in X * (repeat - 1) ** 2)]
    Z = oracle.contexts_for(X, form, n_context_dims)
    psi = oracle.exact_design(X, form, Z)
    everywhere = oracle.spanning("real", form, 2, n_context_dims)
    found = pa.certify(X, form=pa.Form(**form), context=Z, method=method)
    assert oracle.wrong_claims(found, psi, everywhere, everywhere) == [], found
    assert found.n_features == psi.ncols()
    assert method == "float" or found.verdict != "undecided"
    assert pa.verify(found, X, context=Z)
    if found.verdict == "not_identifiable":
        witness = found.witness()
        assert oracle.witness_fails(witness, X, form, Z) == []
        assert (witness.context is None) == (Z is None)


def test_dimensions_on_domains_and_of_lengths_are_ranks():
    """Of every form on sequences of its lengths; forms that see nothing there are refused."""
    refused = 0
    for number, (name, fields) in enumerate(EXACT.items()):
        form, n_context_dims = oracle.split_context(fields)
        least, most = [(1, 1), (2, 2), (3, 4)][number % 3]
        everywhere = oracle.spanning("real", form, 3, n_context_dims, (least, most))
        X, Z = some_data(form, n_context_dims, 1, n_tokens=most)
        options = {"form": pa.Form(**form), "domain": pa.domains.Real((least, most))}
        options["context"] = None if Z is None else [Z[0][:most]]
        if oracle.rank_of(everywhere) == 0:
            refused += 1
            with pytest.raises(InvalidInput, match="nothing"):
                pa.certify(X, **options)
        else:
            found = pa.certify(X, **options)
            assert found.dimension == oracle.rank_of(everywhere), name
            if not found.identifiable:
                witness = found.witness()
                assert least <= len(witness.input) <= most
                assert oracle.witness_fails(witness, X, form, options["context"]) == [], name
    assert refused > 0


@pytest.mark.parametrize("name", ["boolean", "one_hot"])
def test_discrete_domains_of_other_forms_have_the_dimension_of_their_features(name):
    rng = np.random.default_rng(4)
    for each in ("others-full", "window-3", "overlap", "skip-bias", "lags-1"):
        form = oracle.FORMS[each]
        X = [oracle.some_tokens(name, (int(n), 3), rng) for n in rng.integers(1, 7, 60)]
        everywhere = oracle.spanning(name, form, 3)
        found = pa.certify(X, form=pa.Form(**form), domain=name)
        assert oracle.wrong_claims(found, oracle.exact_design(X, form), everywhere) == [], each
        assert pa.verify(found, X)


def test_a_matrix_that_picks_coordinates_shows_what_they_show():
    X = np.random.default_rng(0).standard_normal((400, 5, 3)) * [1.0, 0.0, 1.0]
    for places, n_zero in ({"key": [0, 1], "value": [2]}, 4), ({"key": [0], "value": [1]}, 3):
        matrices = {name: 2.0 * np.eye(3)[:, at] for name, at in places.items()}
        for fields in (places, matrices):
            known = pa.certify(X, form=pa.Form(**fields)).structure
            assert (known.n_zero, known.rest) == (n_zero, "identifiable")


def test_dependent_features_are_recognised_where_tokens_are_rounded():
    """A coordinate that is another one times 0.3, rounded; and sums that a decay makes long."""
    rng = np.random.default_rng(24)
    X = [rng.standard_normal((1 + i % 5, 2))[:, :1] * [1.0, 0.3] for i in range(100)]
    long = rng.integers(-3, 4, (60, 40, 2)) @ [[1, 0, 1], [0, 1, 1]]
    for data, fields in (
        (X, {"mode": "causal", "decay": 0.75, "key": [0], "value": [1], "skip": True}),
        (X, {"include_query": False, "key": [1], "intercept": True}),
        (long, {"decay": [0.5, 0.3]}),
    ):
        found = pa.certify(data, form=pa.Form(**fields))
        assert found.verdict == "not_identifiable"
        assert pa.verify(found, data)


@pytest.mark.parametrize("name", oracle.FORMS)
def test_certified_data_leave_one_minimiser_and_few_data_two(name):
    """Zero risk means the true function, on inputs of other lengths too."""
    form, n_context_dims = oracle.split_context(oracle.FORMS[name])
    options = {"form": pa.Form(**form), "n_context_dims": n_context_dims}
    p = oracle.spanning("real", form, 3, n_context_dims, lengths=(1, 1)).ncols()
    few = form.get("mode", "last") != "last"
    X, Z = some_data(form, n_context_dims, p // 2 + 20 if few else 2 * p + 20)
    found = pa.certify(X, form=options["form"], context=Z)
    assert found.identifiable
    # lambda_min ||p - p*||^2 <= risk <= lambda_max ||p - p*||^2, as the proof has it.
    spectrum = np.linalg.eigvalsh(oracle.second_moment(oracle.design(list(X), form, Z)))
    ends = spectrum[[-found.dimension, -1]]
    np.testing.assert_allclose([found.lambda_min, found.lambda_max], ends, rtol=1e-6)
    arrays = oracle.random_layer(form, 3, n_context_dims, seed=2)
    truth = pa.LinearAttention(n_dims=3, **arrays, **options)
    fitted = pa.fit(X, truth(X, Z), form=options["form"], context=Z)
    for n_tokens in (1, 3, 8):
        new, around = some_data(form, n_context_dims, 4, seed=3, n_tokens=n_tokens)
        expected, predicted = flat(truth(new, around)), flat(fitted.layer(new, around))
        np.testing.assert_allclose(predicted, expected, atol=1e-6 * (1 + np.abs(expected).max()))
    # Bounds of distances are finite, and the worst case is no less.
    bound, worst = (
        flat(found.bound(X, 0.01, context=Z, kind=kind)) for kind in ("leverage", "worst_case")
    )
    assert np.all(np.isfinite(bound))
    assert np.all((bound >= 0) & (bound <= worst * (1 + 1e-9)))
    # Sums decide as data do, and of less is certain.
    for kind in SUMS:
        from_sums = pa.certify(statistics=kind(3, **options).update(X, context=Z))
        assert from_sums.identifiable, from_sums
        np.testing.assert_allclose(flat(from_sums.bound(X, 0.01, context=Z)), bound, rtol=0.1)
    # Two layers explain two tokens.
    few, around = [X[0][:2]], None if Z is None else [Z[0][:2]]
    witness = pa.certify(few, form=options["form"], context=around).witness()
    assert oracle.witness_fails(witness, few, form, around) == []


def dyadic(rng, *shape):
    """Numbers of 48 bits: sums of two are exact, and products are rounded."""
    return rng.integers(-(2**48), 2**48, shape) * 2.0**-48


def dependent(rng):
    """Exactly dependent, but for rounding of their products, also beside one large token."""
    X = dyadic(rng, 120, 5, 3)
    X[..., 2] = X[..., 0] + X[..., 1]
    X[:, 0] *= rng.choice([1.0, 2.0**20])  # in windows and decays it leaves
    return X


def cancelling(rng):
    """(a, b), (c, b), (-a - c, b): sums are zero, computed they are noise, and noise is generic."""
    X = dyadic(rng, 150, 4, 3)
    X[:, 1, 1:], X[:, 2, 1:] = X[:, 0, 1:], X[:, 0, 1:]
    X[:, 2, 0] = -(X[:, 0, 0] + X[:, 1, 0])
    return X


SLANTED, THIRD = np.array([[0.1, 0.3], [0.1, 0.7], [-0.1, 0.2]]), np.array([[0.3], [0.0], [0.0]])
OTHERS = {"key": [0], "value": [1, 2], "include_query": False}
UNDECIDED = {
    "overlap": (dependent, {"key": [0, 1, 2], "value": [0, 1]}),
    "decays": (dependent, {"mode": "causal", "key": [0, 1, 2], "value": [0], "decay": [0.5, 0.9]}),
    "linear": (dependent, {"key": [0, 1, 2], "value": [0], "skip": True, "intercept": True}),
    "function": (dependent, {"key": pa.maps.polynomial(2), "value": [0]}),
    "matrix query": (dependent, {"query": SLANTED}),
    "cancelling": (cancelling, OTHERS),
    "cancelling matrix": (cancelling, OTHERS | {"key": THIRD, "value": [1]}),
    "pooled": (cancelling, {"key": [0], "value": [1], "lags": 1, "query": [2]}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDECIDED)
def test_sums_that_hide_a_dependence_are_never_called_identifiable(name):
    draw, fields = UNDECIDED[name]
    X = draw(np.random.default_rng(4))
    for kind in SUMS:
        sums = kind(3, form=pa.Form(**fields)).update(X)
        assert pa.certify(statistics=sums).verdict == "undecided"


def test_what_is_true_is_believed_of_long_late_large_and_cancelling_data():
    """Past what is summed at once, after many zeros, in other units, and of sums lost to noise."""
    rng = np.random.default_rng(5)
    angle, one = rng.standard_normal(60), np.ones(60)
    circle = 2.0**50 * np.array([[np.cos(angle), one], [np.sin(angle), one]]).transpose(2, 0, 1)
    long, lost = rng.integers(-3, 4, (1, 1100, 2)), dyadic(rng, 60, 3, 3)
    lost[:, 0, 1], lost[:, 1, 0] = 3 * lost[:, 1, 1], -3 * lost[:, 0, 0]
    late = np.append(np.zeros((30, 260, 2)), rng.integers(-3, 4, (30, 40, 2)), axis=1)
    for X, verdict, fields in (
        (late, "identifiable", {"include_query": False}),
        (long, "identifiable", {"mode": "causal", "include_query": False}),
        (circle, "not_identifiable", {"intercept": True, "key": [0], "value": [0], "query": [1]}),
        (lost, "not_identifiable", UNDECIDED["cancelling matrix"][1]),
    ):
        found = pa.certify(X, form=pa.Form(**fields), method="float")
        assert (found.verdict, pa.verify(found, X)) == (verdict, True)


def test_any_feature_map_has_a_certificate():
    """The papers' features, written by hand: a sequence is one token, and features what it asks."""
    X = np.random.default_rng(4).standard_normal((80, 3, 2))

    def ones(tokens):
        return np.ones((len(tokens), 1))

    def cubic(together):
        return oracle.design(together.reshape(len(together), 3, 2), {})

    form, whole = pa.Form(query=cubic, key=ones, value=ones), X.reshape(80, 1, 6)
    general, usual = pa.certify(whole, form=form), pa.certify(X)
    assert general.identifiable
    assert general.n_features == usual.n_features == 6
    assert general.lambda_min == pytest.approx(usual.lambda_min, rel=1e-9)
    few = pa.certify(whole[:5], form=form)
    assert (few.verdict, few.rank) == ("not_identifiable", 5)


def test_a_context_is_part_of_the_data():
    X, Z = np.round(8 * np.random.default_rng(7).standard_normal((2, 60, 4, 3))) / 8
    found = pa.certify(X, context=Z)
    assert pa.verify(found, X, context=Z)
    for certificate, context in ((found, Z[::-1]), (found, None), (pa.certify(X), Z)):
        assert not pa.verify(certificate, X, context=context)
    with pytest.raises(InvalidInput, match="context"):
        found.next_data()
    few = pa.certify(X[:4], context=Z[:4], domain=pa.domains.Finite(X[:3], context=Z[:3]))
    assert few.identifiable
    assert few.verdict_on_real_inputs == "not_identifiable"
    other = pa.domains.Finite(X[50:53], context=Z[50:53])
    witness = pa.certify(X[:4], context=Z[:4], domain=other).witness()
    assert any(np.array_equal(witness.context, z) for z in Z[50:53])
    assert oracle.witness_fails(witness, X[:4], {}, Z[:4]) == []


def rank_of_counts(ids, mode):
    """The features that one-hot tokens show: how often each symbol is seen, for each that asks.

    Their rank, how many occur, and all singular values that are not those of absent symbols.
    """
    rows, n_symbols = {}, 1 + max(int(x.max()) for x in ids)
    for x in ids:
        for t in oracle.predicted(len(x), mode):
            seen = [int(x[s]) for s in oracle.attended(t, len(x), {"mode": mode})]
            rows.setdefault(int(x[t]), []).append(np.bincount(seen, minlength=n_symbols))
    blocks = [np.array(each) for each in rows.values()]
    occurring = sum(np.count_nonzero(np.any(each, axis=0)) for each in blocks)
    sizes = np.concatenate([np.linalg.svd(each, compute_uv=False) for each in blocks])
    return sum(map(np.linalg.matrix_rank, blocks)), occurring, sizes


@given(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(oracle.MODES))
def test_certificates_of_ids_are_those_of_counts(seed, mode):
    rng = np.random.default_rng(seed)
    n_symbols, longest = int(rng.integers(17, 24)), int(rng.integers(1, 5))
    n_used, n_sequences = int(rng.integers(2, n_symbols + 1)), int(rng.choice([3, 60, 600]))
    ids = [rng.integers(n_used, size=n) for n in rng.integers(1, longest + 1, n_sequences)]
    if rng.random() < 0.5 and longest > 1:  # symbols that always come together
        ids = [np.append(x, [0, 1] * int(rng.integers(0, 3)) + [2]) for x in ids]
    batch = pa.SequenceBatch.from_ids(ids, n_symbols)
    rank, occurring, sizes = rank_of_counts(ids, mode)
    for name in ("one_hot", "real"):
        found = pa.certify(batch, mode, name)
        p = n_symbols * n_symbols * (n_symbols + 1) // 2
        assert (found.rank, found.n_occurring, found.n_features) == (rank, occurring, p)
        assert found.dimension == (n_symbols**2 if name == "one_hot" else p)
        assert found.identifiable == (rank == found.dimension)
        assert found.n_rows == sum(len(oracle.predicted(len(x), mode)) for x in ids)
        assert found.lambda_max == pytest.approx(sizes.max() ** 2 / found.n_rows, rel=1e-6)
        if found.structure is not None:
            assert found.structure.n_zero == found.dimension - occurring
            assert (found.structure.rest == "identifiable") == (rank == occurring)
        if not found.identifiable:
            tokens = [np.eye(n_symbols)[x] for x in ids[:3]]
            assert found.witness().training_disagreement == 0.0
            assert oracle.witness_fails(found.witness(), tokens, {"mode": mode}) == []
        assert pa.verify(found, batch)


def test_all_pairs_of_symbols_determine_the_layer_and_one_less_does_not():
    pairs = np.array([[a, b] for a in range(20) for b in range(20)])
    found = pa.certify(pa.SequenceBatch.from_ids(pairs, 20), domain="one_hot")
    least = rank_of_counts(pairs, "last")[2].min() ** 2 / 400
    assert (found.identifiable, found.rank) == (True, 400)
    assert found.verdict_on_real_inputs == "not_identifiable"  # no token has two coordinates
    assert found.lambda_min == pytest.approx(least, rel=1e-6)
    fewer = pa.SequenceBatch.from_ids(np.delete(pairs, -2, axis=0), 20)
    lacking = pa.certify(fewer, domain="one_hot")
    assert (lacking.unseen.features, lacking.unseen.integers) == (((19, 19, 18),), (1,))
    np.testing.assert_array_equal(lacking.witness().input, np.eye(20)[[19, 18]])


def test_counts_that_depend_on_each_other_have_an_exact_direction():
    """Every pair of symbols occurs, and yet something is open: short relations and long ones."""
    rng, d = np.random.default_rng(0), 17
    every = np.repeat(np.arange(2, d), 2)
    equal = [
        rng.permutation(np.append(every[rng.random(30) < 0.6], [0, 1] * rng.integers(1, 4)))
        for _ in range(900)
    ]  # 0 and 1 as often as each other
    few = [np.append(rng.choice(d, 60), asks) for asks in range(d) for _ in range(d - 1)]
    for ids, least, most in ((equal, 1, 1), (few, 2**22, 2**400)):
        batch = pa.SequenceBatch.from_ids(ids, d)
        found = pa.certify(batch, domain="one_hot")
        assert (found.verdict, found.structure) == ("not_identifiable", None)
        assert found.rank == rank_of_counts(ids, "last")[0] == d * d - d
        assert least <= max(map(abs, found.unseen.integers)) <= most
        direction = dict(zip(found.unseen.features, found.unseen.integers, strict=True))
        for x in (x for x in ids if x[-1] == found.unseen.features[0][2]):
            counts = np.bincount(x, minlength=d).tolist()
            assert sum(counts[j] * entry for (j, _, _), entry in direction.items()) == 0
        assert pa.verify(found, batch)
    # And some that never occur beside them.
    found = pa.certify(pa.SequenceBatch.from_ids(equal, d + 1), domain="one_hot")
    assert (found.structure.n_zero, found.structure.rest) == (2 * d + 1, "not_identifiable")
