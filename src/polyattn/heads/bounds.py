"""How many heads a function needs at least, and how many a generic function needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import n_pairs

# Rounding of a contraction of a tensor of norm one with unit vectors.
ROUNDING = 1e-14
PROBES = 4


def least_heads(tensor: NDArray, tolerance: float, rng: np.random.Generator) -> int:
    """A number of heads below which no layer is within ``tolerance`` of S (norm one).

    For unit vectors y, c, x the layer's matrices
        M(y)[a,l]  = sum_jk S[a,j,k,l] y_j y_k = sum_h (V_h^T y)(A_h y)^T      has rank <= H,
        Q(c,x)[j,k] = sum_al S[a,j,k,l] c_a x_l = sum_h sym(V_h c (A_h^T x)^T)  has rank <= 2 H,
    and differ from those of S by at most ||S - sym T||_F.

    Guarantee: every layer with fewer heads has lost > tolerance (Eckart-Young); for a generic
    layer with H <= max(min(e, d), d/2) heads the bound is H itself, with probability one.
    Cost: O(e d^2 m) per probe.
    """
    n_outputs, width, _, n_queries = tensor.shape
    least = 1
    for _ in range(PROBES):
        y, c, x = (_unit(rng, size) for size in (width, n_outputs, n_queries))
        at_point = y @ (y @ tensor)
        form = np.tensordot(c, tensor @ x, 1)
        least = max(least, _rank(at_point, tolerance), -(-_rank(form, tolerance) // 2))
    return least


def layer_dimension(n_heads: int, width: int, n_outputs: int, n_queries: int) -> int:
    """The dimension of the set of functions with ``n_heads`` generic heads.

        H (d e + d m - H) - m syz(e) - e syz(m),    at most e q m,

    parameters less the (H, H) mixtures of heads, less the ways in which linear forms cancel:
    syz(e) counts linear columns c(y) with (V_1^T y, ..., V_H^T y) c(y) = 0 for all y.
    It equals the rank of the Jacobian at a random layer (tests/test_heads_bounds.py).
    """
    # More heads never span less; past the peak of the formula the cancellations overlap.
    counts = (_counted(heads, width, n_outputs, n_queries) for heads in range(1, n_heads + 1))
    return max(counts)


def generic_heads(width: int, n_outputs: int, n_queries: int) -> int:
    """The fewest heads whose functions fill the whole space, as parameters are counted."""
    full = n_outputs * n_pairs(width) * n_queries
    most = width * min(n_outputs, n_queries)
    enough = (h for h in range(1, most) if _counted(h, width, n_outputs, n_queries) == full)
    return next(enough, most)


def _counted(n_heads: int, width: int, n_outputs: int, n_queries: int) -> int:
    """The formula of ``layer_dimension``."""
    free = n_heads * (width * (n_outputs + n_queries) - n_heads)
    free -= n_queries * _syzygies(n_heads, width, n_outputs)
    free -= n_outputs * _syzygies(n_heads, width, n_queries)
    return min(n_outputs * n_pairs(width) * n_queries, free)


def _syzygies(n_heads: int, width: int, n_rows: int) -> int:
    """Linear columns c(y) that n_rows x n_heads generic linear forms send to zero."""
    forced = n_heads * width - n_rows * n_pairs(width)
    # One row of forms always cancels in pairs: u_1 u_2 - u_2 u_1 = 0.
    paired = n_heads * (n_heads - 1) // 2 if n_rows == 1 and n_heads <= width else 0
    return max(forced, paired, 0)


def _unit(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    vector = rng.standard_normal(size)
    return vector / np.linalg.norm(vector)


def _rank(matrix: NDArray, tolerance: float) -> int:
    sigma = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(sigma > tolerance + ROUNDING))
