"""Predictions as ``.npy`` or ``.npz``, written as they come, in memory that does not grow.

How many there are, and whether sequences differ in length, is known at the end; so the numbers
wait in a scratch file beside the target, which no folder shows and no kill leaves behind.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.files.atomic import file_to_write, write_atomically
from polyattn.sources.prediction_tables import PredictedPart

ARRAY_SUFFIXES = (".npy", ".npz")

_COPIED_BYTES = 1 << 20


@dataclass(frozen=True)
class Written:
    """What was written: counts, and whether predictions stand as values and offsets."""

    n_sequences: int
    n_rows: int
    n_outputs: int
    ragged: bool


def write_prediction_arrays(
    path: str | Path, parts: Iterable[PredictedPart], classes: NDArray | None = None
) -> Written:
    """Write predictions as array ``Y``: (N, e), or (N, n, e) where there is one per token.

    Those of sequences of different lengths, one per token, are ``values`` (all tokens, e) and
    ``offsets`` (N + 1,); they need a ``.npz``.  Names of sequences are left out.  Labels that
    stand alone have no axis of outputs.  A ``.npz`` takes ``classes`` (e,) along, of which the
    outputs are probabilities.

    Guarantee: the file appears complete or not at all.
    Cost: memory for one part and 8 bytes per sequence; disk for the predictions twice.
    """
    target = file_to_write(path, "the output")
    require_array_suffix(target)
    made: list[Written] = []

    def write(file: IO[bytes]) -> None:
        with tempfile.TemporaryFile(dir=target.parent) as scratch:
            try:
                gathered = _gathered(scratch, parts, target)
                made.append(_arranged(file, scratch, target, gathered, classes))
            except OSError as error:
                # Of a full disk the system says no name.
                raise OSError(error.errno, error.strerror, error.filename or str(target)) from error

    write_atomically(target, write)
    return made[0]


def require_array_suffix(path: Path, ragged: bool = False) -> None:
    """Predictions go to ``.npy`` or ``.npz``; those of ragged sequences only to ``.npz``."""
    allowed = (".npz",) if ragged else ARRAY_SUFFIXES
    if path.suffix not in allowed:
        reason = " because the sequences differ in length" if ragged else ""
        raise InvalidInput(
            f"the output must be a {' or '.join(allowed)} file{reason}; got {str(path)!r}."
        )


class _Gathered(NamedTuple):
    """What is in the scratch file: rows of a shape and a type; lengths, if they matter."""

    lengths: NDArray[np.int64] | None
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: np.dtype


def _rows_of(part: PredictedPart) -> NDArray:
    """The outputs of a part, or its labels where there are no outputs."""
    if part.labels is not None and not part.values.shape[1]:
        return np.ascontiguousarray(part.labels)
    return np.ascontiguousarray(part.values, dtype=np.float64)


def _gathered(scratch: IO[bytes], parts: Iterable[PredictedPart], target: Path) -> _Gathered:
    """Write all rows into ``scratch``, one after the other."""
    lengths: list[NDArray[np.int64]] = []
    n_rows, rows = 0, np.empty((0, 0))
    for part in parts:
        rows = _rows_of(part)
        n_rows += len(rows)
        scratch.write(rows.tobytes() if rows.dtype.kind == "U" else rows.data)
        if part.lengths is not None and len(part.lengths):
            lengths.append(np.asarray(part.lengths, dtype=np.int64))
            if np.any(lengths[-1] != lengths[0][0]):
                require_array_suffix(target, ragged=True)
    if n_rows == 0:
        raise InvalidInput("there are no sequences to predict for.")
    joined = np.concatenate(lengths) if lengths else None
    return _Gathered(joined, n_rows, rows.shape[1:], rows.dtype)


def _arranged(
    file: IO[bytes],
    scratch: IO[bytes],
    target: Path,
    gathered: _Gathered,
    classes: NDArray | None,
) -> Written:
    """Copy the numbers behind the header that they turned out to need."""
    lengths, n_rows, row_shape, dtype = gathered
    n_sequences = n_rows if lengths is None else len(lengths)
    ragged = lengths is not None and bool(np.any(lengths != lengths[0]))
    made = Written(n_sequences, n_rows, math.prod(row_shape), ragged)
    shape: tuple[int, ...] = (n_rows, *row_shape)
    if lengths is not None and not ragged:
        shape = (n_sequences, int(lengths[0]), *row_shape)
    scratch.seek(0)
    if target.suffix == ".npy":
        _copy(file, scratch, shape, dtype)
        return made
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("values.npy" if ragged else "Y.npy", "w", force_zip64=True) as member:
            _copy(member, scratch, shape, dtype)
        if classes is not None:
            with archive.open("classes.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, classes, allow_pickle=False)
        if lengths is not None and ragged:
            with archive.open("offsets.npy", "w", force_zip64=True) as member:
                offsets = np.concatenate([[0], np.cumsum(lengths)])
                np.lib.format.write_array(member, offsets, allow_pickle=False)
    return made


def _copy(file: IO[bytes], scratch: IO[bytes], shape: tuple[int, ...], dtype: np.dtype) -> None:
    kind = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    shutil.copyfileobj(scratch, file, _COPIED_BYTES)
