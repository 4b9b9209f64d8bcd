"""Heads where only some columns fold, of several scales, or of limited rank: the algebra."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.form.pairs import fold_tensor
from polyattn.heads import descent
from polyattn.heads.algebra import jacobian, layer_tensor, symmetrised
from polyattn.heads.coordinates import reduce, whiten
from polyattn.heads.descent import Patience, descend
from polyattn.heads.head_counts import generic_heads, layer_dimension, least_heads, most_heads
from polyattn.heads.head_search import random_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.linear_terms import Elimination
from polyattn.heads.low_rank_heads import LowRankHeads
from polyattn.heads.metric import Metric, excess, ordered_pairs

# outputs, shared columns, values beside them, keys beside them, queries
shapes = st.tuples(
    st.integers(1, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)
).filter(lambda shape: shape[1] + shape[2] > 0 and shape[1] + shape[3] > 0)
seeds = st.integers(0, 2**32 - 1)


def drawn(shape, counts, rng):
    """Random heads of as many scales as there are counts."""
    n_outputs, shared, values, keys, n_queries = shape
    n_heads = sum(counts)
    return HeadSet(
        rng.standard_normal((n_heads, shared + values, n_outputs)),
        rng.standard_normal((n_heads, shared + keys, n_queries)),
        counts,
        shared,
    )


def moments(n_features, rng, n_rows=200):
    rows = rng.standard_normal((n_rows, n_features))
    return rows.T @ rows


def n_features(shape, n_scales=1):
    _, shared, values, keys, n_queries = shape
    return n_scales * len(ordered_pairs((shared + values, shared + keys), shared)) * n_queries


@given(
    shapes, st.lists(st.integers(0, 2), min_size=1, max_size=3).filter(any), st.booleans(), seeds
)
def test_derivatives_of_heads(shape, counts, low_rank, seed):
    rng = np.random.default_rng(seed)
    heads = drawn(shape, tuple(counts), rng)
    heads = LowRankHeads.nearest(heads, 1) if low_rank else heads
    gradient_size = len(heads.diagonal())
    step = rng.standard_normal(gradient_size)
    along = heads.change(step)
    # Heads are products of two or three numbers: the difference is a polynomial in the step.
    small = 1e-3
    ahead, behind = (heads.moved(s * step).tensor() for s in (small, -small))
    np.testing.assert_allclose((ahead - behind) / (2 * small), along, atol=1e-4)
    np.testing.assert_allclose(np.tensordot(step, heads.derivatives(), 1), along, atol=1e-12)
    some = symmetrised(rng.standard_normal(along.shape), shape[1])
    assert heads.gradient(some) @ step == pytest.approx(np.vdot(some, along), abs=1e-10)


@given(
    shapes, st.lists(st.integers(0, 2), min_size=1, max_size=3).filter(any), st.booleans(), seeds
)
def test_balanced_heads_are_the_same_layer(shape, counts, low_rank, seed):
    heads = drawn(shape, tuple(counts), np.random.default_rng(seed))
    heads = LowRankHeads.nearest(heads, 1) if low_rank else heads
    even = heads.balanced()
    np.testing.assert_allclose(even.tensor(), heads.tensor(), atol=1e-11)
    norms = (np.linalg.norm(side, axis=(1, 2)) for side in (even.free.value, even.free.key))
    np.testing.assert_allclose(*norms, rtol=1e-6, atol=1e-7)


@given(shapes, st.integers(1, 3), seeds)
def test_moments_see_what_folds(shape, n_scales, seed):
    rng = np.random.default_rng(seed)
    n_outputs, shared = shape[:2]
    heads = drawn(shape, (1,) * n_scales, rng)
    gram, tensor = moments(n_features(shape, n_scales), rng), heads.tensor()
    metric = Metric(gram, shared, n_scales)
    folded = fold_tensor(tensor, ordered_pairs(tensor.shape[1:3], shared))
    apart = folded.reshape(n_scales, n_outputs, -1).swapaxes(0, 1).reshape(n_outputs, -1)
    direct = float(np.sum(apart @ gram * apart))
    assert metric.power(tensor) == pytest.approx(direct, rel=1e-10)
    assert excess(tensor, gram, Metric(None, shared, n_scales)) == pytest.approx(direct, rel=1e-10)
    batch = np.stack([tensor, 2.0 * tensor])
    np.testing.assert_allclose(metric(batch)[1], metric(2.0 * tensor), rtol=1e-10, atol=1e-8)


@given(shapes, st.integers(1, 3), seeds)
def test_new_coordinates_keep_heads_and_risks(shape, n_scales, seed):
    rng = np.random.default_rng(seed)
    heads = drawn(shape, (1,) * n_scales, rng)
    fold = Metric(None, shape[1], n_scales)
    gram, tensor = moments(n_features(shape, n_scales), rng), heads.tensor()
    white, metric, restore = whiten(tensor, gram, fold)
    there = random_heads(white, (1,) * n_scales, metric, rng)
    back = replace(there, shared=shape[1]).restored(restore)
    ratio = metric.power(there.tensor()) / metric.power(white)
    assert excess(back.tensor(), gram, fold) / excess(tensor, gram, fold) == pytest.approx(
        ratio, rel=1e-6
    )


@given(shapes, st.integers(1, 2), seeds)
def test_the_core_has_the_heads_of_the_layer(shape, n_scales, seed):
    """Heads in subspaces of shared, own and query columns: the core has only those."""
    rng = np.random.default_rng(seed)
    n_outputs, shared, values, keys, n_queries = shape
    small = drawn(shape, (2,) * n_scales, rng)

    def wider(columns):
        return np.linalg.qr(rng.standard_normal((columns + 2, columns)))[0]

    both, own_values, own_keys = wider(shared), wider(values), wider(keys)

    def spread(side, own):
        first, rest = side[:, :shared], side[:, shared:]
        return np.concatenate([both @ first, own @ rest], axis=1)

    large = HeadSet(
        spread(small.value, own_values) @ wider(n_outputs).T,
        spread(small.key, own_keys) @ wider(n_queries).T,
        small.counts,
        shared + 2,
    )
    tensor = large.tensor()
    tensor /= np.linalg.norm(tensor)
    core, metric, expand = reduce(tensor, 1e-12, Metric(None, shared + 2, n_scales))
    assert np.all(np.array(core.shape[1:]) <= small.tensor().shape[1:])
    found = HeadSet.factored(core, metric)
    back = replace(found, shared=shared + 2).restored(expand)
    np.testing.assert_allclose(back.tensor(), tensor, atol=1e-11)


@given(shapes, st.integers(1, 4), seeds)
def test_the_bound_never_exceeds_the_heads(shape, n_heads, seed):
    rng = np.random.default_rng(seed)
    heads = drawn(shape, (n_heads,), rng)
    tensor = heads.tensor()
    tensor /= np.linalg.norm(tensor)
    assert 1 <= least_heads(tensor, 1e-10, rng, shape[1]) <= n_heads


def test_columns_beside_the_shared_ones_raise_the_bound():
    """Six heads with two outputs: whole tokens of four columns are only known to need two."""
    rng = np.random.default_rng(0)
    for shape, least in (((2, 4, 0, 0, 2), 2), ((2, 4, 2, 0, 2), 4), ((2, 4, 3, 0, 2), 6)):
        tensor = drawn(shape, (6,), rng).tensor()
        assert least_heads(tensor / np.linalg.norm(tensor), 1e-10, rng, shape[1]) == least


@pytest.mark.parametrize("shared", [0, 1, 2, 3])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_the_dimension_is_the_rank_of_the_jacobian(shared, n_outputs):
    rng = np.random.default_rng(shared)
    for values, keys, n_queries in ((0, 1, 2), (1, 0, 1), (1, 1, 2), (2, 1, 3)):
        shape = (n_outputs, shared + values, shared + keys, n_queries)
        if 0 in shape:
            continue
        for n_heads in range(1, most_heads(shape) + 1):
            value = rng.standard_normal((n_heads, shape[1], n_outputs))
            key = rng.standard_normal((n_heads, *shape[2:]))
            flat = jacobian(value, key, shared).reshape(value.size + key.size, -1)
            rank = np.linalg.matrix_rank(flat)
            assert layer_dimension(n_heads, shape, shared) == rank
            full = rank == n_outputs * n_features((n_outputs, shared, values, keys, n_queries))
            assert (n_heads >= generic_heads(shape, shared)) == full


def test_matrices_of_a_rank_have_the_known_dimension():
    assert layer_dimension(2, (3, 2, 4, 5), 0) == 2 * (3 * 2 + 4 * 5 - 2)
    assert layer_dimension(0, (3, 2, 4, 5), 0) == 0
    assert layer_dimension(99, (3, 2, 4, 5), 0) == 3 * 2 * 4 * 5


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("low_rank", [True, False])
def test_dense_and_iterative_steps_agree(dense, low_rank, monkeypatch):
    monkeypatch.setattr(descent, "DENSE_ENTRIES", 10**9 if dense else 0)
    rng = np.random.default_rng(0)
    shape = (2, 2, 1, 1, 3)
    true = drawn(shape, (1, 2), rng)
    true = LowRankHeads.nearest(true, 2) if low_rank else true
    metric = Metric(moments(n_features(shape, 2), rng), 2, 2)
    near = true.moved(0.03 * rng.standard_normal(len(true.diagonal())))
    found = descend(true.tensor(), near, metric, Patience(window=4, fraction=1e-3))
    assert found.loss <= 1e-10


def test_truncation_keeps_the_largest_of_all_scales():
    rng = np.random.default_rng(0)
    heads = drawn((2, 0, 3, 3, 3), (2, 2), rng)
    heads.value[:2] *= 100.0
    kept = HeadSet.factored(heads.tensor(), Metric(None, 0, 2), 3)
    assert kept.counts == (2, 1)
    assert HeadSet.factored(heads.tensor(), Metric(None, 0, 2)).counts == (2, 2)


def test_eliminated_terms_take_what_they_can():
    rng = np.random.default_rng(0)
    gram = moments(7, rng)
    # One linear term never occurs, and one is that of another, times 1e6.
    change = np.diag([1.0, 1, 1, 1, 1, 0, 1e6])
    change[4, 6] = 1e6
    change[6, 6] = 0.0
    gram = change.T @ gram @ change
    elimination = Elimination.of(gram, 4)
    heads = rng.standard_normal((2, 4))
    both = np.hstack([heads, elimination.shifts(heads)])
    assert np.sum(both @ gram * both) == pytest.approx(
        np.sum(heads @ elimination.moments * heads), rel=1e-9
    )
    slope = (both @ gram)[:, 4:] / np.sqrt(np.maximum(np.diag(gram)[4:], 1.0))
    assert np.abs(slope).max() <= 1e-9 * np.abs(gram[:4, :4]).max()


def test_only_the_shared_block_is_symmetrised():
    tensor = np.arange(2 * 3 * 3 * 1, dtype=float).reshape(2, 3, 3, 1)
    part = symmetrised(tensor, 2)
    np.testing.assert_array_equal(part[:, 2], tensor[:, 2])
    np.testing.assert_array_equal(part[:, :, 2], tensor[:, :, 2])
    assert np.all(part[:, 0, 1] == part[:, 1, 0])
    np.testing.assert_array_equal(symmetrised(tensor, 1), tensor)
    value, key = np.ones((1, 3, 1)), np.arange(3.0).reshape(1, 3, 1)
    assert not np.array_equal(layer_tensor(value, key, 2), layer_tensor(value, key, 0))
