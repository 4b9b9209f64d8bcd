"""best_heads: the best layer with so many heads, in the norm of coefficients or of data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, require_head_count
from polyattn.features.pairs import n_features
from polyattn.heads.algebra import layer_tensor, reduce, split_heads
from polyattn.heads.compress import compress
from polyattn.heads.data_scale import CoordinateUnits, DataScale, GramScale
from polyattn.heads.descent import HeadDescent, Patience, descend
from polyattn.heads.head_search import MOST_WORK, descents, random_heads
from polyattn.heads.metric import Metric, excess, require_gram, whiten
from polyattn.heads.target import Compression, Target, require_coef
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_generator

# Many starts are followed roughly, the best of them to the end.
ROUGH = Patience(window=4, fraction=0.05, enough=1e-12)
CAREFUL = Patience(window=4, fraction=1e-5, work=5e10, enough=1e-12)
# Tensors up to so many entries are worth a singular value decomposition as a start.
SPECTRAL_SIZE = 1 << 21
ROUNDING = 1e-15


@single_threaded_blas()
def best_heads(
    coef: ArrayLike,
    n_heads: int | str | None,
    gram: ArrayLike | None = None,
    random_state: RandomState = 0,
    data: DataScale | None = None,
) -> Compression:
    """The best layer with ``n_heads`` heads that was found; heads it does not need are zero.

    Minimises  ||sym T_H - S||_F^2,  or with moments M
        sum_a (P_H - P)_a^T M (P_H - P)_a,
    which for the least-squares optimum P is the increase of the sum of squared errors.

    Parameters
    ----------
    coef : array (e, q, d)
        Folded coefficients P.
    n_heads : int >= 1 or None
        None: as few as compute the same function (``compress``).  ``"auto"`` has to know the
        noise: see ``choose_heads``.
    gram : array (p, p), p = q d, optional
        M, positive semidefinite, in the order (pair, l) of ``coef.reshape(e, p)``; it may be
        singular.
    random_state : int, Generator or None
        Seed of the starts; the same seed gives the same heads.
    data : FitResult.data_scale or GramScale, optional
        Without moments: the units in which the norm of coefficients is taken.

    Guarantee: a local minimum, never worse than its starts, among them the truncated ``factor``;
    exact when ``n_heads`` >= min(e d, d^2).  That it is global is not claimed: the problem is
    not convex.
    Cost: about 100 rounds of O(H e d^3 + e p^2) per start, and O(p^2 (q + d)) for the moments.
    """
    count = require_head_count(n_heads)
    if isinstance(count, str):
        raise InvalidInput(
            "n_heads='auto' lets the noise decide, which needs the squared errors of the fit: "
            "call choose_heads(coef, gram, residual_power, n_rows), or pa.fit(..., n_heads='auto')."
        )
    if count is None:
        scale = data
        if gram is not None:
            width = require_coef(coef).shape[2]
            scale = GramScale(require_gram(gram, n_features(width)), width)
        return compress(coef, random_state=random_state, data=scale)
    rng = require_generator(random_state)
    if gram is not None:
        target, moments = weighed(coef, gram)
        tensor, metric, restore = whiten(target.tensor, moments)
        if metric.power(tensor) <= 0.0:
            # The data see nothing of the function: any layer is as good, and zero is one.
            return target.nothing(count, risk_gap=0.0)
        found = best_descent(tensor, count, metric, rng)
        return finish_weighted(target, *restore(found.value, found.key), moments, count)
    target = Target.on(coef, data)
    if target.is_zero:
        return target.nothing(count)
    core, expand = reduce(target.tensor, ROUNDING)
    found = best_descent(core, count, Metric(), rng)
    return target.finish(
        *expand(found.value, found.key),
        "The nearest layer with {heads} that was found does not meet all coefficients ({lost}).",
        n_heads=count,
    )


def weighed(coef: ArrayLike, gram: ArrayLike) -> tuple[Target, NDArray[np.float64]]:
    """Coefficients and moments, both in units in which the features are of size one."""
    array = require_coef(coef)
    moments = require_gram(gram, n_features(array.shape[2]))
    units = CoordinateUnits.of_inputs(GramScale(moments, array.shape[2]), len(array))
    return Target.on(array, units=units), units.moments(moments)


def finish_weighted(
    target: Target, value: NDArray, key: NDArray, gram: NDArray, n_heads: int = 1
) -> Compression:
    """Heads with the gap they cause, in the units of the data."""
    gap = target.in_true_units(excess(target.tensor - layer_tensor(value, key), gram))
    sentence = (
        "The best layer with {heads} that was found raises the sum of squared errors by "
        f"{gap:.3g}."
    )
    return target.finish(value, key, sentence, gap, n_heads)


def best_descent(
    tensor: NDArray, n_heads: int, metric: Metric, rng: np.random.Generator
) -> HeadDescent:
    """The best of several descents, followed to the end."""
    n_outputs, width, _, n_queries = tensor.shape
    most = width * min(n_outputs, n_queries)
    if n_heads >= most:
        return HeadDescent(*split_heads(tensor), 0.0, 0.0)
    best = HeadDescent(*random_heads(tensor, n_heads, rng), np.inf, 0.0)
    for found in candidates(tensor, n_heads, metric, ROUGH, rng):
        best = found if found.loss < best.loss else best
        if best.loss <= ROUGH.enough:
            return best
    return descend(tensor, best.value, best.key, metric, CAREFUL)


def candidates(
    tensor: NDArray, n_heads: int, metric: Metric, patience: Patience, rng: np.random.Generator
) -> Iterator[HeadDescent]:
    """Descents from the truncated decomposition and from random starts."""
    if tensor.size <= SPECTRAL_SIZE:
        start = replace(patience, work=MOST_WORK)
        # In any metric the nearest coefficients are a good place to begin.
        near = descend(tensor, *split_heads(tensor, n_heads), Metric(), start)
        yield descend(tensor, near.value, near.key, metric, start)
    yield from descents(tensor, n_heads, metric, patience, rng)
