"""The sum of the value matrices from one-token sequences, and how exact the answers are.

A sequence of one token attends to itself alone: F([x]) = x S + b, whatever the attention.  The
same for a token and its copies.  What deviates from that on random tokens is rounding or noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.oracle import Oracle, Stopped

# How many random tokens check that answers are affine, and how many queries are repeated.
N_CHECKS = 8

# Deviations above this are not rounding: the black box is no attention layer.
LARGEST_NOISE = 1e-2


@dataclass(frozen=True)
class SumOfValues:
    """S (d, e), b (e,), the relative error of outputs, and that of repeated queries."""

    value: NDArray[np.float64]
    bias: NDArray[np.float64]
    noise: float
    repeat_error: float
    deterministic: bool


def measure_sum(oracle: Oracle, bias: bool, rng: np.random.Generator) -> SumOfValues:
    """S and b, and the level of rounding.

    Tokens are as large as it takes for x S not to drown in b, whose rounding would be that of S.
    Cost: d + 1 + 4 N_CHECKS queries, and d more when b is large.
    """
    n_dims = oracle.n_dims
    origin = oracle(np.zeros((1, 1, n_dims)))[0]
    value = oracle(np.eye(n_dims)[:, None, :]) - origin
    size = _power_of_two(float(np.linalg.norm(origin)), float(np.linalg.norm(value)) / n_dims**0.5)
    if size > 1:
        value = (oracle(size * np.eye(n_dims)[:, None, :]) - origin) / size
    tokens = size * rng.standard_normal((N_CHECKS, 1, n_dims))
    first, again = oracle(tokens), oracle(tokens)
    doubled = oracle(np.repeat(tokens, 2, axis=1))
    # The sum of values may vanish, and with it all of these: other sequences show the true size.
    several = oracle(size * rng.standard_normal((N_CHECKS, 4, n_dims)))
    size = max(_rms(first), _rms(several), np.finfo(float).tiny)
    repeat_error = _rms(first - again) / size
    predicted = tokens[:, 0] @ value + origin
    deviation = _rms(first - predicted) / size
    from_copies = _rms(first - doubled) / size
    _require_attention(deviation, from_copies, repeat_error)
    if not bias and float(np.abs(origin).max()) > 100 * max(deviation, 1e-15) * size:
        raise Stopped("bias_needed", "The zero token has a non-zero output: the layer has biases.")
    exactness = np.finfo(oracle.output_dtype).eps if oracle.output_dtype.kind == "f" else 0.0
    noise = max(deviation, from_copies, repeat_error, float(np.finfo(float).eps))
    return SumOfValues(
        value, origin * bias, noise, repeat_error, repeat_error <= 8 * float(exactness)
    )


def _rms(numbers: NDArray) -> float:
    return float(np.sqrt(np.mean(numbers**2)))


def _power_of_two(bias: float, value: float) -> float:
    """A power of two, at least 1, that makes ``value`` some times larger than ``bias``."""
    if not bias > value > 0:
        return 1.0
    return float(2.0 ** np.ceil(np.log2(min(bias / value, 1e12)) + 2))


def _require_attention(deviation: float, from_copies: float, repeat_error: float) -> None:
    if repeat_error > LARGEST_NOISE:
        raise Stopped(
            "not_deterministic",
            f"The same query has answers that differ by {repeat_error:.1e} of their size.",
        )
    if max(deviation, from_copies) > LARGEST_NOISE:
        raise Stopped(
            "not_attention",
            f"One-token sequences deviate from an affine function by {deviation:.1e} of their "
            f"size, and a token and its copy by {from_copies:.1e}: for attention without "
            "positions both are zero.",
        )
