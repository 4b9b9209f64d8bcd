"""By which strategy heads are looked for, and by which next when it did not succeed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from polyattn.softmax.queries.copies import heads_by_copies
from polyattn.softmax.queries.findings import QueryFindings
from polyattn.softmax.queries.joint_diagonalisation import first_difference
from polyattn.softmax.queries.pairs import Pairs
from polyattn.softmax.queries.rational import Places, measure_places
from polyattn.softmax.queries.sweep import sweep

# Random first differences that are tried in each strategy.
N_ATTEMPTS = 2

# Heads that copies of tokens can separate in float64.
MOST_BY_COPIES = 6


def strategies(
    pairs: Pairs, findings: QueryFindings, n_heads: int | None
) -> Iterator[Callable[[], bool]]:
    """Functions that add heads to ``findings`` and return whether all differences were solved.

    The next one is called only when those before it did not pass the held-out check: pairs of
    tokens first, then copies, with ``n_heads`` if it is known and then with ever more heads.
    """
    for _ in range(N_ATTEMPTS):
        yield partial(_by_jacobians, pairs, findings)
    measured: list[Places] = []
    numbers = range(findings.n_independent, MOST_BY_COPIES + 1)
    for number in sorted(numbers, key=lambda number: (number != n_heads, number)):
        for attempt in range(N_ATTEMPTS):
            if attempt == len(measured):
                measured.append(measure_places(pairs))
            separated = measured[attempt].separated(number, pairs.error, pairs.rng)
            if separated is None:
                break
            yield partial(heads_by_copies, pairs, *separated, findings)


def _by_jacobians(pairs: Pairs, findings: QueryFindings) -> bool:
    first = first_difference(pairs, findings)
    return first is not None and sweep(pairs, first, findings)
