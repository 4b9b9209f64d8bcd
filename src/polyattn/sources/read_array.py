"""ReadArray: numbers of a source that look like an array and are read when they are sliced.

The chunks that were read last are kept: at most as many as threads may be at work on them, and
not more than the last two where these are large.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

# The arrays of a chunk by their names.
Content = dict[str, NDArray]


class RecentChunks:
    """The content of chunks by number; the last ones are kept.

    read : from the number of a chunk to its content
    most : how many chunks are kept, at most
    n_bytes : of all that are kept, at most; but two of them are kept however large they are
    Any number of threads may ask at once; each chunk is then read by one of them.
    """

    def __init__(self, read: Callable[[int], Content], most: int, n_bytes: int) -> None:
        self.read, self._most, self._n_bytes = read, most, n_bytes
        self._begin()

    def content(self, number: int) -> Content:
        """The arrays of chunk ``number``."""
        found = self._kept(number)
        if found is not None:
            return found
        with self._lock:
            own = self._reading.setdefault(number, Lock())
        with own:
            found = self._kept(number)
            if found is None:
                with self._lock:
                    # Before it is read: what is dropped now is not in memory beside what is read.
                    self._drop_oldest(1)
                found = self.read(number)
                with self._lock:
                    self._recent[number] = found
                    self._drop_oldest(0)
                    self._reading.pop(number, None)
        return found

    def _kept(self, number: int) -> Content | None:
        with self._lock:
            if number in self._recent:
                self._recent.move_to_end(number)
            return self._recent.get(number)

    def _drop_oldest(self, coming: int) -> None:
        """Drop the oldest until the others, and as many as are coming, may be kept."""
        sizes = [
            sum(array.nbytes for array in content.values()) for content in self._recent.values()
        ]
        total = sum(sizes) + coming * max(sizes, default=0)
        for at, size in enumerate(sizes):
            count = len(sizes) - at + coming
            if count <= min(self._most, 2) or (count <= self._most and total <= self._n_bytes):
                return
            self._recent.popitem(last=False)
            total -= size

    def _begin(self) -> None:
        self._lock = Lock()
        self._recent: OrderedDict[int, Content] = OrderedDict()
        self._reading: dict[int, Lock] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Copies read for themselves: a lock cannot be copied, and content need not be.
        return {"read": self.read, "_most": self._most, "_n_bytes": self._n_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()


class ReadArray:
    """Rows first..stop of an array (n, columns) that stands in chunks, one after the other.

    chunks : where the content is read
    name : which array of the content
    borders : where the rows of each chunk begin, and the end (n_chunks + 1,)
    magnitudes : the largest magnitude of each column over all chunks; of a part, a bound
    """

    ndim = 2

    def __init__(
        self,
        chunks: RecentChunks,
        name: str,
        borders: NDArray[np.int64],
        dtype: np.dtype,
        magnitudes: NDArray[np.float64],
        rows: tuple[int, int] | None = None,
        moves: tuple[NDArray[np.float64], int] | None = None,
    ) -> None:
        self._chunks, self._name, self._borders = chunks, name, borders
        self._first, self._stop = (0, int(borders[-1])) if rows is None else rows
        self.dtype, self.magnitudes = dtype, magnitudes
        self._moves = moves
        self.is_whole = rows is None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return len(self), len(self.magnitudes)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return len(self) * len(self.magnitudes)

    @property
    def nbytes(self) -> int:
        """The bytes that they would take in memory."""
        return self.size * self.dtype.itemsize

    @property
    def borders(self) -> NDArray[np.int64]:
        """Where the rows of each chunk begin, and the end (n_chunks + 1,)."""
        return self._borders

    @property
    def reader(self) -> Callable[[int], Content]:
        """What reads a chunk, by its number."""
        return self._chunks.read

    def __len__(self) -> int:
        return self._stop - self._first

    def between(self, start: int, end: int) -> ReadArray:
        """Rows start..end, which are not read yet."""
        rows = (self._first + start, self._first + end)
        return self._with(rows, self._moves)

    def moved(self, shares: NDArray[np.float64], seed: int) -> ReadArray:
        """Every number x becomes x (1 + share) or x (1 - share), at random; shares (columns,)."""
        made = self._with((self._first, self._stop), (shares, seed))
        made.dtype = np.dtype(np.float64)
        return made

    def _with(
        self, rows: tuple[int, int], moves: tuple[NDArray[np.float64], int] | None
    ) -> ReadArray:
        chunks, name, borders = self._chunks, self._name, self._borders
        return ReadArray(chunks, name, borders, self.dtype, self.magnitudes, rows, moves)

    def __getitem__(self, index: Any) -> NDArray:
        """Rows as an array: a slice of them or their numbers, and then perhaps columns."""
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        if isinstance(rows, slice):
            start, end, step = rows.indices(len(self))
            if step != 1:
                return self[np.arange(start, end, step), columns]
            return self._range(start, max(start, end), columns)
        chosen = np.asarray(rows)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            self._refuse()
        return self._chosen(chosen, columns)

    def _range(self, start: int, end: int, columns: Any) -> NDArray:
        start, end = self._first + start, self._first + end
        number = int(np.searchsorted(self._borders, start, side="right")) - 1
        parts = []
        while start < end:
            until = min(end, int(self._borders[number + 1]))
            if until > start:
                parts.append(self._read(number, slice(start, until), columns))
            start, number = until, number + 1
        if not parts:
            return np.empty((0, len(self.magnitudes)), self.dtype)[:, columns]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _chosen(self, rows: NDArray, columns: Any) -> NDArray:
        places = np.where(rows < 0, rows + len(self), rows) + self._first
        if len(places) and not (places.min() >= self._first and places.max() < self._stop):
            raise IndexError(f"there are {len(self)} rows; got numbers beyond them")
        numbers = np.searchsorted(self._borders, places, side="right") - 1
        result = np.empty((len(places), len(self.magnitudes)), self.dtype)[:, columns]
        for number in np.unique(numbers):
            own = numbers == number
            result[own] = self._read(int(number), places[own], columns)
        return result

    def _read(self, number: int, rows: slice | NDArray, columns: Any) -> NDArray:
        """Rows of one chunk, numbered over all chunks."""
        content = self._chunks.content(number)[self._name]
        start = int(self._borders[number])
        local = (
            slice(rows.start - start, rows.stop - start)
            if isinstance(rows, slice)
            else rows - start
        )
        if self._moves is None:
            return content[local, columns].astype(self.dtype, copy=False)
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        shares, seed = self._moves
        return (content[local] * (1.0 + shares * _signs(numbers, len(shares), seed)))[:, columns]

    def __array__(self, *_: object, **__: object) -> NoReturn:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise TypeError(
            "an array of a source is read in parts, by slices and numbers of rows; here it would "
            "have been read as a whole, which may be more than memory holds"
        )


def _signs(rows: NDArray, n_columns: int, seed: int) -> NDArray[np.float64]:
    """1 or -1 for each entry of these rows: the same ones whenever, and however, they are read.

    The first bit of SplitMix64 at the number of the entry [Steele, Lea, Flood 2014].
    """
    mixed: Any = np.asarray(rows, dtype=np.uint64)[:, None] * np.uint64(n_columns)
    mixed = (mixed + np.arange(n_columns, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    mixed += np.uint64(seed)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.where((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(63), 1.0, -1.0)
