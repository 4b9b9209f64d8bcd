"""The three sums behind the moments, however they are accumulated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.pairs import n_pairs
from polyattn.stats.rows import RowBlock


class Sums(ABC):
    """sum psi psi^T, sum psi y^T and sum y y^T over rows.

    ``gram`` holds the first in a layout of the subclass; it adds and scales like the matrix.
    """

    gram: NDArray[np.float64]

    def __init__(self, n_dims: int, n_outputs: int) -> None:
        self.n_dims = n_dims
        self.n_outputs = n_outputs
        self.cross = np.zeros((n_pairs(n_dims), n_dims, n_outputs))
        self.targets = np.zeros((n_outputs, n_outputs))

    @abstractmethod
    def add(self, blocks: Sequence[RowBlock]) -> None:
        """Add the rows of some blocks, on as many threads as BLAS may use."""

    @abstractmethod
    def diagonal(self) -> NDArray[np.float64]:
        """sum psi^2 (p,)."""

    @abstractmethod
    def matrix(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """sum psi psi^T as a fresh symmetric matrix (p, p), features times ``factors`` (p,)."""

    @abstractmethod
    def as_stored(self, matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        """A symmetric matrix (p, p) in the layout in which ``arrays`` gives ``gram``."""

    def absorb(self, other: Sums) -> None:
        """Add sums of the same layout."""
        self.gram += other.gram
        self.cross += other.cross
        self.targets += other.targets

    def rescale(self, tokens: int, targets: int) -> None:
        """Multiply the tokens seen so far by 2**tokens and the targets by 2**targets."""
        np.ldexp(self.gram, 6 * tokens, out=self.gram)
        np.ldexp(self.cross, 3 * tokens + targets, out=self.cross)
        np.ldexp(self.targets, 2 * targets, out=self.targets)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The sums by name."""
        return {"gram": self.gram, "cross": self.cross, "targets": self.targets}

    def restore(self, arrays: dict[str, NDArray]) -> None:
        """Take copies of ``arrays`` of sums in the same layout."""
        self.gram = shaped_like(self.gram, arrays["gram"])
        self.cross = shaped_like(self.cross, arrays["cross"])
        self.targets = shaped_like(self.targets, arrays["targets"])


def shaped_like(own: NDArray[np.float64], stored: NDArray) -> NDArray[np.float64]:
    """A float64 copy of a stored array, which must have the shape of our own."""
    if stored.shape != own.shape or stored.dtype != np.float64:
        raise InvalidInput(
            f"stored sums have shape {stored.shape} and dtype {stored.dtype}; "
            f"expected float64 of shape {own.shape}."
        )
    return np.array(stored, order="K")
