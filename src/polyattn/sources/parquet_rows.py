"""Rows of a Parquet file in order, decoded once: a range goes on where the one before it ended.

A row group can only be decoded from its beginning.  So the reader that ended within one is kept,
open, for whoever asks for the rows behind; a range for which there is none begins anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Any

from polyattn.errors import FileFormatError

# Bytes of a column that are read at once, at least and at most, and of all of them together.
LEAST_BUFFER, MOST_BUFFER, BUFFER_BYTES = 1 << 14, 1 << 18, 1 << 22

# Numbers that are decoded at once.
BATCH_BYTES = 1 << 20

# Rows that are decoded at once, at most.
BATCH_ROWS = 1 << 16

# Readers that are kept: of the numbers, and of the names of sequences, for two threads.
MOST_READERS = 4


class RowReader:
    """The rows of a file from the beginning of a row group on.

    names : the columns
    borders : where the row groups begin, and the end
    metadata : that of the file, which is not read again
    batch_rows : how many rows are decoded at once
    """

    def __init__(
        self,
        path: str,
        names: list[str],
        borders: Sequence[int],
        metadata: Any,
        group: int,
        batch_rows: int,
    ) -> None:
        from pyarrow import parquet

        self._path, self._names, self._borders = path, names, borders
        buffer = min(max(LEAST_BUFFER, BUFFER_BYTES // len(names)), MOST_BUFFER)
        # pre_buffer would take all bytes of the row groups at once.
        self._file = parquet.ParquetFile(
            path,
            metadata=metadata,
            buffer_size=buffer,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        groups = range(group, len(borders) - 1)
        self._batches = self._file.iter_batches(
            batch_rows, groups, columns=names, use_threads=False
        )
        # The rows first..stop are decoded, and held.
        self.first = self.stop = borders[group]
        self._held: deque[Any] = deque()

    @property
    def is_used_up(self) -> bool:
        """Whether there is nothing left to read."""
        return self.first == self._borders[-1]

    def reaches(self, row: int) -> bool:
        """Whether it is the way to this row that decodes the least."""
        group = bisect_right(self._borders, self.stop)
        return self.first <= row < self._borders[min(group, len(self._borders) - 1)]

    def rows(self, first: int, stop: int, keep: int) -> list[Any]:
        """Record batches that together are the rows first..stop, which it ``reaches``.

        keep : the row with which the next range may begin; those before are not held
        """
        while self.stop < stop:
            self._drop(min(first, keep))
            batch = next(self._batches, None)
            if batch is None:
                raise FileFormatError(
                    f"the file {self._path!r} ends with row {self.stop}, and its description says "
                    f"{self._borders[-1]}."
                )
            self._held.append(batch.select(self._names))
            self.stop += len(batch)
        found, start = [], self.first
        for batch in self._held:
            low, high = max(first - start, 0), min(stop - start, len(batch))
            if low < high:
                found.append(batch.slice(low, high - low))
            start += len(batch)
        self._drop(keep)
        return found

    def close(self) -> None:
        """Let go of the file and of what is held."""
        self._held.clear()
        self._batches.close()
        self._file.close()

    def _drop(self, row: int) -> None:
        """Hold no batch that ends before this row."""
        while self._held and self.first + len(self._held[0]) <= row:
            self.first += len(self._held.popleft())
        if not self._held:
            self.first = self.stop


class KeptReaders:
    """Readers that go on where they ended, by what they read; any number of threads may ask."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._readers: list[tuple[Any, RowReader]] = []

    def take(self, key: Any, row: int) -> RowReader | None:
        """A reader of this kind that reaches the row, if there is one; it is the caller's alone."""
        with self._lock:
            for at, (known, reader) in enumerate(self._readers):
                if known == key and reader.reaches(row):
                    del self._readers[at]
                    return reader
        return None

    def keep(self, key: Any, reader: RowReader) -> None:
        """Keep a reader, unless it is used up; then all those of its file (``key[0]``) go."""
        with self._lock:
            self._readers.append((key, reader))
            if reader.is_used_up:
                done = [each for each in self._readers if each[0][0] == key[0]]
            else:
                done = self._readers[: max(0, len(self._readers) - self._most)]
            self._readers = [each for each in self._readers if each not in done]
        for _, each in done:
            each.close()


READERS = KeptReaders(MOST_READERS)
