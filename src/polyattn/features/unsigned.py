"""The same sums without signs: of absolute values, or of how many terms are not zero.

A computed sum of products errs by at most gamma times the same sum of absolute values, and it has
a term that is not zero iff the sum of 1 for each such term is positive.  Columns that a matrix
makes are x^T W, and stand for |x|^T |W|, whose rounding they share; what a function makes is taken
as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.form.columns import Columns
from polyattn.form.layout import Layout

# What is taken of every number.
Take = Callable[[NDArray], NDArray[np.float64]]

# Weights of tokens say nothing of whether a term is there; those of several scales must differ.
NEARLY_ONE = 2.0**-40


def absolute_layout(layout: Layout) -> Layout:
    """The same layout of tokens whose columns are taken without their signs."""
    return UnsignedLayout(layout.form, layout.n_dims, layout.n_context_dims, np.abs)


def present_layout(layout: Layout) -> Layout:
    """The same layout of columns that are 1 where they have a term that is not zero, 0 elsewhere.

    Decays are nearly 1, so that no term is lost, however far back.
    """
    form = layout.form
    if isinstance(form.decay, tuple):
        form = replace(form, decay=[1.0 - i * NEARLY_ONE for i in range(len(form.decay))])
    elif form.decay is not None:
        form = replace(form, decay=1.0)
    return UnsignedLayout(form, layout.n_dims, layout.n_context_dims, _present)


@dataclass(frozen=True)
class UnsignedLayout(Layout):
    """A layout that reads ``UnsignedColumns``."""

    take: Take = np.abs

    @cached_property
    def _columns(self) -> tuple[Columns, ...]:
        return tuple(UnsignedColumns.of_columns(each, self.take) for each in super()._columns)


@dataclass(frozen=True, eq=False)
class UnsignedColumns(Columns):
    """What is taken of columns; of a matrix, the product of what is taken of both factors."""

    take: Take = np.abs

    @classmethod
    def of_columns(cls, columns: Columns, take: Take) -> UnsignedColumns:
        """The columns without signs."""
        maps = tuple(
            (name, _Product(given, take) if isinstance(given, np.ndarray) else given, width)
            for name, given, width in columns.maps
        )
        return cls(**vars(columns) | {"maps": maps}, take=take)

    def read(self, tokens: NDArray) -> NDArray[np.float64]:
        return self.take(super().read(tokens))

    def read_rows(self, tokens: NDArray) -> NDArray[np.float64]:
        rows = super().read_rows(tokens)
        return self.take(rows) if self.are_tokens else rows


@dataclass(frozen=True, eq=False)
class _Product:
    """Tokens times a matrix, both without signs."""

    matrix: NDArray[np.float64]
    take: Take

    def __call__(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.take(tokens) @ self.take(self.matrix)


def _present(numbers: NDArray) -> NDArray[np.float64]:
    return (numbers != 0).astype(np.float64)
