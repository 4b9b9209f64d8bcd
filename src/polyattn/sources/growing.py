"""A source that grows: items are added one after the other, and kept in a file without a name."""

from __future__ import annotations

from typing import Any, Self

from polyattn.sources.iterables import IterableSource
from polyattn.sources.kept_items import KeptItems


class GrowingSource(IterableSource):
    """Pairs (X, Y) that come one by one, as ``update`` is called; one chunk for each.

    Guarantee: the same source as that of a list of these pairs, as far as they have come.
    Cost: memory for one pair, and some hundred bytes for each that is kept; disk for all of them.
    """

    n_dims = 0  # until the first pair has come
    n_outputs = 0

    def __init__(self) -> None:
        self._outputs = {}
        self._chunks = []
        self._items = KeptItems()

    def update(self, X: Any, Y: Any = None) -> Self:
        """Add sequences and their targets, as ``fit`` takes them; returns itself."""
        self._chunks.append(self._checked(self._items.kept, len(self._chunks), (X, Y)))
        self.n_outputs = self._outputs["last"]
        return self

    def n_outputs_in(self, mode: str) -> int:
        return self._outputs.get(mode, 0)
