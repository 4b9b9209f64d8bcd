"""The least number of heads (proved) and the dimension of layers (counted)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.form.pairs import n_pairs
from polyattn.heads.algebra import jacobian, layer_tensor
from polyattn.heads.head_counts import generic_heads, layer_dimension, least_heads


def random_heads(n_dims, n_outputs, n_queries, n_heads, seed=0):
    rng = np.random.default_rng([n_dims, n_outputs, n_queries, n_heads, seed])
    value = rng.standard_normal((n_heads, n_dims, n_outputs))
    return value, rng.standard_normal((n_heads, n_dims, n_queries))


def bound(tensor, tolerance=1e-10, seed=0):
    return least_heads(tensor / np.linalg.norm(tensor), tolerance, np.random.default_rng(seed))


def jacobian_rank(*sizes):
    derivative = jacobian(*random_heads(*sizes))
    sigma = np.linalg.svd(derivative.reshape(len(derivative), -1), compute_uv=False)
    return int(np.count_nonzero(sigma > 1e-9 * sigma[0]))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_the_bound_never_exceeds_the_heads_of_a_layer(n_dims, n_outputs, n_heads, seed):
    tensor = layer_tensor(*random_heads(n_dims, n_outputs, n_dims, n_heads, seed))
    assert 1 <= bound(tensor, seed=seed) <= n_heads


@pytest.mark.parametrize(("n_dims", "n_outputs"), [(4, 4), (8, 1), (8, 2), (8, 8), (3, 7)])
def test_the_bound_is_the_number_itself_while_it_can_be(n_dims, n_outputs):
    most = max(min(n_outputs, n_dims), -(-n_dims // 2))
    for n_heads in range(1, most + 2):
        tensor = layer_tensor(*random_heads(n_dims, n_outputs, n_dims, n_heads))
        assert bound(tensor) == min(n_heads, most)


def test_the_bound_allows_for_the_tolerance():
    value, key = random_heads(6, 6, 6, 3)
    tensor = layer_tensor(value, key)
    near = tensor + 1e-6 * np.linalg.norm(tensor) * layer_tensor(*random_heads(6, 6, 6, 6, 1)) / 50
    assert bound(near, tolerance=1e-4) == 3
    assert bound(near, tolerance=1e-10) == 6


DIMENSIONS = [
    (n_dims, n_outputs, n_queries, n_heads)
    for n_dims in (1, 2, 3, 4)
    for n_outputs in (1, 2, 3, 5)
    for n_queries in sorted({1, 2, n_dims})
    for n_heads in range(1, n_dims * min(n_outputs, n_queries) + 1)
]


@pytest.mark.parametrize("sizes", DIMENSIONS, ids=str)
def test_the_dimension_is_the_rank_of_the_jacobian(sizes):
    n_dims, n_outputs, n_queries, n_heads = sizes
    assert layer_dimension(n_heads, (n_outputs, n_dims, n_dims, n_queries)) == jacobian_rank(*sizes)


def test_without_syzygies_the_count_would_be_wrong():
    # One output, two heads, d = 3: parameters less mixtures count 20, but u_1 u_2 - u_2 u_1 = 0
    # frees three more, one for each query coordinate.
    assert 2 * (3 + 9 - 2) == 20 > min(18, jacobian_rank(3, 1, 3, 2)) == 17


@pytest.mark.parametrize(
    ("n_dims", "n_outputs", "heads"),
    [(1, 1, 1), (4, 1, 4), (3, 3, 4), (4, 4, 7), (6, 6, 13), (8, 8, 22)],
)
def test_generic_functions_need_heads_until_the_dimension_is_full(n_dims, n_outputs, heads):
    full, shape = n_outputs * n_pairs(n_dims) * n_dims, (n_outputs, n_dims, n_dims, n_dims)
    assert generic_heads(shape) == heads
    assert layer_dimension(heads, shape) == full
    if heads > 1:
        assert layer_dimension(heads - 1, shape) < full


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_rounding_is_no_head(n_heads):
    rng = np.random.default_rng(n_heads)
    value, key = rng.standard_normal((n_heads, 5, 5)), rng.standard_normal((n_heads, 5, 5))
    tensor = layer_tensor(value, key)
    assert least_heads(tensor / np.linalg.norm(tensor), 0.0, rng) == n_heads
