"""Parity as a softmax layer: a family that learners from averages cannot learn fast.

Wanted: an output that is the parity of s hidden coordinates U of the query token.
Assumption: tokens in {-1, 1}^d; s is odd; a marker coordinate mu outside of U.
Definition: s heads t = 1..s that write the output o,

    A_t = beta (sum_{i in U} e_i - (2t - s - 1) e_mu) e_mu^T,      V_t = (-1)^t e_mu e_o^T.

Evaluation: logits depend on a token through its marker alone, so with n_+ and n_- tokens of
marker 1 and -1 the weighted mean of the markers is a hyperbolic tangent,

    F[r, o] = sum_t (-1)^t tanh(z_t + ln(n_+ / n_-) / 2),
    z_t = beta (sum_{i in U} x_ri - (2t - s - 1) x_r,mu).

The sum over U is odd and 2t - s - 1 is even, so |z_t| >= beta, and for large beta the tangents
are signs, whose alternating sum is (-1)^w where w hidden coordinates are 1.  What follows for
learning is computed in ``statistical_queries`` and ``noisy_parity``; proofs:
``docs/derivations/softmax_parity.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from polyattn.errors import InvalidInput, require_integer
from polyattn.model import SoftmaxAttention


def parity_layer(
    hidden: Sequence[int],
    marker: int,
    output: int,
    n_dims: int,
    beta: float,
    n_outputs: int | None = None,
) -> SoftmaxAttention:
    """The layer of s = len(hidden) heads whose output is the parity of the hidden coordinates.

    Parameters
    ----------
    hidden : coordinates U, an odd number of them
    marker : coordinate mu, not in U
    output : the output coordinate o that is written; all others are zero
    n_dims, n_outputs : d and e (by default d)
    beta : float > 0
        The sharpness; the error falls like exp(-2 beta).

    Guarantee: on tokens in {-1, 1}^d the outputs are ``parity_outputs``, and in a sequence of k
    tokens with both markers they are within ``parity_error_bound`` of (-1)^(ones in U).  If all
    markers are equal, the output is minus the marker.
    """
    d = require_integer("n_dims", n_dims)
    e = d if n_outputs is None else require_integer("n_outputs", n_outputs)
    U, mu = _checked_coordinates(hidden, marker, d)
    _require_coordinate("output", output, e)
    beta = _require_positive(beta)
    heads = np.arange(1, len(U) + 1)
    attn, value = np.zeros((len(U), d, d)), np.zeros((len(U), d, e))
    attn[:, U, mu] = beta
    attn[:, mu, mu] = -beta * (2 * heads - len(U) - 1)
    value[:, mu, output] = (-1.0) ** heads
    return SoftmaxAttention(attn, value, mode="full")


def parity_outputs(
    X: NDArray, hidden: Sequence[int], marker: int, beta: float
) -> NDArray[np.float64]:
    """The closed form of the written output, (N, k) for X (N, k, d) with entries -1 and 1."""
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 3 or not np.all(np.abs(X) == 1.0):
        raise InvalidInput("X must have shape (N, k, d) and entries -1 and 1.")
    U, mu = _checked_coordinates(hidden, marker, X.shape[2])
    beta = _require_positive(beta)
    positive = np.count_nonzero(X[:, :, mu] > 0, axis=1)
    with np.errstate(divide="ignore"):
        shift = 0.5 * (np.log(positive) - np.log(X.shape[1] - positive))
    heads = np.arange(1, len(U) + 1)
    z = beta * (X[:, :, U].sum(axis=2)[..., None] - (2 * heads - len(U) - 1) * X[:, :, [mu]])
    return np.tanh(z + shift[:, None, None]) @ (-1.0) ** heads


def parity_error_bound(s: int, beta: float, k: int) -> float:
    """2 s / (1 + e^(2 beta) / (k - 1)): how far the layer is from the parity at most.

    For sequences of k >= 2 tokens with both markers: a tangent that tends to 1 has an argument
    y >= beta - ln(k - 1) / 2 and misses it by 1 - tanh(y) = 2 / (1 + e^(2 y)), which falls with y.
    """
    s, k = require_integer("s", s), require_integer("k", k, least=2)
    return float(2 * s * expit(np.log(k - 1) - 2.0 * _require_positive(beta)))


def _checked_coordinates(hidden: Sequence[int], marker: int, n_dims: int) -> tuple[list[int], int]:
    U = [_require_coordinate("hidden", i, n_dims) for i in hidden]
    mu = _require_coordinate("marker", marker, n_dims)
    if len(U) % 2 == 0 or len(set(U)) < len(U):
        raise InvalidInput(
            f"hidden must be an odd number of different coordinates; got {list(hidden)}."
        )
    if mu in U:
        raise InvalidInput(f"the marker must not be hidden; coordinate {mu} is both.")
    return U, mu


def _require_coordinate(name: str, value: int, count: int) -> int:
    coordinate = require_integer(name, value, least=0)
    if coordinate >= count:
        raise InvalidInput(f"{name} must be a coordinate from 0 to {count - 1}; got {value}.")
    return coordinate


def _require_positive(beta: float) -> float:
    if isinstance(beta, int | float | np.integer | np.floating) and not isinstance(beta, bool):
        level = float(beta)
        if 0.0 < level < np.inf:
            return level
    raise InvalidInput(f"beta must be a finite number > 0; got {beta!r}.")
