"""Arrays at the door, and arrays in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType

# How many numbers are looked at together when a whole array is checked.
CHECK_BLOCK = 1 << 18

# Bytes that the processor moves together.
CACHE_LINE = 64


def real_array(values: object, name: str) -> NDArray:
    """``values`` as an array of real numbers, uncopied where possible, or a clear refusal."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidType(
            f"{name} is a masked array; remove or impute what is masked, or give unequal lengths "
            "as a list of arrays."
        )
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidInput(
            f"{name} is not a rectangular array; give sequences of unequal length as a list "
            "of arrays of shape (n_tokens, n_dims)."
        ) from None
    if array.dtype.kind not in "biuf":
        kind = {"c": "complex numbers", "U": "text", "S": "bytes", "O": "Python objects"}.get(
            array.dtype.kind, str(array.dtype)
        )
        raise InvalidType(
            f"{name} must hold real numbers; got {kind} (dtype {array.dtype}). Convert it first, "
            "for example with numpy.asarray(..., dtype=float)."
        )
    if array.dtype.itemsize > 8 and array.dtype.kind == "f":
        raise InvalidType(
            f"{name} has dtype {array.dtype}, of more precision than float64; convert it first."
        )
    return array


def require_finite(array: NDArray, name: str) -> None:
    """Refuse NaN and infinity, naming how many there are; looks at one block at a time."""
    if array.dtype.kind != "f":
        return
    bad = sum(int(piece.size - np.count_nonzero(np.isfinite(piece))) for piece in pieces(array))
    if bad:
        raise InvalidInput(
            f"{name} contains NaN or infinity in {bad} of {array.size} places; "
            "remove or impute them first."
        )


def pieces(array: NDArray) -> Iterator[NDArray]:
    """The array in order, some CHECK_BLOCK numbers at a time."""
    step = max(1, CHECK_BLOCK // max(1, array[0:1].size))
    return (array[i : i + step] for i in range(0, len(array), step))


def aligned_empty(*shape: int) -> NDArray[np.float64]:
    """Memory for float64 that begins with a cache line: wide loads and stores never cross two."""
    count = prod(shape)
    memory = np.empty(count + CACHE_LINE // 8)
    first = -memory.ctypes.data % CACHE_LINE // 8
    return memory[first : first + count].reshape(shape)


def even_ranges(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Ranges (first, stop) that cover 0..count, at most ``most`` long and nearly equal."""
    pieces = -(-count // most)
    borders = [count * i // pieces for i in range(pieces + 1)]
    return pairwise(borders)


def ranges_of_rows(borders: NDArray[np.int64], n_rows: int) -> Iterator[tuple[int, int]]:
    """Ranges (first, stop) of whole sequences with up to ``n_rows`` rows, or a single longer one.

    Sequence i owns the rows borders[i]..borders[i + 1].
    """
    first, last = 0, len(borders) - 1
    while first < last:
        stop = int(np.searchsorted(borders, borders[first] + n_rows, side="right")) - 1
        stop = max(stop, first + 1)
        yield first, stop
        first = stop
