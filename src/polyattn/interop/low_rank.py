"""Matrices of heads as products of two thin ones, by their singular value decompositions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_head_count
from polyattn.heads.head_rank import equal_units
from polyattn.model import SoftmaxAttention
from polyattn.numerics.parallel import single_threaded_blas

Matrix = NDArray[np.float64]

# Parts of a matrix below this share of its norm are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class LowRank:
    """Matrices M_h = left[h] right[h]^T (H, n, m), the terms of largest norm first.

    name : what the matrices are called in messages
    left, right : arrays (H, n, R) and (H, m, R)
    missed : array (H, R + 1), the norm of all terms but the first r beside that of M_h
    ranks : array (H,), the fewest terms that miss at most ``tolerance`` of M_h

    Where only rounding may be dropped, norms are taken with rows and columns of M_h brought to
    equal size: a coordinate in small units is no rounding.
    """

    name: str
    left: Matrix
    right: Matrix
    missed: Matrix
    ranks: NDArray[np.intp]

    @classmethod
    @single_threaded_blas()
    def of(cls, matrices: Matrix, tolerance: float, name: str) -> LowRank:
        """The terms of matrices (H, n, m).  Cost: O(H n m min(n, m))."""
        rows, columns = equal_units(matrices)
        if tolerance > ROUNDING:
            rows, columns = np.zeros_like(rows), np.zeros_like(columns)
        equal = np.ldexp(matrices, -rows - columns)
        left, sigma, right = np.linalg.svd(equal, full_matrices=False)
        # Relative first: squares of extreme numbers leave float64.
        shares = (sigma / np.where(sigma[:, :1] > 0.0, sigma[:, :1], 1.0)) ** 2
        tails = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
        missed = np.sqrt(np.pad(tails, ((0, 0), (0, 1))))
        missed /= np.where(missed[:, :1] > 0.0, missed[:, :1], 1.0)
        roots = np.sqrt(sigma)[:, None, :]
        ranks = np.count_nonzero(missed > tolerance, axis=1)
        left, right = left * roots, right.transpose(0, 2, 1) * roots
        right = np.ldexp(right, columns.transpose(0, 2, 1))
        return cls(name, np.ldexp(left, rows), right, missed, ranks)

    @property
    def n_terms(self) -> int:
        """R, the most terms that a matrix can have."""
        return self.left.shape[2]

    def terms(
        self, width: int, heads: NDArray[np.intp], starts: NDArray[np.intp] | int = 0
    ) -> tuple[Matrix, Matrix]:
        """left (H', n, width) and right (H', m, width) of these heads, from terms on, then zeros.

        heads, starts : arrays (H',), the head and its first term
        """
        columns = np.broadcast_to(starts, heads.shape)[:, None] + np.arange(width)
        padding = ((0, 0), (0, 0), (0, max(0, int(columns.max()) + 1 - self.n_terms)))
        left, right = (
            np.pad(each, padding)[heads[:, None], :, columns].transpose(0, 2, 1)
            for each in (self.left, self.right)
        )
        return left, right

    def lost(self, width: NDArray[np.intp] | int) -> float:
        """The largest part of a matrix that its first ``width`` terms, a number or (H,), miss."""
        widths = np.broadcast_to(np.minimum(width, self.n_terms), self.ranks.shape)
        return float(self.missed[np.arange(len(widths)), widths].max())


def require_width(
    width: int, matrices: Sequence[LowRank], reason: str, advice: str, shared: int = 1
) -> None:
    """Refuse matrices that ``width`` terms miss by more than their tolerance.

    reason, advice : why a head must have this width, and what to do; may hold {rank}
    shared : how many neighbouring heads each matrix belongs to
    """
    for each in matrices:
        rank = int(each.ranks.max())
        if rank > width:
            # As a larger tolerance measures it: in the units that are given.
            wholes = (some.left @ some.right.transpose(0, 2, 1) for some in matrices)
            most = max(LowRank.of(whole, 1.0, each.name).lost(width) for whole in wholes)
            first = shared * int(each.ranks.argmax())
            who = f"head {first} has"
            if shared > 1:
                who = f"heads {first} to {first + shared - 1} together have"
            raise InvalidInput(
                f"{who} {each.name} of rank {rank}, more than "
                f"head_dim = {width}{reason}; {advice.format(rank=rank)}, or "
                f"tolerance={min(1.0, max(1.06 * most, 2.0 * ROUNDING)):.2g}, which drops what "
                "does not fit."
            )


def dividing_head_count(layer: SoftmaxAttention, n_heads: int | str | None, module: str) -> int:
    """The given number, or the smallest divisor of d that all heads fit into."""
    d = layer.n_dims
    given = require_head_count(n_heads)
    if isinstance(given, int):
        if d % given or given < layer.n_heads:
            raise InvalidInput(
                f"n_heads must divide the {d} coordinates and be at least {layer.n_heads}, the "
                f"number of heads; got {given}."
            )
        return given
    possible = [count for count in range(layer.n_heads, d + 1) if d % count == 0]
    if not possible:
        raise InvalidInput(
            f"{module} has at most as many heads as coordinates; the layer has "
            f"{layer.n_heads} and {d}."
        )
    return possible[0]
