"""The best layer with a limited number of heads, and what the limit costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn import heads
from polyattn.errors import InvalidInput
from polyattn.features.pairs import feature_sizes, feature_weights, fold_heads
from polyattn.fitting.result import FitResult
from polyattn.heads import Compression, GramScale
from polyattn.heads.compression import count_heads
from polyattn.heads.data_scale import Units
from polyattn.numerics.scaling import as_risk, restored, scaled
from polyattn.outcome import Outcome
from polyattn.solve.outcomes import FIT_OUTCOMES, FitName
from polyattn.solve.primal import residual_pass
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


def limit_heads(
    result: FitResult, n_heads: int | str, source: Rows | Moments | TriangularFactor
) -> FitResult:
    """Replace the optimum by the best layer with ``n_heads`` heads (or "auto") that was found.

    The convex optimum P* is known, so the excess of any other layer P is the quadratic form
    (P - P*) M (P - P*) in the moments M (plus the penalty): minimising it over layers with few
    heads minimises the true empirical risk.
    """
    token, target = source.token_exponent or 0, source.target_exponent or 0
    units = target - 3 * token
    optimum = scaled(result.coef, -units)
    gram, ridge = _scaled_gram(result, source), float(np.ldexp(result.ridge, -6 * token))
    power = float(np.ldexp(result.risk, -2 * target)) * source.total_weight
    if gram is None:
        found = _unweighed(result, n_heads, optimum)
        coef, note = fold_heads(found.attn, found.value), UNWEIGHED
        power = _measured_power(coef, source)
    else:
        penalised = gram.copy()
        penalised[np.diag_indices_from(gram)] += ridge * feature_weights(optimum.shape[2]) ** 2
        found = _weighed(result, n_heads, optimum, penalised, power, source.n_positive)
        coef, note = fold_heads(found.attn, found.value), _caution(penalised, optimum)
        power = max(0.0, power + _excess(coef, optimum, gram, ridge))
    risk = as_risk(power / source.total_weight, target)
    coef = restored(coef, units, "the coefficients", feature_sizes(source.coordinate_sizes))
    coef.setflags(write=False)
    return replace(
        result,
        coef=coef,
        risk=risk if ridge > 0 else max(risk, result.optimal_risk),
        known_heads=_in_true_units(found, units),
        outcome=_describe(result, risk, found, note),
    )


def _unweighed(result: FitResult, n_heads: int | str, optimum: NDArray) -> Compression:
    """The heads nearest to the optimal coefficients."""
    if n_heads == "auto":
        raise InvalidInput(
            f"n_heads='auto' weighs the noise by the moments of {result.n_features} features, "
            f"which is done up to {MAX_WEIGHED_FEATURES}; give n_heads as a number."
        )
    return heads.best_heads(optimum, int(n_heads), None, result.random_state, result.sample)


def _weighed(
    result: FitResult,
    n_heads: int | str,
    optimum: NDArray,
    gram: NDArray,
    power: float,
    n_rows: int,
) -> Compression:
    """The heads of least penalised risk that were found; none is better than a bad one."""
    if n_heads == "auto":
        found = heads.choose_heads(optimum, gram, power, n_rows, result.random_state)
    else:
        found = heads.best_heads(optimum, int(n_heads), gram, result.random_state)
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
    result: FitResult, source: Rows | Moments | TriangularFactor
) -> NDArray[np.float64] | None:
    """sum psi psi^T of the scaled tokens, from whatever is at hand; None when too large."""
    if isinstance(source, TriangularFactor):
        factor = source.scaled_factor()
        return factor.T @ factor
    if isinstance(result.statistics, Moments):
        return result.statistics.scaled_gram()
    if isinstance(source, Rows) and result.n_features <= MAX_WEIGHED_FEATURES:
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


def _measured_power(coef: NDArray, source: Rows | Moments | TriangularFactor) -> float:
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


def _describe(result: FitResult, risk: float, found: Compression, note: str) -> Outcome[FitName]:
    count = count_heads(found.n_heads)
    used = int(np.count_nonzero(found.attn.any(axis=(1, 2)) & found.value.any(axis=(1, 2))))
    if 0 < used < found.n_heads:
        note = f" It needs {used} of them; the others are zero.{note}"
    best = "the optimum over any number of heads, which no layer can beat,"
    if result.ridge > 0:
        best = "the minimiser with this ridge over any number of heads"
    return FIT_OUTCOMES(
        "limited_heads",
        f"The best layer with {count} that was found has risk {risk:.6g}; {best} has "
        f"{result.optimal_risk:.6g} (gap {risk - result.optimal_risk:.3g}).{note}",
        f"The optimum itself: {result.outcome.sentence}",
    )


def _caution(penalised: NDArray, optimum: NDArray) -> str:
    """What a search could not do where features are of very different size in any units."""
    units = Units.of_inputs(GramScale(penalised, optimum.shape[2]), len(optimum))
    sizes = np.diag(units.moments(penalised))
    return FAR_APART if sizes.max() > GRADED * np.median(sizes) else ""
