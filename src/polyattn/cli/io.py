"""Data files of the command line: .npz and .npy in, predictions out.

A ``.npz`` holds ``X`` and perhaps ``Y``, ``weights`` (one per sequence), and for sequences of
different lengths one of

    lengths   X is padded, (n_sequences, n_max, n_dims); the first lengths[i] tokens count
    offsets   X is (n_tokens_total, n_dims); sequence i is X[offsets[i]:offsets[i+1]]

with Y in the same form where there is one target per token.  ``context`` holds the sequences that
those of X attend to, with ``context_lengths`` or ``context_offsets``.  A ``.npy`` holds one array.

Files may hold anything.  A header says which numbers follow, and how many: it is held against the
size of the file, or of the member of an archive, before memory is taken for them, and an archive
may not unpack to many times its own size.  Nothing in a file is executed.
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

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.atomic import file_to_read
from polyattn.numerics.arrays import real_array
from polyattn.quoting import shown
from polyattn.sequences import SequenceBatch, as_batch
from polyattn.storage import load
from polyattn.targets import as_weights

KEYS = ("X", "Y", "lengths", "offsets", "weights")
# Sequences that those of X attend to, in the same forms.
CONTEXT = ("context", "context_lengths", "context_offsets")

# How the message ends about a saved thing that is neither.
NEEDED = "; DATA must be sequences (.npz, .npy) or saved statistics."

# How a .npz begins (it is a zip archive), and a .npy.
ARCHIVE, MAGIC = b"PK", b"\x93NUMPY"

# An archive unpacks to so many bytes, or to so many times its own size.
FREE_BYTES, MOST_EXPANSION = 1 << 28, 100

# Numbers and text: what the verbs read, and what they refuse by name.
_TYPE = re.compile(r"[<>|=]?(?:[biuf?][0-9]{0,2}|c(?:8|16|32)|[SU][0-9]{1,6})")
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_HEADER = 10_000

# What zipfile raises for archives that are damaged, encrypted, or packed in other ways.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError,
    OverflowError, KeyError, IndexError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class DataFile:
    """The arrays of a data file by name, with the questions that verbs ask."""

    path: Path
    arrays: dict[str, NDArray]

    def sequences(self) -> SequenceBatch:
        """X as validated sequences."""
        if "X" not in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has no array 'X'; it holds {_names(self.arrays)}."
            )
        return self._batch("X", "lengths", "offsets")

    def context(self) -> SequenceBatch | None:
        """The sequences that those of X attend to, if the file has some."""
        if "context" not in self.arrays:
            alone = sorted(set(CONTEXT) & set(self.arrays))
            if alone:
                raise FileFormatError(
                    f"{str(self.path)!r} has {alone[0]!r} but no array 'context'; add the "
                    "sequences that those of X attend to, or remove it."
                )
            return None
        return self._batch("context", "context_lengths", "context_offsets")

    def _batch(self, name: str, lengths: str, offsets: str) -> SequenceBatch:
        if lengths in self.arrays and offsets in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has both {lengths!r} (padded {name}) and {offsets!r} "
                f"({name} without padding); keep the one that describes {name}."
            )
        tokens = self.arrays[name]
        if lengths in self.arrays:
            return SequenceBatch.from_padded(tokens, self.arrays[lengths], name)
        if offsets in self.arrays:
            return SequenceBatch(tokens, self.arrays[offsets], name)
        return as_batch(tokens, name, keep_integers=True)

    def targets(self, mode: str) -> NDArray | SequenceBatch:
        """Y; one target per token is brought into the form of the sequences."""
        if "Y" not in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has no array 'Y'; add it, or give --targets FILE.npy."
            )
        Y = real_array(self.arrays["Y"], "Y")
        if mode == "last" or not {"lengths", "offsets"} & set(self.arrays):
            return Y
        tokens = self.arrays["X"].shape[:-1]
        if Y.shape[: len(tokens)] != tokens:
            # One target per token of X, or per sequence: the second axis of a padded X says which.
            given = f"{len(Y)} targets" if Y.ndim and len(tokens) == 1 else f"shape {Y.shape}"
            padded = f"shape ({', '.join(map(str, tokens))}, n_outputs)"
            wanted = f"{tokens[0]}" if len(tokens) == 1 else padded
            raise InvalidInput(
                f"Y has {given}; mode {mode!r} wants one per token ({wanted}). One target per "
                "sequence needs mode 'last'."
            )
        if "offsets" in self.arrays:
            return SequenceBatch(Y[:, None] if Y.ndim == 1 else Y, self.arrays["offsets"], "Y")
        Y = Y[:, :, None] if Y.ndim == 2 else Y
        return SequenceBatch.from_padded(Y, self.arrays["lengths"], "Y")

    @property
    def weights(self) -> NDArray | None:
        """One weight per sequence, or None."""
        return self.arrays.get("weights")

    def require_equal_weights(self, X: SequenceBatch, verb: str) -> None:
        """Refuse weights that would make a difference to a verb that counts sequences once."""
        weights = as_weights(self.weights, X)
        if weights is None or (weights[0] > 0 and np.all(weights == weights[0])):
            return
        raise InvalidInput(
            f"{str(self.path)!r} holds 'weights' from {weights.min():g} to {weights.max():g}, "
            f"which {verb} does not use: every sequence counts once. Leave out the sequences of "
            "weight zero, then remove the array."
        )


def read_data(path: Path, targets: Path | None = None) -> DataFile:
    """Read a ``.npz`` of named arrays, or X from a ``.npy``; Y may come from a second file."""
    content = read_arrays(path)
    arrays = content if isinstance(content, dict) else {"X": content}
    unknown = sorted(set(arrays) - {*KEYS, *CONTEXT})
    if unknown:
        known = (*KEYS, *CONTEXT)
        meant = [name for name in known if name.lower() in map(str.lower, unknown)]
        raise FileFormatError(
            f"{str(path)!r} holds {_names(unknown)}, which nothing here reads; "
            f"{f'did you mean {_names(meant)}? The' if meant else 'the'} known names are "
            f"{', '.join(known)}."
        )
    if targets is not None:
        if "Y" in arrays:
            raise InvalidInput(f"{str(path)!r} already holds 'Y'; leave --targets out.")
        given = read_arrays(targets)
        if isinstance(given, dict):
            raise FileFormatError(
                f"--targets must be a .npy file of one array; got {str(targets)!r}."
            )
        arrays = arrays | {"Y": given}
    return DataFile(path, arrays)


def read_arrays(path: Path) -> NDArray | dict[str, NDArray]:
    """The array of a .npy, mapped and not read; or those of a .npz by their names."""
    path = file_to_read(path, "the data file")
    if path.suffix not in (".npy", ".npz"):
        raise FileFormatError(
            f"data are read from .npz and .npy files; got {str(path)!r}.{_conversion(path)}"
        )
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


def load_as(path: Path, kinds: tuple[type, ...], otherwise: str) -> Any:
    """What was saved, if it is of one of these kinds; ``otherwise`` ends the message."""
    loaded = load(path)
    if not isinstance(loaded, kinds):
        raise InvalidInput(f"{str(path)!r} holds a {type(loaded).__name__}{otherwise}")
    return loaded


def require_suffix(path: Path, ragged: bool = False) -> None:
    """Predictions go to ``.npy`` or ``.npz``; those of ragged sequences only to ``.npz``."""
    allowed = (".npz",) if ragged else (".npy", ".npz")
    if path.suffix not in allowed:
        reason = " because the sequences differ in length" if ragged else ""
        raise InvalidInput(
            f"the output must be a {' or '.join(allowed)} file{reason}; got {str(path)!r}."
        )


def _conversion(path: Path) -> str:
    """How to make a .npz of a table."""
    separator = {".csv": "delimiter=','", ".tsv": r"delimiter='\t'", ".txt": ""}.get(
        path.suffix.lower()
    )
    if separator is None:
        return ""
    how = f", {separator}, skiprows=1" if separator else ""
    return (
        f" A table of one token per row becomes one in numpy: table = np.loadtxt({path.name!r}{how}"
        "); np.savez('data.npz', X=table[:, :d].reshape(N, n, d), Y=...), for N sequences of n "
        "tokens with d coordinates."
    )


def _names(arrays: Any) -> str:
    return ", ".join(shown(name) for name in list(arrays)[:12]) or "nothing"


class _Unreadable(Exception):
    """Why a file cannot be read."""


def _mapped(file: IO[bytes], path: Path) -> NDArray:
    """A large .npy is mapped, not read: blocks are converted as they are used."""
    shape, dtype = _header(file, path.stat().st_size)
    if prod(shape) * dtype.itemsize == 0:
        return np.empty(shape, dtype)
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except ValueError as error:
        raise _Unreadable(shown(str(error), 200)) from None


def _archive(file: IO[bytes], size: int) -> dict[str, NDArray]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [each.filename.removesuffix(".npy") for each in members]
            if len(set(names)) < len(names):
                raise _Unreadable("it holds two arrays of one name")
            if any(each.compress_type not in _PACKINGS for each in members):
                raise _Unreadable("it is packed in a way that numpy does not write")
            total = sum(each.file_size for each in members)
            if total > max(FREE_BYTES, MOST_EXPANSION * size):
                raise _Unreadable(
                    f"its {size} bytes would unpack to {total}, more than {MOST_EXPANSION} times "
                    "as many; write it with numpy.savez, without compression"
                )
            return {name: _member(archive, each) for name, each in zip(names, members, strict=True)}
    except _DAMAGE as error:
        raise _Unreadable(shown(str(error) or type(error).__name__, 200)) from None


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray:
    """One array of an archive; reading to its end checks its checksum, too."""
    with archive.open(info) as file:
        _header(file, info.file_size)
    with archive.open(info) as file:
        array = np.lib.format.read_array(file)
        file.read(1)
    return array


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of a .npy of so many bytes, which must all be accounted for.

    There are as many numbers as the header says, and no objects: what else may be wrong with it,
    numpy finds without harm.
    """
    begin = file.read(8)
    if len(begin) < 8 or not begin.startswith(MAGIC) or begin[6] not in (1, 2, 3):
        raise _Unreadable("it does not begin as a .npy does")
    width = 2 if begin[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _MOST_HEADER:
        raise _Unreadable(f"its header has {length} bytes")
    shape, dtype = _parsed(file.read(length))
    wanted, rest = prod(shape) * dtype.itemsize, size - 8 - width - length
    if wanted != rest:
        raise _Unreadable(f"its header describes {wanted} bytes of numbers, and there are {rest}")
    return shape, dtype


def _parsed(text: bytes) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the type in a header."""
    try:
        content = ast.literal_eval(text.decode().strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        content = None
    if not isinstance(content, dict) or set(content) != {"descr", "fortran_order", "shape"}:
        raise _Unreadable("its header is no description of an array")
    kind, fortran, shape = content["descr"], content["fortran_order"], content["shape"]
    # As numpy has them: up to 32 axes, and no length that memory could not hold.
    is_shape = (
        isinstance(shape, tuple)
        and len(shape) <= 32
        and all(type(each) is int and 0 <= each < 2**60 for each in shape)
        and prod(each for each in shape if each) < 2**60
    )
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise _Unreadable(f"its type is {shown(kind)}")
    if type(fortran) is not bool or not is_shape:
        raise _Unreadable(f"its order is {shown(fortran)}, its shape {shown(shape)}")
    try:
        dtype = np.dtype(kind)
    except TypeError:
        raise _Unreadable(f"its type is {shown(kind)}") from None
    if dtype.itemsize == 0 and prod(shape) > 0:
        raise _Unreadable(f"its type is {shown(kind)}, of no bytes")
    return shape, dtype
