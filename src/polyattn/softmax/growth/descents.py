"""Descents from many starts: random ones, which are also the control, and successive halving."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from polyattn.softmax.examples import Examples, Matrix
from polyattn.softmax.polish import OnStep, Polished, descend, polish

# Standard deviations of the logits of a start, in the order in which they are tried.
SCALES = (1.0, 0.3, 3.0)

# Steps in each round of halving.
ROUNDS = (12, 30, 120)

# A descent whose error falls by less than this in four steps has come to rest.
COARSE_GAIN = 3e-3

# Errors below this end the comparison: there is nothing left to explain.
EXPLAINED = 1e-9

# Errors that differ by less, relatively, belong to the same local minimum.
SAME = 1e-4


def restarts(examples: Examples, n_heads: int, rng: np.random.Generator) -> Iterator[Polished]:
    """Descents from random heads, without end; the scale of the logits goes round ``SCALES``."""
    while True:
        for scale in SCALES:
            yield descend(examples, random_heads(rng, n_heads, examples.width, scale))


def best_descents(
    examples: Examples,
    starts: Iterable[Matrix],
    *,
    rounds: tuple[int, ...] = ROUNDS,
    count: int = 1,
    within: Matrix | None = None,
    on_step: OnStep | None = None,
) -> list[Polished]:
    """The ``count`` best of the descents from ``starts``, different ones, best first.

    After each round only the better half goes on.  ``within`` (r, d, d), orthonormal, is where
    steps stay.
    """
    resting: list[Polished] = []
    going = list(starts)
    for n_steps in rounds:
        moving: list[Polished] = []
        for start in going:
            here = polish(examples, start, n_steps, on_step, within=within, gain=COARSE_GAIN)
            if here.error < EXPLAINED:
                return [here]
            (moving if len(here.errors) > n_steps else resting).append(here)
        better_half = different(moving)[: max(count, (len(moving) + 1) // 2)]
        going = [descent.attn for descent in better_half]
    return different(moving + resting)[:count]


def different(descents: list[Polished]) -> list[Polished]:
    """Best first, without those that seem to have come to the same place."""
    kept: list[Polished] = []
    for descent in sorted(descents, key=lambda descent: descent.error):
        if not kept or descent.error > (1 + SAME) * kept[-1].error:
            kept.append(descent)
    return kept


def random_heads(
    rng: np.random.Generator, n_heads: int, width: int, scale: float, rank: int | None = None
) -> Matrix:
    """Gaussian heads (m, d, d) whose logits on tokens of order one have this scale."""
    if rank is None:
        return rng.standard_normal((n_heads, width, width)) * (scale / width)
    queries = rng.standard_normal((n_heads, width, rank))
    keys = rng.standard_normal((n_heads, rank, width))
    return queries @ keys * (scale / (width * np.sqrt(rank)))


def random_mixtures(
    rng: np.random.Generator, n_heads: int, matrices: Matrix, scale: float
) -> Matrix:
    """Random combinations (m, d, d) of matrices of norm one, of norm about ``scale``."""
    weights = rng.standard_normal((n_heads, len(matrices))) * (scale / np.sqrt(len(matrices)))
    return np.tensordot(weights, matrices, axes=1)


def directions(heads: Matrix) -> Matrix:
    """Heads (m, d, d) divided by their norms; zero stays zero."""
    norms = np.linalg.norm(heads, axis=(1, 2), keepdims=True)
    return heads / np.where(norms > 0, norms, 1.0)


def common_products(heads: Matrix, minor: float) -> Matrix:
    """Orthonormal matrices u v^T (r, d, d) of what the heads ask for and what they look at.

    u are the main left singular vectors of all heads side by side, v the right ones of all
    heads one upon another, but for the share ``minor`` of their squared norm: at a local
    minimum these are often right when the heads are not.
    """
    units = directions(heads)
    main = []
    for matrices in (units, units.transpose(0, 2, 1)):
        left, sigma, _ = np.linalg.svd(np.concatenate(list(matrices), axis=1), full_matrices=False)
        left_out = 1.0 - np.cumsum(sigma**2) / max(float(np.sum(sigma**2)), np.finfo(float).tiny)
        main.append(left[:, : 1 + int(np.count_nonzero(left_out > minor))])
    return np.einsum("au,bv->uvab", *main).reshape(-1, *heads.shape[1:])
