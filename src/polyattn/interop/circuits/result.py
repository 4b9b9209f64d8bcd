"""Circuits: the matrices of heads, their scores, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Described, Description, Reported, plain, table_lines
from polyattn.errors import FileFormatError
from polyattn.files.fields import array, entries, flag
from polyattn.files.records import Record
from polyattn.interop.circuits.scores import effective_ranks, eigenvalue_scores
from polyattn.interop.low_rank import Matrix
from polyattn.quoting import counted

# What a file holds.
ARRAYS = {
    "layers": array((None,), least=0, dtype="int64"),
    "qk": array((None, None, None)), "ov": array((None, None, None)),
    "qk_singular": array((None, None), least=0), "ov_singular": array((None, None), least=0),
    "qk_eigen": array((None, 2)), "ov_eigen": array((None, 2)),
    "composition": array((3, None, None), least=0),
}  # fmt: skip
FIELDS = entries({"bias": flag, "rotary": flag})

KINDS = ("Q", "K", "V")

LABELS = {
    "median_qk_effective_rank": "median effective rank, QK",
    "median_ov_effective_rank": "median effective rank, OV",
    "bias": "constants left out",
    "rotary": "rotary positions left out",
    "baseline": "composition at random, 1/√d",
}

# Singular values of a head that a table shows.
SHOWN_VALUES = 3


@dataclass(frozen=True, eq=False, repr=False)
class Circuits(Reported, Described):
    """What ``circuits`` returns; H counts the heads of all layers, one after the other.

    Attributes
    ----------
    layers : integer array (H,)
        The layer of each head, from 0.
    qk : array (H, d, d)
        The QK circuits A_h, scale of the logits included.
    ov : array (H, d, e)
        The OV circuits V_h.
    qk_singular, ov_singular : arrays (H, d), (H, min(d, e))
        Their singular values, largest first.
    qk_eigen, ov_eigen : arrays (H, 2)
        The sum of their eigenvalues, and that of the magnitudes; zeros where e is not d.
    composition : array (3, H, H)
        Q-, K- and V-composition of a later head (row) with an earlier one (column); zero where
        the column is no earlier layer.
    bias, rotary : bool
        Whether constants, or rotary positions, were left out.
    """

    kind: ClassVar = "circuits"

    layers: NDArray[np.int64]
    qk: Matrix
    ov: Matrix
    qk_singular: Matrix
    ov_singular: Matrix
    qk_eigen: Matrix
    ov_eigen: Matrix
    composition: Matrix
    bias: bool
    rotary: bool

    def __post_init__(self) -> None:
        for name in ARRAYS:
            getattr(self, name).setflags(write=False)

    @property
    def n_heads(self) -> int:
        """H, the heads of all layers."""
        return len(self.layers)

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return int(self.layers[-1]) + 1

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token, without the constant of ``bias``."""
        return self.qk.shape[1]

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of an output."""
        return self.ov.shape[2]

    @property
    def heads(self) -> NDArray[np.int64]:
        """The number of each head (H,) in its layer, from 0."""
        return np.arange(self.n_heads) - np.searchsorted(self.layers, self.layers)

    @property
    def names(self) -> tuple[str, ...]:
        """What each head is called: 1.3 is head 3 of layer 1, both from 0."""
        pairs = zip(self.layers, self.heads, strict=True)
        return tuple(f"{layer}.{head}" for layer, head in pairs)

    @property
    def copying(self) -> Matrix:
        """The eigenvalue score of each OV circuit (H,); NaN where there is none."""
        return eigenvalue_scores(self.ov_eigen, self.ov_singular)

    @property
    def positivity(self) -> Matrix:
        """The eigenvalue score of each QK circuit (H,); NaN where there is none."""
        return eigenvalue_scores(self.qk_eigen, self.qk_singular)

    @property
    def qk_effective_rank(self) -> Matrix:
        """The effective rank of each QK circuit (H,)."""
        return effective_ranks(self.qk_singular)

    @property
    def ov_effective_rank(self) -> Matrix:
        """The effective rank of each OV circuit (H,)."""
        return effective_ranks(self.ov_singular)

    @property
    def baseline(self) -> float:
        """1/sqrt(d): the root mean square of compositions of matrices turned at random."""
        return float(1.0 / np.sqrt(self.n_dims))

    def strongest(self, most: int = 10) -> list[dict[str, Any]]:
        """The pairs of heads of largest composition: kind, later and earlier head, score."""
        pairs = self.layers[:, None] > self.layers
        scores = np.where(pairs, self.composition, -1.0)
        order = np.argsort(-scores, axis=None, kind="stable")
        order = order[: min(most, 3 * int(pairs.sum()))]
        names = self.names
        return [
            {
                "kind": KINDS[kind], "later": names[late], "earlier": names[early],
                "score": float(scores[kind, late, early]),
            }
            for kind, late, early in zip(*np.unravel_index(order, scores.shape), strict=True)
        ]  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """One row for each head: its layer and number, and the figures of both circuits."""
        columns = {
            "layer": self.layers, "head": self.heads,
            "qk_singular": self.qk_singular[:, :SHOWN_VALUES],
            "qk_effective_rank": self.qk_effective_rank, "positivity": self.positivity,
            "ov_singular": self.ov_singular[:, :SHOWN_VALUES],
            "ov_effective_rank": self.ov_effective_rank, "copying": self.copying,
        }  # fmt: skip
        rows = zip(*(plain(each) for each in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    @property
    def sentence(self) -> str:
        """What stands out, in words."""
        return f"{self._copying_in_words()} {self._composition_in_words()}".strip()

    @property
    def left_out(self) -> list[str]:
        """What the circuits are without, in words."""
        words = []
        if self.bias:
            words.append(
                "Without the constant coordinate: attention that does not depend on both tokens, "
                "and outputs that depend on none, are left out."
            )
        if self.rotary:
            words.append("Without rotary positions: QK circuits are those of offset zero.")
        return words

    def describe(self) -> Description:
        sizes = {
            "n_heads": self.n_heads, "n_layers": self.n_layers, "n_dims": self.n_dims,
            "n_outputs": self.n_outputs,
        }  # fmt: skip
        facts: dict[str, Any] = {
            "median_qk_effective_rank": float(np.median(self.qk_effective_rank)),
            "median_ov_effective_rank": float(np.median(self.ov_effective_rank)),
            "bias": self.bias, "rotary": self.rotary,
        }  # fmt: skip
        if self.n_layers > 1:
            facts |= {"baseline": self.baseline, "strongest": self.strongest(5)}
        columns = ("layer", "head", "QK rank", "positivity", "OV rank", "copying")
        names = (
            "layer", "head", "qk_effective_rank", "positivity", "ov_effective_rank", "copying",
        )  # fmt: skip
        rows = [[row[name] for name in names] for row in self.table()]
        about = f"Circuits of {self._heads_in_words()}, {counted(self.n_dims, 'coordinate')}"
        return Description(
            "Circuits of heads", about, " ".join([self.sentence, *self.left_out]), facts=facts,
            lines=table_lines(columns, rows), sizes=sizes, labels=LABELS,
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """The circuits, and what they were measured by."""
        return {name: getattr(self, name) for name in ARRAYS}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        return Record(self.kind, self.arrays(), {"bias": self.bias, "rotary": self.rotary})

    @classmethod
    def from_record(cls, record: Record) -> Circuits:
        """The inverse of ``to_record``."""
        entries(ARRAYS)(record.arrays, "arrays")
        FIELDS(record.metadata, "metadata")
        _require_consistent(record.arrays)
        held: dict[str, Any] = record.arrays | record.metadata
        return cls(**held)

    def __repr__(self) -> str:
        return f"Circuits({self._heads_in_words()}, {self.n_dims} -> {self.n_outputs})"

    def _heads_in_words(self) -> str:
        return f"{counted(self.n_heads, 'head')} of {counted(self.n_layers, 'layer')}"

    def _copying_in_words(self) -> str:
        scores = self.copying
        if np.isnan(scores).all():
            return "No head has a copying score: eigenvalues of the OV circuits are not resolved."
        h = int(np.nanargmax(scores))
        known = int(np.count_nonzero(~np.isnan(scores)))
        among = f" among {known} whose eigenvalues are resolved" if known < len(scores) else ""
        return (
            f"Head {self.names[h]} copies most{among}: its score is {scores[h]:.2g}, the median "
            f"{np.nanmedian(scores):.2g}."
        )

    def _composition_in_words(self) -> str:
        if self.n_layers == 1:
            return ""
        (best,) = self.strongest(1)
        return (
            f"The strongest composition is {best['kind']} of head {best['later']} with head "
            f"{best['earlier']}: {best['score']:.2g}, where matrices turned at random have "
            f"{self.baseline:.2g}."
        )


def _require_consistent(arrays: dict[str, NDArray]) -> None:
    """Refuse arrays of a file that are not about the same heads."""
    count, d, e = arrays["ov"].shape
    shapes = {
        "layers": (count,), "qk": (count, d, d), "qk_singular": (count, d),
        "ov_singular": (count, min(d, e)), "qk_eigen": (count, 2), "ov_eigen": (count, 2),
        "composition": (3, count, count),
    }  # fmt: skip
    for name, shape in shapes.items():
        if arrays[name].shape != shape or 0 in (count, d, e):
            raise FileFormatError(
                f"arrays.{name} must have shape {shape}; got {arrays[name].shape}."
            )
    steps = np.diff(arrays["layers"], prepend=0)
    if np.any((steps < 0) | (steps > 1)) or arrays["layers"][0] != 0:
        raise FileFormatError("arrays.layers must count layers from 0, in order.")
