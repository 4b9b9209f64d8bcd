"""Arrays as arguments, checked; and arrays in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType
from polyattn.numerics.tensors import without_tensors

# How many numbers are looked at together when a whole array is checked.
CHECK_BLOCK = 1 << 18

# Every integer up to this size is a float64.
EXACT_INTEGER = 1 << 53

# Objects that are real numbers, and that float64 holds but for large integers.
NUMBERS = (int, float, np.integer, np.float32, np.float16, np.bool_)

# Bytes that the processor moves together.
CACHE_LINE = 64


def real_array(values: object, name: str, keep_integers: bool = False) -> NDArray:
    """``values`` as an array of real numbers, uncopied where possible, or a clear refusal.

    Nothing is rounded on the way: integers that float64 cannot hold are refused, unless the
    caller computes with them as they are (``keep_integers``, up to 64 bits).
    """
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidType(
            f"{name} is a masked array; remove or impute what is masked, or give unequal lengths "
            "as a list of arrays."
        )
    values = without_tensors(values, name)
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidInput(
            f"{name} is not a rectangular array; give sequences of unequal length as a list "
            "of arrays of shape (n_tokens, n_dims)."
        ) from None
    if array.dtype.kind == "O":
        array = _from_objects(array, name)
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
    require_unrounded(values, array, name)
    if not keep_integers:
        require_float64(array, name)
    return array


def require_float64(array: NDArray, name: str) -> None:
    """Refuse integers that float64 cannot hold; integers of up to 53 bits always pass."""
    if float64_holds(array):
        return
    numbers = _with_rows(array)
    some = next(piece[_rounded(piece)] for piece in pieces(numbers) if _rounded(piece).any())
    raise InvalidInput(
        f"{name} must hold numbers that float64 can hold; got the integer {some[0]}, which it "
        "would round. Subtract an offset or divide by a common factor first, or convert it "
        "yourself with .astype(float) if the last digits do not matter. Only pa.certify takes "
        "such integers as they are."
    )


def float64_holds(array: NDArray) -> bool:
    """Whether every number of the array is a float64."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return True
    return not any(np.any(_rounded(piece)) for piece in pieces(_with_rows(array)))


def require_unrounded(values: object, array: NDArray, name: str) -> None:
    """Refuse large integers that numpy rounded when it made one array of mixed numbers."""
    if isinstance(values, np.ndarray) or array.dtype != np.float64:
        return
    large = np.abs(array) >= EXACT_INTEGER
    if not np.any(large):
        return
    given = np.asarray(values, dtype=object)
    for item, number in zip(given[large], array[large].tolist(), strict=True):
        if isinstance(item, int | np.integer) and int(item) != int(number):
            raise InvalidInput(
                f"{name} mixes integers beyond 2^53 with other numbers: {item} would be rounded. "
                "Give an array of one dtype, such as int64, or floats that you rounded yourself."
            )


def require_finite(
    array: NDArray,
    name: str,
    place: Callable[[tuple[int, ...]], str] = "index {}".format,
    missing: str = "remove or impute them",
) -> None:
    """Refuse NaN and infinity, saying how many there are, and where and what the first is.

    place : an index of the array in words
    missing : what to do about NaN
    """
    bad, first, number = _places_where(array, lambda piece: ~np.isfinite(piece))
    if bad:
        what = f"NaN; {missing}" if np.isnan(number) else f"{number}; remove or replace it"
        raise InvalidInput(
            f"{name} contains NaN or infinity in {bad} of {_places(array)}, first at "
            f"{place(first)}, which is {what}."
        )


def require_not_infinite(
    array: NDArray, name: str, place: Callable[[tuple[int, ...]], str]
) -> None:
    """Refuse infinity, where NaN stands for a number that is missing."""
    bad, first, _ = _places_where(array, np.isinf)
    if bad:
        raise InvalidInput(
            f"{name} contains infinity in {bad} of {_places(array)}, first at {place(first)}; only "
            "NaN stands for a number that is missing."
        )


