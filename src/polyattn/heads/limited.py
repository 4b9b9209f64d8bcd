"""The best layer with a limited number of heads, and what the limit costs.

The convex optimum P* is known, so the excess of any other layer P is the quadratic form
(P - P*) M (P - P*) in the moments M (plus the penalty): minimising it over layers with few heads
minimises the true empirical risk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.pairs import feature_sizes, feature_weights, fold_heads
from polyattn.heads.best import best_heads
from polyattn.heads.choose import choose_heads
from polyattn.heads.data_scale import CoordinateUnits, DataScale, GramScale
from polyattn.heads.target import Compression
from polyattn.numerics.scaling import as_risk, restored, scaled
from polyattn.solve.primal import residual_pass
from polyattn.solve.solvers import Source
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# Beyond this many features the p x p moments are not made just to weigh the heads.
MAX_WEIGHED_FEATURES = 4096

UNWEIGHED = " They were fitted to the optimal coefficients, not to the data."

# Features that differ by more than this, in the best units, are more than a search can weigh.
GRADED = 1e8
FAR_APART = (
    " Beside the ridge the features differ so much in size that better heads may well exist: "
    "bring the coordinates to a similar size."
)


@dataclass(frozen=True)
class LimitedHeads:
    """The best layer found: its heads, their coefficients (e, q, d), the risk, what to add."""

    heads: Compression
    coef: NDArray[np.float64]
    risk: float
    note: str


def limited_heads(
    optimum: NDArray,
    n_heads: int | str,
    source: Source,
    risk: float,
    ridge: float = 0.0,
    moments: Moments | TriangularFactor | None = None,
    data: DataScale | None = None,
    random_state: int = 0,
) -> LimitedHeads:
    """The best layer with ``n_heads`` heads (or "auto") that was found.

    optimum : coefficients (e, q, d) of the layer with any number of heads
    source : the data or the statistics behind it
    risk, ridge : those of the optimum
    moments : sums that were made already, if there are any
    data : by what heads are judged where the moments are too large to be made
    """
    token, target = source.token_exponent or 0, source.target_exponent or 0
    units = target - 3 * token
    scaled_optimum = scaled(optimum, -units)
    scaled_ridge = float(np.ldexp(ridge, -6 * token))
    power = float(np.ldexp(risk, -2 * target)) * source.total_weight
    gram = _scaled_gram(source, moments)
    if gram is None:
        found = _unweighed(scaled_optimum, n_heads, source, data, random_state)
        coef, note = fold_heads(found.attn, found.value), UNWEIGHED
        power = _measured_power(coef, source)
    else:
        penalised = gram.copy()
        penalised[np.diag_indices_from(gram)] += scaled_ridge * feature_weights(source.width) ** 2
        found = _weighed(scaled_optimum, n_heads, penalised, power, source.n_positive, random_state)
        coef, note = fold_heads(found.attn, found.value), _caution(penalised, scaled_optimum)
        power = max(0.0, power + _excess(coef, scaled_optimum, gram, scaled_ridge))
    found_risk = as_risk(power / source.total_weight, target)
    coef = restored(coef, units, "the coefficients", feature_sizes(source.coordinate_sizes))
    coef.setflags(write=False)
    return LimitedHeads(
        heads=_in_true_units(found, units),
        coef=coef,
        risk=found_risk if ridge > 0 else max(found_risk, risk),
        note=_unneeded(found) + note,
    )


def _unweighed(
    optimum: NDArray, n_heads: int | str, source: Source, data: DataScale | None, random_state: int
) -> Compression:
    """The heads nearest to the optimal coefficients."""
    if n_heads == "auto":
        raise InvalidInput(
            f"n_heads='auto' weighs the noise by the moments of {source.n_features} features, "
            f"which is done up to {MAX_WEIGHED_FEATURES}; give n_heads as a number."
        )
    return best_heads(optimum, int(n_heads), None, random_state, data)


def _weighed(
    optimum: NDArray,
    n_heads: int | str,
    gram: NDArray,
    power: float,
    n_rows: int,
    random_state: int,
) -> Compression:
    """The heads of least penalised risk that were found; none is better than a bad one."""
    if n_heads == "auto":
        found = choose_heads(optimum, gram, power, n_rows, random_state)
    else:
        found = best_heads(optimum, int(n_heads), gram, random_state)
    zeros = _quadratic(optimum, gram)
    if _quadratic(fold_heads(found.attn, found.value) - optimum, gram) <= zeros:
        return found
    return replace(
        found,
        attn=np.zeros_like(found.attn),
        value=np.zeros_like(found.value),
        lost=1.0,
        risk_gap=zeros,
        sentence="Zeros are better than all heads that were found.",
    )


def _scaled_gram(
    source: Source, moments: Moments | TriangularFactor | None
) -> NDArray[np.float64] | None:
    """sum psi psi^T of the scaled tokens, made where it is not known; None when too large."""
    known = moments if isinstance(source, Rows) else source
    if known is not None:
        return GramScale.of(known).gram
    if isinstance(source, Rows) and source.n_features <= MAX_WEIGHED_FEATURES:
        return Moments.of(source).scaled_gram()
    return None


def _excess(coef: NDArray, optimum: NDArray, gram: NDArray, ridge: float) -> float:
    """The increase of the sum of squared errors over the optimum P*.

    The optimum satisfies M P* - b = -ridge s^2 P*, so with D = P - P* the increase is
    D M D - 2 ridge <D, s^2 P*>.  With a ridge P* is not the least of it.
    """
    difference = coef - optimum
    squares = feature_weights(coef.shape[2]).reshape(coef.shape[1:]) ** 2
    curved = _quadratic(difference, gram)
    increase = curved - 2.0 * ridge * float(np.sum(difference * squares * optimum))
    return increase if ridge > 0 else max(0.0, increase)


def _quadratic(difference: NDArray, gram: NDArray) -> float:
    """D M D of coefficients (e, q, d)."""
    flat = difference.reshape(len(difference), -1)
    return float(np.sum(flat @ gram * flat))


def _measured_power(coef: NDArray, source: Source) -> float:
    """The sum of squared errors by one more pass over the data."""
    if not isinstance(source, Rows):
        raise InvalidInput("n_heads=... for so many features needs X and Y, not statistics.")
    theta = coef.reshape(len(coef), -1) * feature_weights(source.width)
    return residual_pass(np.ascontiguousarray(theta.T), source)[1]


def _in_true_units(found: Compression, exponent: int) -> Compression:
    """Heads of the scaled problem as heads of the true one: the power of two is shared."""
    half = exponent // 2
    return replace(
        found,
        attn=restored(found.attn, half, "the heads"),
        value=restored(found.value, exponent - half, "the heads"),
    )


def _unneeded(found: Compression) -> str:
    """What is to be said of heads that are zero because the layer needs fewer."""
    used = int(np.count_nonzero(found.attn.any(axis=(1, 2)) & found.value.any(axis=(1, 2))))
    needed = 0 < used < found.n_heads
    return f" It needs {used} of them; the others are zero." if needed else ""


def _caution(penalised: NDArray, optimum: NDArray) -> str:
    """What a search could not do where features are of very different size in any units."""
    units = CoordinateUnits.of_inputs(GramScale(penalised, optimum.shape[2]), len(optimum))
    sizes = np.diag(units.moments(penalised))
    return FAR_APART if sizes.max() > GRADED * np.median(sizes) else ""
