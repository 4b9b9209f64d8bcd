"""Passes over rows: what their parts give, in order, and sums that are folded in that order.

The parts of rows are worked on here, or by the workers of a cluster, which then hold them with
their summaries.  Functions and arguments go to the workers, and results come back; rows do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polyattn.cluster import HeldParts
from polyattn.numerics.parallel import deal, map_pieces
from polyattn.stats.gather import fold
from polyattn.stats.held_rows import held_rows
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows
from polyattn.stats.triangular_factor import TriangularFactor

# From rows, some of their blocks and arguments to arrays (or floats) that are added up.
OfBlocks = Callable[..., Sequence[Any]]


def summed(rows: Rows, of_blocks: OfBlocks, *arguments: Any) -> list[Any]:
    """The arrays that ``of_blocks(rows, blocks, *arguments)`` gives, added up over all rows.

    of_blocks : a function of a module; it gives as many arrays for any blocks, zeros for none, and
        is told of the rows that the blocks are of, which may be a part of all
    Guarantee: which blocks stand together, and the order of the sums, depend on the data alone.
    """
    return folded(of_parts(rows, _summed_blocks, of_blocks, *arguments))


def of_parts(
    rows: Rows, function: Callable[..., Any], *arguments: Any, are_large: bool = False
) -> Iterator[Any]:
    """``function(part, *arguments)`` of each part of the rows, in order.

    are_large : results of which few may wait in memory
    """
    return PartsOfRows.of(rows).results(function, *arguments, are_large=are_large)


@dataclass(frozen=True, eq=False)
class PartsOfRows:
    """The parts of rows, or what was made of each of them: here, or where workers hold them."""

    parts: Sequence[Any] | HeldParts

    @classmethod
    def of(cls, rows: Rows) -> PartsOfRows:
        """The parts themselves."""
        return cls(held_rows(rows) if rows.is_on_workers else rows.parts)

    def made(self, function: Callable[..., Any], *arguments: Any) -> PartsOfRows:
        """``function(part, *arguments)`` of each part, kept where the part is."""
        if isinstance(self.parts, HeldParts):
            return PartsOfRows(self.parts.derived(function, *arguments))
        return PartsOfRows(list(self.results(function, *arguments)))

    def results(
        self, function: Callable[..., Any], *arguments: Any, are_large: bool = False
    ) -> Iterator[Any]:
        """``function(part, *arguments)`` of each part, in order."""
        if isinstance(self.parts, HeldParts):
            return self.parts.results(function, *arguments, are_large=are_large)
        return (function(part, *arguments) for part in self.parts)


def factor_of(rows: Rows, left_out: Mapping[int, list[int]] | None = None) -> TriangularFactor:
    """The triangular factor of rows.

    left_out : for the number of the first row of each part, sequences of it that do not count
    """
    factor: TriangularFactor | None = None
    for part in of_parts(rows, _factor_of_part, left_out, are_large=True):
        # A function that was sent is no longer equal to itself.
        part.layout = rows.layout
        factor = part.copy() if factor is None else fold(factor, part)
    assert factor is not None  # noqa: S101 - there is at least one part
    return factor


def _factor_of_part(rows: Rows, left_out: Mapping[int, list[int]] | None) -> TriangularFactor:
    if left_out is None:
        return TriangularFactor.of(rows)
    given = rows.sequence_weights
    weights = np.ones(len(rows.batch)) if given is None else given.copy()
    weights[left_out[rows.base]] = 0.0
    return TriangularFactor.of(replace(rows, sequence_weights=weights))


def folded(results: Iterable[Sequence[Any]]) -> list[Any]:
    """Results of parts, several arrays (or floats) each, added up in order."""
    total: list[Any] = []
    for some in results:
        if total:
            total = [one + more for one, more in zip(total, some, strict=True)]
        else:
            # What comes from another process may begin anywhere in memory.
            total = [np.array(one) if isinstance(one, np.ndarray) else one for one in some]
    return total


def _summed_blocks(rows: Rows, of_blocks: OfBlocks, *arguments: Any) -> list[Any]:
    """The sums over the blocks of one part."""

    def of_some(blocks: list[RowBlock]) -> Sequence[Any]:
        return of_blocks(rows, blocks, *arguments)

    total = list(of_some([]))
    for blocks in rows.groups():
        for some in map_pieces(of_some, deal(blocks)):
            for at, more in enumerate(some):
                total[at] += more
    return total
