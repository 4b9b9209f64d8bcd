"""Which road is taken to the heads, and which next when it did not lead there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from polyattn.softmax.queries.calibrate import Sizes
from polyattn.softmax.queries.copies import heads_by_copies
from polyattn.softmax.queries.findings import Findings
from polyattn.softmax.queries.first_difference import first_difference
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.rational import Places, measure_places
from polyattn.softmax.queries.sweep import sweep

# Random first differences that are tried on each road.
N_ATTEMPTS = 2

# Heads that copies of tokens can tell apart in float64.
MOST_BY_COPIES = 6


def roads(
    pairs: Pairs, sizes: Sizes, findings: Findings, told: int | None, rng: np.random.Generator
) -> Iterator[Callable[[], bool]]:
    """Ways to the heads; each adds them to ``findings`` and says whether it came to an end.

    The next one is asked for only when those before it did not pass the held-out check: pairs of
    tokens first, then copies with ever more heads.
    """
    if sizes.flat:
        # Attention without effect is one head that attends to all tokens alike.
        yield lambda: True
        return
    for _ in range(N_ATTEMPTS):
        yield partial(_by_jacobians, pairs, sizes, findings, rng)
    measured: list[Places] = []
    for n_heads in _numbers(findings.n_independent, told):
        for attempt in range(N_ATTEMPTS):
            if attempt == len(measured):
                measured.append(measure_places(pairs, sizes, rng))
            separated = measured[attempt].separated(n_heads, pairs.error, rng)
            if separated is None:
                break
            yield partial(heads_by_copies, pairs, sizes, *separated, findings, rng)


def _by_jacobians(pairs: Pairs, sizes: Sizes, findings: Findings, rng: np.random.Generator) -> bool:
    first = first_difference(pairs, sizes, findings, rng)
    return first is not None and sweep(pairs, sizes, first, findings, rng)


def _numbers(fewest: int, told: int | None) -> list[int]:
    """Numbers of heads to try by copies: the one that was told, then upwards from the fewest."""
    return sorted(range(fewest, MOST_BY_COPIES + 1), key=lambda number: (number != told, number))
