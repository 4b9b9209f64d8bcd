"""choose_heads: as many heads as the data ask for, and no more than the noise explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.special import fdtri

from polyattn.errors import InvalidInput
from polyattn.heads.algebra import layer_tensor
from polyattn.heads.best import CAREFUL, ROUGH, candidates, finish_weighted, weighed
from polyattn.heads.compress import compress
from polyattn.heads.data_scale import GramScale
from polyattn.heads.descent import HeadDescent, descend
from polyattn.heads.head_search import HeadTrial, fewest, generic_heads, layer_dimension
from polyattn.heads.metric import Metric, excess, whiten
from polyattn.heads.target import Compression
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_seed
from polyattn.quoting import counted

# How often noise alone may refuse the true number of heads.
REFUSED = 1e-4
# A gap below eps <P, M P> is rounding.
ROUNDING = 1.5e-8
# A rough descent that comes so near to what is allowed is followed further.
NEARLY = 1.05
STARTS = 12
# Multiply-adds after which no further number of heads is tried.
TOTAL_WORK = 8e10
# Eigenvalues of the scaled moments below this part, per feature, are zero.
SINGULAR = 1e-14


@single_threaded_blas()
def choose_heads(
    coef: ArrayLike,
    gram: ArrayLike,
    residual_power: float,
    n_rows: int,
    random_state: RandomState = 0,
) -> Compression:
    """The layer with fewest heads whose excess over the optimum noise alone would explain.

    If the truth has H heads and the noise is Gaussian, the gap of the best H-head layer is about
    chi-square with  f = e p - dim_H  degrees of freedom times the variance, where dim_H is the
    dimension of H-head layers, and residual_power has  g = e (n_rows - p).  So  (gap / f) /
    (residual_power / g)  follows F(f, g), and the smallest H is taken whose gap is below the
    quantile 1 - 1e-4 of it.

    Parameters
    ----------
    coef : array (e, q, d)
        The least-squares optimum P.
    gram : array (p, p)
        Moments M of the features (where singular, its rank takes the place of p).
    residual_power : float
        Sum of squared errors of P.
    n_rows : int
        Number of predicted positions.
    random_state : int, Generator or None
        Seed of the starts.

    Guarantee: the gap is reported and obeys the rule.  Under small Gaussian noise the true number
    of heads is refused with probability about 1e-4, provided its best layer is found.  Without
    residual degrees of freedom (n_rows <= p) the noise is unknown and the function is kept.
    Cost: as ``best_heads`` for each number tried: 1, 2, 3, 4, 6, 8, 12, ... then a bisection.
    """
    if not (np.isfinite(residual_power) and residual_power >= 0):
        raise InvalidInput(f"residual_power must be a number >= 0; got {residual_power!r}.")
    seed = require_seed(random_state)
    target, moments = weighed(coef, gram)
    tensor, metric, restore = whiten(target.tensor, moments)
    if metric.power(tensor) <= 0.0:
        return target.nothing(risk_gap=0.0)
    rank = moments_rank(moments)
    spare = len(target.tensor) * (n_rows - rank)
    found, note = None, "Noise explains no number of heads below that of the optimum. "
    if spare <= 0:
        sizes = f"{counted(n_rows, 'position')} for {counted(rank, 'feature')}"
        note = f"{sizes} leave no estimate of the noise. "
    else:
        power = target.in_true_units(excess(target.tensor, moments))
        allowed = allowance(tensor.shape, residual_power / spare / power, rank, spare)
        found = _search(tensor, metric, allowed, np.random.default_rng(seed))
    if found is None:
        # The function itself with few heads; its gap is rounding.
        data = GramScale(np.asarray(gram, dtype=np.float64), target.tensor.shape[3])
        kept = compress(coef, random_state=seed, data=data)
        missed = target.tensor - layer_tensor(*target.scaled_heads(kept))
        gap = target.in_true_units(excess(missed, moments))
        return replace(kept, risk_gap=gap, sentence=note + kept.sentence)
    chosen = finish_weighted(target, *restore(found.value, found.key), moments)
    limit = allowed(chosen.n_heads) ** 2 * power
    sentence = (
        f"The data ask for {counted(chosen.n_heads, 'head')}: the sum of squared errors grows by "
        f"{chosen.risk_gap:.3g}, and up to {limit:.3g} of it can be noise."
    )
    return replace(chosen, sentence=sentence)


def moments_rank(gram: NDArray) -> int:
    """The rank of moments, judged after features are brought to equal size."""
    size = np.sqrt(np.diag(gram))
    used = size > 0
    equal = gram[np.ix_(used, used)] / size[used] / size[used][:, None]
    cutoff = SINGULAR * len(equal)
    try:
        cholesky(equal - cutoff * np.eye(len(equal)), check_finite=False)
    except LinAlgError:
        return int(np.count_nonzero(np.linalg.eigvalsh(equal) > 10.0 * cutoff))
    return len(equal)


def allowance(
    shape: tuple[int, ...], variance: float, rank: int, spare: int
) -> Callable[[int], float]:
    """H -> the largest relative loss that noise explains, for a tensor of shape (e, d, d, m).

    ``variance`` is relative to <P, M P>, ``rank`` that of M, ``spare`` the degrees of freedom
    of the residual.
    """
    n_outputs, width, _, n_queries = shape

    def allowed(n_heads: int) -> float:
        dimension = layer_dimension(n_heads, width, n_outputs, n_queries)
        freedom = max(0, n_outputs * rank - dimension)
        quantile = fdtri(freedom, spare, 1.0 - REFUSED) if freedom > 0 else 0.0
        return max(ROUNDING, float(np.sqrt(variance * freedom * quantile)))

    return allowed


def _search(
    tensor: NDArray, metric: Metric, allowed: Callable[[int], float], rng: np.random.Generator
) -> HeadDescent | None:
    """The fewest heads whose gap is allowed, followed to the best layer with so many."""
    n_outputs, width, _, n_queries = tensor.shape

    def attempt(n_heads: int) -> HeadTrial:
        loss, spent = allowed(n_heads), 0.0
        starts = candidates(tensor, n_heads, metric, replace(ROUGH, enough=loss), rng)
        for found in islice(starts, STARTS):
            spent += found.work
            if loss < found.loss < NEARLY * loss:
                closer = replace(ROUGH, fraction=1e-3, enough=loss)
                found = descend(tensor, found.value, found.key, metric, closer)
                spent += found.work
            if found.loss <= loss:
                return found, spent
        return None, spent

    most = generic_heads(width, n_outputs, n_queries)
    # 1, 2, 3, 4, 6, 8, 12, ...
    ladder = [1, *(step << power for power in range(most.bit_length()) for step in (2, 3))]
    found = fewest(attempt, sorted(ladder), most, TOTAL_WORK)
    return found and descend(tensor, found.value, found.key, metric, CAREFUL)
