"""Rotary positions: queries and keys turned by angles that grow with the position of a token.

A head has W_Q and W_K (D, r), r even.  Coordinates i and i + r/2 of a query or a key are one
complex number (the "half" layout), and at position t it is multiplied by exp(j t f_i).  So logits
depend on the offset o = t - s of a query at t and a key at s alone:

    logit = sum_i Re[ (x_t q_i) conj(x_s k_i) exp(j o f_i) ] = x_t A(o) x_s^T,
    A(o) = sum_i Re[ q_i k_i^H exp(j o f_i) ],      A(0) = W_Q W_K^T,

with q_i = W_Q[:, i] + j W_Q[:, i + r/2], and k_i alike.  A frequency of zero is a plane that is not
turned, as the planes of partial rotary positions are.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.model.layer import matrices
from polyattn.numerics import scaling
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.quoting import counted, shown

# Of an angle this large times a position, digits of the turn are lost that matter.
LARGEST_FREQUENCY = 1e6


class Turns(NamedTuple):
    """cos and sin (n, r/2) of the angles of consecutive positions."""

    cosines: NDArray[np.float64]
    sines: NDArray[np.float64]

    @classmethod
    def of(cls, frequencies: NDArray, n_tokens: int, first: int = 0) -> Turns:
        """Those of the positions first, ..., first + n_tokens - 1."""
        angles = np.arange(first, first + n_tokens)[:, None] * frequencies
        return cls(np.cos(angles), np.sin(angles))

    def applied(self, projected: NDArray) -> NDArray[np.float64]:
        """Queries or keys (..., n, r), turned."""
        real, imaginary = np.split(projected, 2, axis=-1)
        return np.concatenate(
            [
                real * self.cosines - imaginary * self.sines,
                imaginary * self.cosines + real * self.sines,
            ],
            axis=-1,
        )


class RotaryHeads(NamedTuple):
    """W_Q and W_K (H, d, r) and the frequencies (r/2,) of heads with rotary positions."""

    query: NDArray[np.float64]
    key: NDArray[np.float64]
    frequencies: NDArray[np.float64]

    @classmethod
    def of(cls, attn: Any, value: NDArray, bias: bool, rotary: object) -> RotaryHeads:
        """Checked heads from a pair attn, beside value (H, d, e)."""
        pair = isinstance(attn, tuple | list) or (isinstance(attn, np.ndarray) and attn.ndim == 4)
        if not pair or len(attn) != 2:
            came = attn.shape if isinstance(attn, np.ndarray) else shown(attn)
            raise InvalidInput(
                "with rotary, attn must be the pair (W_Q, W_K) of arrays (H, d, r): the product "
                f"W_Q W_K^T does not say what is turned; got {came}."
            )
        query, key = matrices(attn[0], "W_Q"), matrices(attn[1], "W_K")
        if query.shape != key.shape or query.shape[:2] != value.shape[:2]:
            raise InvalidInput(
                "with rotary, attn must be a pair of arrays (H, d, r) that agree with value "
                f"(H, d, e) in H and d; got {query.shape}, {key.shape} and {value.shape}."
            )
        if query.shape[2] % 2:
            raise InvalidInput(
                "with rotary, queries and keys must have an even number r of coordinates, of "
                f"which i and i + r/2 are turned together; got r = {query.shape[2]}."
            )
        if bias and query.shape[1] < 2:
            raise InvalidInput("with bias=True attn must have at least 2 rows: one is constant.")
        _require_product(query, key)
        return cls(query, key, require_frequencies(rotary, query.shape[2]))

    @property
    def words(self) -> str:
        """How many planes are turned, in words."""
        still = int(np.count_nonzero(self.frequencies == 0.0))
        text = f"rotary positions in {counted(len(self.frequencies) - still, 'plane')}"
        return text + (f" of {len(self.frequencies)}" if still else "")

    @single_threaded_blas()
    def attn_at(self, offset: int) -> NDArray[np.float64]:
        """A(o) (H, d, d), read-only.  Cost: O(H d^2 r)."""
        (query, key, _), power = self.of_order_one()
        turned = Turns.of(self.frequencies, 1, offset).applied(query[..., None, :])[..., 0, :]
        with np.errstate(under="ignore"):
            found = np.ldexp(turned @ key.transpose(0, 2, 1), power)
        found.setflags(write=False)
        return found

    def of_order_one(self) -> tuple[RotaryHeads, int]:
        """The same heads without a power of two of their logits, and that power."""
        (query, of_query), (key, of_key) = map(scaling.of_order_one, (self.query, self.key))
        return RotaryHeads(query, key, self.frequencies), of_query + of_key

    def projected(self, X: NDArray, first: int) -> Iterator[tuple[NDArray, NDArray]]:
        """Queries (B, n - first, r) and keys (B, n, r) of each head, turned, of X (B, n, d)."""
        turns = Turns.of(self.frequencies, X.shape[1])
        of_queries = Turns(turns.cosines[first:], turns.sines[first:])
        for W_Q, W_K in zip(self.query, self.key, strict=True):
            yield of_queries.applied(X[:, first:] @ W_Q), turns.applied(X @ W_K)


def require_frequencies(rotary: object, head_dim: int) -> NDArray[np.float64]:
    """The frequencies (r/2,), read-only: those given, or theta ** (-2 i / r).

    rotary : a number theta > 0, or an array (r/2,)
    """
    n_planes = head_dim // 2
    if isinstance(rotary, bool | np.bool_):
        raise InvalidType(
            f"rotary must be None, a number theta or an array of {n_planes} frequencies; got "
            f"{shown(rotary)}. theta is 10000 in many models."
        )
    if isinstance(rotary, Real) or (isinstance(rotary, np.ndarray) and rotary.ndim == 0):
        theta = float(real_array(rotary, "rotary"))
        if not (theta > 0.0 and np.isfinite(theta)):
            raise InvalidInput(
                f"rotary, the number theta, must be positive and finite; got {shown(rotary)}."
            )
        with np.errstate(over="ignore"):
            frequencies = np.power(theta, -2.0 * np.arange(n_planes) / head_dim)
    else:
        frequencies = np.array(real_array(rotary, "rotary"), dtype=np.float64)
        if frequencies.shape != (n_planes,):
            raise InvalidInput(
                f"rotary must be a number theta or an array of {n_planes} frequencies, one for "
                f"each pair of the {head_dim} coordinates of a query; got shape "
                f"{frequencies.shape}."
            )
        require_finite(frequencies, "rotary")
    if np.abs(frequencies).max() > LARGEST_FREQUENCY:
        raise InvalidInput(
            f"rotary gives a frequency of {np.abs(frequencies).max():.3g} per token, above "
            f"{LARGEST_FREQUENCY:g}, where the angle loses its digits; frequencies count modulo "
            "2 pi: reduce them first."
        )
    frequencies.setflags(write=False)
    return frequencies


def _require_product(query: NDArray, key: NDArray) -> None:
    """Refuse W_Q and W_K (H, d, r) whose products, turned, float64 cannot hold."""
    largest = [scaling.largest_magnitude(each) for each in (query, key)]
    if all(largest) and not -1020 < sum(map(np.log2, largest)) < 1020 - np.log2(query.shape[2]):
        decimal = sum(map(np.log10, largest))
        raise OutOfRange(
            f"attn, products of W_Q and W_K, would be of size about 1e{decimal:+.0f}, which "
            "float64 cannot hold: give W_Q and W_K, and tokens, that are of order one."
        )


def require_no_pair(attn: Any) -> None:
    """Refuse W_Q and W_K (H, d, r) in the place of one attn (H, d, d)."""
    is_pair = isinstance(attn, tuple | list) and len(attn) == 2
    if is_pair and [np.ndim(each) for each in attn] == [3, 3]:
        raise InvalidInput(
            "attn is a pair (W_Q, W_K), which only layers with rotary positions have: give "
            "rotary, a number theta or frequencies, or the product attn = W_Q W_K^T (H, d, d)."
        )


def require_no_rotary(layer: object, what: str, advice: str) -> None:
    """Refuse a softmax layer with rotary positions where these have no place.

    what : who refuses, and why in a clause; advice : what to do instead
    """
    if getattr(layer, "frequencies", None) is not None:
        raise InvalidInput(f"{what}, and the layer has rotary positions; {advice}")
