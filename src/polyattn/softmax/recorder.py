"""What is known so far: the best heads, the phases, the time; nothing is lost by stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from polyattn.softmax.phases import Phase
from polyattn.softmax.polish.projection import Projection

# Hears (phase, number of heads, relative error) after every step of descent.
Callback = Callable[[str, int, float], None]


@dataclass
class Watch:
    """Follows a search from outside: pass it as ``on_step``."""

    callback: Callback | None = None
    best: Projection | None = None
    phases: list[Phase] = field(default_factory=list)
    present: str = "start"

    def __call__(self, projection: Projection) -> None:
        """Take note of a better projection."""
        if self.best is None or projection.error < self.best.error:
            self.best = projection
        if self.callback is not None:
            self.callback(self.present, len(projection.attn), projection.error)

    @property
    def last(self) -> str:
        """The phase that ended last; "start" before any has."""
        return self.phases[-1].name if self.phases else self.present

    @contextmanager
    def phase(self, name: str) -> Iterator[Note]:
        """Time what happens inside; the note is kept as a phase, whatever ends it."""
        note, began, before = Note(), monotonic(), self.present
        self.present = name
        try:
            yield note
        finally:
            self.present = before
            self.phases.append(
                Phase(name, note.sentence or "Not finished.", note.figures, monotonic() - began)
            )


@dataclass
class Note:
    """What a phase has to say; filled while it runs."""

    sentence: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def say(self, sentence: str, **figures: Any) -> None:
        """Set the sentence and add figures."""
        self.sentence = sentence
        self.figures.update(figures)
