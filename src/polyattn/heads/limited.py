"""The best layer with a limited number of heads, and what the limit costs.

The convex optimum P* is known, so the excess of any other layer P is (P - P*) M (P - P*) in the
moments M (plus the penalty): to minimise it over few heads is to minimise the empirical risk.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.form.layout import Layout
from polyattn.heads.best import best_heads
from polyattn.heads.choose import choose_heads
from polyattn.heads.data_scale import CoordinateUnits, DataScale, GramScale
from polyattn.heads.head_rank import split_ranks
from polyattn.heads.linear_terms import Elimination
from polyattn.heads.target import Compression
from polyattn.heads.tensor_layout import TensorLayout
from polyattn.numerics.scaling import as_risk, restored
from polyattn.solve.primal import residual_pass
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import Source
from polyattn.stats.of_source import moments_of
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
    head_rank: int | None = None,
) -> tuple[Compression, NDArray[np.float64], float, str]:
    """The best heads found, their coefficients (e, m, r), their risk, and a note to the outcome.

    solution : the optimum over any number of heads, and ``risk`` in true units
    source : the data or the statistics behind it
    data : by what heads are judged where the moments are too large to be made
    head_rank : the largest rank of a head; where the noise decides on their number, others are
        split into such heads, which costs no accuracy
    """
    layout = source.layout
    best = layout.as_coef(solution.theta)
    known = solution.statistics if isinstance(source, Rows) else source
    if known is None and isinstance(source, Rows) and source.n_features <= MAX_WEIGHED_FEATURES:
        known = moments_of(source)
    limits = (n_heads, head_rank)
    if known is not None:
        gram = GramScale.of(known).gram
        found, power, note = _weighed(best, limits, source, gram, solution, random_state)
    elif isinstance(source, Rows):
        found, power, note = _unweighed(best, limits, source, data, random_state)
    target = source.target_exponent or 0
    found_risk = as_risk(power / source.total_weight, target)
    units = target - 3 * (source.token_exponent or 0)
    sizes = layout.feature_sizes(source.coordinate_sizes)
    coef = restored(found.coef(layout), units, "the coefficients", sizes)
    coef.setflags(write=False)
    used = int(np.count_nonzero(found.attn.any(axis=(1, 2)) & found.value.any(axis=(1, 2))))
    if 0 < used < found.n_heads:
        note = f" It needs {used} of them; the others are zero.{note}"
    if head_rank is not None:
        note = f" Their attention matrices have rank at most {head_rank}.{note}"
    found_risk = found_risk if solution.ridge > 0 else max(found_risk, risk)
    return _in_true_units(found, units), coef, found_risk, note


def _in_true_units(found: Compression, units: int) -> Compression:
    """Heads, of which attn and value share the power of two, and linear terms."""
    skip, intercept = found.skip, found.intercept
    return replace(
        found,
        attn=restored(found.attn, units // 2, "the heads"),
        value=restored(found.value, units - units // 2, "the heads"),
        skip=None if skip is None else restored(skip, units, "the linear terms"),
        intercept=None if intercept is None else restored(intercept, units, "the linear terms"),
    )


def _unweighed(
    optimum: NDArray, limits: tuple[int | str, int | None], rows: Rows, data: DataScale | None,
    random_state: int,
) -> tuple[Compression, float, str]:  # fmt: skip
    """The heads nearest to the optimal coefficients, and their squared errors by one more pass."""
    n_heads, head_rank = limits
    if n_heads == "auto":
        raise InvalidInput(
            f"n_heads='auto' weighs the noise by the moments of {rows.n_features} features, "
            f"which is done up to {MAX_WEIGHED_FEATURES}; give n_heads as a number."
        )
    layout = rows.layout
    found = best_heads(optimum, int(n_heads), None, random_state, data, layout, head_rank)
    power = residual_pass(layout.as_theta(found.coef(layout)), rows)[1]
    return found, power, " They were fitted to the optimal coefficients, not to the data."


def _weighed(
    optimum: NDArray, limits: tuple[int | str, int | None], source: Source, gram: NDArray,
    solution: Solution, random_state: int,
) -> tuple[Compression, float, str]:  # fmt: skip
    """The heads of least penalised risk that were found, their squared errors, and a caution.

    Zeros are better than bad heads.  The optimum P* satisfies M P* - b = -ridge s^2 P*, so with
    D = P - P* the squared errors grow by  D M D - 2 ridge <D, s^2 P*>.  With a ridge P* is not
    the least of them.
    """
    ridge, power, layout = solution.ridge, solution.residual_power, source.layout
    weights = layout.feature_weights**2
    penalised = gram.copy()
    penalised[np.diag_indices_from(gram)] += ridge * weights
    found = _found(optimum, limits, penalised, power, source, random_state)
    order = TensorLayout.of(layout)
    best = order.features(optimum)
    difference = order.features(found.coef(layout)) - best
    zeros = _without_heads(found, optimum, penalised, layout)
    difference_of_zeros = order.features(zeros.coef(layout)) - best
    if not _quadratic(difference, penalised) <= _quadratic(difference_of_zeros, penalised):
        gap = _quadratic(difference_of_zeros, penalised)
        found, difference = replace(zeros, risk_gap=gap), difference_of_zeros
    if isinstance(source, Rows):
        # Large coefficients that hardly count would take their digits from D M D.
        power = residual_pass(layout.as_theta(found.coef(layout)), source)[1]
    else:
        shift = float(np.sum(difference * weights * best))
        increase = _quadratic(difference, gram) - 2.0 * ridge * shift
        power = max(0.0, power + (increase if ridge > 0 else max(0.0, increase)))
    units = CoordinateUnits.of_inputs(GramScale(penalised, layout), len(optimum))
    sizes = np.diag(
        units.moments(penalised[: order.n_product_features, : order.n_product_features])
    )
    return found, power, FAR_APART if sizes.max() > GRADED * np.median(sizes) else ""


def _found(
    optimum: NDArray, limits: tuple[int | str, int | None], gram: NDArray, power: float,
    source: Source, random_state: int,
) -> Compression:  # fmt: skip
    """The heads that the search finds."""
    n_heads, head_rank = limits
    layout = source.layout
    if n_heads == "auto":
        chosen = choose_heads(optimum, gram, power, source.n_positive, random_state, layout)
        return split_ranks(chosen, head_rank)
    return best_heads(optimum, int(n_heads), gram, random_state, None, layout, head_rank)


def _without_heads(
    found: Compression, optimum: NDArray, gram: NDArray, layout: Layout
) -> Compression:
    """Zeros in place of the heads, with the best linear terms."""
    order = TensorLayout.of(layout)
    elimination = Elimination.of(gram, order.n_product_features)
    shifts = elimination.shifts(-order.products(optimum))
    skip, intercept = order.terms(order.linear(optimum) + shifts)
    return replace(
        found, attn=np.zeros_like(found.attn), value=np.zeros_like(found.value), lost=1.0,
        skip=skip, intercept=intercept,
        sentence="Zeros are better than all heads that were found.",
    )  # fmt: skip


def _quadratic(difference: NDArray, gram: NDArray) -> float:
    """D M D of coefficients (e, p) of the features."""
    return float(np.sum(difference @ gram * difference))
