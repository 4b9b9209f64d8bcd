"""The roads to a given number of heads, and what is done with the heads they find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polyattn.softmax import growth, moments
from polyattn.softmax.examples import Examples
from polyattn.softmax.judging.judge import Fit, Judge
from polyattn.softmax.judging.redundancy import Visible, visible, without_redundant
from polyattn.softmax.polish import Projection, polish, project
from polyattn.softmax.polish.stages import descend
from polyattn.softmax.sculpting import sculpt
from polyattn.softmax.watch import Watch

# Relative residuals up to this are as exact as float64 allows.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Found:
    """Heads on all training examples, how they do on the others, and where they come from."""

    projection: Projection
    fit: Fit
    road: str
    notes: tuple[str, ...] = ()

    @property
    def n_heads(self) -> int:
        """The number of heads."""
        return len(self.projection.attn)


@dataclass(frozen=True)
class Search:
    """Looks for heads: every road ends in ``settled``, which judges what it found."""

    judge: Judge
    watch: Watch
    rng: np.random.Generator
    method: str

    @property
    def training(self) -> Examples:
        """What learning may see."""
        return self.judge.training

    @cached_property
    def visible(self) -> Visible:
        """Which part of attention the tokens show."""
        return visible(self.training)

    def by_moments(self, n_heads: int) -> Found:
        """Moments say where heads lie, descent takes them there."""
        with self.watch.phase("moments") as note:
            start = moments.initialise(self.training, n_heads, self.rng)
            note.say(
                f"Start for {n_heads} heads from the second-order moments.",
                n_heads=n_heads,
                singular_values=[float(s) for s in start.singular_values],
            )
        self.watch.phases.extend(start.phases)
        return self.from_start(start.attn, "moments")

    def by_growth(
        self, n_heads: int, effort: int, accept: Callable[[Found], bool] | None = None
    ) -> Found:
        """One head after the other, until ``accept`` (by default: nothing is unexplained)."""
        enough = accept or (lambda found: found.fit.explained)
        with self.watch.phase("growth") as note:
            polished = growth.search(
                self.training,
                n_heads,
                self.rng,
                accept=lambda one: enough(self.settled(one.projection)),
                effort=effort,
                on_step=self.watch,
            )
            note.say(
                f"Grew to {len(polished.attn)} heads, relative residual {polished.error:.1e}.",
                n_heads=len(polished.attn),
                error=polished.error,
                effort=effort,
            )
        return self.settled(polished.projection, "growth")

    def by_sculpting(self, n_heads: int) -> Found:
        """The six phases of the paper, then descent."""
        found = sculpt(self.training, n_heads, self.rng, on_step=self.watch)
        self.watch.phases.extend(found.phases)
        with self.watch.phase("conditions") as note:
            broken = ", ".join(condition.name for condition in found.failed)
            note.say(
                f"Not met: {broken}." if broken else "All that the road needs of the data is met.",
                conditions=[condition.to_json() for condition in found.conditions],
            )
        return self.from_start(found.attn, "sculpt")

    def from_start(self, attn: np.ndarray, road: str) -> Found:
        """Descend from given heads: on few examples first, then on all."""
        with self.watch.phase("polish") as note:
            polished = descend(self.training, attn, on_step=self.watch)
            found = self.settled(polished.projection, road)
            note.say(
                f"{len(polished.errors) - 1} steps of descent, held-out error "
                f"{found.fit.validation_error:.1e}.",
                steps=len(polished.errors) - 1,
                training_error=found.projection.error,
                validation_error=found.fit.validation_error,
            )
        return found

    def settled(self, here: Projection, road: str = "") -> Found:
        """Heads brought to rest on all training examples, without what is redundant; judged."""
        attn = self.visible.part(here.attn)
        settled = project(self.training, attn)
        if settled.error > ROUNDING:
            settled = polish(self.training, settled.attn, on_step=self.watch).projection
        smaller, notes = without_redundant(self.training, settled, self.judge.tolerance)
        if notes:
            settled = polish(self.training, smaller.attn, on_step=self.watch).projection
        attn = self.visible.part(settled.attn)
        if not self.visible.complete:
            notes = (*notes, "Some directions of attn cannot be seen in these tokens; set to 0.")
            settled = project(self.training, attn)
        return Found(settled, self.judge.fit(settled), road, notes)

    def judged(self, here: Projection) -> Found:
        """Heads as they are, with the best values on all training examples."""
        projection = project(self.training, self.visible.part(here.attn))
        return Found(projection, self.judge.fit(projection), self.watch.present)


def uniform(examples: Examples) -> Projection:
    """One head that attends to everything alike: what is known before any search."""
    return project(examples, np.zeros((1, examples.n_dims, examples.n_dims)))
