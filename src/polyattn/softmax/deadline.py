"""The time that a caller gives; long work asks in between whether it is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from time import monotonic

_end: ContextVar[float] = ContextVar("polyattn_deadline", default=inf)


class OutOfTime(Exception):
    """The time that the caller gave is over; the best heads so far are kept."""


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
    """Raise ``OutOfTime`` when the end has come."""
    if seconds_left() == 0.0:
        raise OutOfTime
