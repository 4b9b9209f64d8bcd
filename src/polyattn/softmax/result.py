"""LearnedSoftmax: the layer that was found, whether it is the right one, and how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result, head_matrices
from polyattn.files.fields import array, entries, flag, integer, number, one_of, text
from polyattn.files.records import Record
from polyattn.model import SoftmaxAttention
from polyattn.outcome import Outcome
from polyattn.quoting import counted
from polyattn.sequences import MODES
from polyattn.softmax.outcomes import SOFTMAX_OUTCOMES, SoftmaxName
from polyattn.softmax.recorder import Phase, check_phases

ERRORS = ("attn_std", "value_std", "attn_error", "value_error")
PLAIN = {
    "validation_error": number(0), "training_error": number(0), "noise": number(0),
    "method": text(100), "n_training": integer(0), "n_held_out": integer(0),
}  # fmt: skip
MORE = {"mode": one_of(MODES), "outcome": SOFTMAX_OUTCOMES.check, "phases": check_phases}
FIELDS = entries(PLAIN | MORE, {"bias": flag})


@dataclass(frozen=True, eq=False)
class LearnedSoftmax(Reported, Result):
    """What ``learn_softmax`` returns.

    Attributes
    ----------
    layer : SoftmaxAttention
        The best layer found, whatever the outcome.
    outcome : Outcome
        What was found, as a sentence.  Its name is "recovered" only when the check on held-out
        examples passed and the data determine every head.
    validation_error, training_error : float
        ||Y - F(X)|| / ||Y|| on the sequences held out that chose neither heads nor method, and on
        those of training.
    noise : float
        Estimated standard deviation of the targets' errors, in the units of the targets.
    attn_std, value_std : arrays like layer.attn and layer.value
        Standard deviations of the parameters if residuals are independent noise of that size;
        infinite where the examples leave a parameter open that other inputs would show, or where
        float64 cannot hold so large a number.  With ``bias``, zero for the last column of attn,
        which is zero by convention.
    attn_error, value_error : arrays (n_heads,)
        Expected relative error of each head's matrices, ||error||_F / ||matrix||_F; infinite
        for a matrix with open parameters, or that is another one in a layer that explains the
        examples as well.
    phases : tuple of Phase
        What each step measured, in order.
    method : str
        What found the heads that were polished: "moments", "growth" or "sculpt"; of a search that
        was stopped, the phase in which the best were found.
    """

    layer: SoftmaxAttention
    outcome: Outcome[SoftmaxName]
    validation_error: float
    training_error: float
    noise: float
    method: str
    n_training: int
    n_held_out: int
    attn_std: NDArray[np.float64]
    value_std: NDArray[np.float64]
    attn_error: NDArray[np.float64]
    value_error: NDArray[np.float64]
    phases: tuple[Phase, ...] = ()

    kind: ClassVar[str] = "learned_softmax"

    @property
    def recovered(self) -> bool:
        """Whether the held-out check passed and every head is determined."""
        return self.outcome.name == "recovered"

    @property
    def n_heads(self) -> int:
        """The number of heads of the layer that was found."""
        return self.layer.n_heads

    def __repr__(self) -> str:
        return (
            f"LearnedSoftmax({self.layer!r}, {self.outcome.name}, "
            f"validation error {self.validation_error:.1e})"
        )

    def describe(self) -> Description:
        """What was found, on how many sequences, and how well it does."""
        sequences = counted(self.n_training + self.n_held_out, "sequence")
        return self._described(
            "A softmax attention layer learned from examples",
            f"{self.layer.describe().about}, from {sequences}",
            {"recovered": self.recovered, "n_heads": self.n_heads, **self._figures()},
            matrices=head_matrices(self.layer.attn, self.layer.value),
            labels={"noise": "errors of the outputs"},
        )

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The heads and their error bars."""
        heads = {"attn": self.layer.attn, "value": self.layer.value}
        return heads | {name: getattr(self, name) for name in ERRORS}

    def to_full_dict(self) -> dict[str, Any]:
        """``to_dict`` with arrays as lists, null for infinite, and phases."""
        return super().to_full_dict() | {"phases": [phase.to_dict() for phase in self.phases]}

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        phases = [phase.to_dict() for phase in self.phases]
        words = {"outcome": self.outcome.to_dict(), "phases": phases}
        return Record(self.kind, self.arrays(), self._figures() | words)

    def _figures(self) -> dict[str, Any]:
        """The figures that both a description and a file have."""
        layer = {"mode": self.layer.mode, "bias": self.layer.bias}
        return layer | {name: getattr(self, name) for name in PLAIN}

    @classmethod
    def from_record(cls, record: Record) -> LearnedSoftmax:
        """The inverse of ``to_record``."""
        arrays, metadata = record.arrays, record.metadata
        FIELDS(metadata, "metadata")
        # Arrays must belong together; an error bar may be infinite.
        checks = {"attn": array((None, None, None)), "value": array((None, None, None))}
        for name in ("attn", "value"):
            shape = arrays[name].shape if name in arrays else ()
            checks[f"{name}_std"] = array(shape, least=0.0, finite=False)
            checks[f"{name}_error"] = array(shape[:1], least=0.0, finite=False)
        entries(checks)(arrays, "arrays")
        fields: dict[str, Any] = {name: arrays[name] for name in ERRORS}
        fields |= {name: metadata[name] for name in PLAIN}
        # Files from before layers with biases were learned do not say.
        bias = metadata.get("bias", False)
        return cls(
            layer=SoftmaxAttention(arrays["attn"], arrays["value"], metadata["mode"], bias),
            outcome=SOFTMAX_OUTCOMES.from_dict(metadata["outcome"]),
            phases=tuple(Phase(**phase) for phase in metadata["phases"]),
            **fields,
        )
