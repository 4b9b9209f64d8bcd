"""What has been learned so far: kept outside the phases, so that no interruption loses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.display import plain
from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.oracle import Oracle
from polyattn.softmax.queries.outcomes import LARGEST_DOUBT
from polyattn.softmax.queries.structure import Surroundings
from polyattn.softmax.queries.sum_of_values import SumOfValues
from polyattn.softmax.recorder import Recorder

if TYPE_CHECKING:
    from polyattn.softmax.queries.rotary import Turning

# Deviations up to this are a matter of precision, not of wrong heads.
CLOSE = 1e-2

# Heads in more doubt are not known; a doubt is an estimate, so LARGEST_DOUBT is far below 1e-3.
# Where refined heads of rounded answers have error bars, these may be as large as this.
LARGEST_BARS = 0.1


@dataclass(frozen=True)
class HeadsAt:
    """All heads for one difference: columns (H, D) are A_i delta, values (H, e) are delta V_i.

    ``doubt`` is the relative error that residuals suggest, of the worst head; ``residual`` the
    largest rms deviation from what was measured; ``errors`` standard errors of columns and values.
    """

    delta: NDArray[np.float64]
    columns: NDArray[np.float64]
    values: NDArray[np.float64]
    doubt: float = 0.0
    residual: float = 0.0
    errors: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def in_order_of(self, start: NDArray[np.float64]) -> bool:
        """Whether each c_i is nearest to the one of ``start`` (H, e) that it was begun from."""
        apart = np.linalg.norm(self.values[:, None] - start[None], axis=2)
        return bool(np.all(np.argmin(apart, axis=1) == np.arange(len(apart))))


@dataclass(frozen=True)
class HeldOutCheck:
    """How a layer of these heads does on held-out sequences.

    deviation : largest deviation, relative to the effect of attention
    allowed : what it may be
    doubt : the relative error of attn and value that residuals suggest, which may be large although
        the function is known well; infinite where residuals do not explain the deviation
    validation_error : ||Y - F(X)|| / ||Y||
    modes : those of "full" and "causal" in which the layer answers the other rows, too
    turning : planes and frequencies, with rotary positions
    errors : standard errors of attn and value, where they are known
    largest_doubt : heads in more doubt are not taken for known
    longest : tokens of the longest of these sequences; what shows on longer ones alone is not seen
    differs_at : tokens of longer sequences whose answers are not those of the layer; 0 without any
    ended : why longer sequences were not checked
    """

    heads: list[HeadsAt]
    deviation: float
    allowed: float
    doubt: float
    validation_error: float
    modes: tuple[str, ...] = ()
    turning: Turning | None = None
    errors: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    largest_doubt: float = LARGEST_DOUBT
    longest: int = 0
    differs_at: int = 0
    ended: str = ""

    @property
    def passed(self) -> bool:
        """Whether the layer is as good as the answers of the oracle allow."""
        return self.deviation <= self.allowed and self.doubt <= self.largest_doubt

    @property
    def close(self) -> bool:
        """Whether the layer is right but for precision: another strategy would find no other."""
        rounded = self.largest_doubt > LARGEST_DOUBT and self.doubt <= 1
        return self.deviation <= (max(CLOSE, self.allowed) if rounded else CLOSE)


@dataclass
class QueryFindings:
    """Heads for some differences, and a record of what each phase measured.

    total : S and b; None before one-token sequences were answered
    n_independent : so many heads at least are there, as the rank of effects showed
    best : the check of the best complete layer so far
    no_effect_up_to : size of tokens without effect of attention, where larger ones are not answered
    mode : as it was asked for; "auto" is answered by the other rows
    partial : the heads of an earlier attempt that did not end
    structure : what lies around attention
    turning : planes and frequencies of the heads, with rotary positions
    turns_otherwise : whether heads were found that positions do not turn
    """

    oracle: Oracle
    bias: bool
    mode: str = "auto"
    total: SumOfValues | None = None
    heads: list[HeadsAt] = field(default_factory=list)
    recorder: Recorder = field(default_factory=Recorder)
    n_independent: int = 1
    best: HeldOutCheck | None = None
    no_effect_up_to: float | None = None
    partial: list[HeadsAt] = field(default_factory=list)
    structure: Surroundings = field(default_factory=Surroundings)
    turning: Turning | None = None
    turns_otherwise: bool = False

    def record(self, **measured: Any) -> None:
        """Record what the present phase measured."""
        words = ", ".join(
            f"{name.replace('_', ' ')} {_short(value)}" for name, value in measured.items()
        )
        n_queries = self.oracle.n_queries
        sentence = f"{n_queries} queries so far" + (f"; {words}." if words else ".")
        self.recorder.ended(self.recorder.present, sentence, n_queries=n_queries, **plain(measured))

    def restructure(self, structure: Surroundings) -> None:
        """Start anew with what was found around attention."""
        names = ("residual", "normalisation", "rotary")
        known = {name: getattr(structure, name) for name in names}
        if structure.found is not None:
            known |= {"normalisation": structure.found.kind, "eps": structure.found.eps}
        self.recorder.present = "structure"
        self.record(**known)
        self.structure, self.total, self.best, self.no_effect_up_to = structure, None, None, None
        self.heads, self.partial, self.n_independent, self.turning = [], [], 1, None

    def begin(self) -> None:
        """Start another attempt at the heads; the longest one so far is kept."""
        self.partial, self.heads = max(self.partial, self.heads, key=len), []
        self.turning = None

    @property
    def n_heads(self) -> int:
        """Heads of the layer that is known so far; 0 before one-token sequences were answered."""
        return len(self.settled[0].values) if self.settled else int(self.total is not None)

    @property
    def layer_mode(self) -> str:
        """The mode of the layer to return: "last" while no other rows are known to agree."""
        if self.mode != "auto":
            return self.mode
        return self.best.modes[0] if self.best and self.best.modes else "last"

    @property
    def settled(self) -> list[HeadsAt]:
        """The heads to return: the best complete ones, otherwise as many as were found."""
        return self.best.heads if self.best else max(self.heads, self.partial, key=len)


def assemble(findings: QueryFindings, heads: list[HeadsAt], mode: str) -> SoftmaxAttention | None:
    """The layer that the findings determine with ``heads``, of least norm where they leave it open.

    A_i solves A_i delta_j = columns, V_i solves delta_j V_i = values; with rotary positions A_i is
    that of offset one, unless the planes of these heads are known.  What these leave of S is
    shared equally by the heads, as is b: neither belongs visibly to one head.  Without heads, one
    that attends to all tokens alike carries S.  None before S is known.
    """
    if findings.total is None:
        return None
    total = findings.total.value
    n_dims, n_outputs = total.shape
    attn, value = np.zeros((1, n_dims + findings.bias, n_dims)), total[None]
    if heads:
        inverse = np.linalg.pinv(np.stack([at.delta for at in heads]))
        attn = np.einsum("dj,jhr->hrd", inverse, np.stack([at.columns for at in heads]))
        value = np.einsum("dj,jhe->hde", inverse, np.stack([at.values for at in heads]))
        if len(heads) < n_dims:
            value = value + (total - value.sum(axis=0)) / len(value)
    if findings.bias:
        # Conventions: a zero key column, and b shared equally by the heads.
        attn = np.concatenate([attn, np.zeros((*attn.shape[:2], 1))], axis=2)
        share = np.broadcast_to(findings.total.bias / len(value), (len(value), 1, n_outputs))
        value = np.concatenate([value, share], axis=1)
    best, turning = findings.best, findings.turning
    if best is not None and heads is best.heads:
        turning = best.turning
    if turning is not None and len(turning.query) == len(value):
        return turning.layer(value, mode, findings.bias)
    return SoftmaxAttention(attn, value, mode=mode, bias=findings.bias)


def standard_errors(
    findings: QueryFindings, heads: list[HeadsAt]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Standard errors of attn and value as ``assemble`` makes them of ``heads``.

    Errors at different differences are independent: squares of the coefficients add up variances.
    None while not all differences are solved, and with rotary positions, where A_i is not that of
    these differences.
    """
    total = findings.total
    if total is None or findings.structure.turns or (heads and len(heads) < len(total.value)):
        return None
    n_dims, n_outputs = total.value.shape
    attn = np.zeros((1, n_dims + findings.bias, n_dims))
    value = total.errors[None, :n_dims] ** 2
    if heads:
        parts = [at.errors for at in heads if at.errors is not None]
        if len(parts) < len(heads):
            return None
        squares = np.linalg.pinv(np.stack([at.delta for at in heads])) ** 2
        attn = np.einsum("dj,jhr->hrd", squares, np.stack([each for each, _ in parts]) ** 2)
        value = np.einsum("dj,jhe->hde", squares, np.stack([each for _, each in parts]) ** 2)
    if findings.bias:
        attn = np.concatenate([attn, np.zeros((*attn.shape[:2], 1))], axis=2)
        share = (total.errors[n_dims:] / len(value)) ** 2
        value = np.concatenate([value, np.broadcast_to(share, (len(value), 1, n_outputs))], axis=1)
    return np.sqrt(attn), np.sqrt(value)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_short(each) for each in value)
    return f"{value:.2g}" if isinstance(value, float) else str(value)
