"""From m heads to m + 1: split one, add one, or add one at random; the best that descent finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.growth.directions import adding, splitting
from polyattn.softmax.growth.racing import race
from polyattn.softmax.growth.starts import random_heads
from polyattn.softmax.polish import Polished, Projection, enough, polish, project

Matrix = NDArray[np.float64]

# How far the two halves of a head go apart, relative to its norm, and how large a new one is.
PARTINGS = (0.05, 0.2, 0.6)
SIZES = (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0)

# Candidates that descend, for each unit of effort.
N_DESCENTS = 4

Origin = tuple[str, int, int]


@dataclass(frozen=True)
class Candidate:
    """A start for descent: where it came from, its heads, and its error before descent."""

    origin: Origin
    attn: Matrix
    error: float


def grow(
    examples: Examples,
    here: Polished | None,
    rng: np.random.Generator,
    *,
    effort: int = 1,
    on_step: Callable[[Projection], None] | None = None,
) -> Polished:
    """The best m + 1 heads reached from the m heads ``here`` (None: from none).

    ``effort`` multiplies the number of directions tried and of descents made.

    Cost: about 4 ``effort`` descents on enough examples to see the way, and one on all.
    """
    n_heads = 1 if here is None else len(here.attn) + 1
    few = enough(examples, n_heads)
    heads = None if here is None else here.attn
    starts = [candidate.attn for candidate in candidates(few, heads, rng, effort)]
    best = race(few, starts, on_step=on_step)[0]
    return best if len(few) == len(examples) else polish(examples, best.attn, on_step=on_step)


def candidates(
    examples: Examples, heads: Matrix | None, rng: np.random.Generator, effort: int
) -> list[Candidate]:
    """The most promising starts with one head more than ``heads`` (m, d, d), best first."""
    width = examples.width
    here = None if heads is None or not len(heads) else project(examples, heads)
    old = np.zeros((0, width, width)) if here is None else here.attn
    starts: list[tuple[Origin, Matrix]] = []
    if here is None:
        starts.append((("uniform", 0, 0), np.zeros((1, width, width))))
    else:
        for head in range(len(old)):
            for index, D in enumerate(splitting(examples, here, head, 1 + effort)):
                starts += _halves(old, head, D, index)
    for index, D in enumerate(adding(examples, here, 1 + effort)):
        starts += [
            (("new", index, int(size > 0)), np.concatenate([old, size * D[None]])) for size in SIZES
        ]
    for index in range(2 * effort):
        extra = random_heads(rng, 1, width, 1.0)
        starts.append((("random", index, 0), np.concatenate([old, extra])))
    scored = [Candidate(origin, attn, project(examples, attn).error) for origin, attn in starts]
    scored.sort(key=lambda candidate: candidate.error)
    chosen: dict[Origin, Candidate] = {}
    for candidate in scored:
        chosen.setdefault(candidate.origin, candidate)
    return list(chosen.values())[: N_DESCENTS * effort]


def _halves(heads: Matrix, head: int, D: Matrix, index: int) -> list[tuple[Origin, Matrix]]:
    """``heads`` with one of them replaced by A + t D and A - t D, for several t."""
    size = max(float(np.linalg.norm(heads[head])), 1.0)
    others = np.delete(heads, head, axis=0)
    return [
        (
            ("split", head, index),
            np.concatenate([others, [heads[head] + t * size * D, heads[head] - t * size * D]]),
        )
        for t in PARTINGS
    ]
