"""The paper's method for softmax heads: six phases, each with its figures [chen2024]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_integer
from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import Projection
from polyattn.softmax.recorder import Recorder
from polyattn.softmax.sculpting import conditions
from polyattn.softmax.sculpting.alternate import sculpt_again
from polyattn.softmax.sculpting.carve import carve
from polyattn.softmax.sculpting.conditions import Condition
from polyattn.softmax.sculpting.crude import crude_sum
from polyattn.softmax.sculpting.rows import views
from polyattn.softmax.sculpting.search import search
from polyattn.softmax.sculpting.sharpen import sharp_sum
from polyattn.softmax.sculpting.span import find_span

Matrix = NDArray[np.float64]

# Examples that only validate: this share, at most so many.
HELD_OUT_SHARE, MOST_HELD_OUT = 0.1, 500


@dataclass(frozen=True)
class Sculpted:
    """Heads of the last phase, before any polish over all of attn.

    attn : (m, d, d);  value : (m, d, e)
    conditions : what sculpting needs of the data, and whether it was there
    """

    attn: Matrix
    value: Matrix
    conditions: tuple[Condition, ...]

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


def sculpt(
    training: Examples,
    n_heads: int,
    rng: np.random.Generator,
    recorder: Recorder[Projection] | None = None,
) -> Sculpted:
    """The six phases on examples of m heads.

    ``recorder`` keeps what each phase measured, and every better candidate of phase 6.

    Guarantee: none beyond the paper's asymptotic one; conditions that fail are named, the heads
    are then the best guess, and held-out error is in the figures of phase 6.
    Cost: see the phases; about a second for 20,000 examples of (m, d, k) = (2, 8, 4), beside the
    paper's (d k)^O(m^3).
    """
    n_heads = require_integer("n_heads", n_heads)
    if len(training) < 2:
        raise InvalidInput(f"sculpting needs at least two examples; got {len(training)}.")
    n_held_out = max(1, min(MOST_HELD_OUT, int(HELD_OUT_SHARE * len(training))))
    held_out, fitting = training.split(n_held_out)
    blocks = views(fitting)
    recorder = recorder or Recorder()

    with recorder.phase("crude sum") as note:
        crude = crude_sum(blocks)
        crude.record(note)
    with recorder.phase("sculpt") as note:
        wide = carve(blocks, crude.S)
        wide.record(note)
    with recorder.phase("minimum norm") as note:
        sharp = sharp_sum(blocks, crude.S, wide)
        sharp.record(note)
    with recorder.phase("sculpt again") as note:
        last = sculpt_again(blocks, sharp.found.S, n_heads)
        last.record(note)
    with recorder.phase("span") as note:
        span = find_span(last.carved, n_heads, rng)
        span.record(note)
    with recorder.phase("search") as note:
        found = search(fitting, held_out, span, n_heads, rng, recorder)
        found.record(note)

    named = [
        *conditions.of_shapes(blocks, n_heads),
        *conditions.of_sum(crude, last.S, blocks),
        *conditions.of_rows(last.carved, sharp),
        *conditions.of_search(span, found),
    ]
    return Sculpted(found.attn, found.value, tuple(named))
