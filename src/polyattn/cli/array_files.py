"""Arrays from .npy and .npz files, which may hold anything: sizes are checked before reading.

A header says which numbers follow, and how many.  It is held against the size of the file, or of
the member of an archive, before memory is taken for them; an archive may not unpack to many times
its own size.  Nothing in a file is executed.
"""

from __future__ import annotations

import ast
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError
from polyattn.files.atomic import file_to_read
from polyattn.quoting import shown

# How a .npz begins (it is a zip archive), and a .npy.
ARCHIVE, MAGIC = b"PK", b"\x93NUMPY"

# An archive unpacks to so many bytes, or to so many times its own size.
FREE_BYTES, MOST_EXPANSION = 1 << 28, 100

# Numbers and text: what the verbs read, and what they refuse by name.
_TYPE = re.compile(r"[<>|=]?(?:[biuf?][0-9]{0,2}|c(?:8|16|32)|[SU][0-9]{1,6})")
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_HEADER = 10_000
_CHUNK = 1 << 20

# What zipfile raises for archives that are damaged, encrypted, or packed in other ways.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError,
    OverflowError, KeyError, IndexError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """What the header of a .npy says: a type, an order, a shape; its own length in bytes."""

    dtype: np.dtype
    fortran_order: bool
    shape: tuple[int, ...]
    length: int

    @property
    def order(self) -> Any:
        """C or F, as numpy calls it."""
        return "F" if self.fortran_order else "C"

    @property
    def n_bytes(self) -> int:
        """How many bytes must follow."""
        return prod(self.shape) * self.dtype.itemsize


def read_arrays(path: Path) -> NDArray | dict[str, NDArray]:
    """The array of a .npy, mapped and not read; or those of a .npz by their names."""
    path = file_to_read(path, "the data file")
    if path.suffix not in (".npy", ".npz"):
        raise FileFormatError(f"data are read from .npz and .npy files; got {str(path)!r}.")
    try:
        with path.open("rb") as file:
            archive = file.read(len(ARCHIVE)) == ARCHIVE
            file.seek(0)
            return _archive(file, path.stat().st_size) if archive else _mapped(file, path)
    except _Unreadable as reason:
        raise FileFormatError(
            f"{str(path)!r} is no readable {path.suffix} file of plain numbers: it is truncated, "
            f"of another format, or holds Python objects ({reason})."
        ) from None


class _Unreadable(Exception):
    """Why a file cannot be read."""


def _mapped(file: IO[bytes], path: Path) -> NDArray:
    """A large .npy is mapped, not read: blocks are converted as they are used."""
    header = _header(file, path.stat().st_size)
    if header.n_bytes == 0:
        return np.empty(header.shape, header.dtype)
    return np.asarray(np.memmap(path, header.dtype, "r", header.length, header.shape, header.order))


def _archive(file: IO[bytes], size: int) -> dict[str, NDArray]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _require_sizes(members, size)
            return {each.filename.removesuffix(".npy"): _member(archive, each) for each in members}
    except _DAMAGE as error:
        raise _Unreadable(shown(str(error) or type(error).__name__, 200)) from None


def _require_sizes(members: list[zipfile.ZipInfo], size: int) -> None:
    names = [each.filename.removesuffix(".npy") for each in members]
    if len(set(names)) < len(names):
        raise _Unreadable("it holds two arrays of one name")
    if any(each.compress_type not in _PACKINGS for each in members):
        raise _Unreadable("it is packed in a way that numpy does not write")
    total = sum(each.file_size for each in members)
    if total > max(FREE_BYTES, MOST_EXPANSION * size):
        raise _Unreadable(
            f"its {size} bytes would unpack to {total}, more than {MOST_EXPANSION} times as many; "
            "write it with numpy.savez, without compression"
        )


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray:
    """One array of an archive; reading to its end checks its checksum, too."""
    with archive.open(info) as file:
        header = _header(file, info.file_size)
        array = np.empty(prod(header.shape), header.dtype)
        content, filled = array.view(np.uint8), 0
        while filled < len(content):
            piece = file.read(min(_CHUNK, len(content) - filled))
            if not piece:
                raise _Unreadable(f"{shown(info.filename)} ends early")
            content[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        file.read(1)
    return array.reshape(header.shape, order=header.order)


def _header(file: IO[bytes], size: int) -> Header:
    """The header of a .npy of so many bytes, which must all be accounted for."""
    start = file.read(8)
    if len(start) < 8 or not start.startswith(MAGIC) or start[6] not in (1, 2, 3):
        raise _Unreadable("it does not begin as a .npy does")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _MOST_HEADER:
        raise _Unreadable(f"its header has {length} bytes")
    header = _parsed(file.read(length), 8 + width + length)
    if header.length + header.n_bytes != size:
        raise _Unreadable(
            f"its header speaks of {header.n_bytes} bytes of numbers, and there are "
            f"{size - header.length}"
        )
    return header


def _parsed(text: bytes, length: int) -> Header:
    try:
        content = ast.literal_eval(text.decode().strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise _Unreadable("its header is no description of an array") from None
    if not isinstance(content, dict) or set(content) != {"descr", "fortran_order", "shape"}:
        raise _Unreadable("its header is no description of an array")
    kind, order, shape = content["descr"], content["fortran_order"], content["shape"]
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise _Unreadable(f"its type is {shown(kind)}")
    if type(order) is not bool or not _is_shape(shape):
        raise _Unreadable(f"its order is {shown(order)}, its shape {shown(shape)}")
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise _Unreadable(f"its type is {shown(kind)}") from None
    if dtype.itemsize == 0 and prod(shape) > 0:
        raise _Unreadable(f"its type is {shown(kind)}, of no bytes")
    return Header(dtype, order, shape, length)


def _is_shape(shape: Any) -> bool:
    """As numpy has them: up to 32 axes, and no length that memory could not hold."""
    return (
        isinstance(shape, tuple)
        and len(shape) <= 32
        and all(type(each) is int and 0 <= each < 2**60 for each in shape)
        and prod(each for each in shape if each) < 2**60
    )
