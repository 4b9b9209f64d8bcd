"""Outputs of heads on one-hot tokens given as ids: rows of matrices, never a dense token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.symbol_counts import DENSE_SYMBOLS, query_groups, refusal, symbols_of
from polyattn.form.form import Form
from polyattn.sequences import SequenceBatch


def sees_symbols(batch: SequenceBatch, form: Form, context: SequenceBatch | None) -> bool:
    """Whether outputs are computed from ids: of many symbols, in forms that see their counts."""
    wide = symbols_of(batch) is not None and batch.n_dims > DENSE_SYMBOLS
    return wide and context is None and refusal(form) is None


def by_symbols(
    batch: SequenceBatch, form: Form, attn: NDArray, value: NDArray
) -> NDArray[np.float64]:
    """Outputs (n_rows, e) of heads attn (H, d, d) and value (H, d, e).

    Where symbol b asks, a token of symbol a adds  sum_h A_h[b, a] V_h[a].
    Cost: H k e flops for each symbol that asks, k the symbols that it attends to, and e for each
    token and position that attends to it.
    """
    outputs = np.zeros((batch.n_rows(form.mode), value.shape[2]))
    for groups in query_groups(batch, form):
        for group in groups:
            scores = attn[:, group.query, group.symbols]
            theta = np.einsum("hk,hke->ke", scores, value[:, group.symbols])
            outputs[group.rows] = group.counts @ theta
    return outputs
