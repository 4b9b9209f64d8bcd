"""LinearAttention: F(X) = sum_h (X A_h X^T) X V_h, at the positions that ``mode`` predicts.

Notation (ours -> Yau et al., whose tokens are columns Z = X^T; -> Chen & Li):
    attn   A_h (d, d)  ->  Q_h^T    ->  Theta_h
    value  V_h (d, e)  ->  V_h^T    ->  W_h
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.arrays import real_array, require_finite
from polyattn.errors import InvalidInput, require_choice, require_flag
from polyattn.features.pairs import fold_heads
from polyattn.files import Record
from polyattn.model.forward import forward
from polyattn.scaling import exponent_for, largest_magnitude, restored, scaled
from polyattn.sequences import MODES, SequenceBatch, Sequences, as_batch


@dataclass(frozen=True, eq=False, repr=False)
class LinearAttention:
    """A multi-head linear attention layer.

    For a predicted position with query token x (a row) that attends to tokens of Gram matrix G,

        y = sum_h  x A_h G V_h,      y_a = sum_{j<=k, l} coef[a, (jk), l] G[j,k] x[l].

    Parameters
    ----------
    attn : array (H, d, d)
        Attention matrices, or one (d, d).
    value : array (H, d, e)
        Value matrices, or one (d, e).
    mode : "last" | "causal" | "full"
        ``last``: one output, for the last token attending to all; ``causal``: one output per
        token, attending to itself and those before; ``full``: one per token, attending to all.
    bias : bool
        Inputs have one coordinate fewer than ``attn``; a constant 1 is appended to each token.

    Cost of a call: O(n d^2) per sequence and head; the n x n scores are never formed.
    """

    attn: NDArray[np.float64]
    value: NDArray[np.float64]
    mode: str = "last"
    bias: bool = False

    def __post_init__(self) -> None:
        attn = _matrices(self.attn, "attn")
        value = _matrices(self.value, "value")
        if attn.shape[1] != attn.shape[2]:
            raise InvalidInput(f"attn must have shape (H, d, d); got {attn.shape}.")
        if attn.shape[:2] != value.shape[:2]:
            raise InvalidInput(
                "attn (H, d, d) and value (H, d, e) must agree in H and d; "
                f"got {attn.shape} and {value.shape}."
            )
        if require_flag("bias", self.bias) and attn.shape[1] < 2:
            raise InvalidInput("with bias=True attn must have at least 2 rows: one is constant.")
        object.__setattr__(self, "attn", attn)
        object.__setattr__(self, "value", value)
        object.__setattr__(self, "bias", require_flag("bias", self.bias))
        require_choice("mode", self.mode, MODES)

    @property
    def n_heads(self) -> int:
        """H, the number of heads."""
        return self.attn.shape[0]

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token (without the constant one of ``bias``)."""
        return self.attn.shape[1] - self.bias

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of an output."""
        return self.value.shape[2]

    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients P (e, q, d): all that data can see of the layer.

        Pairs j <= k are in the order of ``numpy.triu_indices`` [yau2024: Corollary A.4].
        """
        attn, value, exponent = self._scaled_heads
        coef = restored(fold_heads(attn, value), exponent, "the coefficients")
        coef.setflags(write=False)
        return coef

    def __call__(self, X: Sequences) -> Any:
        """Outputs for sequences X, in the form of X.

        (N, n, d) gives (N, e) in mode ``last`` and (N, n, e) otherwise; one sequence (n, d)
        gives (e,) or (n, e).  A list or a SequenceBatch gives (N, e) or a list of (n_i, e).
        """
        batch, single = single_or_batch(X, self.n_dims)
        attn, value, exponent = self._scaled_heads
        rows = forward(batch, attn, value, self.mode, self.bias, exponent)
        shaped = shape_rows(
            rows, batch, self.mode, as_list=isinstance(X, list | tuple | SequenceBatch)
        )
        return shaped[0] if single else shaped

    def __eq__(self, other: object) -> bool:
        """Equal parameters; for equal functions see ``same_function``."""
        if not isinstance(other, LinearAttention):
            return NotImplemented
        return (
            (self.mode, self.bias) == (other.mode, other.bias)
            and np.array_equal(self.attn, other.attn)
            and np.array_equal(self.value, other.value)
        )

    def __hash__(self) -> int:
        # Adding zero turns -0.0 into 0.0: the two are equal and must hash alike.
        numbers = ((array + 0.0).tobytes() for array in (self.attn, self.value))
        return hash((self.mode, self.bias, *numbers))

    def __repr__(self) -> str:
        heads = "1 head" if self.n_heads == 1 else f"{self.n_heads} heads"
        bias = ", bias" if self.bias else ""
        return (
            f"LinearAttention({heads}, {self.n_dims} -> {self.n_outputs}, mode {self.mode!r}{bias})"
        )

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        arrays = {"attn": self.attn, "value": self.value}
        return Record("linear_attention", arrays, {"mode": self.mode, "bias": self.bias})

    @classmethod
    def from_record(cls, record: Record) -> LinearAttention:
        """The inverse of ``to_record``."""
        return cls(record.arrays["attn"], record.arrays["value"], **record.metadata)

    @cached_property
    def _scaled_heads(self) -> tuple[NDArray, NDArray, int]:
        """Heads of order one and the power of two that was taken out of their product."""
        of_attn = exponent_for(largest_magnitude([self.attn])) or 0
        of_value = exponent_for(largest_magnitude([self.value])) or 0
        return scaled(self.attn, -of_attn), scaled(self.value, -of_value), of_attn + of_value


def single_or_batch(X: Sequences, n_dims: int) -> tuple[SequenceBatch, bool]:
    """The door of a forward pass: sequences, or one sequence (n, d) as a batch of one."""
    single = getattr(X, "ndim", None) == 2
    return as_batch(np.asarray(X)[None] if single else X, n_dims=n_dims), single


def shape_rows(rows: NDArray, batch: SequenceBatch, mode: str, as_list: bool) -> Any:
    """Rows (n_rows, e) as (N, e), (N, n, e), or for ragged tokens a list of (n_i, e)."""
    if mode == "last":
        return rows
    if batch.common_length is not None and not as_list:
        return rows.reshape(len(batch), batch.common_length, -1)
    return np.split(rows, batch.offsets[1:-1])


def _matrices(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """A read-only float64 copy of shape (H, rows, columns)."""
    array = real_array(values, name)
    if array.ndim == 2:
        array = array[None]
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidInput(
            f"{name} must have shape (H, d, ...) with at least one head and one coordinate; "
            f"got {array.shape}."
        )
    require_finite(array, name)
    copied = np.array(array, dtype=np.float64, order="C")
    copied.setflags(write=False)
    return copied
