"""Summaries in a scratch file: made in the first pass, and read in every other one.

The file has no name (or is deleted on closing, where a system has no such files), so that nothing
stays behind, whatever ends the process.  It is read group by group into fresh arrays: memory does
not grow with it.  A disk that is full ends the keeping, not the work: summaries are then made from
the tokens in every pass, as without a file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.files.nameless import fill_array, nameless_file, write_array

# A scratch file takes up to this part of what is free on its disk.
DISK_PART = 0.5

# File systems that live in memory: a file there would save none.
IN_MEMORY = ("tmpfs", "ramfs")


class Stored(NamedTuple):
    """Where the arrays of a block lie in the file, one after the other, all of so many columns."""

    first: int
    stop: int
    heights: tuple[int, ...]
    offset: int


class ScratchFile:
    """Groups of blocks of arrays (height, columns), written once and read often.

    Use it as a context manager: it is gone afterwards.
    """

    def __init__(self) -> None:
        self.is_whole = False
        self.is_failed = False
        self._is_writing = False
        self._lock = Lock()
        # Closed on leaving the context, or where the disk is full.
        self._file: IO[bytes] = nameless_file()
        self._groups: list[list[Stored]] = []

    def __enter__(self) -> ScratchFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self.is_whole, self.is_failed = False, True

    @property
    def n_bytes(self) -> int:
        """How much has been written."""
        return sum(8 * sum(each.heights) * (each.stop - each.first) for each in self._stored())

    def begin(self) -> bool:
        """Whether the caller may write all groups, from the first on."""
        with self._lock:
            if self.is_whole or self.is_failed or self._is_writing:
                return False
            self._is_writing = True
        self._file.seek(0)
        self._groups = []
        return True

    def add(self, blocks: Iterable[tuple[int, int, tuple[NDArray, ...]]]) -> bool:
        """Write the arrays of rows first..stop; False, and the file is given up, on a full disk."""
        group, offset = [], self._file.tell()
        try:
            for first, stop, arrays in blocks:
                group.append(Stored(first, stop, tuple(map(len, arrays)), offset))
                for array in arrays:
                    offset += self._write(np.ascontiguousarray(array, dtype=np.float64))
        except OSError:
            # The disk is full, or gone: what was written is of no use.
            self._groups, self._is_writing, self.is_failed = [], False, True
            self._file.close()
            return False
        self._groups.append(group)
        return True

    def end(self, is_whole: bool) -> None:
        """All groups were written; or the caller stopped before, and another pass may begin."""
        self.is_whole, self._is_writing = is_whole, False

    def groups(self) -> Iterator[list[tuple[int, int, list[NDArray[np.float64]]]]]:
        """All groups as they were given."""
        for group in self._groups:
            yield [(each.first, each.stop, self._read(each)) for each in group]

    def _stored(self) -> Iterator[Stored]:
        for group in self._groups:
            yield from group

    def _write(self, array: NDArray[np.float64]) -> int:
        return write_array(self._file, array)

    def _read(self, stored: Stored) -> list[NDArray[np.float64]]:
        n_columns, offset, arrays = stored.stop - stored.first, stored.offset, []
        for height in stored.heights:
            array = np.empty((height, n_columns))
            fill_array(self._file, self._lock, offset, array)
            offset += array.nbytes
            arrays.append(array)
        return arrays


def scratch_fits(n_bytes: int) -> bool:
    """Whether a scratch file of so many bytes has place on a disk that is no part of the memory."""
    folder = tempfile.gettempdir()
    return n_bytes <= DISK_PART * shutil.disk_usage(folder).free and not _is_in_memory(folder)


def _is_in_memory(folder: str) -> bool:
    """Whether a folder is on a file system in memory, as far as the system tells."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return False
    path, kind, longest = os.path.realpath(folder), "", -1
    for line in mounts.read_text().splitlines():
        _, point, found, *_ = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of mounts at the same place the last one counts.
        if inside and len(point) >= longest:
            kind, longest = found, len(point)
    return kind in IN_MEMORY
