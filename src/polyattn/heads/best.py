"""best_heads: the best layer with so many heads, in the norm of coefficients or of data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, require_head_count, require_integer
from polyattn.form.layout import Layout
from polyattn.heads.compress import compress
from polyattn.heads.coordinates import reduce, whiten
from polyattn.heads.data_scale import CoordinateUnits, DataScale, GramScale
from polyattn.heads.descent import HeadDescent, Patience, descend
from polyattn.heads.head_counts import most_heads
from polyattn.heads.head_rank import lower_rank, split_keys, split_ranks
from polyattn.heads.head_search import (
    MOST_WORK,
    FreeDescent,
    descents,
    moved_between_scales,
    random_heads,
)
from polyattn.heads.head_set import HeadSet, Restore
from polyattn.heads.linear_terms import Elimination
from polyattn.heads.low_rank_heads import LowRankHeads
from polyattn.heads.metric import Metric, excess, require_gram
from polyattn.heads.target import Compression, Target
from polyattn.heads.tensor_layout import require_layout
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_generator

# Many starts are followed roughly, the best of them to the end.
ROUGH = Patience(window=4, fraction=0.05, enough=1e-12)
CAREFUL = Patience(window=4, fraction=1e-5, work=5e10, enough=1e-12)
# Tensors up to so many entries are worth a singular value decomposition as a start.
SPECTRAL_SIZE = 1 << 21
ROUNDING = 1e-15
# Coefficients that are missed by no more are met, as ``compress`` meets them.
MET = 1e-10


@single_threaded_blas()
def best_heads(
    coef: ArrayLike,
    n_heads: int | str | None,
    gram: ArrayLike | None = None,
    random_state: RandomState = 0,
    data: DataScale | None = None,
    layout: Layout | None = None,
    head_rank: int | None = None,
) -> Compression:
    """The best layer with ``n_heads`` heads that was found; heads it does not need are zero.

    Minimises  ||sym T_H - S||_F^2,  or with moments M
        sum_a (P_H - P)_a^T M (P_H - P)_a,
    which for the least-squares optimum P is the increase of the sum of squared errors.

    Parameters
    ----------
    coef : array (e, m, r)
        Folded coefficients P; (e, q, d) for the papers' layer.
    n_heads : int >= 1 or None
        In all scales together.  None: as few as compute the same function (``compress``).
        ``"auto"`` has to know the noise: see ``choose_heads``.
    gram : array (p, p), optional
        M, positive semidefinite, in the order (sum, l) of the features of the layout, which for
        the papers' layer is that of ``coef.reshape(e, p)``; it may be singular.
    random_state : int, Generator or None
        Seed of the starts; the same seed gives the same heads.
    data : FitResult.data_scale or GramScale, optional
        Without moments: the units in which the norm of coefficients is taken.
    layout : Layout, optional
        That of the form (None: that of the data, or the papers' layer).  Skip and intercept are
        always the best ones for the heads; without moments they stay as they are.
    head_rank : int >= 1, optional
        The largest rank of an ``attn[h]``.  A head of higher rank is the sum of such heads, so
        with ``n_heads=None`` this limits nothing: heads are split.

    Guarantee: a local minimum, never worse than its starts, among them the truncated ``factor``
    and, for ``head_rank``, the best heads truncated, and fewer of them split.  Exact when
    ``n_heads`` >= min(e v, k r) for v values and k keys of each scale, and without moments also
    where no product folds (Eckart-Young).  Otherwise that it is global is not claimed: the problem
    is not convex.  All scales descend together; which of them has how many heads is improved by
    moving one at a time.
    Cost: about 100 rounds of O(H e d^3 + e p^2) per start, and O(p^2 (q + d)) for the moments.
    """
    count, rank = require_head_count(n_heads), head_rank
    if rank is not None:
        rank = require_integer("head_rank", rank, 1)
    if isinstance(count, str):
        raise InvalidInput(
            "n_heads='auto' lets the noise decide, which needs the squared errors of the fit: "
            "call choose_heads(coef, gram, residual_power, n_rows), or pa.fit(..., n_heads='auto')."
        )
    if count is None:
        if gram is not None:
            order = require_layout(coef, layout)[1]
            data = GramScale(require_gram(gram, order.layout.n_features), order.layout)
        return split_ranks(
            compress(coef, random_state=random_state, data=data, layout=layout), rank
        )
    rng = require_generator(random_state)
    if gram is not None:
        target, moments = weighed(coef, gram, layout)
        tensor, metric, restore = whiten(target.tensor, moments, target.layout.metric)
        if metric.power(tensor) <= 0.0:
            # The data see nothing of the function: any layer is as good, and zero is one.
            return target.nothing(count, risk_gap=0.0)
        heads = _best(tensor, count, metric, rng, rank, restore)
        return finish_weighted(target, heads, moments, count)
    target = Target.on(coef, data, layout=layout)
    if target.is_zero:
        return target.nothing(count)
    core, metric, expand = reduce(target.tensor, ROUNDING, target.layout.metric)
    nearest = _best(core, count, metric, rng, rank, expand)
    sentence = "The nearest layer with {heads} that was found does not meet all coefficients"
    if np.linalg.norm(target.tensor - nearest.tensor()) <= MET:
        sentence = "The function was written with {heads}"
    return target.finish(nearest, sentence + " ({lost}).", n_heads=count)


def weighed(
    coef: ArrayLike, gram: ArrayLike, layout: Layout | None
) -> tuple[Target, NDArray[np.float64]]:
    """Coefficients and moments in units of size one, both in the order of the tensor.

    Linear terms are eliminated from the moments.
    """
    array, order = require_layout(coef, layout)
    checked = require_gram(gram, order.layout.n_features)
    units = CoordinateUnits.of_inputs(GramScale(checked, order.layout), len(array))
    elimination = Elimination.of(checked, order.n_product_features)
    target = Target.on(array, units=units, layout=order.layout, elimination=elimination)
    return target, order.moments(units.moments(elimination.moments))


def finish_weighted(
    target: Target, heads: HeadSet | LowRankHeads, gram: NDArray, n_heads: int = 1
) -> Compression:
    """Heads with the gap they cause, in the units of the data."""
    gap = excess(target.tensor - heads.tensor(), gram, target.layout.metric)
    gap = target.in_true_units(gap)
    sentence = (
        "The best layer with {heads} that was found raises the sum of squared errors by "
        f"{gap:.3g}."
    )
    return target.finish(heads, sentence, gap, n_heads)


def best_descent(
    tensor: NDArray, n_heads: int, metric: Metric, rng: np.random.Generator
) -> FreeDescent:
    """The best of several descents, followed to the end."""
    if n_heads >= metric.n_scales * most_heads(_one_scale(tensor, metric)):
        return HeadDescent(HeadSet.factored(tensor, metric), 0.0, 0.0)
    if metric.gram is None and metric.shared is not None and metric.shared < 2:
        # Nothing folds: the largest singular values are the nearest.
        return descend(tensor, HeadSet.factored(tensor, metric, n_heads), metric, CAREFUL)
    best: FreeDescent | None = None
    for found in candidates(tensor, n_heads, metric, ROUGH, rng):
        best = found if best is None or found.loss < best.loss else best
        if best.loss <= ROUGH.enough:
            return best
    if best is None:
        start = random_heads(tensor, (n_heads,), metric, rng)
        best = HeadDescent(start, np.inf, 0.0)
    return descend(tensor, best.heads, metric, CAREFUL)


def candidates(
    tensor: NDArray,
    n_heads: int,
    metric: Metric,
    patience: Patience,
    rng: np.random.Generator,
    most: int | None = None,
) -> Iterator[FreeDescent]:
    """Descents from the truncated decomposition and from random starts.

    Of several scales first with the numbers of heads that singular values suggest, then with
    others, as long as these are better.
    most : how many for the same numbers; None: as many as are worth it
    """
    counts: tuple[int, ...] = (n_heads,)
    best: FreeDescent | None = None
    if tensor.size <= SPECTRAL_SIZE or metric.n_scales > 1:
        start = replace(patience, work=MOST_WORK)
        # In any metric the nearest coefficients are a good place to begin.
        spectral = HeadSet.factored(tensor, metric, n_heads)
        plain = Metric(None, metric.shared, metric.n_scales)
        near = descend(tensor, spectral, plain, start)
        best = descend(tensor, near.heads, metric, start)
        yield best
        counts = counts if metric.n_scales == 1 else spectral.counts
    while True:
        for found in islice(descents(tensor, counts, metric, patience, rng), most and most - 1):
            yield found
            best = found if best is None or found.loss < best.loss else best
        if best is None or metric.n_scales == 1:
            return
        best = moved_between_scales(tensor, best, metric, patience)
        if best.heads.counts == counts:
            return
        yield best
        counts = best.heads.counts


def _best(
    tensor: NDArray,
    n_heads: int,
    metric: Metric,
    rng: np.random.Generator,
    head_rank: int | None,
    restore: Restore,
) -> HeadSet | LowRankHeads:
    """The best heads that were found, of limited rank where that is asked for."""
    found = best_descent(tensor, n_heads, metric, rng)
    if head_rank is None or head_rank >= min(tensor.shape[2:]):
        return found.heads.restored(restore)
    starts, pieces = [found.heads], -(-min(tensor.shape[2:]) // head_rank)
    if n_heads >= pieces:
        # Fewer heads of any rank, each the sum of some of this rank.
        fewer = best_descent(tensor, n_heads // pieces, metric, rng)
        starts.append(split_keys(fewer.heads, head_rank))
    limited = lower_rank(tensor, starts, head_rank, metric, (ROUGH, CAREFUL), rng)
    return limited.restored(restore)


def _one_scale(tensor: NDArray, metric: Metric) -> tuple[int, ...]:
    """The shape of the tensor of one scale."""
    return (len(tensor) // metric.n_scales, *tensor.shape[1:])
