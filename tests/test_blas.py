"""Products in place against numpy's, in every memory layout that is allowed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.numerics.blas import (
    PANEL,
    TILE,
    add_product,
    add_square,
    divide_by_triangle,
    factor_lower,
    subtract_product,
    subtract_square,
)

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


@given(SIZES, SIZES, SIZES, st.sampled_from([0, 3]))
def test_products_are_subtracted(rows, columns, inner, extra):
    total, left, right = (
        matrix(*s, extra) for s in ((rows, columns), (inner, rows), (inner, columns))
    )
    expected = total - left.T @ right
    subtract_product(total, left, right)
    np.testing.assert_allclose(total, expected, atol=1e-13)


@given(SIZES, SIZES, st.sampled_from([0, 3]))
def test_squares_are_subtracted_above_the_diagonal(size, inner, extra):
    total, rows = matrix(size, size, extra), matrix(inner, size, extra)
    expected = total - np.triu(rows.T @ rows)
    subtract_square(total, rows)
    np.testing.assert_allclose(total, expected, atol=1e-13)


@given(SIZES, SIZES, st.sampled_from([0, 3]))
def test_division_by_a_triangle(size, columns, extra):
    """What is below the diagonal of the triangle is not read."""
    rows, triangle = matrix(size, columns, extra), matrix(size, size, extra)
    triangle[np.diag_indices(size)] = 4.0
    expected = rows.copy()
    divide_by_triangle(rows, triangle)
    np.testing.assert_allclose(np.triu(triangle).T @ rows, expected, atol=1e-12)


@pytest.mark.parametrize(
    "size", [1, 2, PANEL - 1, PANEL, PANEL + 1, PANEL + TILE, PANEL + TILE + 1, 3 * PANEL + 5]
)
def test_cholesky_by_tiles(size):
    """The factor is LAPACK's up to rounding, and the other triangle stays as it was."""
    root = RNG.standard_normal((size, size + 20))
    whole = np.asfortranarray(root @ root.T)
    whole[np.triu_indices(size, 1)] = np.nan
    assert factor_lower(whole)
    assert np.all(np.isnan(whole[np.triu_indices(size, 1)]))
    lower = np.tril(whole)
    residual = np.linalg.norm(lower @ lower.T - root @ root.T)
    assert residual <= size * np.finfo(float).eps * np.linalg.norm(root) ** 2


@pytest.mark.parametrize("at", [0, PANEL - 1, PANEL, 2 * PANEL + 7])
def test_cholesky_of_what_is_not_definite(at):
    matrix = np.eye(2 * PANEL + 8, order="F")
    matrix[at, at] = -1.0
    assert not factor_lower(matrix)


def test_what_blas_would_misread_is_refused():
    with pytest.raises(ValueError, match="shapes"):
        add_product(np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((4, 3)))
    with pytest.raises(ValueError, match="shapes"):
        add_square(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(ValueError, match="shapes"):
        subtract_product(np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="shapes"):
        subtract_square(np.zeros((2, 3)), np.zeros((4, 2)))
    with pytest.raises(ValueError, match="shapes"):
        divide_by_triangle(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="contiguous"):
        add_product(np.zeros((2, 3)), np.zeros((4, 2)).T, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="contiguous"):
        add_square(np.zeros((2, 2)), np.zeros((2, 4))[:, ::-1])
    with pytest.raises(ValueError, match="float64"):
        add_square(np.zeros((2, 2)), np.zeros((2, 4), np.float32))
