"""Tokens: how the columns that a layer sees are read, with a power of two taken out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.form.columns import Columns
from polyattn.sequences import SequenceBatch


@dataclass(frozen=True)
class Tokens:
    """The columns of the tokens of a batch, divided by 2**exponent."""

    batch: SequenceBatch
    columns: Columns
    exponent: int = 0

    @classmethod
    def whole(cls, batch: SequenceBatch, bias: bool = False, exponent: int = 0) -> Tokens:
        """All coordinates, and the constant of ``bias``."""
        return cls(batch, Columns.of(batch.n_dims, {"query": None}, bias), exponent)

    @property
    def width(self) -> int:
        """Columns per token, the constant one included."""
        return self.columns.n_columns

    def read_rows(self, first: int, stop: int) -> NDArray[np.float64]:
        """Tokens first..stop as float64 (tokens, d); a view where nothing has to change."""
        tokens = self.columns.read_rows(self.batch.values[first:stop])
        return np.ldexp(tokens, -self.exponent) if self.exponent else tokens

    def read(self, which: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """The chosen tokens as float64 (d, tokens), contiguous, divided by 2**exponent."""
        tokens = self.columns.read(self.batch.values[which])
        return np.ldexp(tokens, -self.exponent, out=tokens) if self.exponent else tokens
