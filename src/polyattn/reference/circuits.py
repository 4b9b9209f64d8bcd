"""Circuits of attention heads, literally as printed.

Elhage et al., A Mathematical Framework for Transformer Circuits (2021).

Tokens are columns there: a head has W_Q, W_K, W_V (r, d) and W_O (d, r), and reads and writes by

    W_QK = W_Q^T W_K,      W_OV = W_O W_V,

so that a query x and a key z have the logit x^T W_QK z, and a token z adds W_OV z.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def eigenvalue_score(W: NDArray) -> float:
    """sum_i lambda_i / sum_i |lambda_i| of a square matrix: 1 if it copies, -1 if it negates."""
    values = np.linalg.eigvals(W)
    return float((values.sum() / np.abs(values).sum()).real)


def effective_rank(W: NDArray) -> float:
    """exp of the entropy of the singular values as shares of their sum (Roy, Vetterli, 2007)."""
    total = 0.0
    sigma = np.linalg.svd(W, compute_uv=False)
    for each in sigma / sigma.sum():
        if each > 0:
            total -= each * np.log(each)
    return float(np.exp(total))


def q_composition(W_QK_late: NDArray, W_OV_early: NDArray) -> float:
    """||W_QK^T W_OV|| / (||W_QK^T|| ||W_OV||), Frobenius norms."""
    return _ratio(W_QK_late.T, W_OV_early)


def k_composition(W_QK_late: NDArray, W_OV_early: NDArray) -> float:
    """||W_QK W_OV|| / (||W_QK|| ||W_OV||)."""
    return _ratio(W_QK_late, W_OV_early)


def v_composition(W_OV_late: NDArray, W_OV_early: NDArray) -> float:
    """||W_OV W_OV'|| / (||W_OV|| ||W_OV'||)."""
    return _ratio(W_OV_late, W_OV_early)


def _ratio(late: NDArray, early: NDArray) -> float:
    norms = np.linalg.norm(late) * np.linalg.norm(early)
    return float(np.linalg.norm(late @ early) / norms)
