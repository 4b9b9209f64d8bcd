"""Each head by itself: sums over the training sequences, the ridge, and the minimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.linearising.head_blocks import sums_for
from polyattn.linearising.head_sums import HeadSums
from polyattn.linearising.layer_view import LayerView
from polyattn.linearising.solve_head import HeadFactor, NormalEquations, chosen_ridge
from polyattn.numerics.parallel import map_pieces
from polyattn.sequences import SequenceBatch

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
    batch: SequenceBatch,
    ridge: float | None,
    n_left_out: int,
    weights: Sequence[Array] | None = None,
) -> list[FittedHead]:
    """The global minimiser of every head by itself.

    ridge : a relative ridge, or None: the one with the least error on the last ``n_left_out``
        sequences when the others are fitted; then all are
    weights : linear maps (d + 1, c) of the query tokens, whose outputs are taken off the targets
    """
    parts = [batch]
    if ridge is None and n_left_out:
        border = len(batch) - n_left_out
        parts = [batch.part(0, border), batch.part(border, len(batch))]
    found: list[FittedHead] = []
    for group in _groups(view, len(parts)):
        sums = [_summed(view, part, group, weights) for part in parts]
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
    view: LayerView, batch: SequenceBatch, group: list[int], weights: Sequence[Array] | None
) -> list[HeadSums]:
    """Sums of some heads over all sequences: one pass."""
    sums: dict[int, HeadSums] = {}

    for X in view.blocks(batch):

        def add(h: int, X: Array = X) -> None:
            block = view.block(X, h)
            if weights is not None:
                block = block._replace(targets=block.targets - view.linear(X, weights[h]))
            sums.setdefault(h, sums_for(block)).add(block)

        map_pieces(add, group)
    return [sums[h] for h in group]


def _solved(parts: list[HeadSums], ridge: float | None) -> FittedHead:
    if ridge is None:
        ridge = chosen_ridge(parts[0], parts[1]) if len(parts) == 2 else SINGLE_RIDGE
    whole = parts[0]
    for other in parts[1:]:
        whole.absorb(other)
    equations = NormalEquations(whole)
    mixing = equations.solve(ridge)
    diagonal = (equations.sizes**2).reshape(mixing.shape)
    return FittedHead(mixing, ridge, diagonal, equations.factor(ridge))
