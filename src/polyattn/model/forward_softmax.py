"""The forward pass of softmax attention: stable at every scale, in blocks of bounded memory.

Logits are computed of order one, and the powers of two that were taken out of tokens and heads
come back only after the largest logit has been subtracted: what is then too negative for
float64 is a weight of zero, and nothing overflows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.model.blocks import equal_blocks, ordinary_tokens
from polyattn.numerics.arrays import even_ranges
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import restored
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

# Logits that are in memory together.
BLOCK_LOGITS = 1 << 20


@single_threaded_blas()
def forward(
    batch: SequenceBatch,
    attn: NDArray,
    value: NDArray,
    mode: str,
    bias: bool,
    attn_exponent: int = 0,
    value_exponent: int = 0,
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of the heads 2**attn_exponent attn, 2**value_exponent value."""
    tokens = ordinary_tokens(batch, bias, attn, value, degree=2)
    outputs = np.empty((batch.n_rows(mode), value.shape[2]))
    exponent = attn_exponent + 2 * tokens.exponent
    for first, stop, X in equal_blocks(tokens):
        start, end = (first, stop) if mode == "last" else batch.offsets[[first, stop]]
        outputs[start:end] = _attend(X, attn, value, mode, exponent).reshape(end - start, -1)
        report(int(end), len(outputs))
    return restored(outputs, value_exponent + tokens.exponent, "outputs")


def softmax(logits: NDArray, exponent: int = 0) -> NDArray[np.float64]:
    """Softmax of 2**exponent * logits along the last axis, in place; -inf is a weight of 0."""
    logits -= logits.max(axis=-1, keepdims=True)
    if exponent:
        with np.errstate(over="ignore", under="ignore"):
            np.ldexp(logits, exponent, out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=-1, keepdims=True)
    return logits


def _attend(X: NDArray, attn: NDArray, value: NDArray, mode: str, exponent: int) -> NDArray:
    """(B, n, d) -> (B, n, e), or (B, 1, e) in mode ``last``."""
    n_sequences, n_tokens, _ = X.shape
    first_query = n_tokens - 1 if mode == "last" else 0
    outputs = np.empty((n_sequences, n_tokens - first_query, value.shape[2]))
    at_once = max(1, BLOCK_LOGITS // (n_sequences * n_tokens))
    for begin, end in even_ranges(n_tokens - first_query, at_once):
        queries = X[:, first_query + begin : first_query + end]
        keys = X[:, :end] if mode == "causal" else X
        hidden = _later(begin, end) if mode == "causal" else None
        outputs[:, begin:end] = _heads(queries, keys, attn, value, hidden, exponent)
    return outputs


def _heads(
    queries: NDArray,
    keys: NDArray,
    attn: NDArray,
    value: NDArray,
    hidden: NDArray | None,
    exponent: int,
) -> NDArray[np.float64]:
    total = np.zeros((*queries.shape[:2], value.shape[2]))
    for A, V in zip(attn, value, strict=True):
        logits = (queries @ A) @ keys.transpose(0, 2, 1)
        if hidden is not None:
            logits[:, hidden] = -np.inf
        total += (softmax(logits, exponent) @ keys) @ V
    return total


def _later(begin: int, end: int) -> NDArray[np.bool_]:
    """Which of the tokens 0..end lie behind each of the queries begin..end."""
    return np.arange(end)[None, :] > np.arange(begin, end)[:, None]
