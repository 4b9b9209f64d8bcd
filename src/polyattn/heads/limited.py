"""The best layer with a limited number of heads, and what the limit costs.

The convex optimum P* is known, so the excess of any other layer P is (P - P*) M (P - P*) in the
moments M (plus the penalty): to minimise it over few heads is to minimise the empirical risk.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.features.pairs import feature_sizes, feature_weights, fold_heads
from polyattn.heads.best import best_heads
from polyattn.heads.choose import choose_heads
from polyattn.heads.data_scale import CoordinateUnits, DataScale, GramScale
from polyattn.heads.target import Compression
from polyattn.numerics.scaling import as_risk, restored
from polyattn.solve.primal import as_coef, residual_pass
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import Source
from polyattn.stats import Moments
from polyattn.stats.rows import Rows

# Beyond this many features the p x p moments are not made just to weigh the heads.
MAX_WEIGHED_FEATURES = 4096

# Features that differ by more than this, in the best units, are more than a search can weigh.
GRADED = 1e8
FAR_APART = (
    " Beside the ridge the features differ so much in size that better heads may well exist: "
    "bring the coordinates to a similar size."
)


def limited_heads(
    solution: Solution,
    n_heads: int | str,
    source: Source,
    risk: float,
    data: DataScale | None,
    random_state: int,
) -> tuple[Compression, NDArray[np.float64], float, str]:
    """The best heads found, their coefficients (e, q, d), their risk, and a note to the outcome.

    solution : the optimum over any number of heads, and ``risk`` in true units
    source : the data or the statistics behind it
    data : by what heads are judged where the moments are too large to be made
    """
    best = as_coef(solution.theta, source.width)
    known = solution.statistics if isinstance(source, Rows) else source
    if known is None and isinstance(source, Rows) and source.n_features <= MAX_WEIGHED_FEATURES:
        known = Moments.of(source)
    if known is not None:
        gram = GramScale.of(known).gram
        found, power, note = _weighed(best, n_heads, source, gram, solution, random_state)
    elif isinstance(source, Rows):
        found, power, note = _unweighed(best, n_heads, source, data, random_state)
    target = source.target_exponent or 0
    found_risk = as_risk(power / source.total_weight, target)
    units = target - 3 * (source.token_exponent or 0)
    coef = fold_heads(found.attn, found.value)
    coef = restored(coef, units, "the coefficients", feature_sizes(source.coordinate_sizes))
    coef.setflags(write=False)
    used = int(np.count_nonzero(found.attn.any(axis=(1, 2)) & found.value.any(axis=(1, 2))))
    if 0 < used < found.n_heads:
        note = f" It needs {used} of them; the others are zero.{note}"
    # In true units the power of two is shared.
    attn = restored(found.attn, units // 2, "the heads")
    value = restored(found.value, units - units // 2, "the heads")
    found_risk = found_risk if solution.ridge > 0 else max(found_risk, risk)
    return replace(found, attn=attn, value=value), coef, found_risk, note


def _unweighed(
    optimum: NDArray, n_heads: int | str, rows: Rows, data: DataScale | None, random_state: int
) -> tuple[Compression, float, str]:
    """The heads nearest to the optimal coefficients, and their squared errors by one more pass."""
    if n_heads == "auto":
        raise InvalidInput(
            f"n_heads='auto' weighs the noise by the moments of {rows.n_features} features, "
            f"which is done up to {MAX_WEIGHED_FEATURES}; give n_heads as a number."
        )
    found = best_heads(optimum, int(n_heads), None, random_state, data)
    coef = fold_heads(found.attn, found.value)
    theta = coef.reshape(len(coef), -1) * feature_weights(rows.width)
    power = residual_pass(np.ascontiguousarray(theta.T), rows)[1]
    return found, power, " They were fitted to the optimal coefficients, not to the data."


def _weighed(
    optimum: NDArray, n_heads: int | str, source: Source, gram: NDArray, solution: Solution,
    random_state: int,
) -> tuple[Compression, float, str]:  # fmt: skip
    """The heads of least penalised risk that were found, their squared errors, and a caution.

    Zeros are better than bad heads.  The optimum P* satisfies M P* - b = -ridge s^2 P*, so with
    D = P - P* the squared errors grow by  D M D - 2 ridge <D, s^2 P*>.  With a ridge P* is not
    the least of them.
    """
    ridge, power = solution.ridge, solution.residual_power
    weights = feature_weights(source.width) ** 2
    penalised = gram.copy()
    penalised[np.diag_indices_from(gram)] += ridge * weights
    if n_heads == "auto":
        found = choose_heads(optimum, penalised, power, source.n_positive, random_state)
    else:
        found = best_heads(optimum, int(n_heads), penalised, random_state)
    zeros = _quadratic(optimum, penalised)
    difference = fold_heads(found.attn, found.value) - optimum
    if not _quadratic(difference, penalised) <= zeros:
        found = replace(
            found, attn=np.zeros_like(found.attn), value=np.zeros_like(found.value), lost=1.0,
            risk_gap=zeros, sentence="Zeros are better than all heads that were found.",
        )  # fmt: skip
        difference = -optimum
    shift = float(np.sum(difference * weights.reshape(optimum.shape[1:]) * optimum))
    increase = _quadratic(difference, gram) - 2.0 * ridge * shift
    power = max(0.0, power + (increase if ridge > 0 else max(0.0, increase)))
    units = CoordinateUnits.of_inputs(GramScale(penalised, source.width), len(optimum))
    sizes = np.diag(units.moments(penalised))
    return found, power, FAR_APART if sizes.max() > GRADED * np.median(sizes) else ""


def _quadratic(difference: NDArray, gram: NDArray) -> float:
    """D M D of coefficients (e, q, d)."""
    flat = difference.reshape(len(difference), -1)
    return float(np.sum(flat @ gram * flat))
