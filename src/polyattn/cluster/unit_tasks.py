"""What runs on the worker that holds a unit: how its parts are made, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from polyattn.cluster.workers import require_software
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sources.source import Chunk


class SentWhole:
    """Something whose arrays begin, in another process, where those of this one do.

    Dask sends arrays beside what holds them, and they begin anywhere in memory; numpy multiplies
    them in another order then, which is seen in the bits.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (type(self), _sending().dumps(vars(self)))


class Given(SentWhole):
    """A function and what it is given beside each part."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Parts(SentWhole):
    """The parts of a unit on its worker."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self.parts = list(parts)

    def __sizeof__(self) -> int:
        # Dask asks how much it holds.
        return super().__sizeof__() + sum(getattr(part, "held_bytes", 0) for part in self.parts)


def _received(kind: type[Any], content: bytes) -> Any:
    thing: Any = object.__new__(kind)
    vars(thing).update(_sending().loads(content))
    return thing


def _sending() -> Any:
    """How Dask sends whatever there is, functions of a session included."""
    import distributed.protocol.pickle as sending

    return sending


@single_threaded_blas()
def make_parts(software: dict[str, str], make: Callable[..., Any], *chunks: Chunk) -> Parts:
    """The task that makes a unit."""
    require_software(software)
    return Parts(make(chunks))


def derive_parts(software: dict[str, str], parts: Parts, given: Given) -> Parts:
    """The task that makes a unit of another one."""
    return Parts(apply_to_parts(software, parts, given))


@single_threaded_blas()
def apply_to_parts(software: dict[str, str], parts: Parts, given: Given) -> list[Any]:
    """The task of a pass."""
    require_software(software)
    return [given.function(part, *given.arguments) for part in parts.parts]


def same(given: Given) -> Given:
    """The task by which workers get what is given to all of them."""
    return given
