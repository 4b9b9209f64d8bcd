"""Many descents side by side: after each heat only the better half goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import Polished, Projection, polish

Matrix = NDArray[np.float64]

# Steps in each heat.
HEATS = (12, 30, 120)

# A runner whose error falls by less than this in four steps has come to rest.
RACING_GAIN = 3e-3

# Errors below this end a race: there is nothing left to explain.
EXPLAINED = 1e-9

# Errors that differ by less, relatively, belong to the same local minimum.
SAME = 1e-4


def race(
    examples: Examples,
    starts: Iterable[Matrix],
    *,
    heats: tuple[int, ...] = HEATS,
    n_winners: int = 1,
    within: Matrix | None = None,
    on_step: Callable[[Projection], None] | None = None,
) -> list[Polished]:
    """The ``n_winners`` best of the descents from ``starts``, different ones, best first.

    ``within`` (r, d, d), orthonormal, is where steps stay.
    """
    runners: list[Polished] = []
    for start in starts:
        runners.append(polish(examples, start, heats[0], on_step, within=within, gain=RACING_GAIN))
        if runners[-1].error < EXPLAINED:
            return runners[-1:]
    resting = [runner for runner in runners if len(runner.errors) <= heats[0]]
    running = [runner for runner in runners if len(runner.errors) > heats[0]]
    for n_steps in heats[1:]:
        running = different(running)[: max(n_winners, (len(running) + 1) // 2)]
        later: list[Polished] = []
        for runner in running:
            gone = polish(examples, runner.attn, n_steps, on_step, within=within, gain=RACING_GAIN)
            if gone.error < EXPLAINED:
                return [gone]
            (later if len(gone.errors) > n_steps else resting).append(gone)
        running = later
    return different(running + resting)[:n_winners]


def different(runners: list[Polished]) -> list[Polished]:
    """Best first, without those that seem to have come to the same place."""
    kept: list[Polished] = []
    for runner in sorted(runners, key=lambda runner: runner.error):
        if not kept or runner.error > (1 + SAME) * kept[-1].error:
            kept.append(runner)
    return kept
