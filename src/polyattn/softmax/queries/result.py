"""What learning from queries returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from polyattn.display import Reported
from polyattn.model.softmax import SoftmaxAttention
from polyattn.outcome import Outcome
from polyattn.softmax.recorder import Phase


@dataclass(frozen=True)
class QueryResult(Reported):
    """A layer learned from a black box, and how far it can be trusted.

    layer : the layer, or the best guess so far; None before one-token sequences were answered
    n_queries : sequences that were asked for, the held-out check included
    outcome : what happened, in words; ``recovered`` only after the held-out check
    validation_error : largest deviation on held-out sequences relative to the effect of
        attention; None when they were not reached
    doubt : relative error of attn and value that residuals suggest, of the worst head; infinite
        where held-out sequences deviate by more than it explains
    noise : relative rounding or noise of the outputs, as measured
    phases : what each phase measured
    error : the exception of the oracle that ended the run, if one did
    """

    layer: SoftmaxAttention | None
    n_queries: int
    outcome: Outcome
    validation_error: float | None = None
    doubt: float | None = None
    noise: float | None = None
    phases: tuple[Phase, ...] = ()
    error: BaseException | None = field(default=None, repr=False)

    @property
    def recovered(self) -> bool:
        """Whether the layer passed the held-out check, with as many heads as were asked for."""
        return self.outcome.name == "recovered"

    @property
    def n_heads(self) -> int:
        """Heads of the layer; 0 without one."""
        return 0 if self.layer is None else self.layer.n_heads
