"""choose_heads: as many heads as the data ask for, and no more than the noise explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.special import fdtri

from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.heads.best import (
    CAREFUL,
    ROUGH,
    best_heads,
    candidates,
    finish_weighted,
    weighed,
)
from polyattn.heads.compress import compress
from polyattn.heads.coordinates import whiten
from polyattn.heads.data_scale import GramScale
from polyattn.heads.descent import descend
from polyattn.heads.head_counts import generic_heads, layer_dimension
from polyattn.heads.head_search import FreeDescent, HeadTrial, fewest
from polyattn.heads.metric import Metric, excess
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
    layout: Layout | None = None,
) -> Compression:
    """The layer with fewest heads whose excess over the optimum noise alone would explain.

    If the truth has H heads and the noise is Gaussian, the gap of the best H-head layer is about
    chi-square with  f = e p' - dim_H  degrees of freedom times the variance, where p' counts the
    features of heads (all p without skip and intercept) and dim_H is the dimension of H-head
    layers, and residual_power has  g = e (n_rows - p).  So  (gap / f) /
    (residual_power / g)  follows F(f, g), and the smallest H is taken whose gap is below the
    quantile 1 - 1e-4 of it.

    Parameters
    ----------
    coef : array (e, m, r)
        The least-squares optimum P; (e, q, d) for the papers' layer.
    gram : array (p, p)
        Moments M of the features (where singular, its rank takes the place of p).
    residual_power : float
        Sum of squared errors of P.
    n_rows : int
        Number of predicted positions.
    random_state : int, Generator or None
        Seed of the starts.
    layout : Layout, optional
        That of the form (None: the papers' layer).

    Guarantee: the gap is reported and obeys the rule, and is never above that of ``best_heads``
    for as many heads and the same seed.  Under small Gaussian noise the true number
    of heads is refused with probability about 1e-4, provided its best layer is found.  Without
    residual degrees of freedom (n_rows <= p) the noise is unknown and the function is kept.
    Cost: at most as ``best_heads`` for each number tried, 1, 2, 3, 4, 6, 8, 12, ... then a
    bisection, and once more for the number that was chosen.
    """
    if not (np.isfinite(residual_power) and residual_power >= 0):
        raise InvalidInput(f"residual_power must be a number >= 0; got {residual_power!r}.")
    seed = require_seed(random_state)
    target, moments = weighed(coef, gram, layout)
    fold = target.layout.metric
    tensor, metric, restore = whiten(target.tensor, moments, fold)
    if metric.power(tensor) <= 0.0:
        return target.nothing(risk_gap=0.0)
    of_heads, whole = moments_rank(moments), np.asarray(gram, dtype=np.float64)
    rank = of_heads + moments_rank(whole[len(moments) :, len(moments) :])
    spare = len(target.units.outputs) * (n_rows - rank)
    found, note = None, "Noise explains no number of heads below that of the optimum. "
    if spare <= 0:
        sizes = f"{counted(n_rows, 'position')} for {counted(rank, 'feature')}"
        note = f"{sizes} leave no estimate of the noise. "
    else:
        power = target.in_true_units(excess(target.tensor, moments, fold))
        variance = residual_power / spare / power
        allowed = allowance(tensor.shape, variance, of_heads, spare, metric)
        found = _search(tensor, metric, allowed, np.random.default_rng(seed))
    if found is None:
        # The function itself with few heads; its gap is rounding.
        kept_layout = target.layout.layout
        data = GramScale(whole, kept_layout)
        kept = compress(coef, random_state=seed, data=data)
        missed = target.tensor - target.scaled_tensor(kept.coef(kept_layout))
        gap = target.in_true_units(excess(missed, moments, fold))
        return replace(kept, risk_gap=gap, sentence=note + kept.sentence)
    chosen = finish_weighted(target, found.heads.restored(restore), moments)
    # Fewer starts decide on a number of heads than look for the best layer with so many.
    best = best_heads(coef, chosen.n_heads, gram, seed, layout=layout)
    best = min(best, chosen, key=lambda heads: float(heads.risk_gap or 0.0))
    limit = allowed(found.heads.counts) ** 2 * power
    sentence = (
        f"The data ask for {counted(best.n_heads, 'head')}: the sum of squared errors grows by "
        f"{best.risk_gap:.3g}, and up to {limit:.3g} of it can be noise."
    )
    return replace(best, sentence=sentence)


def moments_rank(gram: NDArray) -> int:
    """The rank of moments, judged after features are brought to equal size."""
    size = np.sqrt(np.maximum(np.diag(gram), 0.0))
    used = size > 0
    equal = gram[np.ix_(used, used)] / size[used] / size[used][:, None]
    cutoff = SINGULAR * len(equal)
    try:
        cholesky(equal - cutoff * np.eye(len(equal)), check_finite=False)
    except LinAlgError:
        return int(np.count_nonzero(np.linalg.eigvalsh(equal) > 10.0 * cutoff))
    return len(equal)


def allowance(
    shape: tuple[int, ...], variance: float, rank: int, spare: int, metric: Metric | None = None
) -> Callable[[tuple[int, ...]], float]:
    """Heads of each scale -> the largest relative loss that noise explains.

    shape : that of a tensor (J e, n_values, n_keys, r), and ``metric`` its fold
    ``variance`` is relative to <P, M P>, ``rank`` that of M, ``spare`` the degrees of freedom
    of the residual.
    """
    fold = metric or Metric()
    n_outputs = shape[0] // fold.n_scales

    def allowed(counts: tuple[int, ...]) -> float:
        one = (n_outputs, *shape[1:])
        dimension = sum(layer_dimension(count, one, fold.shared) for count in counts)
        freedom = max(0, n_outputs * rank - dimension)
        quantile = fdtri(freedom, spare, 1.0 - REFUSED) if freedom > 0 else 0.0
        return max(ROUNDING, float(np.sqrt(variance * freedom * quantile)))

    return allowed


def _search(
    tensor: NDArray,
    metric: Metric,
    allowed: Callable[[tuple[int, ...]], float],
    rng: np.random.Generator,
) -> FreeDescent | None:
    """The fewest heads whose gap is allowed, followed to the best layer with so many."""
    n_scales = metric.n_scales

    def attempt(n_heads: int) -> HeadTrial:
        # The dimension hardly depends on which scales the heads have.
        loss, spent = allowed(_evenly(n_heads, n_scales)), 0.0
        for found in candidates(tensor, n_heads, metric, replace(ROUGH, enough=loss), rng, STARTS):
            spent += found.work
            if loss < found.loss < NEARLY * loss:
                closer = replace(ROUGH, fraction=1e-3, enough=loss)
                found = descend(tensor, found.heads, metric, closer)
                spent += found.work
            if found.loss <= allowed(found.heads.counts):
                return found, spent
        return None, spent

    most = n_scales * generic_heads((len(tensor) // n_scales, *tensor.shape[1:]), metric.shared)
    # 1, 2, 3, 4, 6, 8, 12, ...
    ladder = [1, *(step << power for power in range(most.bit_length()) for step in (2, 3))]
    found = fewest(attempt, sorted(ladder), most, TOTAL_WORK)
    return found and descend(tensor, found.heads, metric, CAREFUL)


def _evenly(n_heads: int, n_scales: int) -> tuple[int, ...]:
    """Heads for each scale, as equal in number as can be."""
    return tuple((n_heads + scale) // n_scales for scale in range(n_scales))
