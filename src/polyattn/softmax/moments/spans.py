"""The spans of the heads from the folded tensor: unfold it to a matrix of low rank.

Wanted is M (a b) x (b' c) of rank m with M + M^swap given.  Alternate between the nearest matrix
of rank m (a few power iterations from the last one) and the nearest tensor with the given fold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.moments.correlation import FirstOrder

Matrix = NDArray[np.float64]

# Rounds of alternation, and the change at which they end.
ROUNDS, SETTLED = 30, 1e-4

# Singular values below this, relative to the first, are no direction at all.
NEGLIGIBLE = 1e-8

# How many singular values beyond m are reported.
BEYOND = 3


@dataclass(frozen=True)
class Spans:
    """Bases of the heads' spans: attn (s, 1 + r, r), value (s, r, e), s <= m; all of norm one.

    singular_values : of the unfolded tensor, up to three more than m
    """

    attn: Matrix
    value: Matrix
    singular_values: Matrix


def unfold(first_order: FirstOrder, n_heads: int, rng: np.random.Generator) -> Spans:
    """The spans of ``n_heads`` heads that fit the folded tensor best, to a local optimum."""
    folded = first_order.folded
    n_queries, n_white, _, n_outputs = folded.shape
    shape = (n_queries * n_white, n_white * n_outputs)
    rank = min(n_heads, *shape)
    tensor = _with_fold(np.zeros_like(folded), first_order)
    basis = rng.standard_normal((shape[0], rank))
    for _ in range(ROUNDS):
        matrix = tensor.reshape(shape)
        for _ in range(2):
            basis = np.linalg.qr(matrix @ (matrix.T @ basis))[0]
        low = (basis @ (basis.T @ matrix)).reshape(folded.shape)
        unfolded = _with_fold(low, first_order)
        change = np.linalg.norm(unfolded - tensor)
        tensor = unfolded
        if change <= SETTLED * np.linalg.norm(tensor):
            break
    left, sigma, right = np.linalg.svd(tensor.reshape(shape), full_matrices=False)
    kept = int(np.count_nonzero(sigma[:rank] > NEGLIGIBLE * sigma[:1].sum()))
    return Spans(
        left[:, :kept].T.reshape(kept, n_queries, n_white),
        right[:kept].reshape(kept, n_white, n_outputs),
        sigma[: n_heads + BEYOND],
    )


def _with_fold(tensor: Matrix, first_order: FirstOrder) -> Matrix:
    """The nearest tensor whose fold is the given one, where that is visible."""
    diagonal = np.arange(tensor.shape[1])
    missing = (first_order.folded - tensor - tensor.transpose(0, 2, 1, 3)) / 2
    missing[:, diagonal, diagonal] *= 2
    missing[:, diagonal, diagonal] += tensor[:, diagonal, diagonal]
    missing[:, ~first_order.visible] = 0.0
    return tensor + missing
