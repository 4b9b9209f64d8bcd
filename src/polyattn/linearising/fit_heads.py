"""Each head by itself: sums over the training sequences, the ridge, and the minimiser."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.head_blocks import sums_for
from polyattn.linearising.head_sums import HeadSums
from polyattn.linearising.layer_view import LayerBlock, LayerBlocks, LayerView
from polyattn.linearising.solve_head import HeadFactor, MixingEquations, chosen_ridge
from polyattn.numerics.parallel import map_pieces

Array = NDArray[np.float64]

# Bytes of sums that are in memory together: heads beyond it have a pass of their own.
MOST_BYTES = 1 << 29

# The relative ridge where too few sequences are there to leave some out.
SINGLE_RIDGE = 1e-2


class FittedHead(NamedTuple):
    """One head by itself: M (F, G'), its ridge, and what a joint fit needs of its equations."""

    mixing: Array
    ridge: float
    diagonal: Array
    factor: HeadFactor


def fit_heads(
    view: LayerView,
    parts: Sequence[LayerBlocks],
    ridge: float | None,
    weights: Sequence[Array] | None = None,
) -> list[FittedHead]:
    """The global minimiser of every head by itself.

    parts : all sequences, or two parts of them
    ridge : a relative ridge, or None: the one with the least error on the second part when the
        first is fitted; then both are
    weights : linear maps (d + 1, c) of the query tokens, whose outputs are taken off the targets
    """
    found: list[FittedHead] = []
    for group in _groups(view, len(parts)):
        sums = [_summed(part, group, weights) for part in parts]
        found += [_solved([each[i] for each in sums], ridge) for i in range(len(group))]
    return found


def _groups(view: LayerView, n_parts: int) -> list[list[int]]:
    """Heads whose sums are in memory together."""
    F, G = view.feature_map.shape
    n_bytes = 2 * n_parts * F * F * G * G + 1
    at_once = max(1, MOST_BYTES // n_bytes)
    H = view.heads.n_heads
    return [list(range(first, min(first + at_once, H))) for first in range(0, H, at_once)]


def _summed(
    blocks: LayerBlocks, group: list[int], weights: Sequence[Array] | None
) -> list[HeadSums]:
    """Sums of some heads over all sequences: one pass."""
    sums: dict[int, HeadSums] = {}

    def add(block: LayerBlock, h: int) -> None:
        seen = block.of_head(h, with_targets=True)
        if weights is not None:
            seen = seen._replace(targets=seen.targets - block.linear(weights[h]))
        sums.setdefault(h, sums_for(seen)).add(seen)

    for block in blocks:
        map_pieces(partial(add, block), group)
    return [sums[h] for h in group]


def _solved(parts: list[HeadSums], ridge: float | None) -> FittedHead:
    if ridge is None:
        ridge = chosen_ridge(parts[0], parts[1]) if len(parts) == 2 else SINGLE_RIDGE
    whole = parts[0]
    for other in parts[1:]:
        whole.absorb(other)
    equations = MixingEquations(whole)
    mixing, factor = equations.solve(ridge)
    diagonal = (equations.sizes**2).reshape(mixing.shape)
    return FittedHead(mixing, ridge, diagonal, factor)
