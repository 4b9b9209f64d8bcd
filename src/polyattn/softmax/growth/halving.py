"""Successive halving: descents from many starts; after each round only the better half goes on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import OnStep, Polished, polish

Matrix = NDArray[np.float64]

# Steps in each round.
ROUNDS = (12, 30, 120)

# A descent whose error falls by less than this in four steps has come to rest.
COARSE_GAIN = 3e-3

# Errors below this end the comparison: there is nothing left to explain.
EXPLAINED = 1e-9

# Errors that differ by less, relatively, belong to the same local minimum.
SAME = 1e-4


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

    ``within`` (r, d, d), orthonormal, is where steps stay.
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
