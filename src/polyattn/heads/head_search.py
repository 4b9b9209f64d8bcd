"""The search for few heads: random starts for one number, then steps up and bisection.

How many heads a function needs at least, and how many a generic function needs, say where to begin.
Limits are counted in multiply-adds, not seconds: the same input always gives the same heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import n_pairs
from polyattn.heads.descent import HeadDescent, Patience, descend, round_work
from polyattn.heads.metric import Metric

WORK_PER_COUNT = 8e9
MOST_STARTS = 80
# A start is given so many rounds, later ones more: descents towards heads that diverge never
# end, and are better left for another start.
FIRST_ROUNDS = 300
MORE_ROUNDS = 2.0**0.25
MOST_WORK = 2e11
# Rounding of a contraction of a tensor of norm one with unit vectors.
ROUNDING = 1e-14
PROBES = 4


# What one attempt with a given number of heads found (None: not good enough), and its work.
HeadTrial: TypeAlias = tuple[HeadDescent | None, float]


def random_heads(
    tensor: NDArray, n_heads: int, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """A Gaussian start, smaller than the tensor (norm one), so that the first steps add to it."""
    n_outputs, width, _, n_queries = tensor.shape
    value = rng.standard_normal((n_heads, width, n_outputs))
    key = rng.standard_normal((n_heads, width, n_queries))
    root = 2.0 * n_heads**0.25
    return value / (root * np.sqrt(value[0].size)), key / (root * np.sqrt(key[0].size))


def descents(
    tensor: NDArray, n_heads: int, metric: Metric, patience: Patience, rng: np.random.Generator
) -> Iterator[HeadDescent]:
    """Descents from random starts: 80 when a start is cheap, one when costly, none beyond."""
    first = FIRST_ROUNDS * round_work(tensor, n_heads, metric)
    spent = 0.0
    for count in range(MOST_STARTS if first <= MOST_WORK else 0):
        if spent > WORK_PER_COUNT:
            return
        patience = replace(patience, work=first * MORE_ROUNDS**count)
        found = descend(tensor, *random_heads(tensor, n_heads, rng), metric, patience)
        spent += found.work
        yield found


def fewest(
    attempt: Callable[[int], HeadTrial], ladder: Iterable[int], upper: int, work: float
) -> HeadDescent | None:
    """The success with fewest heads below ``upper`` (None: none was found).

    Tries increasing numbers until one succeeds, then bisects.  Stops when ``work`` is spent.
    """
    best: HeadDescent | None = None
    failed, successful, spent = 0, upper, 0.0
    for heads in ladder:
        if heads >= upper or best is not None or spent > work:
            break
        best, more = attempt(heads)
        spent += more
        failed, successful = (heads, upper) if best is None else (failed, heads)
    while best is not None and successful - failed > 1 and spent <= work:
        heads = (failed + successful) // 2
        found, more = attempt(heads)
        spent += more
        failed, successful = (heads, successful) if found is None else (failed, heads)
        best = found or best
    return best


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

    def rank(matrix: NDArray) -> int:
        sigma = np.linalg.svd(matrix, compute_uv=False)
        return int(np.count_nonzero(sigma > tolerance + ROUNDING))

    least = 1
    for _ in range(PROBES):
        vectors = (rng.standard_normal(size) for size in (width, n_outputs, n_queries))
        y, c, x = (vector / np.linalg.norm(vector) for vector in vectors)
        at_point, form = y @ (y @ tensor), np.tensordot(c, tensor @ x, 1)
        least = max(least, rank(at_point), -(-rank(form) // 2))
    return least


def layer_dimension(n_heads: int, width: int, n_outputs: int, n_queries: int) -> int:
    """The dimension of the set of functions with ``n_heads`` generic heads.

        H (d e + d m - H) - m syz(e) - e syz(m),    at most e q m,

    parameters less the (H, H) mixtures of heads, less the ways in which linear forms cancel:
    syz(e) counts linear columns c(y) with (V_1^T y, ..., V_H^T y) c(y) = 0 for all y.
    """
    # More heads never span less; past the peak of the formula the cancellations overlap.
    return max(_counted(h, width, n_outputs, n_queries) for h in range(1, n_heads + 1))


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
