"""Anything that yields (X, Y) as a source: one chunk for each pair.

It is gone through once to count and to know what it yields.  What can be gone through again is,
for each pass, and must stay the same: every chunk is held against its first reading.  What comes
only once, as a generator does, is kept in a file meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

from polyattn.errors import InvalidInput, InvalidType
from polyattn.quoting import shown
from polyattn.sequences import MODES, common_names
from polyattn.sources.arrays import ArrayChunk, ArraySource
from polyattn.sources.kept_items import KeptItems
from polyattn.sources.source import Chunk, ChunkData, ChunkIdentity, Source


class IterableSource(Source):
    """Pairs (X, Y), or triples (X, Y, weights), or X alone, in the order in which they come.

    given : an iterable, a function that returns one, or an iterator, which is used up
    Guarantee: an iterator is the same source as the list of its items.
    Cost: memory for one item; for an iterator also the disk of all of them.
    """

    n_context_dims = None

    def __init__(self, given: Iterable[Any] | Callable[[], Iterable[Any]]) -> None:
        self._outputs: dict[str, int] = {}  # by mode
        if isinstance(given, Iterator):
            keep, begun = KeptItems().kept, given
        else:
            items = _Items(given)
            keep, begun = items.chunk, items.begin()
        # Nothing holds an item while the next one is made.
        self._chunks = list(map(partial(self._checked, keep), count(), begun))
        if not self._chunks:
            raise InvalidInput(
                "there is nothing in the iterable: it must yield pairs (X, Y). An iterator that "
                "was gone through before is empty; keep the source that was made of it."
            )
        self.n_outputs = self._outputs["last"]

    @property
    def chunks(self) -> Sequence[Chunk]:
        return self._chunks

    def n_outputs_in(self, mode: str) -> int:
        return self._outputs[mode]

    def _checked(
        self, keep: Callable[[ArrayChunk, int, ChunkIdentity], Chunk], number: int, item: Any
    ) -> Chunk:
        """An item as a chunk; refused where it is not like the first one."""
        source = _as_source(item, number)
        if number == 0:
            self.n_dims = source.n_dims
            self._outputs = {mode: source.n_outputs_in(mode) for mode in MODES}
        # Targets (N, n) of tokens have any number n; all items have targets, or none.
        own, wanted = source.n_outputs_in("last"), self._outputs["last"]
        for name, found, needed in (
            ("n_dims", source.n_dims, self.n_dims),
            ("n_outputs", own, own if own and wanted else wanted),
        ):
            if found != needed:
                raise InvalidInput(
                    f"item {number} has {name} = {found}, and item 0 has {needed}; all need the "
                    "same."
                )
        self.coordinate_names = common_names((self.coordinate_names, source.coordinate_names))
        (chunk,) = source.chunks
        return keep(chunk, number, _identity(chunk, number))


class _Items:
    """The items of an iterable by their numbers; those that follow each other cost no restart."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self._lock = Lock()
        self._at = 0
        self._iterator: Iterator[Any] | None = None

    def chunk(self, chunk: ArrayChunk, number: int, identity: ChunkIdentity) -> Chunk:
        """The item with this number, to be read when it is needed."""
        return _ItemChunk(self, number, identity, chunk.n_bytes)

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
