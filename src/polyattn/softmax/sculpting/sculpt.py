"""The paper's road to softmax heads: six phases, each with its figures [chen2024]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_integer
from polyattn.softmax.examples import Examples
from polyattn.softmax.phases import Phase
from polyattn.softmax.polish import Projection
from polyattn.softmax.sculpting import conditions, report
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
    """Heads at the end of the road, before any polish over all of attn.

    attn : (m, d, d);  value : (m, d, e)
    phases : what each phase measured
    conditions : what the road needs of the data, and whether it was there
    """

    attn: Matrix
    value: Matrix
    phases: tuple[Phase, ...]
    conditions: tuple[Condition, ...]

    @property
    def failed(self) -> tuple[Condition, ...]:
        """The conditions that do not hold."""
        return tuple(condition for condition in self.conditions if not condition.holds)


def sculpt(
    training: Examples,
    n_heads: int,
    rng: np.random.Generator,
    *,
    on_step: Callable[[Projection], None] | None = None,
) -> Sculpted:
    """Walk the six phases on examples of m heads.

    ``on_step`` hears of every better candidate of phase 6; what it raises ends the road.

    Guarantee: none beyond the paper's asymptotic one; conditions that fail are named, the heads
    are then the best guess, and held-out error is in the figures of phase 6.
    Cost: see the phases; about a second for 20,000 examples of (m, d, k) = (2, 8, 4), beside the
    paper's (d k)^O(m^3).
    """
    n_heads = require_integer("n_heads", n_heads)
    if len(training) < 2:
        raise InvalidInput(f"sculpting needs at least two examples; got {len(training)}.")
    held_out, fitting = training.split(_n_held_out(len(training)))
    blocks = views(fitting)
    log = report.Log()

    crude = log.timed(report.crude, crude_sum(blocks))
    wide = log.timed(report.carved, carve(blocks, crude.S))
    sharp = log.timed(report.sharp, sharp_sum(blocks, crude.S, wide))
    again = log.timed(report.again, sculpt_again(blocks, sharp.found.S, n_heads))
    span = log.timed(report.span, find_span(again.carved, n_heads, rng))
    found = log.timed(report.searched, search(fitting, held_out, span, n_heads, rng, on_step))

    named = [
        *conditions.of_shapes(blocks, n_heads),
        *conditions.of_sum(crude, again.S, blocks),
        *conditions.of_rows(again.carved),
        conditions.of_margins(sharp, training.n_dims),
        conditions.of_span(span),
        conditions.of_search(found),
    ]
    return Sculpted(found.attn, found.value, tuple(log.phases), tuple(named))


def _n_held_out(count: int) -> int:
    return max(1, min(MOST_HELD_OUT, int(HELD_OUT_SHARE * count)))
