"""Inside the search for heads: proved bounds and counted dimensions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.heads.algebra import jacobian
from polyattn.heads.head_counts import generic_heads, layer_dimension, least_heads, most_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.metric import ordered_pairs

pytestmark = pytest.mark.kernel

# outputs, shared columns, values beside them, keys beside them, queries
shapes = st.tuples(
    st.integers(1, 3), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)
).filter(lambda shape: shape[1] + min(shape[2:4]) > 0)
seeds = st.integers(0, 2**32 - 1)


def drawn(shape, counts, rng):
    """Random heads, so many of each scale."""
    n_outputs, shared, values, keys, n_queries = shape
    value = rng.standard_normal((sum(counts), shared + values, n_outputs))
    key = rng.standard_normal((sum(counts), shared + keys, n_queries))
    return HeadSet(value, key, counts, shared)


@given(shape=shapes, n_heads=st.integers(1, 4), seed=seeds)
def test_the_bound_never_exceeds_the_heads_of_a_layer(shape, n_heads, seed):
    rng = np.random.default_rng(seed)
    tensor = drawn(shape, (n_heads,), rng).tensor()
    assert 1 <= least_heads(tensor / np.linalg.norm(tensor), 1e-10, rng, shape[1]) <= n_heads


def test_the_bound_allows_for_the_tolerance_and_for_rounding():
    rng = np.random.default_rng(0)
    heads = drawn((6, 6, 0, 0, 6), (3,), rng).tensor()
    other = drawn((6, 6, 0, 0, 6), (6,), rng).tensor()
    near = heads + 1e-6 * np.linalg.norm(heads) * other / 50
    near /= np.linalg.norm(near)
    assert least_heads(near, 1e-4, rng) == 3
    assert least_heads(near, 1e-10, rng) == 6


@pytest.mark.parametrize("shared", [0, 1, 2, 3, 4])
def test_the_dimension_of_layers_is_the_rank_of_their_derivative(shared):
    rng = np.random.default_rng(shared)
    for n_outputs in (1, 2, 3):
        for values, keys, n_queries in ((0, 0, 2), (0, 0, 4), (0, 1, 2), (1, 0, 1), (2, 1, 3)):
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
