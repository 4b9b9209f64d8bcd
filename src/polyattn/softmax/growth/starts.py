"""Random heads to start from; descent from them is also the control for everything else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import OnStep, Polished, descend

Matrix = NDArray[np.float64]

# Standard deviations of the logits of a start, in the order in which they are tried.
SCALES = (1.0, 0.3, 3.0)

# The same for heads of rank one, which often see one thing only and may be sharp.
SHARP_SCALES = (3.0, 6.0)

# And for heads inside a few products, of which many are tried.
GENTLE_SCALES = (0.3, 1.0)

# Shares of the squared norm of heads that may count as minor, tried in turn.
MINOR_SHARES = (0.25, 0.1, 0.03)


def restarts(
    examples: Examples,
    n_heads: int,
    rng: np.random.Generator,
    *,
    scales: tuple[float, ...] = SCALES,
    n_steps: int = 60,
    on_step: OnStep | None = None,
) -> Iterator[Polished]:
    """Descents from random heads, without end; the scale of the logits goes round ``scales``."""
    while True:
        for scale in scales:
            start = random_heads(rng, n_heads, examples.width, scale)
            yield descend(examples, start, n_steps, on_step)


def random_heads(
    rng: np.random.Generator, n_heads: int, width: int, scale: float, rank: int | None = None
) -> Matrix:
    """Gaussian heads (m, d, d) whose logits on tokens of order one have this scale."""
    if rank is None:
        return rng.standard_normal((n_heads, width, width)) * (scale / width)
    queries = rng.standard_normal((n_heads, width, rank))
    keys = rng.standard_normal((n_heads, rank, width))
    return queries @ keys * (scale / (width * np.sqrt(rank)))


def random_mixtures(rng: np.random.Generator, heads: Matrix, scale: float) -> Matrix:
    """Random combinations (m, d, d) of the directions of given heads, of norm about ``scale``."""
    weights = rng.standard_normal((len(heads), len(heads))) * (scale / np.sqrt(len(heads)))
    return np.tensordot(weights, _directions(heads), axes=1)


def common_products(heads: Matrix, minor: float) -> Matrix:
    """Orthonormal matrices u v^T (r, d, d) of what the heads ask for and what they look at.

    u are the main left singular vectors of all heads side by side, v the right ones of all
    heads one upon another, but for the share ``minor`` of their squared norm: at a local
    minimum these are often right when the heads are not.
    """
    units = _directions(heads)
    asked = _main(np.concatenate(list(units), axis=1), minor)
    looked = _main(np.concatenate([unit.T for unit in units], axis=1), minor)
    return np.einsum("au,bv->uvab", asked, looked).reshape(-1, *heads.shape[1:])


def random_products(
    rng: np.random.Generator, n_heads: int, products: Matrix, scale: float
) -> Matrix:
    """Random combinations (m, d, d) of orthonormal matrices, of norm about ``scale``."""
    weights = rng.standard_normal((n_heads, len(products))) * (scale / np.sqrt(len(products)))
    return np.tensordot(weights, products, axes=1)


def _directions(heads: Matrix) -> Matrix:
    norms = np.linalg.norm(heads, axis=(1, 2), keepdims=True)
    return heads / np.where(norms > 0, norms, 1.0)


def _main(matrix: Matrix, minor: float) -> Matrix:
    """The left singular vectors (d, r) that make up a matrix but for a share of its square."""
    left, sigma, _ = np.linalg.svd(matrix, full_matrices=False)
    left_out = 1.0 - np.cumsum(sigma**2) / max(float(np.sum(sigma**2)), np.finfo(float).tiny)
    return left[:, : 1 + int(np.count_nonzero(left_out > minor))]
