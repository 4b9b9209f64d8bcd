"""Data files of the command line: .npz and .npy in, predictions out.

A ``.npz`` holds ``X`` and perhaps ``Y``, ``weights`` (one per sequence), and for sequences of
different lengths one of

    lengths   X is padded, (n_sequences, n_max, n_dims); the first lengths[i] tokens count
    offsets   X is (n_tokens_total, n_dims); sequence i is X[offsets[i]:offsets[i+1]]

with Y in the same form where there is one target per token.  A ``.npy`` holds one array.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.cli.array_files import read_arrays
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.atomic import require_writable, write_atomically
from polyattn.numerics.arrays import real_array
from polyattn.quoting import shown
from polyattn.sequences import SequenceBatch, as_batch

KEYS = ("X", "Y", "lengths", "offsets", "weights")


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
        if "lengths" in self.arrays and "offsets" in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has both 'lengths' (padded X) and 'offsets' (X without "
                "padding); keep the one that describes X."
            )
        X = self.arrays["X"]
        if "lengths" in self.arrays:
            return SequenceBatch.from_padded(X, self.arrays["lengths"])
        if "offsets" in self.arrays:
            return SequenceBatch(X, self.arrays["offsets"])
        return as_batch(X, keep_integers=True)

    def targets(self, mode: str) -> NDArray | SequenceBatch:
        """Y; one target per token is brought into the form of the sequences."""
        if "Y" not in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has no array 'Y'; add it, or give --targets FILE.npy."
            )
        Y = real_array(self.arrays["Y"], "Y")
        if mode == "last" or not {"lengths", "offsets"} & set(self.arrays):
            return Y
        self._require_token_targets(Y, mode)
        if "offsets" in self.arrays:
            return SequenceBatch(Y[:, None] if Y.ndim == 1 else Y, self.arrays["offsets"])
        padded = Y[:, :, None] if Y.ndim == 2 else Y
        return SequenceBatch.from_padded(padded, self.arrays["lengths"], "Y")

    def _require_token_targets(self, Y: NDArray, mode: str) -> None:
        """Refuse targets that are not one per token of X, of which the shape is known to be good.

        Y in the shape of padded X is distinguished from one target per sequence by its second axis.
        """
        tokens = self.arrays["X"].shape[:-1]
        if Y.shape[: len(tokens)] == tokens:
            return
        given = f"{len(Y)} targets" if Y.ndim and len(tokens) == 1 else f"shape {Y.shape}"
        wanted = (
            f"{tokens[0]}" if len(tokens) == 1 else f"shape ({tokens[0]}, {tokens[1]}, n_outputs)"
        )
        raise InvalidInput(
            f"Y has {given}; mode {mode!r} wants one per token ({wanted}). One target per "
            "sequence needs mode 'last'."
        )

    @property
    def weights(self) -> NDArray | None:
        """One weight per sequence, or None."""
        return self.arrays.get("weights")


def read_data(path: Path, targets: Path | None = None) -> DataFile:
    """Read a ``.npz`` of named arrays, or X from a ``.npy``; Y may come from a second file."""
    content = read_arrays(path)
    arrays = content if isinstance(content, dict) else {"X": content}
    unknown = sorted(set(arrays) - set(KEYS))
    if unknown:
        raise FileFormatError(
            f"{str(path)!r} holds {_names(unknown)}, which nothing here reads; the known names "
            f"are {', '.join(KEYS)}."
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


def write_arrays(path: Path, arrays: dict[str, NDArray]) -> None:
    """Write one array to a ``.npy`` or several to a ``.npz``: complete, or not at all."""
    if path.suffix == ".npz":
        write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    else:
        (array,) = arrays.values()
        write_atomically(path, lambda file: np.save(file, array))


def require_suffix(path: Path, ragged: bool = False) -> None:
    """Predictions go to ``.npy`` or ``.npz``; those of ragged sequences only to ``.npz``."""
    allowed = (".npz",) if ragged else (".npy", ".npz")
    if path.suffix not in allowed:
        reason = " because the sequences differ in length" if ragged else ""
        raise InvalidInput(
            f"the output must be a {' or '.join(allowed)} file{reason}; got {str(path)!r}."
        )


def require_output(*outputs: Path | None) -> None:
    """Refuse files that could not be written before the work, not after it."""
    for output in outputs:
        if output is not None:
            require_writable(output, "the output")


def _names(arrays: Any) -> str:
    return ", ".join(shown(name) for name in list(arrays)[:12]) or "nothing"
