"""Files of plain arrays, .npy and .npz: which arrays they hold, read whole or by ranges.

Files may hold anything.  A header says which numbers follow, and how many: it is held against the
size of the file, or of the member of an archive, before memory is taken for them, and an archive
may not unpack to many times its own size.  Nothing in a file is executed.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError
from polyattn.files.array_headers import Header, Unreadable, read_header
from polyattn.files.atomic import file_to_read
from polyattn.quoting import shown

# How a .npz begins: it is a zip archive.
ARCHIVE = b"PK"

# Bytes of the header before a member of an archive, without its name and extra fields.
LOCAL_HEADER = 30

# Bytes that are held against a checksum at a time.
PIECE_BYTES = 1 << 20

# An archive unpacks to so many bytes, or to so many times its own size.
FREE_BYTES, MOST_EXPANSION = 1 << 28, 100

_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# What zipfile raises for archives that are damaged, encrypted, or packed in other ways.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError,
    OverflowError, KeyError, IndexError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array stands in a file.

    start : where its numbers begin, in bytes; None where they are packed, and cannot be skipped
    checked : where the bytes begin, up to the end of the numbers, of which an archive knows the
        checksum, and that; None where there is none, or reading all of it checks it
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    start: int | None
    checked: tuple[int, int] | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first axis."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def n_bytes(self) -> int:
        """Bytes of all numbers."""
        return prod(self.shape) * self.dtype.itemsize


def read_arrays(path: Path) -> NDArray | dict[str, NDArray]:
    """The array of a .npy, mapped and not read; or those of a .npz by their names."""
    path = _array_file(path)
    with _opened(path) as (file, size, archive):
        return _archive(file, size) if archive else _mapped(file, path)


def array_places(path: Path) -> dict[str, ArrayPlace]:
    """Where the arrays of a .npz stand, by their names; that of a .npy is called X."""
    path = _array_file(path)
    with _opened(path) as (file, size, archive):
        if archive:
            return _archive_places(file, size)
        header = read_header(file, size)
        start = None if _by_columns(header) else header.n_bytes
        return {"X": ArrayPlace(header.shape, header.dtype, start)}


def read_range(file: IO[bytes], place: ArrayPlace, first: int, stop: int) -> NDArray:
    """Entries first..stop of the first axis of an array, of which nothing else is read."""
    if place.start is None or not 0 <= first <= stop <= place.shape[0]:
        raise Unreadable(f"there are no entries {first} to {stop} to be read")
    numbers = np.empty((stop - first, *place.shape[1:]), place.dtype)
    if numbers.size:
        file.seek(place.start + first * place.row_bytes)
        left: Any = memoryview(numbers.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        # The system reads up to 2 GB at a time.
        while left and (found := file.readinto(left)):  # type: ignore[attr-defined]
            left = left[found:]
        if left:
            raise Unreadable(f"it ends {len(left)} bytes before its numbers do")
    return numbers


def require_checksum(file: IO[bytes], place: ArrayPlace, whole: NDArray | None = None) -> None:
    """Refuse an array of an archive that is not what was written.

    whole : all of it, if it was just read; else it is read here, a little at a time
    """
    if place.checked is None or place.start is None:
        return
    begin, wanted = place.checked
    end = place.start + (place.n_bytes if whole is None else 0)
    file.seek(begin)
    found = 0
    while begin < end:
        some = file.read(min(PIECE_BYTES, end - begin))
        if not some:
            raise Unreadable("it ends before its numbers do")
        found, begin = zlib.crc32(some, found), begin + len(some)
    if whole is not None:
        found = zlib.crc32(memoryview(whole.reshape(-1).view(np.uint8)), found)  # type: ignore[arg-type]
    if found != wanted:
        raise Unreadable("its numbers are not those that were written: the checksum differs")


def unreadable(path: Path, reason: object) -> FileFormatError:
    """The error about a file whose arrays cannot be read."""
    return FileFormatError(
        f"{str(path)!r} is no readable {path.suffix} file of plain numbers: it is truncated, "
        f"of another format, or holds Python objects ({reason})."
    )


def _array_file(path: Path) -> Path:
    path = file_to_read(path, "the data file")
    if path.suffix not in (".npy", ".npz"):
        raise FileFormatError(
            "data are read from .npz and .npy files, and from tables: .parquet, .arrow, .feather, "
            f".csv, .tsv; got {str(path)!r}.{_conversion(path)}"
        )
    return path


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int, bool]]:
    """The file, its size, and whether it is an archive."""
    try:
        with path.open("rb") as file:
            archive = file.read(len(ARCHIVE)) == ARCHIVE
            file.seek(0)
            yield file, path.stat().st_size, archive
    except Unreadable as reason:
        raise unreadable(path, reason) from None


def _conversion(path: Path) -> str:
    """What to do with a table of which nobody knows how its values are separated."""
    if path.suffix.lower() not in (".txt", ".dat"):
        return ""
    return (
        " A table with commas between its values is called .csv, with tabs .tsv. With spaces it is "
        f"read by numpy: table = np.loadtxt({path.name!r}); np.savez('data.npz', "
        "X=table[:, :d].reshape(N, n, d), Y=...), for N sequences of n tokens with d coordinates."
    )


def _mapped(file: IO[bytes], path: Path) -> NDArray:
    """A large .npy is mapped, not read: blocks are converted as they are used."""
    shape, dtype, *_ = read_header(file, path.stat().st_size)
    if prod(shape) * dtype.itemsize == 0:
        return np.empty(shape, dtype)
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except ValueError as error:
        raise Unreadable(shown(str(error), 200)) from None


def _archive(file: IO[bytes], size: int) -> dict[str, NDArray]:
    with _members(file, size) as (archive, members):
        return {name: _member(archive, each) for name, each in members.items()}


def _archive_places(file: IO[bytes], size: int) -> dict[str, ArrayPlace]:
    with _members(file, size) as (archive, members):
        return {name: _place(archive, file, each, size) for name, each in members.items()}


@contextmanager
def _members(
    file: IO[bytes], size: int
) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """The members of an archive by the names of their arrays."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [each.filename.removesuffix(".npy") for each in members]
            if len(set(names)) < len(names):
                raise Unreadable("it holds two arrays of one name")
            if any(each.compress_type not in _PACKINGS for each in members):
                raise Unreadable("it is packed in a way that numpy does not write")
            total = sum(each.file_size for each in members)
            if total > max(FREE_BYTES, MOST_EXPANSION * size):
                raise Unreadable(
                    f"its {size} bytes would unpack to {total}, more than {MOST_EXPANSION} times "
                    "as many; write it with numpy.savez, without compression"
                )
            yield archive, dict(zip(names, members, strict=True))
    except _DAMAGE as error:
        raise Unreadable(shown(str(error) or type(error).__name__, 200)) from None


