"""Named arrays that are sequences, with their targets, weights and context: the content of a file.

A ``.npz`` holds ``X`` and perhaps ``Y``, ``weights`` (one per sequence), and for sequences of
different lengths one of

    lengths   X is padded, (n_sequences, n_max, n_dims); the first lengths[i] tokens count
    offsets   X is (n_tokens_total, n_dims); sequence i is X[offsets[i]:offsets[i+1]]

with Y in the same form where there is one target per token.  ``context`` holds the sequences that
those of X attend to, with ``context_lengths`` or ``context_offsets``.  A ``.npy`` holds one array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.numerics.arrays import real_array
from polyattn.quoting import shown
from polyattn.sequences import OwnedBatch, SequenceBatch
from polyattn.sources.source import TokenLabels

KEYS = ("X", "Y", "lengths", "offsets", "weights")
# Sequences that those of X attend to, in the same forms.
CONTEXT = ("context", "context_lengths", "context_offsets")


@dataclass(frozen=True, eq=False)
class DataFile:
    """The arrays of a data file by name, with the questions that verbs ask."""

    path: Path
    arrays: dict[str, NDArray]
    missing: bool = False  # whether X may hold NaN

    def sequences(self) -> SequenceBatch:
        """X as validated sequences."""
        if "X" not in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has no array 'X'; it holds {names_of(self.arrays)}."
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
        tokens, missing = self.arrays[name], self.missing and name == "X"
        if lengths in self.arrays:
            return OwnedBatch.from_padded(tokens, self.arrays[lengths], name, missing=missing)
        if offsets in self.arrays:
            return OwnedBatch(tokens, self.arrays[offsets], name, missing=missing)
        return OwnedBatch.from_array(tokens, name, missing=missing)

    def targets(self, mode: str) -> NDArray | SequenceBatch:
        """Y; one target per token is brought into the form of the sequences."""
        if "Y" not in self.arrays:
            raise FileFormatError(
                f"{str(self.path)!r} has no array 'Y'; add it, or give --targets FILE.npy."
            )
        if self.has_texts:
            some = shown(str(self.arrays["Y"].flat[0])) if self.arrays["Y"].size else "none"
            raise InvalidType(
                f"targets are numbers, and Y of {str(self.path)!r} holds text, such as {some}. If "
                "it names classes: polyattn.LinearAttentionClassifier, or polyattn fit --classify."
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
    def has_texts(self) -> bool:
        """Whether Y holds texts, which are labels."""
        return "Y" in self.arrays and self.arrays["Y"].dtype.kind == "U"

    def labels(self, mode: str) -> NDArray | TokenLabels:
        """Y as labels of classes, one per sequence or, in other modes than "last", per token."""
        Y, batch = self.arrays["Y"], self.sequences()
        if mode == "last":
            flat, wanted = Y[:, 0] if Y.ndim == 2 and Y.shape[1] == 1 else Y, (len(batch),)
        else:
            flat, wanted = self._of_tokens(Y, batch), (int(batch.offsets[-1]),)
        if flat.shape != wanted:
            of = "sequence" if mode == "last" else "token"
            raise InvalidInput(
                f"Y must hold one label per {of} in mode {mode!r}, {wanted[0]} in all; got shape "
                f"{Y.shape}."
            )
        if np.any(flat == ""):
            raise InvalidInput(
                f"Y must hold a label everywhere; entry {int(np.argmax(flat == ''))} is empty."
            )
        return flat if mode == "last" else TokenLabels(flat, batch.offsets)

    def _of_tokens(self, Y: NDArray, batch: SequenceBatch) -> NDArray:
        """The entries of Y that belong to tokens, one after the other; padding is left out."""
        if "offsets" in self.arrays or Y.shape[:2] != self.arrays["X"].shape[:2]:
            return Y
        within = np.arange(Y.shape[1]) < batch.lengths[:, None]
        return Y[within].reshape(-1) if Y[within].ndim == 1 or Y.shape[2:] == (1,) else Y

    @property
    def weights(self) -> NDArray | None:
        """One weight per sequence, or None."""
        return self.arrays.get("weights")


def names_of(arrays: Iterable[str]) -> str:
    """Some names of arrays, quoted."""
    return ", ".join(shown(name) for name in list(arrays)[:12]) or "nothing"


def refuse_unknown_names(path: Path, arrays: Iterable[str]) -> None:
    """Refuse a file with arrays that nothing reads: one of them may be meant for another."""
    unknown = sorted(set(arrays) - {*KEYS, *CONTEXT})
    if unknown:
        known = (*KEYS, *CONTEXT)
        meant = [name for name in known if name.lower() in map(str.lower, unknown)]
        raise FileFormatError(
            f"{str(path)!r} holds {names_of(unknown)}, which nothing here reads; "
            f"{f'did you mean {names_of(meant)}? The' if meant else 'the'} known names are "
            f"{', '.join(known)}."
        )
