"""What has been learned so far: kept outside the phases, so that no interruption loses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.recorder import Phase

# Deviations up to this are a matter of precision, not of wrong heads.
CLOSE = 1e-2

# Heads in more doubt are not called recovered; a doubt is an estimate, so this is far below 1e-3.
LARGEST_DOUBT = 1.5e-4


@dataclass(frozen=True)
class Check:
    """Largest deviation on held-out sequences, relative to the effect of attention.

    ``doubt`` is the relative error of attn and value that residuals suggest: a function may be
    known well and the heads that make it up badly.  It is infinite where they do not explain the
    deviation.
    """

    error: float
    tolerance: float
    doubt: float

    @property
    def passed(self) -> bool:
        """Whether the layer is as good as the answers of the oracle allow."""
        return self.error <= self.tolerance and self.doubt <= LARGEST_DOUBT

    @property
    def close(self) -> bool:
        """Whether the layer is right but for precision: another road would find no other."""
        return self.error <= CLOSE


@dataclass(frozen=True)
class HeadsAt:
    """All heads for one difference: columns (H, D) are A_i delta, values (H, e) are delta V_i.

    ``doubt`` is the relative error that residuals suggest, of the worst head.
    """

    delta: NDArray[np.float64]
    columns: NDArray[np.float64]
    values: NDArray[np.float64]
    doubt: float = 0.0


@dataclass
class Findings:
    """S, b, heads for some differences, and a record of what each phase measured.

    ``n_independent`` heads at least are there, as the rank of effects showed.  ``best`` is the
    check of the best complete layer so far, ``best_heads`` its heads.  ``partial`` are the heads
    of an earlier attempt that came to no end.
    """

    bias: bool
    sum_value: NDArray[np.float64] | None = None
    sum_bias: NDArray[np.float64] | None = None
    heads: list[HeadsAt] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    n_independent: int = 1
    best: Check | None = None
    best_heads: list[HeadsAt] = field(default_factory=list)
    partial: list[HeadsAt] = field(default_factory=list)
    noise: float = 0.0
    deterministic: bool = True

    def record(self, phase: str, n_queries: int, **measured: Any) -> None:
        """Note what a phase measured; ``n_queries`` counts from the beginning."""
        figures = ", ".join(f"{name} {_short(value)}" for name, value in measured.items())
        sentence = f"{n_queries} queries so far" + (f"; {figures}." if figures else ".")
        self.phases.append(Phase(phase, sentence, {"n_queries": n_queries, **measured}))

    def begin(self) -> None:
        """Start another attempt at the heads; the longest one so far is kept."""
        self.partial = max(self.partial, self.heads, key=len)
        self.heads = []

    def keep(self, check: Check) -> None:
        """Keep the present heads if no others did better on held-out sequences."""
        if self.best is None or check.error < self.best.error:
            self.best, self.best_heads = check, self.heads

    @property
    def settled(self) -> list[HeadsAt]:
        """The heads to return: the best complete ones, otherwise as many as were found."""
        if self.best is not None:
            return self.best_heads
        return max(self.heads, self.partial, key=len)


def _short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def assemble(findings: Findings, heads: list[HeadsAt], mode: str) -> SoftmaxAttention | None:
    """The layer that the findings determine with ``heads``, of least norm where they leave it open.

    A_i solves A_i delta_j = columns, V_i solves delta_j V_i = values.  What these leave of S is
    shared equally by the heads, as is b: neither can be seen of one head alone.  Without heads, one
    that attends to all tokens alike carries S.  None before S is known.
    """
    value, bias = findings.sum_value, findings.sum_bias
    if value is None or bias is None:
        return None
    n_dims, n_outputs = value.shape
    if not heads:
        attn = np.zeros((1, n_dims + findings.bias, n_dims))
        return _layer(attn, value[None], bias, findings.bias, mode)
    deltas = np.stack([at.delta for at in heads])
    columns = np.stack([at.columns for at in heads])
    values = np.stack([at.values for at in heads])
    n_heads, n_rows = columns.shape[1:]
    inverse = np.linalg.pinv(deltas)
    attn = np.einsum("dj,jhr->hrd", inverse, columns).reshape(n_heads, n_rows, n_dims)
    per_head = np.einsum("dj,jhe->hde", inverse, values).reshape(n_heads, n_dims, n_outputs)
    if len(deltas) < n_dims:
        per_head = per_head + (value - per_head.sum(axis=0)) / n_heads
    return _layer(attn, per_head, bias, findings.bias, mode)


def _layer(
    attn: NDArray, value: NDArray, bias: NDArray, has_bias: bool, mode: str
) -> SoftmaxAttention:
    """Append what is a convention: a zero key column, and b shared equally by the heads."""
    if has_bias:
        attn = np.concatenate([attn, np.zeros((*attn.shape[:2], 1))], axis=2)
        share = np.broadcast_to(bias / len(value), (len(value), 1, len(bias)))
        value = np.concatenate([value, share], axis=1)
    return SoftmaxAttention(attn, value, mode=mode, bias=has_bias)