def any_missing(array: NDArray) -> bool:
    """Whether NaN is among the numbers."""
    return array.dtype.kind == "f" and any(np.isnan(piece).any() for piece in pieces(array))


def pieces(array: NDArray) -> Iterator[NDArray]:
    """The array in order, some CHECK_BLOCK numbers at a time."""
    step = max(1, CHECK_BLOCK // max(1, array[0:1].size))
    return (array[i : i + step] for i in range(0, len(array), step))


def rows_between(array: Any, start: int, end: int) -> Any:
    """Rows start..end: a view, or of an array that is read when it is sliced, a part unread."""
    return array[start:end] if isinstance(array, np.ndarray) else array.between(start, end)


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


def ranges_of_rows(
    borders: NDArray[np.int64], n_rows: int, also: tuple[NDArray[np.int64], int] | None = None
) -> Iterator[tuple[int, int]]:
    """Ranges (first, stop) of whole sequences with up to ``n_rows`` rows, or a single longer one.

    Sequence i owns the rows borders[i]..borders[i + 1].
    also : borders of something else that sequences own, and how much of it a range may have
    """
    limits = [(borders, n_rows)] if also is None else [(borders, n_rows), also]
    first, last = 0, len(borders) - 1
    while first < last:
        stop = min(
            int(np.searchsorted(owned, owned[first] + most, side="right")) - 1
            for owned, most in limits
        )
        stop = max(stop, first + 1)
        yield first, stop
        first = stop


def places_by_length(borders: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Where rows stand, (sequences, length), of all sequences that have as many, for each length.

    Sequence i owns the rows borders[i]..borders[i + 1].
    """
    lengths = np.diff(borders)
    for length in np.unique(lengths):
        yield borders[:-1][lengths == length][:, None] + np.arange(length)


def _places_where(
    array: NDArray, test: Callable[[NDArray], NDArray[np.bool_]]
) -> tuple[int, tuple[int, ...], float]:
    """How many numbers pass a test, and the index and value of the first; integers never do."""
    count, start, number = 0, 0, 0.0
    first: tuple[int, ...] = ()
    # One block at a time: the array may be larger than memory.
    for piece in pieces(array) if array.dtype.kind == "f" else ():
        passed = test(piece)
        if passed.any():
            if not count:
                row, *others = (int(i) for i in np.argwhere(passed)[0])
                first, number = (start + row, *others), float(piece[(row, *others)])
            count += int(np.count_nonzero(passed))
        start += len(piece)
    return count, first, number


def _places(array: NDArray) -> str:
    return "1 place" if array.size == 1 else f"{array.size} places"


def _rounded(integers: NDArray) -> NDArray[np.bool_]:
    """Which of these 64-bit integers float64 does not hold."""
    if not integers.size or (integers.max() <= EXACT_INTEGER and integers.min() >= -EXACT_INTEGER):
        return np.zeros(integers.shape, dtype=bool)
    # Both halves are exact, and so is what the rounded sum has beyond the larger of them.
    low = (integers & integers.dtype.type(0xFFFFFFFF)).astype(np.float64)
    high = (integers >> integers.dtype.type(32)).astype(np.float64) * 2.0**32
    return np.asarray((high + low) - high != low)


def _with_rows(array: NDArray) -> NDArray:
    """The array, or a single number as an array of one."""
    return array if array.ndim else array.reshape(1)


def _from_objects(array: NDArray, name: str) -> NDArray:
    """Python integers as int64 or uint64, with floats as float64; other objects as they came.

    Sequences of one shape in an array of objects are such numbers.
    """
    if not array.size or not all(isinstance(item, NUMBERS) for item in array.flat):
        return array
    if not all(isinstance(item, int | np.integer) for item in array.flat):
        numbers = array.astype(np.float64)
        require_unrounded(array.tolist(), numbers, name)
        return numbers
    least, most = min(array.flat, default=0), max(array.flat, default=0)
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= least and most <= np.iinfo(dtype).max:
            return array.astype(dtype)
    raise InvalidInput(
        f"{name} must hold integers of one 64-bit type; they run from {least} to {most}. "
        "Subtract an offset or divide by a common factor first."
    )
