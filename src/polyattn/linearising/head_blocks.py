"""One head on blocks of sequences: what its replacement sees, its targets and its predictions.

    blocks = [head_block(seen, feature_map, h, replacement) for seen in ...]
    found = fit_head(blocks)                    # M and the error that is left
    predictions(blocks[0], found.mixing)

A call of ``fit_head`` needs nothing of the layer but blocks, and keeps only sums of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.linearising.head_sums import HeadBlock, HeadSums
from polyattn.linearising.softmax_heads import SeenHead, softmax_outputs
from polyattn.linearising.solve_head import HeadSolution, solve_head
from polyattn.model.attended import attended_rows, window_rows
from polyattn.model.feature_maps import FeatureMap
from polyattn.model.linearised import mixed_rows

Array = NDArray[np.float64]

# The relative ridge where nothing chooses one.
SMALL_RIDGE = 1e-6


@dataclass(frozen=True)
class Replacement:
    """How softmax is replaced, for all heads alike.

    mode : "full" | "causal" | "last"
    denominator : "features" | "tokens" (see ``polyattn.model.attended``)
    window : tokens at distances below it also have softmax attention of their own; None: none
    """

    mode: str
    denominator: str
    window: int | None = None


def head_block(
    seen: SeenHead,
    feature_map: FeatureMap,
    head: int,
    replacement: Replacement,
    with_targets: bool = True,
) -> HeadBlock:
    """What the replacement of this head sees of some sequences of one length, and its targets."""
    mode, window = replacement.mode, replacement.window
    phi = feature_map.query.features(seen.queries, head)
    rows = attended_rows(
        seen.keys, seen.values, feature_map.key, head, mode, replacement.denominator
    )
    own = None
    if window is not None:
        own = window_rows(seen.queries, seen.keys, seen.values, mode, window)
    targets = softmax_outputs(seen, mode) if with_targets else np.empty((*phi.shape[:2], 0))
    return HeadBlock(phi, rows, own, targets)


def fit_head(blocks: Iterable[HeadBlock], ridge: float = SMALL_RIDGE) -> HeadSolution:
    """The replacement of one head with the least squared error on these blocks.

    Guarantee: the global minimiser of sum ||o - o^||^2 + ridge sum_i G_ii m_i^2 over M (F, G'),
    with G the normal matrix; sums alone are kept, whatever the number of blocks.
    Cost: see ``HeadSums``, and p^3 / 3 flops with p = F G'.
    """
    sums = None
    for block in blocks:
        sums = sums_for(block) if sums is None else sums
        sums.add(block)
    if sums is None:
        raise InvalidInput("blocks must hold at least one block of sequences; got none.")
    return solve_head(sums, ridge)


def sums_for(block: HeadBlock) -> HeadSums:
    """Sums without any positions, of the sizes of this block."""
    n_rows_seen, n_values = block.rows.shape[2:]
    return HeadSums(block.phi.shape[2], n_rows_seen, n_values, own=block.own is not None)


def predictions(block: HeadBlock, mixing: Array) -> Array:
    """o^_t (B, T, c) of M (F, G')."""
    weights = block.phi @ mixing  # (B, T, G')
    found = mixed_rows(weights, block.rows)
    if block.own is not None:
        found += weights[..., -1:] * block.own
    return found
