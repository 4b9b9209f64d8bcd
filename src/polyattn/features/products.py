"""Features psi = S ⊗ u, the two products with them, and their kernel.

A layer is linear in these features [yau2024: Algorithm 1, Lemma E.1].  Neither product needs them
one by one: both contract the sums first.  The kernel k((S, u), (S', u')) = <S, S'> <u, u'> is
their inner product in the norm of T (folded pairs weigh sqrt(2)), so a kernel machine minimises
the same objective as the primal, however many features there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.form.layout import Layout
from polyattn.form.pairs import n_pairs
from polyattn.numerics.blas import add_product
from polyattn.numerics.parallel import map_pieces

# Products that are made together: they stay in the cache of a core.
BLOCK_NUMBERS, MIN_ROWS = 1 << 16, 64

# Columns of the kernel that are finished together, so that no second N x N array is needed.
COLUMN_BLOCK = 256


def all_products(
    sums: NDArray, queries: NDArray, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """All products (m r, rows), order (sum, query), of sums (m, rows) and queries (r, rows)."""
    shape = (len(sums), len(queries), sums.shape[1])
    psi = np.empty((shape[0] * shape[1], shape[2])) if out is None else out
    # Faster than ``multiply``, whose loops are slow for rows that lie apart.
    np.einsum("gr,lr->glr", sums, queries, out=psi.reshape(shape))
    return psi


def pair_products(rows: NDArray) -> NDArray[np.float64]:
    """All products rows[a] * rows[b], a <= b: from (m, r) to (m(m+1)/2, r)."""
    m, n_rows = rows.shape
    products = np.empty((n_pairs(m), n_rows))
    start = 0
    for a in range(m):
        np.einsum("r,br->br", rows[a], rows[a:], out=products[start : start + m - a])
        start += m - a
    return products


def features(
    layout: Layout, sums: NDArray, queries: NDArray, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """psi (p, rows): the products that are features; or in ``out``."""
    if layout.kept is None:
        return all_products(sums, queries, out)
    products = all_products(sums, queries)
    return np.take(products, layout.kept, axis=0, out=out, mode="clip")


def apply_coef(coef: NDArray, sums: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """Predictions y (e, rows) = sum P[a, i, l] S[i] u[l] of coefficients (e, m, r).

    Cost: 2 e m r flops per row on all workers, memory of the result and a block for each.
    """
    n_outputs, n_sums, n_queries = coef.shape
    by_query = coef.transpose(0, 2, 1).reshape(n_outputs * n_queries, n_sums)
    outputs = np.empty((n_outputs, sums.shape[1]))
    step = max(MIN_ROWS, BLOCK_NUMBERS // len(by_query))

    def fill(start: int) -> None:
        some = slice(start, start + step)
        products = (by_query @ sums[:, some]).reshape(n_outputs, n_queries, -1)
        np.einsum("alr,lr->ar", products, queries[:, some], out=outputs[:, some])

    map_pieces(fill, range(0, sums.shape[1], step))
    return outputs


def correlate(sums: NDArray, queries: NDArray, targets: NDArray) -> NDArray[np.float64]:
    """sum over rows of (S ⊗ u) y^T, shape (m, r, e): the transpose of ``apply_coef``."""
    total = np.zeros((len(sums), len(queries), len(targets)))
    add_correlation(total, np.ascontiguousarray(sums), queries, targets)
    return total


def add_correlation(total: NDArray, sums: NDArray, queries: NDArray, targets: NDArray) -> None:
    """Add ``correlate`` to ``total`` (m, r, e), contiguous; so are the rows of ``sums``.

    ``targets`` is (e, rows).  Cost: 2 e m r flops per row, memory that of one block.
    """
    n_products = len(queries) * len(targets)
    step = max(MIN_ROWS, BLOCK_NUMBERS // max(1, n_products))
    flat = total.reshape(len(sums), n_products)
    for start in range(0, sums.shape[1], step):
        some = slice(start, start + step)
        products = np.multiply(queries[:, None, some], targets[None, :, some], order="C")
        add_product(flat, sums[:, some], products.reshape(n_products, products.shape[2]))


def kernel(
    layout: Layout, sums: NDArray, queries: NDArray, other_sums: NDArray, other_queries: NDArray
) -> NDArray[np.float64]:
    """The kernel (rows, other rows) between two sets of summaries."""
    n_sums, n_queries = layout.block
    weights = layout.norm_weights[:n_sums, None] ** -2
    result = sums[:n_sums].T @ (weights * other_sums[:n_sums])
    result *= queries[:n_queries].T @ other_queries[:n_queries]
    if layout.form.intercept:
        result += np.multiply.outer(sums[-1] * queries[-1], other_sums[-1] * other_queries[-1])
    return result


def kernel_lower(layout: Layout, sums: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """The kernel of one set with itself, Fortran order; only its lower triangle has meaning.

    Cost: N^2 m flops on all workers, and some N m above the diagonal; memory one N x N array.
    """
    n_sums, n_queries = layout.block
    weighted = sums[:n_sums] / layout.norm_weights[:n_sums, None]
    seen, size = queries[:n_queries], sums.shape[1]
    constant = sums[-1] * queries[-1] if layout.form.intercept else None
    result = np.empty((size, size), order="F")

    def finish(start: int) -> None:
        stop = min(start + COLUMN_BLOCK, size)
        # Transposed, the columns of the result are contiguous rows.
        columns = result.T[start:stop, start:]
        np.matmul(weighted[:, start:stop].T, weighted[:, start:], out=columns)
        columns *= seen[:, start:stop].T @ seen[:, start:]
        if constant is not None:
            columns += np.multiply.outer(constant[start:stop], constant[start:])

    map_pieces(finish, range(0, size, COLUMN_BLOCK))
    return result


def feature_norms(layout: Layout, sums: NDArray, queries: NDArray) -> NDArray[np.float64]:
    """||phi|| of each row (rows,), in the norm of T: the root of the kernel's diagonal."""
    n_sums, n_queries = layout.block
    of_sums = np.sqrt(layout.norm_weights[:n_sums] ** -2 @ sums[:n_sums] ** 2)
    of_queries = np.sqrt(np.einsum("ln,ln->n", queries[:n_queries], queries[:n_queries]))
    norms = of_sums * of_queries
    return np.hypot(norms, sums[-1] * queries[-1]) if layout.form.intercept else norms