def _place(
    archive: zipfile.ZipFile, file: IO[bytes], info: zipfile.ZipInfo, size: int
) -> ArrayPlace:
    """Where an array of an archive stands; its own header is looked at, its numbers are not."""
    with archive.open(info) as member:
        header = read_header(member, info.file_size)
    encrypted = info.flag_bits & 1
    if info.compress_type != zipfile.ZIP_STORED or encrypted or _by_columns(header):
        return ArrayPlace(header.shape, header.dtype, None)
    file.seek(info.header_offset)
    local = file.read(LOCAL_HEADER)
    # The header of the member before its data may have other extra fields than the directory.
    begins = info.header_offset + LOCAL_HEADER + sum(struct.unpack("<HH", local[26:30]))
    if begins + info.file_size > size:
        raise Unreadable("an array of it goes beyond its end")
    place = ArrayPlace(header.shape, header.dtype, begins + header.n_bytes, (begins, info.CRC))
    # The checksum is of all bytes: with others behind the numbers, they are read as a whole.
    is_all = header.n_bytes + place.n_bytes == info.file_size
    return place if is_all else ArrayPlace(header.shape, header.dtype, None)


def _by_columns(header: Header) -> bool:
    """Whether the entries of the first axis do not stand together."""
    return header.fortran and len(header.shape) > 1


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray:
    """One array of an archive; reading to its end checks its checksum, too."""
    with archive.open(info) as file:
        read_header(file, info.file_size)
    with archive.open(info) as file:
        array = np.lib.format.read_array(file)
        file.read(1)
    return array
