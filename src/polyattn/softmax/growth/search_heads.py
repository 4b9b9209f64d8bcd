"""Search for heads that explain the examples: restarts, growth, mixtures and swaps, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from polyattn.softmax.examples import Examples, Matrix
from polyattn.softmax.growth.starts import (
    common_products,
    directions,
    grown_starts,
    random_heads,
    random_mixtures,
)
from polyattn.softmax.polish import OnStep, Projection, enough, polish, project
from polyattn.softmax.polish.polish import FEWEST_EXAMPLES

# Standard deviations of the logits of a start, in the order in which they are tried; of heads of
# rank one, which often see one thing only and may be sharp; and of heads inside a few products,
# of which many are tried.
SCALES, SHARP_SCALES, GENTLE_SCALES = (1.0, 0.3, 3.0), (3.0, 6.0), (0.3, 1.0)

# Shares of the squared norm of heads that may count as minor, tried in turn.
MINOR_SHARES = (0.25, 0.1, 0.03)

# Steps in each round of halving, and for numbers of heads that are not the last.
ROUNDS, SHORT_ROUNDS = (12, 30, 120), (10, 25, 40)

# A descent whose error falls by less than this in four steps has come to rest.
COARSE_GAIN = 3e-3

# Errors below this end the comparison: there is nothing left to explain.  Errors that differ by
# less than the second, relatively, belong to the same local minimum.
EXPLAINED, SAME = 1e-9, 1e-4

# Only what is better than the best by this factor is finished on all examples: so many steps, or
# until four of them gain less than this.
BETTER, FINISHING_STEPS, FINISHING_GAIN = 0.98, 200, 1e-4


def search_heads(
    training: Examples,
    n_heads: int,
    rng: np.random.Generator,
    accept: Callable[[Projection], bool],
    *,
    effort: int = 3,
    on_step: OnStep | None = None,
) -> Projection:
    """The first ``n_heads`` heads that ``accept`` takes, or the best when effort is exhausted.

    Level 1, 2, ..., ``effort`` each try random starts, growth from one head, mixtures of the
    best heads, and exchanging one of them; each level tries more of each.  All of it happens
    on few examples, and what is better than everything before is finished on all of them.

    Guarantee: the same generator gives the same heads.
    """
    few = enough(training, n_heads)
    moves, finished = _Moves(few, n_heads, rng, on_step), []
    for found in moves.up_to(effort):
        if moves.best and found.error > BETTER * moves.best[0].error:
            continue
        moves.best.insert(0, found)
        if len(few) < len(training):
            found = polish(training, found.attn, FINISHING_STEPS, on_step, gain=FINISHING_GAIN)
        finished.append(found)
        if accept(found):
            return found
    return min(finished, key=lambda polished: polished.error)


def grow(
    examples: Examples,
    heads: Matrix,
    rng: np.random.Generator,
    *,
    effort: int = 1,
    on_step: OnStep | None = None,
) -> Projection:
    """The best m + 1 heads reached from ``heads`` (m, d, d), of which there may be none.

    ``effort`` multiplies the number of directions tried and of descents made.
    Cost: about 4 ``effort`` descents on enough examples to see the way, and one on all.
    """
    few = enough(examples, len(heads) + 1)
    best = best_descents(few, grown_starts(few, heads, rng, effort), on_step=on_step)[0]
    return best if len(few) == len(examples) else polish(examples, best.attn, on_step=on_step)


def best_descents(
    examples: Examples,
    starts: Iterable[Matrix],
    *,
    rounds: tuple[int, ...] = ROUNDS,
    count: int = 1,
    within: Matrix | None = None,
    on_step: OnStep | None = None,
) -> list[Projection]:
    """The ``count`` best of the descents from ``starts``, different ones, best first.

    After each round only the better half goes on.  ``within`` (r, d, d), orthonormal, is where
    steps stay.
    """
    resting: list[Projection] = []
    going = list(starts)
    for n_steps in rounds:
        moving: list[Projection] = []
        for start in going:
            here = polish(examples, start, n_steps, on_step, within=within, gain=COARSE_GAIN)
            if here.error < EXPLAINED:
                return [here]
            (moving if len(here.errors) > n_steps else resting).append(here)
        better_half = different(moving)[: max(count, (len(moving) + 1) // 2)]
        going = [descent.attn for descent in better_half]
    return different(moving + resting)[:count]


def different(descents: list[Projection]) -> list[Projection]:
    """Best first, without those that seem to have come to the same place."""
    kept: list[Projection] = []
    for descent in sorted(descents, key=lambda descent: descent.error):
        if not kept or descent.error > (1 + SAME) * kept[-1].error:
            kept.append(descent)
    return kept


@dataclass
class _Moves:
    """The moves of a search: each yields heads that were found on few examples.

    best : what the search keeps of them, best first
    """

    few: Examples
    n_heads: int
    rng: np.random.Generator
    on_step: OnStep | None
    best: list[Projection] = field(default_factory=list)

    def up_to(self, effort: int) -> Iterator[Projection]:
        """What all moves find, of level 1, 2, ..., ``effort``."""
        for level in range(1, effort + 1):
            for move in (self.random, self.grown, self.mixed, self.exchanged):
                yield from move(level)

    def random(self, level: int) -> Iterator[Projection]:
        """Random starts of several scales, by successive halving."""
        width = self.few.width
        for _ in range(level):
            dense = [random_heads(self.rng, self.n_heads, width, scale) for scale in SCALES]
            sharp = [random_heads(self.rng, self.n_heads, width, s, 1) for s in SHARP_SCALES]
            yield from self._best(dense + sharp)

    def grown(self, level: int) -> Iterator[Projection]:
        """One head more at a time, following the best ``level`` branches."""
        beam = [np.zeros((0, self.few.width, self.few.width))]
        for n_heads in range(1, self.n_heads + 1):
            rounds = ROUNDS if n_heads == self.n_heads else SHORT_ROUNDS
            branches: list[Projection] = []
            for heads in beam:
                starts = grown_starts(self.few, heads, self.rng, level)
                branches += self._best(starts, rounds, level)
            best = different(branches)[:level]
            beam = [branch.attn for branch in best]
        yield best[0]

    def exchanged(self, level: int) -> Iterator[Projection]:
        """The best heads less one of them, the least missed first, and grown again."""
        for _ in range(level):
            attn = self.best[0].attn
            remaining = [np.delete(attn, head, axis=0) for head in range(self.n_heads)]
            if self.n_heads > 1:
                remaining.sort(key=lambda heads: project(self.few, heads).error)
            for heads in remaining[: level + 1]:
                yield from self._best(grown_starts(self.few, heads, self.rng, level))

    def mixed(self, level: int) -> Iterator[Projection]:
        """Random heads in the span of the best, and in products of their main directions.

        The second kind has few unknowns: many starts on few examples, and the best then leave it.
        """
        scales = SCALES + SHARP_SCALES
        heads = self.best[0].attn
        units = directions(heads)
        yield from self._best(
            [random_mixtures(self.rng, self.n_heads, units, s) for s in scales[: 3 * level]]
        )
        for minor in MINOR_SHARES * level:
            products = common_products(self.best[0].attn, minor)
            if 2 * len(products) > heads[0].size:
                continue
            n_values = self.few.width * self.few.n_outputs
            share = (len(products) + n_values) / (heads[0].size + n_values)
            fewer = self.few.first(max(FEWEST_EXAMPLES, round(share * len(self.few))))
            starts = [
                random_mixtures(self.rng, self.n_heads, products, scale)
                for scale in GENTLE_SCALES * (2 + level)
            ]
            inside = best_descents(
                fewer, starts, within=products, count=1 + level, on_step=self.on_step
            )
            yield from self._best([descent.attn for descent in inside])

    def _best(
        self, starts: list[Matrix], rounds: tuple[int, ...] = ROUNDS, count: int = 1
    ) -> list[Projection]:
        return best_descents(self.few, starts, rounds=rounds, count=count, on_step=self.on_step)
