"""Token ids stand for one-hot tokens: whatever takes dense tokens takes them, in less memory."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from oracle import MODES, relative_error
from polyattn.errors import OutOfRange, PolyattnError
from test_fit import rows_of

FORMS = {
    **{mode: {"mode": mode} for mode in MODES},
    "others": {"mode": "full", "include_query": False},
    "mean of others": {"mode": "full", "include_query": False, "mean": True},
    "window": {"mode": "causal", "window": 2},
    "window of others": {"mode": "causal", "window": 3, "include_query": False, "mean": True},
    "decay": {"mode": "causal", "decay": 0.5},
    "decay of the last": {"decay": 0.25, "include_query": False},
}
#: From so many symbols on counts of pairs take the place of dense tokens by themselves.
MANY = 200


def ids_of(n_symbols, lengths, seed=0):
    rng = np.random.default_rng(seed)
    return pa.SequenceBatch.from_ids([rng.integers(n_symbols, size=n) for n in lengths], n_symbols)


def targets_of(batch, mode, n_outputs=2, seed=1):
    rng = np.random.default_rng(seed)
    if mode == "last":
        return rng.standard_normal((len(batch), n_outputs))
    return [rng.standard_normal((n, n_outputs)) for n in batch.lengths]


def test_ids_may_be_given_in_any_way_and_stay_ids_in_memory():
    ids = np.random.default_rng(0).integers(5, size=(4, 3))
    for given_ids in (
        ids, ids.tolist(), (ids.ravel(), np.arange(5) * 3), ids.astype(np.uint8),
        [*ids[:2].astype(np.uint64), *ids[2:].astype(np.int8)],
    ):  # fmt: skip
        batch = pa.SequenceBatch.from_ids(given_ids, 5)
        assert (len(batch), batch.n_dims) == (4, 5)
        np.testing.assert_array_equal(np.stack(list(batch)), np.eye(5)[ids])
    large = pa.SequenceBatch.from_ids(np.zeros((1000, 1000), dtype=np.int64), 1000)
    assert large.values.nbytes == 2 * 10**6
    with pytest.raises(PolyattnError, match="1,000,000,000 numbers"):
        np.asarray(large.values)


WRONG = [
    ([[0, 3]], "3"), ([[0, -1]], "-1"), ([[0.0, 1.0]], "integers"), ([[True]], "ids"),
    ([], "empty"), ([[0], []], "sequence 1"), (np.zeros((2, 0), int), "0 tokens"),
    (np.zeros(3, int), "n_tokens"), ([np.zeros((2, 2), int)], "ids[0]"),
    ((np.zeros(3, int), [0, 2]), "0 to 3"),
]  # fmt: skip


def test_other_ids_are_refused():
    for ids, word in WRONG:
        with pytest.raises(PolyattnError, match=re.escape(word)):
            pa.SequenceBatch.from_ids(ids, 3)


@pytest.mark.parametrize(("mode", "bias"), [("last", False), ("causal", True), ("full", False)])
def test_whatever_takes_dense_tokens_takes_ids(mode, bias):
    batch = ids_of(3, [1, 4, 2, 5, 3] * 6)
    dense, Y = [np.eye(3)[np.argmax(x, axis=1)] for x in batch], targets_of(batch, mode)
    own, other = (pa.fit(x, Y, mode, bias=bias, ridge=0.1) for x in (batch, dense))
    assert relative_error(own.coef, other.coef) < 1e-12
    assert own.risk == pytest.approx(other.risk)
    assert relative_error(rows_of(own.predict(batch)), rows_of(own.predict(dense))) < 1e-12
    for domain in ("real", "one_hot"):
        found = pa.certify(batch, mode, domain, bias=bias)
        assert found.to_dict() == pa.certify(dense, mode, domain, bias=bias).to_dict()
        assert pa.verify(found, batch)
        assert not pa.verify(found, dense[::-1])
    assert pa.audit(own, batch, Y).to_dict() == pa.audit(own, dense, Y).to_dict()
    for kind in (pa.Moments, pa.TriangularFactor):
        sums = [kind(3, 2, mode=mode, bias=bias).update(x, Y) for x in (batch, dense)]
        assert sums[0] == sums[1]


@given(st.data())
def test_counts_of_symbols_have_the_rational_optimum_of_dense_tokens(data):
    fields = data.draw(st.sampled_from(list(FORMS.values())))
    n_symbols = data.draw(st.integers(1, 4))
    symbols = st.lists(st.integers(0, n_symbols - 1), min_size=1, max_size=5)
    sequences = data.draw(st.lists(symbols, min_size=1, max_size=12))
    batch = pa.SequenceBatch.from_ids(sequences, n_symbols)
    mode = {**oracle.DEFAULTS, **fields}["mode"]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    ridge = data.draw(st.sampled_from([0.0, 1e-3, 2.0]))
    weights = rng.integers(0, 3, len(batch)) + np.eye(len(batch))[0]
    size, heavy = (data.draw(st.sampled_from([1.0, 2.0**-400, 2.0**400])) for _ in range(2))
    Y, dense = targets_of(batch, mode, seed=rng), [np.asarray(x, dtype=float) for x in batch]
    found = pa.fit(
        batch, [size * y for y in Y], form=pa.Form(**fields), ridge=heavy * ridge,
        solver="one_hot", sample_weight=heavy * weights,
    )  # fmt: skip
    exact = oracle.ExactFit.of(dense, rows_of(Y), fields, ridge, weights)
    theta = oracle.features_of(found.coef, fields) / size
    np.testing.assert_allclose(theta, oracle.numbers(exact.coef), atol=1e-8)
    assert found.risk / size**2 == pytest.approx(oracle.nearest(exact.risk), abs=1e-12)
    assert found.rank == (exact.rank if ridge == 0 else None)
    psi = oracle.design(dense, fields)
    for outputs in (found.predict(batch), found.predict(dense), found.layer(batch)):
        np.testing.assert_allclose(rows_of(outputs) / size, psi @ theta, atol=1e-9)
    row_weights = np.repeat(weights, [len(oracle.predicted(len(x), mode)) for x in dense])
    occurring = psi[row_weights > 0].any(axis=0)
    assert found.n_occurring == np.count_nonzero(occurring) == found.table.n_pairs
    away = rows_of(Y) - np.average(rows_of(Y), axis=0, weights=row_weights)
    spread = np.average(np.sum(away**2, axis=1), weights=row_weights)
    assert found.baseline_risk / size**2 == pytest.approx(spread, rel=1e-11, abs=1e-25)
    assert found.layer.n_heads <= min(n_symbols, 2)
    unique = found.rank == found.n_features
    wanted = "regularised" if ridge else "unique" if unique else "minimum_norm"
    assert found.outcome.name == wanted


def test_many_symbols_stay_sparse_and_few_do_not():
    few, many = ids_of(3, [5] * 9), ids_of(MANY, [5] * 9)
    assert type(pa.fit(few, np.ones(9))) is pa.FitResult
    assert type(pa.fit(many, np.ones(9))) is pa.OneHotFit
    assert type(pa.fit(ids_of(50, [5] * 9), np.ones(9), bias=True)) is pa.FitResult
    wide, labels = ids_of(5000, [6] * 300), np.arange(300) % 2
    found = pa.fit(wide, targets_of(wide, "last"), ridge=0.1)
    assert found.n_features == 5000**2 * 5001 // 2
    assert found.predict(wide).shape == (300, 2)
    for words, call in (
        ("dense", lambda: found.coef), ("layer", lambda: pa.fit(wide, np.ones((300, 6))).layer),
        *((next(iter(more)), lambda more=more: pa.fit(wide, labels, **more)) for more in (
            {"n_heads": 1}, {"ridge": "loo"}, {"bias": True}, {"loss": "logistic"})),
        ("audit", lambda: pa.audit(pa.fit(many, np.ones(9)), many, np.ones(9))),
    ):  # fmt: skip
        with pytest.raises(PolyattnError, match=words):
            call()
    Y = targets_of(many, "last")
    model = pa.LinearAttentionRegressor(ridge=0.1).fit(many, Y)
    np.testing.assert_allclose(model.predict(many), pa.fit(many, Y, ridge=0.1).predict(many))


@pytest.mark.parametrize("name", FORMS)
def test_heads_see_many_ids_as_they_see_dense_tokens(name):
    rng = np.random.default_rng(0)
    attn, value = rng.standard_normal((2, 40, 40)), 1e200 * rng.standard_normal((2, 40, 3))
    layer = pa.LinearAttention(attn, value, form=pa.Form(**FORMS[name]))
    batch = ids_of(40, [1, 5, 3, 8] * 3)
    np.testing.assert_allclose(rows_of(layer(batch)), rows_of(layer(list(batch))), rtol=1e-9)


def test_a_ridge_that_rounding_hides_is_not_ok():
    """Symbols 1 and 2 come together, 3 and 4 in a fixed sum: the ridge alone divides them."""
    rng = np.random.default_rng(0)
    sequences = [
        np.repeat([1, 2, 3, 4, 5, 0], [one, one, two, 7 - two, three, 1])
        for one, two, three in rng.integers([0, 1, 0], [4, 6, 3], (60, 3))
    ]
    Y = rng.standard_normal((60, 1))
    batch = pa.SequenceBatch.from_ids(sequences, 6)
    counts = oracle.matrix(np.array([np.bincount(s, minlength=6) for s in sequences], float))
    for ridge, is_found in ((1e-3, True), (1e-8, True), (1e-14, False), (1e-20, False)):
        gram = counts.transpose() * counts
        for symbol in range(6):
            gram[symbol, symbol] += oracle.rational(ridge)
        truth = oracle.numbers(gram.solve(counts.transpose() * oracle.matrix(Y)))[:, 0]
        found = pa.fit(batch, Y, ridge=ridge, solver="one_hot")
        error = relative_error(found.table.matrices()[0].toarray()[0], truth)
        assert found.outcome.ok == (error < 1e-4) == is_found


def test_what_counts_do_not_know_is_refused():
    batch, ones = ids_of(3, [4] * 9), np.ones(9)
    endless = pa.SequenceBatch.from_ids(np.zeros((1, 10**6), int), 40)  # 10^12 counts
    found = pa.fit(batch, ones, solver="one_hot")
    not_one = [np.array([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]])]
    unknown = (
        {"bias": True}, {"skip": True}, {"intercept": True}, {"lags": 2}, {"key": [0]},
        {"decay": [0.5, 0.9]}, {"value": np.eye(3)},
    )  # fmt: skip
    for words, call in (
        *(("dense", lambda fields=fields: pa.fit(
            batch, ones, form=pa.Form(**fields), solver="one_hot")) for fields in unknown),
        ("token ids", lambda: pa.fit(list(batch), ones, solver="one_hot")),
        ("context", lambda: pa.fit(batch, ones, solver="one_hot", context=batch)),
        ("one-hot", lambda: found.predict(not_one)),
        ("3 coordinates", lambda: found.predict(ids_of(4, [2]))),
        ("window", lambda: pa.fit(endless, [np.zeros(10**6)], "full")),
    ):  # fmt: skip
        with pytest.raises(PolyattnError, match=words):
            call()
    with pytest.raises(OutOfRange):
        pa.fit(batch, np.repeat([[1e-300, 1e300]], 9, axis=0), solver="one_hot")
