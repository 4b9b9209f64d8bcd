"""Inside the search for heads: proved bounds and counted dimensions."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.heads.algebra import jacobian
from polyattn.heads.choose import _evenly
from polyattn.heads.head_counts import generic_heads, layer_dimension, least_heads, most_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.metric import ordered_pairs

pytestmark = pytest.mark.kernel

# outputs, shared columns, values beside them, keys beside them, queries
shapes = st.tuples(
    st.integers(1, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)
).filter(lambda shape: shape[1] + min(shape[2:4]) > 0)
seeds = st.integers(0, 2**32 - 1)


@given(shape=shapes, n_heads=st.integers(1, 4), seed=seeds)
def test_the_bound_never_exceeds_the_heads_of_a_layer(shape, n_heads, seed):
    rng, (n_outputs, shared, values, keys, n_queries) = np.random.default_rng(seed), shape
    value = rng.standard_normal((n_heads, shared + values, n_outputs))
    key = rng.standard_normal((n_heads, shared + keys, n_queries))
    tensor = HeadSet(value, key, (n_heads,), shared).tensor()
    assert 1 <= least_heads(tensor / np.linalg.norm(tensor), 1e-10, rng, shared) <= n_heads


@pytest.mark.parametrize("shared", [0, 1, 2, 3, 4])
def test_the_dimension_of_layers_is_the_rank_of_their_derivative(shared):
    rng, sizes = np.random.default_rng(shared), [(0, 0, 2), (0, 1, 2), (1, 0, 1), (2, 1, 3)]
    for n_outputs, (values, keys, n_queries) in product((1, 2, 3), sizes):
        shape = (n_outputs, shared + values, shared + keys, n_queries)
        if 0 in shape:
            continue
        full = n_outputs * n_queries * len(ordered_pairs(shape[1:3], shared))
        for n_heads in range(1, most_heads(shape) + 1):
            value = rng.standard_normal((n_heads, shape[1], n_outputs))
            key = rng.standard_normal((n_heads, *shape[2:]))
            flat = jacobian(value, key, shared).reshape(value.size + key.size, -1)
            rank = np.linalg.matrix_rank(flat, 1e-9)
            assert layer_dimension(n_heads, shape, shared) == rank
            assert (n_heads >= generic_heads(shape, shared)) == (rank == full)


def test_heads_are_shared_out_evenly():
    for n_heads, n_scales in product(range(1, 8), range(1, 5)):
        counts = _evenly(n_heads, n_scales)
        assert (sum(counts), len(counts)) == (n_heads, n_scales)
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("counts", [(3,), (2, 1), (0, 3)])
def test_derivatives_by_each_number_and_along_a_step_are_one(counts):
    rng = np.random.default_rng(0)
    value, key = rng.standard_normal((3, 4, 2)), rng.standard_normal((3, 4, 3))
    heads, step = HeadSet(value, key, counts), rng.standard_normal(value.size + key.size)
    derivatives = heads.derivatives()
    squares = np.sum(derivatives**2, axis=(1, 2, 3, 4))
    assert np.all((heads.diagonal() <= squares * (1 + 1e-9)) & (squares <= 2 * heads.diagonal()))
    np.testing.assert_allclose(heads.change(step), np.tensordot(step, derivatives, 1), atol=1e-12)
    pulled = np.tensordot(derivatives, heads.change(step), 4)
    np.testing.assert_allclose(heads.gradient(heads.change(step)), pulled, rtol=1e-9)
