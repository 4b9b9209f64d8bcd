"""Which products of values and keys are one: folding heads into coefficients, and back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polyattn.form import Form
from polyattn.form.layout import Layout
from polyattn.form.pairs import FoldedPairs, fold_heads, fold_tensor, unfold_coef
from polyattn.reference import forms as reference

columns = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(tuple)


@given(columns, columns)
def test_pairs_are_the_unordered_products(value, key):
    pairs = FoldedPairs.of(value, key)
    assert FoldedPairs.of(value, key) is pairs
    products = [frozenset([c, b]) for c in value for b in key]
    # Each once, in the order in which they come.
    expected = list(dict.fromkeys(products))
    found = [frozenset([value[c], key[b]]) for c, b in zip(*pairs.first, strict=True)]
    assert found == expected
    assert len(pairs) == len(expected)
    assert (pairs.n_values, pairs.n_keys) == (len(value), len(key))
    for c, b in np.ndindex(pairs.position.shape):
        assert expected[pairs.position[c, b]] == frozenset([value[c], key[b]])
    both = [products.count(product) == 2 for product in expected]
    assert pairs.folded.tolist() == both
    np.testing.assert_array_equal(pairs.norm_weights, np.where(both, np.sqrt(0.5), 1.0))
    for i, (c, b) in enumerate(zip(*pairs.second, strict=True)):
        assert frozenset([value[c], key[b]]) == expected[i]
        assert ((c, b) != (pairs.first[0][i], pairs.first[1][i])) == both[i]
    assert pairs.n_shared == len(set(value) & set(key))


@given(st.integers(1, 6))
def test_pairs_of_the_whole_token_are_the_upper_triangle(width):
    rows, columns = np.triu_indices(width)
    pairs = FoldedPairs.whole(width)
    np.testing.assert_array_equal(pairs.first[0], rows)
    np.testing.assert_array_equal(pairs.first[1], columns)


@given(columns, columns, st.integers(0, 2**32))
def test_folding_and_unfolding_are_inverse(value, key, seed):
    rng, pairs = np.random.default_rng(seed), FoldedPairs.of(value, key)
    coef = rng.standard_normal((2, len(pairs), 3))
    tensor = unfold_coef(coef, pairs)
    assert tensor.shape == (2, len(value), len(key), 3)
    np.testing.assert_array_equal(fold_tensor(tensor, pairs), coef)
    # The tensor of least norm: its norm is that of the weighted coefficients.
    weighted = coef * pairs.norm_weights[:, None]
    np.testing.assert_allclose(np.linalg.norm(tensor), np.linalg.norm(weighted), rtol=1e-14)
    other = rng.standard_normal(tensor.shape)
    least = unfold_coef(fold_tensor(other, pairs), pairs)
    assert np.linalg.norm(least) <= np.linalg.norm(other) * (1 + 1e-14)


@given(columns, columns, st.integers(0, 2**32))
def test_heads_fold_as_in_the_reference(value, key, seed):
    rng, pairs = np.random.default_rng(seed), FoldedPairs.of(value, key)
    attn = rng.standard_normal((2, 3, len(key)))
    values = rng.standard_normal((2, len(value), 2))
    form = {"key": list(key), "value": list(value)}
    slow = reference.coefficients(attn, values, 7, form)
    np.testing.assert_allclose(fold_heads(attn, values, pairs), slow, rtol=0, atol=1e-13)


@given(columns, columns)
def test_the_pairs_of_a_layout_are_those_of_its_coordinates(value, key):
    layout = Layout.of(Form(key=list(key), value=list(value)), 7)
    of_names = FoldedPairs.of(value, key)
    np.testing.assert_array_equal(layout.pairs.position, of_names.position)
    np.testing.assert_array_equal(layout.pairs.folded, of_names.folded)
