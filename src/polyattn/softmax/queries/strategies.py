"""By which strategy heads are looked for, and by which next when it did not succeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from polyattn.softmax.queries.calibrate import Sizes
from polyattn.softmax.queries.copies import heads_by_copies
from polyattn.softmax.queries.findings import QueryFindings
from polyattn.softmax.queries.first_difference import first_difference
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.rational import Places, measure_places
from polyattn.softmax.queries.sweep import sweep

# Random first differences that are tried in each strategy.
N_ATTEMPTS = 2

# Heads that copies of tokens can separate in float64.
MOST_BY_COPIES = 6


def strategies(
    pairs: Pairs,
    sizes: Sizes,
    findings: QueryFindings,
    n_heads: int | None,
    rng: np.random.Generator,
) -> Iterator[Callable[[], bool]]:
    """Functions that add heads to ``findings`` and return whether all differences were solved.

    The next one is called only when those before it did not pass the held-out check: pairs of
    tokens first, then copies, with ``n_heads`` if it is known and then with ever more heads.
    """
    if sizes.flat:
        # Attention without effect is one head that attends to all tokens alike.
        yield lambda: True
        return
    for _ in range(N_ATTEMPTS):
        yield partial(_by_jacobians, pairs, sizes, findings, rng)
    measured: list[Places] = []
    numbers = range(findings.n_independent, MOST_BY_COPIES + 1)
    for number in sorted(numbers, key=lambda number: (number != n_heads, number)):
        for attempt in range(N_ATTEMPTS):
            if attempt == len(measured):
                measured.append(measure_places(pairs, sizes, rng))
            separated = measured[attempt].separated(number, pairs.error, rng)
            if separated is None:
                break
            yield partial(heads_by_copies, pairs, sizes, *separated, findings, rng)


def _by_jacobians(
    pairs: Pairs, sizes: Sizes, findings: QueryFindings, rng: np.random.Generator
) -> bool:
    first = first_difference(pairs, sizes, findings, rng)
    return first is not None and sweep(pairs, sizes, first, findings, rng)
