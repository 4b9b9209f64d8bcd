"""Columns: the numbers that a layer sees of a token, each once, however often it is used.

Queries, keys and values pick from the same columns, so that a product of the same two columns in
either order is recognised as one (see ``FoldedPairs``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.form.token_maps import (
    TokenMap,
    applied,
    coordinates_of,
    map_width,
    require_width,
    same_map,
)
from polyattn.numerics import scaling
from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch


@dataclass(frozen=True, eq=False)
class Columns:
    """Coordinates of tokens in their order, then what maps make of them, then a constant.

    coordinates : which coordinates are columns; None for all of them
    maps : matrices and functions, each with its name and the number of its columns
    constant : whether the last column is the constant 1 of ``bias``
    roles : the columns of each of query, key and value
    """

    n_dims: int
    coordinates: NDArray[np.intp] | None
    maps: tuple[tuple[str, TokenMap, int], ...]
    constant: bool
    roles: dict[str, NDArray[np.intp]]

    @classmethod
    def of(cls, n_dims: int, roles: dict[str, TokenMap], constant: bool) -> Columns:
        """The columns for maps by name; equal maps share theirs."""
        picked = {name: coordinates_of(given, n_dims, name) for name, given in roles.items()}
        used = sorted({each for chosen in picked.values() for each in chosen or ()})
        place = {coordinate: at for at, coordinate in enumerate(used)}
        maps: list[tuple[str, TokenMap, int]] = []
        found: dict[str, list[int]] = {}
        end = len(used)
        for name, given in roles.items():
            chosen = picked[name]
            if chosen is not None:
                found[name] = [place[each] for each in chosen]
                continue
            same = next((other for other, known, _ in maps if same_map(known, given)), None)
            if same is None:
                width = map_width(given, n_dims, name)
                maps.append((name, given, width))
                found[name] = list(range(end, end + width))
                end += width
            else:
                found[name] = found[same]
        if constant:
            found = {name: [*places, end] for name, places in found.items()}
        whole = used == list(range(n_dims))
        return cls(
            n_dims,
            None if whole else np.array(used, dtype=np.intp),
            tuple(maps),
            constant,
            {name: np.array(places, dtype=np.intp) for name, places in found.items()},
        )

    def places(self, name: str) -> NDArray[np.intp]:
        """The columns of query, key or value."""
        return self.roles[name]

    @property
    def n_columns(self) -> int:
        """How many numbers are seen of a token, the constant included."""
        n_coordinates = self.n_dims if self.coordinates is None else len(self.coordinates)
        return n_coordinates + sum(width for _, _, width in self.maps) + self.constant

    @property
    def are_tokens(self) -> bool:
        """Whether the columns are the tokens as they are, without a constant."""
        return self.coordinates is None and not self.maps and not self.constant

    def sizes(self, batch: SequenceBatch) -> NDArray[np.float64]:
        """The largest magnitude of each column over all tokens; 1 for the constant."""
        if self.maps:
            n_seen = self.n_columns - self.constant
            blocks = (self.read(piece)[:n_seen].T for piece in pieces(batch.values))
            sizes = scaling.column_magnitudes(blocks, n_seen)
        else:
            sizes = batch.coordinate_sizes()
            sizes = sizes if self.coordinates is None else sizes[self.coordinates]
        return np.append(sizes, 1.0) if self.constant else sizes

    def read(self, tokens: NDArray) -> NDArray[np.float64]:
        """The columns (n_columns, n) of tokens (n, d), contiguous."""
        tokens = _aligned(tokens)
        columns = np.empty((self.n_columns, len(tokens)))
        chosen = tokens if self.coordinates is None else tokens[:, self.coordinates]
        at = chosen.shape[1]
        columns[:at] = chosen.T
        for name, given, width in self.maps:
            seen = applied(given, tokens, name)
            require_width(seen.shape[1], width, name)
            columns[at : at + width] = seen.T
            at += width
        if self.constant:
            columns[-1] = 1.0
        return columns

    def read_rows(self, tokens: NDArray) -> NDArray[np.float64]:
        """The same, (n, n_columns); a view where nothing has to change."""
        if not self.are_tokens:
            return self.read(tokens).T
        return _aligned(tokens).astype(np.float64, copy=False)


def _aligned(tokens: NDArray) -> NDArray:
    """The same where numbers begin at multiples of their size, else a copy.

    What was received from another process may begin anywhere, and is multiplied in another order.
    """
    return np.require(tokens, requirements="A")
