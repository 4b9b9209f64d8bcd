"""Anything that yields (X, Y) again and again as a source: one chunk for each pair.

It is gone through once to count and to know what it yields, and again for each pass.  What it
yields must stay the same: every chunk is held against its first reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown
from polyattn.sources.arrays import ArraySource
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source


class IterableSource(Source):
    """Pairs (X, Y), or triples (X, Y, weights), or X alone, from something that starts anew.

    given : an iterable that can be gone through several times, or a function that returns one
    """

    def __init__(self, given: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        require_repeatable(given)
        items = _Items(given)
        self._chunks: list[Chunk] = []
        for number, item in enumerate(items.begin()):
            source = _as_source(item, number)
            if number == 0:
                self._first = source
            for name in ("n_dims", "n_outputs", "n_context_dims"):
                own, wanted = getattr(source, name), getattr(self._first, name)
                # Targets (N, n) of tokens have any number n.
                if own != wanted and not (name == "n_outputs" and own and wanted):
                    raise InvalidInput(
                        f"item {number} has {name} = {own}, and item 0 has {wanted}; all need the "
                        "same."
                    )
            (chunk,) = source.chunks
            self._chunks.append(_ItemChunk(items, number, _identity(chunk, number), chunk.n_bytes))
        if not self._chunks:
            raise InvalidInput("there is nothing in the iterable: it must yield pairs (X, Y).")
        self.n_dims, self.n_outputs = self._first.n_dims, self._first.n_outputs
        self.n_context_dims = self._first.n_context_dims

    @property
    def chunks(self) -> Sequence[Chunk]:
        return self._chunks

    def n_outputs_in(self, mode: str) -> int:
        return self._first.n_outputs_in(mode)


def require_repeatable(given: object) -> None:
    """Refuse what can be gone through only once."""
    if isinstance(given, Iterator):
        raise InvalidInput(
            f"a {type(given).__name__} can be gone through only once, and a source is read several "
            "times: give the function that makes it, without calling it. For one pass, add its "
            "items to sums: for X, Y in items: moments.update(X, Y)."
        )


class _Items:
    """The items of an iterable by their numbers; those that follow each other cost no restart."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self._lock = Lock()
        self._at = 0
        self._iterator: Iterator[Any] | None = None

    def begin(self) -> Iterator[Any]:
        begun = self.given() if callable(self.given) else self.given
        if not isinstance(begun, Iterable):
            raise InvalidType(f"a source is made of what yields pairs (X, Y); got {shown(begun)}.")
        return iter(begun)

    def item(self, number: int) -> Any:
        with self._lock:
            if self._iterator is None or self._at > number:
                self._iterator, self._at = self.begin(), 0
            item, ended = None, object()
            while self._at <= number:
                item = next(self._iterator, ended)
                self._at += 1
                if item is ended:
                    self._iterator = None
                    raise _changed(number)
            return item

    def __getstate__(self) -> dict[str, Any]:
        return {"given": self.given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["given"])  # type: ignore[misc]


@dataclass(frozen=True, eq=False)
class _ItemChunk(Chunk):
    items: _Items
    number: int
    identity: ChunkIdentity
    n_bytes: int

    def read(self, mode: str) -> ChunkData | None:
        return self._chunk().read(mode)

    def read_inputs(self) -> ChunkData | None:
        return self._chunk().read_inputs()

    def _chunk(self) -> Chunk:
        (chunk,) = _as_source(self.items.item(self.number), self.number).chunks
        if _identity(chunk, self.number) != self.identity:
            raise _changed(self.number)
        return chunk


def _as_source(item: Any, number: int) -> ArraySource:
    """One item, as a source of one chunk."""
    parts = item if isinstance(item, tuple) else (item,)
    if not 1 <= len(parts) <= 3:
        raise InvalidInput(
            f"item {number} must be (X, Y) or (X, Y, weights); got {len(parts)} things."
        )
    X, Y, weights = (*parts, None, None)[:3]
    try:
        return ArraySource(X, Y, weights, None, 1 << 62)
    except (InvalidInput, InvalidType) as error:
        raise type(error)(f"in item {number}: {error}") from None


def _identity(chunk: Chunk, number: int) -> ChunkIdentity:
    """That of the content, at its place: two items may be equal."""
    content = chunk.identity
    return content._replace(source=f"item {number}, {content.source}")


def _changed(number: int) -> InvalidInput:
    return InvalidInput(
        f"item {number} is not what it was when the iterable was gone through before; a source "
        "yields the same items each time."
    )
