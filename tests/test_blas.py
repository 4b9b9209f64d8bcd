"""Products in place against numpy's, in every memory layout that is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.blas import add_product, add_square

SIZES = st.integers(0, 9)
RNG = np.random.default_rng(0)


def matrix(rows, columns, extra=0):
    """A matrix whose rows are contiguous but lie ``extra`` numbers apart."""
    return RNG.standard_normal((rows, columns + extra))[:, :columns]


@given(SIZES, SIZES, SIZES, st.sampled_from([0, 3]))
def test_products_are_added(rows, columns, inner, extra):
    total, left, right = (
        matrix(*s, extra) for s in ((rows, columns), (rows, inner), (columns, inner))
    )
    expected = total + left @ right.T
    add_product(total, left, right)
    np.testing.assert_allclose(total, expected, atol=1e-13)


@given(SIZES, SIZES, st.sampled_from([0, 3]))
def test_squares_are_added_below_the_diagonal(size, inner, extra):
    total, rows = matrix(size, size, extra), matrix(size, inner, extra)
    expected = total + np.tril(rows @ rows.T)
    add_square(total, rows)
    np.testing.assert_allclose(total, expected, atol=1e-13)


def test_what_blas_would_misread_is_refused():
    with pytest.raises(ValueError, match="shapes"):
        add_product(np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="shapes"):
        add_square(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="contiguous"):
        add_product(np.zeros((2, 3)), np.zeros((4, 2)).T, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="contiguous"):
        add_square(np.zeros((2, 2)), np.zeros((2, 4))[:, ::-1])
    with pytest.raises(ValueError, match="float64"):
        add_square(np.zeros((2, 2)), np.zeros((2, 4), np.float32))
