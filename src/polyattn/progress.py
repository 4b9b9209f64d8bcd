"""Progress of passes over the data, for whoever listens; nobody does by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("polyattn_progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within the block, ``listener(done, total)`` is called as rows of a pass are done."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report(done: int, total: int) -> None:
    """Say that ``done`` of ``total`` rows of the present pass are done."""
    listener = _listener.get()
    if listener is not None:
        listener(done, total)
