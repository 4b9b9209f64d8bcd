"""The entries of heads in words: which coordinates of a token each head connects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from polyattn.programs.language.schema import Schema
from polyattn.programs.language.terms import Exact
from polyattn.programs.lowering import Head


class HeadEntry(NamedTuple):
    """An entry of a matrix of a head that is not zero.

    head : its number, from 0 on as in ``layer.attn``
    matrix : "attn" or "value"
    row, column : coordinates, ``layer.attn[head, row, column]``
    start, end : what these coordinates mean; of attn the query and the key, of value what is read
        and what is written
    weight : the entry, exactly
    """

    head: int
    matrix: str
    row: int
    column: int
    start: str
    end: str
    weight: Exact

    def __str__(self) -> str:
        place = f"{self.matrix}[{self.head}, {self.row}, {self.column}]"
        return f"{place} = {self.weight}: {self.start} -> {self.end}"


def entries_of(heads: Iterable[Head], schema: Schema) -> list[HeadEntry]:
    """All entries of heads that are not zero, head after head, attn before value."""
    names = schema.coordinate_names
    return [
        HeadEntry(number, matrix, row, column, names[row], names[column], weight)
        for number, head in enumerate(heads)
        for matrix, entries in (("attn", head.attn), ("value", head.value))
        for (row, column), weight in sorted(entries.items())
    ]
