"""Files that are read in parts, and must stay the same while they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from polyattn.errors import FileFormatError


def fingerprint(path: Path) -> str:
    """What changes when a file does: its size, with which it begins, and its time of change."""
    return _fingerprint(path.stat())


def require_unchanged(path: Path, known: str, when: str = "since it was listed") -> None:
    """Refuse a file that is gone, or is not the one with ``known`` any more."""
    if fingerprint(_present(path)) != known:
        raise _changed(path, when)


@contextmanager
def open_unchanged(path: Path, known: str) -> Iterator[IO[bytes]]:
    """The file, unbuffered; refused where it is not, or is no longer, the one with ``known``.

    It is looked at before and after the block, and so is what its name stands for: a file that
    took its place is another one.
    """
    with _present(path).open("rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        if _fingerprint(before) != known:
            raise _changed(path, "since it was listed")
        yield file
        after, named = os.fstat(file.fileno()), _present(path).stat()
    same = _fingerprint(after) == _fingerprint(named) == known
    if not same or (named.st_ino, named.st_dev) != (before.st_ino, before.st_dev):
        raise _changed(path, "while it was read")


def _fingerprint(state: os.stat_result) -> str:
    return f"{state.st_size} bytes, {state.st_mtime_ns} ns"


def _present(path: Path) -> Path:
    if not path.is_file():
        raise FileFormatError(f"{str(path)!r} is gone since it was listed; begin again without it.")
    return path


def _changed(path: Path, when: str) -> FileFormatError:
    return FileFormatError(
        f"{str(path)!r} has changed {when}; begin again once nothing writes to it."
    )
