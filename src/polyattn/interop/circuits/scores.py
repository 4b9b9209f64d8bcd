"""What circuits are measured by: singular values, eigenvalues, and products of heads.

With rows as tokens a head has attn A = W_QK and value V = W_OV^T of Elhage et al. (2021).  Every
matrix is used through its singular value decomposition, cut where rounding begins: M = U S W^T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.interop.low_rank import Matrix
from polyattn.numerics import scaling
from polyattn.numerics.parallel import single_threaded_blas

# Eigenvalues whose magnitudes add up to less of the singular values are those of a nilpotent
# matrix, to rounding: their signs say nothing.
LEAST_EIGENVALUES = 1e-5

ADVICE = "divide attn or value by a constant"


class Spectra(NamedTuple):
    """Matrices (H, n, m) by their singular value decompositions, without the size of each.

    sigma : (H, k), singular values in the units of the matrices, largest first
    rows : (H, n, R), U S with the Frobenius norm of each matrix divided out; zeros behind its rank
    columns : (H, m, R), W S likewise
    eigen : (H, 2), the sum of the eigenvalues and that of their magnitudes; zeros if not square
    """

    sigma: Matrix
    rows: Matrix
    columns: Matrix
    eigen: Matrix

    @classmethod
    @single_threaded_blas()
    def of(cls, matrices: Matrix) -> Spectra:
        """Cost: O(H n m min(n, m))."""
        ordinary, power = scaling.of_order_one(matrices)
        left, sigma, right = _decomposed(ordinary)
        kept = sigma > _rounding(matrices) * np.maximum(sigma[:, :1], np.finfo(np.float64).tiny)
        width = max(1, int(kept.sum(axis=1).max()))
        norms = np.linalg.norm(sigma, axis=1)
        shares = np.where(kept, sigma, 0.0) / np.where(norms > 0.0, norms, 1.0)[:, None]
        shares = shares[:, None, :width]
        rows, columns = left[:, :, :width] * shares, right[:, :width].transpose(0, 2, 1) * shares
        eigen = np.zeros((len(matrices), 2))
        if matrices.shape[1] == matrices.shape[2]:
            eigen = _eigenvalue_sums(ordinary, left[:, :, :width], shares, right[:, :width])
            eigen = eigen * norms[:, None]
        sigma, eigen = (
            scaling.restored(each, power, "singular values of heads", advice=ADVICE)
            for each in (sigma, eigen)
        )
        return cls(sigma, rows, columns, eigen)


def eigenvalue_scores(eigen: Matrix, sigma: Matrix) -> Matrix:
    """sum lambda / sum |lambda| of each matrix (H,); NaN where eigenvalues are not resolved."""
    total, magnitudes = eigen.T
    resolved = magnitudes > LEAST_EIGENVALUES * sigma.sum(axis=1)
    scores = np.full(len(eigen), np.nan)
    scores[resolved] = np.clip(total[resolved] / magnitudes[resolved], -1.0, 1.0)
    return scores


def effective_ranks(sigma: Matrix) -> Matrix:
    """exp(-sum_i p_i log p_i) with p = sigma / sum(sigma) (H,); 0 of a matrix of zeros."""
    largest = sigma[:, :1]
    relative = sigma / np.where(largest > 0.0, largest, 1.0)
    shares = relative / np.maximum(relative.sum(axis=1, keepdims=True), 1.0)
    logs = np.log(np.where(shares > 0.0, shares, 1.0))
    return np.where(largest[:, 0] > 0.0, np.exp(-np.sum(shares * logs, axis=1)), 0.0)


@single_threaded_blas()
def compositions(qk: Spectra, ov: Spectra, layers: NDArray[np.int64]) -> Matrix:
    """Q-, K- and V-composition (3, H, H) of a later head (row) with an earlier one (column).

    Heads of layer l write V, and heads of later layers read it: ||V A||, ||A V^T|| and ||V V'||,
    beside the product of both norms.  Zero where the column is not earlier.
    Cost: O(H^2 d R^2), in products of whole layers.
    """
    found = np.zeros((3, len(layers), len(layers)))
    for late in np.unique(layers):
        for early in np.unique(layers[layers < late]):
            readers, writers = layers == late, layers == early
            written = ov.columns[writers]
            for kind, read in enumerate((qk.rows, qk.columns, ov.rows)):
                found[np.ix_([kind], readers, writers)] = _norms(read[readers], written)
    return found


def _decomposed(matrices: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Singular value decompositions; heads are of low rank mostly, which saves most of the work.

    The range of a matrix of rank k is that of its product with k random columns: that nothing but
    rounding is missed is checked, and all columns are taken otherwise.
    """
    (_, n, m), rng = matrices.shape, np.random.default_rng(0)
    for width in (min(n, m) // 12 + 16, min(n, m) // 4 + 16):
        if 2 * width > min(n, m):
            break
        probes = rng.standard_normal((m, width))
        found = [_through(each, each @ probes) for each in matrices]
        if all(each is not None for each in found):
            left, sigma, right = (np.stack(each) for each in zip(*found, strict=True))
            return left, np.pad(sigma, ((0, 0), (0, min(n, m) - width))), right
    left, sigma, right = np.linalg.svd(matrices, full_matrices=False)
    return left, sigma, right


def _through(matrix: Matrix, images: Matrix) -> tuple[Matrix, Matrix, Matrix] | None:
    """The decomposition through the span of these columns; None where that misses something."""
    basis = np.linalg.qr(images)[0]
    small = basis.T @ matrix
    missed = np.linalg.norm(matrix - basis @ small)
    if missed > _rounding(matrix) * np.linalg.norm(matrix):
        return None
    left, sigma, right = np.linalg.svd(small, full_matrices=False)
    return basis @ left, sigma, right


def _rounding(matrices: Matrix) -> float:
    """The part of a matrix that is rounding."""
    return float(max(matrices.shape[-2:]) * np.finfo(np.float64).eps)


def _norms(late: Matrix, early: Matrix) -> Matrix:
    """||late_i^T early_j|| for all heads i and j, from factors (H, d, R)."""
    n_dims = late.shape[1]
    product = late.transpose(0, 2, 1).reshape(-1, n_dims) @ early.transpose(1, 0, 2).reshape(
        n_dims, -1
    )
    blocks = product.reshape(len(late), late.shape[2], len(early), early.shape[2])
    return np.sqrt(np.einsum("iajb,iajb->ij", blocks, blocks))


def _eigenvalue_sums(matrices: Matrix, left: Matrix, shares: Matrix, right: Matrix) -> Matrix:
    """Sums (H, 2) in units of the norm: of U S W^T and S W^T U the eigenvalues are the same."""
    small = shares.transpose(0, 2, 1) * (right @ left)
    values = np.linalg.eigvals(small)
    norms = np.linalg.norm(matrices, axis=(1, 2))
    traces = np.trace(matrices, axis1=1, axis2=2) / np.where(norms > 0.0, norms, 1.0)
    return np.stack([traces, np.abs(values).sum(axis=1)], axis=1)
