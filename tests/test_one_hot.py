"""Token ids stand for one-hot tokens: whatever takes dense tokens takes them as well."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.numerics.one_hot_tokens import MOST_DENSE, OneHotTokens
from polyattn.sequences import SequenceBatch

RNG = np.random.default_rng(0)


def ids_and_dense(n_symbols: int, lengths, seed: int = 0) -> tuple[SequenceBatch, list]:
    rng = np.random.default_rng(seed)
    ids = [rng.integers(n_symbols, size=n) for n in lengths]
    return SequenceBatch.from_ids(ids, n_symbols), [np.eye(n_symbols)[each] for each in ids]


def targets_for(batch: SequenceBatch, mode: str, n_outputs: int = 2, seed: int = 1):
    rng = np.random.default_rng(seed)
    if mode == "last":
        return rng.standard_normal((len(batch), n_outputs))
    return [rng.standard_normal((n, n_outputs)) for n in batch.lengths]


def test_three_ways_to_give_ids():
    ids = RNG.integers(5, size=(4, 3))
    flat, offsets = ids.ravel(), np.arange(5) * 3
    dense = np.eye(5)[ids]
    for given_ids in (ids, list(ids), ids.tolist(), (flat, offsets), ids.astype(np.uint8)):
        batch = SequenceBatch.from_ids(given_ids, 5)
        assert isinstance(batch.values, OneHotTokens)
        assert (len(batch), batch.n_dims, batch.common_length) == (4, 5, 3)
        assert all(np.array_equal(own, each) for own, each in zip(batch, dense, strict=True))
    mixed = SequenceBatch.from_ids([np.array([1], np.uint64), np.array([2], np.int8)], 3)
    assert np.array_equal(mixed.values[:], np.eye(3)[[1, 2]])
    assert "4 sequences, 3 tokens of 5 coordinates" in repr(batch)


def test_memory_is_that_of_the_ids():
    batch = SequenceBatch.from_ids(np.zeros((1000, 1000), dtype=np.int64), 1000)
    assert batch.values.nbytes == 2 * 10**6
    assert isinstance(batch[10:20].values, OneHotTokens)
    assert isinstance(batch.chosen(np.array([3, 1])).values, OneHotTokens)
    assert batch.values.size > MOST_DENSE
    with pytest.raises(InvalidInput, match="1,000,000,000 numbers"):
        np.asarray(batch.values)


@pytest.mark.parametrize(
    ("ids", "n_symbols", "error", "words"),
    [
        ([[0, 3]], 3, InvalidInput, "between 0 and 2, as n_symbols=3 says; got 3 as token 1"),
        ([[0, -1]], 3, InvalidInput, "got -1"),
        ([[0.0, 1.0]], 3, InvalidType, "must hold integers"),
        ([[True]], 3, InvalidType, "must hold integers"),
        ([["a"]], 3, InvalidType, "must hold integers"),
        ([], 3, InvalidInput, "is empty"),
        ([[0], []], 3, InvalidInput, "sequence 1 of ids has 0 tokens"),
        (np.zeros((0, 2), int), 3, InvalidInput, "is empty"),
        (np.zeros((2, 0), int), 3, InvalidInput, "has 0 tokens"),
        (np.zeros(3, int), 3, InvalidInput, r"shape \(n_sequences, n_tokens\)"),
        ([np.zeros((2, 2), int)], 3, InvalidInput, r"ids\[0\] must have shape"),
        ((np.zeros(3, int),), 3, InvalidInput, "flat ids, offsets"),
        ((np.zeros(3, int), [0, 2]), 3, InvalidInput, "must run from 0 to 3"),
        ((np.zeros((3, 1), int), [0, 3]), 3, InvalidInput, "one-dimensional"),
        ([[0]], 0, InvalidInput, "n_symbols must be an integer of at least 1"),
        ([[0]], 2.0, InvalidInput, "n_symbols must be an integer"),
    ],
)
def test_other_ids_are_refused(ids, n_symbols, error, words):
    with pytest.raises(error, match=words):
        SequenceBatch.from_ids(ids, n_symbols)


@given(
    arrays.arrays(np.int64, st.integers(1, 8), elements=st.integers(0, 3)),
    st.integers(0, 3),
)
def test_it_indexes_as_the_array_does(ids, column):
    tokens, dense = OneHotTokens.checked(ids, 4), np.eye(4, dtype=np.int8)[ids]
    assert (tokens.shape, tokens.size, tokens.ndim, len(tokens)) == (
        dense.shape, dense.size, 2, len(dense),
    )  # fmt: skip
    assert (tokens.max(), tokens.min()) == (dense.max(), dense.min())
    assert np.array_equal(np.asarray(tokens), dense)
    for index in (slice(1, None), np.arange(len(ids))[::-1], slice(None, None, 2), 0):
        assert np.array_equal(tokens[index], dense[index])
        assert tokens[index].dtype == dense.dtype
    assert np.array_equal(tokens[:, column], dense[:, column])
    assert np.array_equal(tokens[:, [0, 2]], dense[:, [0, 2]])


@pytest.mark.parametrize(("mode", "bias"), [("last", False), ("causal", True), ("full", False)])
def test_small_ids_work_as_dense_tokens_do(mode, bias):
    batch, dense = ids_and_dense(3, [1, 4, 2, 5, 3] * 6)
    Y = targets_for(batch, mode)
    own, other = (pa.fit(X, Y, mode, bias=bias, ridge=0.1) for X in (batch, dense))
    np.testing.assert_allclose(own.coef, other.coef, atol=1e-12)
    assert own.risk == pytest.approx(other.risk)
    ours, theirs = own.predict(batch), own.predict(dense)
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-9)
    for domain in ("real", "one_hot"):
        found = pa.certify(batch, mode, domain, bias=bias)
        wanted = pa.certify(dense, mode, domain, bias=bias)
        assert found.to_dict() == wanted.to_dict()
        assert pa.verify(found, batch)
        assert pa.verify(found, dense)
    assert pa.audit(own, batch, Y).to_dict() == pa.audit(own, dense, Y).to_dict()
    sums = pa.Moments(3, 2, mode=mode, bias=bias).update(batch, Y)
    assert np.array_equal(
        sums.scaled_gram(), pa.Moments(3, 2, mode=mode, bias=bias).update(dense, Y).scaled_gram()
    )


def test_ids_of_other_symbols_are_other_data():
    batch, dense = ids_and_dense(3, [4] * 30)
    found = pa.certify(batch, domain="one_hot")
    assert not pa.verify(found, dense[::-1])
