"""Symbols as orthogonal unit vectors, and vectors rounded to symbols: Definitions G.1 and G.2."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.programs import Attribute, Schema, symbols


def alphabet(size):
    return Schema((Attribute("letter", (symbols("letter", size),)),))


@pytest.mark.parametrize("size", [1, 2, 7])
def test_symbols_are_orthogonal_unit_vectors(size):
    schema = alphabet(size)
    embedded = schema.encode(schema.token(letter=value) for value in range(size))
    np.testing.assert_array_equal(embedded @ embedded.T, np.eye(size))
    assert schema.n_dims == size


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6))
def test_rounding_is_that_of_the_paper_where_a_symbol_is_held(entries):
    """argmax of <v, e_i>, which is the nearest e_i, if its entry exceeds one half; else nothing."""
    vector, size = np.array(entries), len(entries)
    rounded = alphabet(size).round(vector)
    products = np.eye(size) @ vector
    if products.max() <= 0.5:
        assert not rounded.any()
        return
    np.testing.assert_array_equal(rounded, np.eye(size, dtype=int)[np.argmax(products)])
    distances = np.linalg.norm(vector - np.eye(size), axis=1)
    assert distances[np.argmax(rounded)] <= distances.min() + 1e-12


def test_the_papers_rounding_has_no_word_for_nothing():
    """By G.2 alone zero is the first symbol; a token that holds nothing needs the half."""
    zero = np.zeros(3)
    assert np.argmax(np.eye(3) @ zero) == 0
    assert not alphabet(3).round(zero).any()
