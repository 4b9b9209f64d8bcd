"""Files without a name: arrays of this process on the disk, gone when it ends, whatever ends it.

Where a system has no such files, they are deleted on closing.
"""

from __future__ import annotations

import os
import tempfile
from threading import Lock
from typing import IO

import numpy as np
from numpy.typing import NDArray


def nameless_file() -> IO[bytes]:
    """A new file in the folder for temporary files; whoever makes it closes it."""
    return tempfile.TemporaryFile(prefix="polyattn-", buffering=0)


def write_array(file: IO[bytes], array: NDArray) -> int:
    """Write the numbers of a contiguous array where the file stands; how many bytes."""
    view = _bytes(array)
    written = 0
    # A write may take a part only.
    while written < len(view):
        written += file.write(view[written:])
    return written


def fill_array(file: IO[bytes], lock: Lock, offset: int, array: NDArray) -> None:
    """Read the numbers of a contiguous array from a place in the file.

    lock : one for each file, where the system cannot read without moving the position
    """
    view = _bytes(array)
    done = 0
    while done < len(view):
        count = _read_at(file, lock, offset + done, view[done:])
        if not count:
            raise OSError(
                "a temporary file ended too soon: something else shortened it. Run again, with "
                "TMPDIR on another disk."
            )
        done += count


def _bytes(array: NDArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _read_at(file: IO[bytes], lock: Lock, offset: int, view: memoryview) -> int:
    """How many bytes were read.  Threads and forks share the position, and do not move it."""
    if hasattr(os, "preadv"):
        return os.preadv(file.fileno(), [view], offset)
    with lock:
        file.seek(offset)
        return file.readinto(view) or 0  # type: ignore[attr-defined]
