"""Powers of two that keep sixth powers of the data inside float64.

The moments of cubic features are sixth-degree in the tokens: tokens of size 1e60 already
overflow them.  Ordinary data are left alone (exponent 0).  Otherwise tokens and targets are
divided by a power of two, which is exact, and the power is put back at the very end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange

# Within 2**±40 the sixth power times any realistic count stays within 2**±300.
ORDINARY_EXPONENT = 40


def exponent_for(magnitude: float) -> int | None:
    """The exponent by which data of this largest magnitude are divided; None if all zero."""
    if magnitude == 0.0:
        return None
    exponent = int(np.frexp(magnitude)[1])
    return 0 if abs(exponent) <= ORDINARY_EXPONENT else exponent


def join_exponents(first: int | None, second: int | None) -> int | None:
    """The exponent that serves both: the larger, where None (nothing but zeros) yields."""
    known = [exponent for exponent in (first, second) if exponent is not None]
    return max(known) if known else None


def largest_magnitude(blocks: Iterable[NDArray]) -> float:
    """The largest absolute value over blocks of an array (0.0 when there is none)."""
    largest = 0.0
    for block in blocks:
        if block.size:
            # float() first: the magnitude of the smallest integer does not fit its own type.
            largest = max(largest, abs(float(block.max())), abs(float(block.min())))
    return largest


def column_magnitudes(blocks: Iterable[NDArray], n_columns: int) -> NDArray[np.float64]:
    """The largest absolute value of each column over blocks of rows, shape (n_columns,)."""
    largest = np.zeros(n_columns)
    for block in blocks:
        for side in (block.max(axis=0), block.min(axis=0)):
            np.maximum(largest, np.abs(side.astype(np.float64)), out=largest)
    return largest


def scaled(array: NDArray, exponent: int) -> NDArray:
    """``array * 2**exponent``; the very array when the exponent is 0."""
    return array if exponent == 0 else np.ldexp(array, exponent)


def restored(array: NDArray, exponent: int, what: str) -> NDArray:
    """``array * 2**exponent``, refused when the answer leaves the range of float64."""
    if exponent == 0:
        return array
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(array, exponent)
    largest = largest_magnitude([array])
    lost = largest > 0.0 and not np.any(np.abs(result) >= np.finfo(np.float64).tiny)
    if lost or not np.all(np.isfinite(result)):
        decimal = (np.log2(largest) + exponent) * np.log10(2.0)
        raise OutOfRange(
            f"{what} would be of size about 1e{decimal:+.0f}, which float64 cannot hold; "
            "multiply the inputs or the targets by a constant so that both are of order one."
        )
    return result
