"""The methods for a given number of heads, and what is done with the heads they find."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polyattn.quoting import counted
from polyattn.softmax import growth, moments
from polyattn.softmax.examples import Examples
from polyattn.softmax.judging.alternatives import Visible, smaller_heads, visible
from polyattn.softmax.judging.judge import HeldOutFit, Judge
from polyattn.softmax.polish import Projection, enough, polish, project
from polyattn.softmax.recorder import Recorder
from polyattn.softmax.sculpting import sculpt

# Effort of the attempt to explain a residual that looks like noise, and its examples.
RIVAL_EFFORT, RIVAL_EXAMPLES = 2, 500

# Descent happens on few examples, until four steps gain less than this, relatively; then there are
# few steps on all before heads are judged: those that were right on few are right by then.
MOST_STEPS, COARSE_GAIN, FEW_STEPS = 120, 1e-3, 8

# How sure sculpting is to be that its body contains the heads, where no descent follows.
CONFIDENCE = 0.9

# Relative residuals up to this are as exact as float64 allows.
ROUNDING = 1e-13


@dataclass(frozen=True)
class Found:
    """Heads on all training examples, how they do on the others, and where they come from."""

    projection: Projection
    fit: HeldOutFit
    method: str
    notes: tuple[str, ...] = ()

    @property
    def n_heads(self) -> int:
        """The number of heads."""
        return self.projection.n_heads


@dataclass(frozen=True)
class Search:
    """Looks for heads: every method ends in ``settled``, which judges what it found.

    polished : whether methods descend from where they end; otherwise ``judged`` takes their heads
        as they are
    """

    judge: Judge
    recorder: Recorder
    rng: np.random.Generator
    method: str
    polished: bool = True

    @property
    def training(self) -> Examples:
        """What learning may see."""
        return self.judge.training

    @cached_property
    def visible(self) -> Visible:
        """Which part of attention the tokens show."""
        return visible(self.training)

    def determined(self, found: Found) -> bool:
        """Whether the data determine every head that was found."""
        bars = self.judge.error_bars(found.projection, found.fit)
        return bars.n_open == 0 and found.fit.well_determined(bars)

    def by_moments(self, n_heads: int) -> Found:
        """A start from moments, then descent where that is wanted."""
        start = moments.initialise(self.training, n_heads, self.rng, self.recorder)
        return self.from_start(start.attn, "moments")

    def by_growth(self, n_heads: int, effort: int) -> Found:
        """Random starts, one head after the other, exchanges; until nothing is unexplained."""
        with self.recorder.phase("growth") as note:
            polished = growth.search_heads(
                self.training,
                n_heads,
                self.rng,
                accept=lambda one: self.settled(one).fit.explained,
                effort=effort,
                on_step=self.recorder,
            )
            heads = counted(polished.n_heads, "head")
            note.say(
                f"Grew to {heads}, relative residual {polished.error:.1e}.",
                n_heads=polished.n_heads,
                error=polished.error,
                effort=effort,
            )
        return self.settled(polished, "growth")

    def with_one_more(self, found: Found) -> Found:
        """One head more than was found, where the residual shows it best; not yet at rest."""
        with self.recorder.phase("one head more") as note:
            few = enough(self.training, found.n_heads + 1)
            some = self.training.first(max(len(few), RIVAL_EXAMPLES))
            heads = found.projection.attn
            grown = growth.grow(some, heads, self.rng, effort=RIVAL_EFFORT, on_step=self.recorder)
            near = polish(self.training, grown.attn, FEW_STEPS, self.recorder)
            rival = self.judged(near, "growth")
            note.say(
                f"With {counted(rival.n_heads, 'head')} the held-out error is "
                f"{rival.fit.validation_error:.1e}, with {found.n_heads} it was "
                f"{found.fit.validation_error:.1e}.",
                validation_error=rival.fit.validation_error,
            )
        return rival

    def by_sculpting(self, n_heads: int) -> Found:
        """The six phases of the paper, then descent where that is wanted."""
        # A calibrated body certifies heads, and takes several times as long as the phases; descent
        # needs no certificate.
        confidence = None if self.polished else CONFIDENCE
        found = sculpt(self.training, n_heads, self.rng, self.recorder, confidence)
        with self.recorder.phase("conditions") as note:
            broken = ", ".join(condition.name for condition in found.failed)
            note.say(
                f"Not met: {broken}." if broken else "All that sculpting needs of the data is met.",
                conditions=[condition.to_dict() for condition in found.conditions],
            )
        ended = self.from_start(found.attn, "sculpt")
        if ended.fit.explained or not broken:
            return ended
        sentence = f"Conditions of sculpting that do not hold here: {broken}."
        return replace(ended, notes=(*ended.notes, sentence))

    def from_start(self, attn: np.ndarray, method: str) -> Found:
        """Descend from given heads: on few examples first, then on all; if that is wanted."""
        if not self.polished:
            with self.recorder.phase("judge") as note:
                alone = self.judged(project(self.training, attn), method)
                note.say(
                    "No descent was wanted; held-out error of the method alone "
                    f"{alone.fit.validation_error:.1e}.",
                    training_error=alone.projection.error,
                    validation_error=alone.fit.validation_error,
                )
            return alone
        with self.recorder.phase("polish") as note:
            few = enough(self.training, len(attn))
            polished = polish(few, attn, MOST_STEPS, self.recorder, gain=COARSE_GAIN)
            found = self.settled(polished, method)
            note.say(
                f"{len(polished.errors) - 1} steps on {len(few)} examples, held-out error "
                f"{found.fit.validation_error:.1e}.",
                steps=len(polished.errors) - 1,
                training_error=found.projection.error,
                validation_error=found.fit.validation_error,
            )
        return found

    def settled(self, here: Projection, method: str = "") -> Found:
        """Heads brought to rest on all training examples, without redundant ones; judged."""
        settled = project(self.training, self.visible.part(here.attn))
        if settled.error > ROUNDING:
            settled = polish(self.training, settled.attn, FEW_STEPS, self.recorder)
            if self.judge.fit(settled).explained:
                settled = polish(self.training, settled.attn, on_step=self.recorder)
        notes: tuple[str, ...] = ()
        if not self.visible.complete:
            notes = ("Some directions of attn cannot be seen in these tokens; set to 0.",)
            settled = project(self.training, self.visible.part(settled.attn))
        found = Found(settled, self.judge.fit(settled), method, notes)
        if found.fit.kind != "exact" or found.n_heads == 1 or self.determined(found):
            return found
        # Exact heads that are distinct and not idle are determined, so where they are not, some
        # are equal or idle: one fewer is as exact.
        for attn, sentence in smaller_heads(settled):
            fewer = polish(self.training, attn, on_step=self.recorder)
            if self.judge.fit(fewer).kind == "exact":
                smaller = self.settled(fewer, method)
                return replace(smaller, notes=(*smaller.notes, sentence))
        return found

    def judged(self, here: Projection, method: str) -> Found:
        """Heads as they are, with the best values on all training examples."""
        projection = project(self.training, self.visible.part(here.attn))
        return Found(projection, self.judge.fit(projection), method)
