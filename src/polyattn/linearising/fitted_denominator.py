"""Weights that sum to one with M free: a ratio, by cross-multiplication and reweighting.

With rows Z_t = sum_s psi(k_s) v_s / n and s_t = sum_s psi(k_s) / n the replacement of a head is

    o^_t = phi_t^T M Z_t / D_t,      D_t = phi_t^T M s_t.

Its squared error is not convex in M.  Multiplied by the denominator, phi_t^T M (Z_t - s_t o_t^T),
it is linear; Sanathanan and Koerner divide by the denominator of the step before,

    M_{i+1} = argmin sum_t || phi_t^T M (Z_t - s_t o_t^T) ||^2 / D_t(M_i)^2
              with the mean of D_t(M) / D_t(M_i) equal to one,

and start from the unfitted map, M = 1.  Every step is a quadratic problem with one linear
constraint: M is proportional to G^-1 c.  The steps need not descend, and where they settle is in
general no minimum, so the one with the least true squared error is kept.  No global optimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.head_blocks import predictions
from polyattn.linearising.head_sums import HeadBlock, HeadSums, correlated
from polyattn.linearising.layer_view import LayerBlocks, LayerView
from polyattn.linearising.solve_head import MixingEquations
from polyattn.model.linearised import LEAST_DENOMINATOR, normalised
from polyattn.numerics.parallel import map_pieces

Array = NDArray[np.float64]

STEPS = 6


def fit_ratios(view: LayerView, blocks: LayerBlocks, ridge: float) -> list[Array]:
    """M (F, G') of every head, denominators of median about one on the data.

    Guarantee: on these data no worse than the unfitted map, M = 1; no global optimum.
    Cost: STEPS passes over the data, each with F^2 G^2 / 2 flops per position and head.
    """
    return map_pieces(lambda h: _fit_ratio(view, blocks, h, ridge), range(view.heads.n_heads))


def unfitted(shape: tuple[int, int], window: int | None) -> Array:
    """M = 1 (F, G'), where query and key features stand for each other; a window counts nothing."""
    return np.eye(shape[0], shape[1] + (window is not None))


def _fit_ratio(view: LayerView, blocks: LayerBlocks, head: int, ridge: float) -> Array:
    M = unfitted(view.feature_map.shape, view.replacement.window)
    M = M / _typical(blocks, head, M)
    best, least = M, np.inf
    for step in range(STEPS + 1):
        error, sums, towards = _pass(view, blocks, head, M)
        if error < least:
            best, least = M, error
        if step < STEPS:
            equations = MixingEquations(sums)
            equations.cross = towards
            M, _ = equations.solve(ridge)
            scale = float(np.sum(towards * M))
            if not np.isfinite(scale) or scale <= 0.0:
                break
            M = M * (sums.n_rows / scale)
    return best


def _pass(
    view: LayerView, blocks: LayerBlocks, head: int, M: Array
) -> tuple[float, HeadSums, Array]:
    """The true squared error of M, and the equations of the next step."""
    (F, G), c = M.shape, len(view.coordinates[head][1])
    error, towards, sums = 0.0, np.zeros_like(M), HeadSums(F, G, c)
    for each in blocks:
        block, targets = each.ratio(head), each.targets(head)
        found = predictions(block, M)
        error += float(np.sum((targets - normalised(found)) ** 2))
        weighted = block._replace(phi=block.phi / np.maximum(found[..., -1:], LEAST_DENOMINATOR))
        only = np.zeros_like(found)
        only[..., -1] = 1.0
        towards += correlated(weighted, only)
        # Z_t - s_t o_t^T: every position has rows of its own.
        crossed = block.rows[..., :-1] - block.rows[..., -1:] * targets[:, :, None, :]
        flat = crossed.reshape(1, -1, G, c)
        phi = weighted.phi.reshape(1, -1, F)
        sums.add(HeadBlock(phi, flat, None, np.zeros((*phi.shape[:2], c))))
    return error, sums, towards


def _typical(blocks: LayerBlocks, head: int, M: Array) -> float:
    """The median of the denominators of M on the first block of the data."""
    below = predictions(blocks.blocks[0].ratio(head), M)[..., -1]
    typical = float(np.median(below))
    return typical if typical > 0.0 else 1.0
