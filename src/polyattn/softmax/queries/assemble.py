"""A layer from heads at several differences; the best guess while there are too few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.findings import Findings, HeadsAt


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
