"""SoftmaxAttention: F(X) = sum_h softmax(X A_h X^T) X V_h, where ``mode`` predicts.

Notation (ours -> Chen & Li):
    attn   A_h (d, d)  ->  Theta_h
    value  V_h (d, e)  ->  W_h
A transformer's head with weights W_Q, W_K, W_V (d, r) and output projection W_O (r, e) is
A_h = W_Q W_K^T / sqrt(r), V_h = W_V W_O.  With rotary positions A_h depends on how far a query and
a key are apart, see ``rotary``.

The forward pass is stable at every scale, in blocks of bounded memory: logits are computed of
order one, and the powers of two that were taken out of tokens and heads come back only after the
largest logit has been subtracted.  What is then too negative for float64 is a weight of zero, and
nothing overflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import Description
from polyattn.errors import InvalidInput, InvalidType, require_choice, require_flag
from polyattn.features.tokens import Tokens
from polyattn.files.fields import array, entries
from polyattn.files.records import Record
from polyattn.model import layer as shared
from polyattn.model.layer import (
    AttentionLayer,
    far_apart,
    matrices,
    ordinary_exponent,
    outputs_by_block,
    square_heads,
)
from polyattn.model.rotary import RotaryHeads, require_no_pair
from polyattn.numerics.arrays import EXACT_INTEGER, even_ranges
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import of_order_one, restored
from polyattn.sequences import MODES, SequenceBatch

# Logits that are in memory together.
BLOCK_LOGITS = 1 << 20

# What attn of a layer with rotary positions is called where it is shown.
AT_OFFSET_ZERO = "attn at offset 0"

# What files hold of a layer with rotary positions, in the place of attn.
PROJECTIONS = dict.fromkeys(("query", "key", "value"), array((None, None, None)))
ROTARY_ARRAYS = entries(PROJECTIONS | {"frequencies": array((None,))})


@dataclass(frozen=True, eq=False, repr=False, init=False)
class SoftmaxAttention(AttentionLayer):
    """A multi-head softmax attention layer.

    For a predicted position with query token x (a row) that attends to tokens X (n, d),

        y = sum_h  softmax(x A_h X^T) X V_h.

    Parameters
    ----------
    attn : array (H, d, d), or (d, d) for one head
        With ``rotary`` a pair (W_Q, W_K) of arrays (H, d, r), or (d, r) for one head, r even.
    value : array (H, d, e), or (d, e) for one head
    mode : "full" | "causal" | "last"
        ``full``: one output per token, attending to all; ``causal``: one per token, attending
        to itself and those before; ``last``: one output, for the last token attending to all.
    bias : bool
        Inputs have one coordinate fewer than ``attn``; a constant 1 is appended to each token.
        The last column of ``attn`` then shifts all logits of a query alike and is invisible,
        and of the last rows of ``value`` only their sum over heads can be seen.
    rotary : None, float or array (r/2,)
        Rotary positions, with these frequencies f_i, or those of a number theta,
        f_i = theta ** (-2 i / r).  The logit of a query at position t and a key at s is

            (x_t W_Q R_t) . (x_s W_K R_s) = x_t A(t - s) x_s^T

        where R_t turns coordinates i and i + r/2 by the angle t f_i; a scale of the logits is
        part of W_Q or W_K.  The layer keeps ``query`` W_Q, ``key`` W_K and ``frequencies``, and
        ``attn`` is A(0) = W_Q W_K^T.  With ``bias`` the last row of W_K is visible but for planes
        of frequency zero.

    Cost of a call: O(n^2 d) per sequence and head; scores are formed in blocks of bounded size.

    Examples
    --------
    >>> import numpy as np
    >>> import polyattn as pa
    >>> query, key = np.eye(2), np.eye(2)
    >>> layer = pa.SoftmaxAttention((query, key), np.eye(2), "causal", rotary=[np.pi])
    >>> layer
    SoftmaxAttention(1 head, 2 -> 2, mode 'causal', rotary positions in 1 plane)
    >>> (layer.attn_at(1).round(12) + 0.0).tolist()  # a half turn: the token before repels
    [[[-1.0, 0.0], [0.0, -1.0]]]
    """

    mode: str = "full"
    rotary_heads: RotaryHeads | None = None

    kind: ClassVar[str] = "softmax_attention"

    def __init__(
        self,
        attn: ArrayLike,
        value: ArrayLike,
        mode: str = "full",
        bias: bool = False,
        rotary: ArrayLike | None = None,
    ) -> None:
        bias, mode = require_flag("bias", bias), require_choice("mode", mode, MODES)
        if rotary is None:
            require_no_pair(attn)
            attn, value = square_heads(attn, value, bias)
            vars(self).update(attn=attn)
        else:
            value = matrices(value, "value")
            vars(self).update(rotary_heads=RotaryHeads.of(attn, value, bias, rotary))
        vars(self).update(value=value, mode=mode, bias=bias)

    @cached_property  # type: ignore[misc] # reached where no field is set
    def attn(self) -> NDArray[np.float64]:
        """A(0) = W_Q W_K^T (H, d, d), of a layer with rotary positions."""
        return self.attn_at(0)

    @property
    def query(self) -> NDArray[np.float64] | None:
        """W_Q (H, d, r), of a layer with rotary positions; None without."""
        return None if self.rotary_heads is None else self.rotary_heads.query

    @property
    def key(self) -> NDArray[np.float64] | None:
        """W_K (H, d, r), of a layer with rotary positions; None without."""
        return None if self.rotary_heads is None else self.rotary_heads.key

    @property
    def frequencies(self) -> NDArray[np.float64] | None:
        """How much each plane of queries and keys (r/2,) turns per token; None without rotary."""
        return None if self.rotary_heads is None else self.rotary_heads.frequencies

    def attn_at(self, offset: int) -> NDArray[np.float64]:
        """A(o) (H, d, d): logits are x A(o) z^T of a query x and a key z, o tokens before it.

        Without rotary positions it is ``attn`` at every offset.  Cost: O(H d^2 r).
        """
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer):
            raise InvalidType(f"offset must be an integer, the number of tokens; got {offset!r}.")
        if abs(offset) > EXACT_INTEGER:
            raise InvalidInput("offset must be at most 2**53, which float64 holds exactly.")
        return self.attn if self.rotary_heads is None else self.rotary_heads.attn_at(int(offset))

    def __eq__(self, other: object) -> bool:
        """Equal parameters; for equal functions see ``same_function``."""
        if not isinstance(other, type(self)):
            return NotImplemented
        mine, theirs = self.arrays(), other.arrays()
        return (
            (self.mode, self.bias) == (other.mode, other.bias)
            and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.mode, self.bias, *shared.hashable(*self.arrays().values())))

    def __repr__(self) -> str:
        text = super().__repr__()
        return text if self.rotary_heads is None else f"{text[:-1]}, {self.rotary_heads.words})"

    def describe(self) -> Description:
        described = super().describe()
        if self.rotary_heads is None:
            return described
        return replace(
            described,
            about=f"{described.about}, {self.rotary_heads.words}",
            sizes=described.sizes | {"frequencies": self.rotary_heads.frequencies.tolist()},
            matrices={
                name.replace("attn", AT_OFFSET_ZERO): each
                for name, each in described.matrices.items()
            },
        )

    def arrays(self) -> dict[str, NDArray]:
        """The heads; with rotary positions W_Q, W_K and the frequencies in the place of attn."""
        if self.rotary_heads is None:
            return super().arrays()
        return {**self.rotary_heads._asdict(), "value": self.value}

    @classmethod
    def from_record(cls, record: Record) -> Self:
        if "frequencies" not in record.arrays:
            return super().from_record(record)
        ROTARY_ARRAYS(record.arrays, "arrays")
        shared.FIELDS(record.metadata, "metadata")
        held = record.arrays
        pair = held["query"], held["key"]
        return cls(pair, held["value"], **record.metadata, rotary=held["frequencies"])

    @single_threaded_blas()
    def _rows(self, batch: SequenceBatch) -> NDArray[np.float64]:
        value, of_value = of_order_one(self.value)
        if self.rotary_heads is None:
            attn, _, power, _ = self._scaled_heads
            heads: PlainHeads | RotaryHeads = PlainHeads(attn)
            apart = far_apart((attn, value), 2)
        else:
            heads, power = turned, _ = self.rotary_heads.of_order_one()
            # Entries of a product of two matrices differ as much as those of both together.
            apart = far_apart((turned.query, turned.key), 4) or far_apart((value,), 2)
        tokens = Tokens.whole(batch, self.bias, ordinary_exponent(batch, self.bias, apart, 2))
        exponent = power + 2 * tokens.exponent

        def attend(X: NDArray) -> NDArray[np.float64]:
            first = X.shape[1] - 1 if self.mode == "last" else 0
            return _attend(X, heads.projected(X, first), value, self.mode, exponent)

        outputs = outputs_by_block(tokens, self.mode, self.n_outputs, attend)
        return restored(outputs, of_value + tokens.exponent, "outputs")


class PlainHeads(NamedTuple):
    """attn (H, d, d) of heads whose keys are tokens."""

    attn: NDArray[np.float64]

    def projected(self, X: NDArray, first: int) -> Iterator[tuple[NDArray, NDArray]]:
        """Queries (B, n - first, d) and keys (B, n, d) of each head, of tokens X (B, n, d)."""
        return ((X[:, first:] @ A, X) for A in self.attn)


def softmax(logits: NDArray, exponent: int = 0) -> NDArray[np.float64]:
    """Softmax of 2**exponent * logits along the last axis, in place; -inf is a weight of 0."""
    logits -= logits.max(axis=-1, keepdims=True)
    if exponent:
        with np.errstate(over="ignore", under="ignore"):
            np.ldexp(logits, exponent, out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits


def _attend(
    X: NDArray,
    projected: Iterable[tuple[NDArray, NDArray]],
    value: NDArray,
    mode: str,
    exponent: int,
) -> NDArray[np.float64]:
    """Outputs (B, queries, e) of tokens X (B, n, d).

    projected : queries (B, queries, r) and keys (B, n, r) of each head
    """
    n_sequences, n_tokens, _ = X.shape
    n_queries = 1 if mode == "last" else n_tokens
    outputs = np.zeros((n_sequences, n_queries, value.shape[2]))
    at_once = max(1, BLOCK_LOGITS // (n_sequences * n_tokens))
    for (queries, keys), V in zip(projected, value, strict=True):
        for begin, end in even_ranges(n_queries, at_once):
            seen = end if mode == "causal" else n_tokens
            logits = queries[:, begin:end] @ keys[:, :seen].transpose(0, 2, 1)
            if mode == "causal":
                # Which of the tokens 0..end lie behind each of the queries begin..end.
                logits[:, np.arange(end) > np.arange(begin, end)[:, None]] = -np.inf
            outputs[:, begin:end] += (softmax(logits, exponent) @ X[:, :seen]) @ V
    return outputs
