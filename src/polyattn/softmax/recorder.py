"""One recorder for long work: its phases, the best so far, the callback, and the deadline.

What a search has found lies in the recorder, outside the search: stopping it loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from math import inf
from numbers import Real
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from polyattn.display import plain
from polyattn.errors import InvalidInput
from polyattn.files.fields import any_object, entries, listed, number, plain_value, text

if TYPE_CHECKING:
    from polyattn.softmax.polish.projection import Projection

# Receives (phase, number of heads, relative error) after every step of descent.
Callback = Callable[[str, int, float], None]

_end: ContextVar[float] = ContextVar("polyattn_deadline", default=inf)


@dataclass(frozen=True)
class Phase:
    """One step on the way, in words and numbers; figures are plain JSON types."""

    name: str
    sentence: str
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``Phase(**...)`` is the inverse."""
        return asdict(self)


def check_phases(value: Any, where: str) -> None:
    """Refuse the phases of a file unless they are what ``Phase.to_dict`` writes."""
    fields = {"name": text(1000), "sentence": text(), "figures": any_object, "seconds": number(0)}
    listed(entries(fields))(value, where)
    for at, phase in enumerate(value):
        plain_value(phase["figures"], f"{where}[{at}].figures")


@dataclass
class Note:
    """What a phase measured, filled while it runs; arrays and infinite numbers may be given."""

    sentence: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    def say(self, sentence: str, **figures: Any) -> None:
        """Set the sentence and add figures."""
        self.sentence = sentence
        self.figures.update(figures)


@dataclass
class Recorder:
    """Phases in the order in which they ended, the best heads, and who is kept informed.

    Calling it with heads takes note of them: pass it as ``on_step``.  Learning from queries calls
    it with none and leaves ``best`` empty.

    present : the phase that is running; "start" outside of all
    best_phase : the phase in which the best was found
    """

    callback: Callback | None = None
    best: Projection | None = None
    phases: list[Phase] = field(default_factory=list)
    present: str = "start"
    best_phase: str = "start"
    _last_end: float = field(default_factory=perf_counter, repr=False)

    def __call__(self, found: Projection) -> None:
        """Keep heads if they are the best so far, and inform the callback."""
        if self.best is None or found.error < self.best.error:
            self.best, self.best_phase = found, self.present
        if self.callback is not None:
            self.callback(self.present, found.n_heads, found.error)

    @contextmanager
    def phase(self, name: str) -> Iterator[Note]:
        """Time what happens inside; the note is kept as a phase, whatever ends it."""
        note, began, before = Note(), perf_counter(), self.present
        self.present = name
        try:
            yield note
        finally:
            self.present = before
            self._keep(name, note.sentence or "Not finished.", note.figures, began)

    def ended(self, name: str, sentence: str, **figures: Any) -> None:
        """Keep a phase that has just ended: it took the time since the one before."""
        self._keep(name, sentence, figures, self._last_end)

    def _keep(self, name: str, sentence: str, figures: dict[str, Any], began: float) -> None:
        self._last_end = perf_counter()
        self.phases.append(Phase(name, sentence, plain(figures), self._last_end - began))


class OutOfTime(Exception):
    """The time that the caller gave is over; the best so far is kept."""


def end_after(max_seconds: object) -> float:
    """The reading of ``monotonic`` after so many seconds from now; infinite for None."""
    if max_seconds is None:
        return inf
    if isinstance(max_seconds, Real) and not isinstance(max_seconds, bool):
        seconds = float(max_seconds)
        if seconds > 0:
            return monotonic() + seconds
    raise InvalidInput(f"max_seconds must be a positive number or None; got {max_seconds!r}.")


@contextmanager
def until(end: float) -> Iterator[None]:
    """Within the block, ``require_time`` raises once the clock ``monotonic`` shows ``end``."""
    token = _end.set(end)
    try:
        yield
    finally:
        _end.reset(token)


def seconds_left() -> float:
    """Until the end: infinite without one, never negative."""
    return max(0.0, _end.get() - monotonic())


def require_time() -> None:
    """Raise ``OutOfTime`` when the end has come; long work calls it in between."""
    if seconds_left() == 0.0:
        raise OutOfTime
