"""The minimiser of log-loss plus a ridge, and a proved bound on its distance from the minimum.

    J(theta) = sum_i w_i loss_i(theta^T phi_i) + ridge ||theta||^2

With gradient g at theta, both bounds hold for any theta (docs/derivations/log_loss.md):

    ridge > 0    J - min J <= ||g||^2 / (4 ridge), since J is strongly convex
    always       J - min J <= nu^2 (1 + c) / 2  if c = nu rho < 1, and then a minimum exists:
                 nu^2 = g^T B^-1 g,  rho = f max_i ||phi_i||_{B^-1},
                 for a matrix B <= second derivative of J and the factor f of the loss

The second rests on |third derivative| <= f max_i ||theta^T phi_i|| second derivative.  It decides
without a ridge that data are not separable.  Rounding of the gradient is included in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.numerics.blas import factor_lower
from polyattn.numerics.scaling import EPS
from polyattn.solve.curvature_model import (
    GRAM_FEATURES,
    SearchSpace,
    search_space,
    whitened_inverse,
)
from polyattn.solve.feature_passes import FeaturePasses, WeightedGram
from polyattn.solve.iterative import kept_numbers
from polyattn.solve.log_loss import LogLoss
from polyattn.solve.newton import NewtonIterate, iterate_at, minimise
from polyattn.solve.row_kernel import RowKernel
from polyattn.solve.separation import Separation, separated_in_part
from polyattn.stats import Moments
from polyattn.stats.rows import Rows

Array = NDArray[np.float64]

# A bound of this part of the objective is good enough; above it, a sharper one is looked for.
SMALL_BOUND = 1e-10

# Rows whose loss is below this part of all may be left out of what is bounded from below.
MET = 1e-9


@dataclass(frozen=True)
class LogisticSolution:
    """Coefficients in the coordinates of the norm, for scaled tokens and weights.

    theta : (p, e); if ``separates``, all margins are positive and the least is 1
    loss : sum_i w_i loss_i
    least_loss : its infimum, where that is known; else ``loss``
    objective : with the penalty
    bound : the objective is at most so much above its infimum; None: not proved
    has_minimum : whether it is proved that the infimum is attained
    rank : of the features, where there is no ridge and it is known
    condition : of the equilibrated features, estimated
    n_without : rows of positive weight without any feature
    part : rows that a direction separates from the others, if one was found
    moments : the sums of the features, where they were made
    judged : the part of the largest singular value below which others counted as zero; 0: none did
    note : a sentence for the outcome, beginning with a space
    """

    theta: Array
    loss: float
    least_loss: float
    objective: float
    bound: float | None
    has_minimum: bool
    rank: int | None
    condition: float
    n_steps: int
    separates: bool
    n_without: int
    moments: Moments | None
    part: Separation | None = None
    judged: float = 0.0
    note: str = ""


def solve_logistic(rows: Rows, loss: LogLoss, ridge: float) -> LogisticSolution:
    """The minimiser for rows without targets; ``loss`` has their weights, up to a constant.

    Cost: one Gram matrix of the features and its factor (up to ``GRAM_FEATURES``), and some tens of
    passes; without a ridge a second Gram matrix for the bound.  With a ridge and few rows their
    kernel is factored in its place.
    """
    rows = replace(rows, kept_numbers=kept_numbers())
    passes = FeaturePasses(replace(rows, sequence_weights=None))
    moments, space = None, None
    # The weights of the loss are those of the rows times a power of two.
    unit = float(loss.weights.sum()) / rows.total_weight
    if rows.n_features <= GRAM_FEATURES:
        moments = Moments.of(rows)
        gram = _gram_of(moments, unit)
        space = search_space(passes, loss.weights, gram, 2.0 * ridge, rows)
    first = loss.first_curvature * loss.weights
    kernel = RowKernel.of(passes, first, 2.0 * ridge)
    if kernel is not None:
        inverse = kernel.inverse(first)
    elif space is not None:
        curvature = space.penalised(loss.first_curvature * space.gram, 2.0 * ridge)
        inverse = space.inverse(curvature)
    else:
        inverse = whitened_inverse(rows, unit * loss.first_curvature, 2.0 * ridge)
    found = minimise(passes, loss, ridge, inverse, space, kernel)
    is_empty = ~passes.has_features() & (loss.weights > 0.0)
    solution = LogisticSolution(
        theta=found.theta,
        loss=found.point.value,
        least_loss=found.point.value,
        objective=found.objective,
        bound=None,
        has_minimum=False,
        rank=None if space is None else space.rank,
        condition=float("nan") if space is None else space.condition,
        n_steps=found.n_steps,
        separates=found.separates,
        n_without=int(np.count_nonzero(is_empty)),
        moments=moments,
        judged=0.0 if space is None else space.tolerance,
    )
    if found.separates:
        # All rows that have features come as near to zero as one likes.
        without = float(loss.weights @ is_empty)
        return replace(solution, least_loss=without * float(np.log(loss.n_classes)))
    if space is not None and space.singular is not None:
        theta, note = space.smallest(found.theta)
        found = iterate_at(passes, loss, ridge, theta)
        solution = replace(
            solution, theta=theta, loss=found.point.value, least_loss=found.point.value,
            objective=found.objective, note=note,
        )  # fmt: skip
    bound = proved_bound(passes, found, ridge, space)
    if np.isfinite(bound):
        return replace(solution, bound=bound, has_minimum=True)
    return solution if space is None else replace(solution, **_in_part(passes, found, space))


def proved_bound(
    passes: FeaturePasses, found: NewtonIterate, ridge: float, space: SearchSpace | None
) -> float:
    """The smaller of both bounds (see above); infinity where nothing is proved."""
    bound = np.inf
    if ridge > 0.0:
        sizes = np.ones(passes.n_features) if space is None else space.scale
        norm = float(np.linalg.norm(found.gradient))
        norm += gradient_rounding(passes, found, ridge, sizes)
        bound = norm**2 / (4.0 * ridge)
    if space is not None and bound > SMALL_BOUND * found.objective:
        bound = min(bound, decrement_bound(passes, found, ridge, space))
    return bound


def decrement_bound(
    passes: FeaturePasses, found: NewtonIterate, ridge: float, space: SearchSpace
) -> float:
    """nu^2 (1 + c) / 2 if c < 1 (see above), else infinity: nothing is proved.

    B is sum_i c_i phi_i phi_i^T + 2 ridge for each output, with c_i the least curvature of the loss
    of row i, which is exact for two classes.
    """
    if space.rank == 0:
        return 0.0
    point = found.point
    weights, counted = point.least_curvature, point.loss.weights > 0.0
    sizes = passes.norms(space.scale)
    stretch = 1.0
    if space.basis is None:
        factor, norms, error = space.curvature(passes, weights, 2.0 * ridge), sizes, 0.0
    else:
        # Projections are rounded beside the features that they are made of.
        factor, norms = passes.projected_gram(weights, space.basis)
        stretch = float(np.linalg.norm(space.scale[:, None] * space.basis))
        rounding = EPS * passes.n_features * stretch * sizes
        error = float(weights @ ((2.0 * norms + rounding) * rounding))
        norms = norms + rounding
    factor = np.asfortranarray(factor)
    error += EPS * 10.0 * len(factor) * lapack.dlange("1", factor)
    if not factor_lower(factor):
        return np.inf
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    largest = float(np.abs(inverse).sum(axis=0).max())  # at least the largest eigenvalue
    doubt = error * largest
    if not doubt < 0.5:
        return np.inf
    gradient = space.restricted(found.gradient)
    decrement = float(np.sqrt(max(0.0, np.sum(gradient * (inverse @ gradient)))))
    rounding_of_gradient = gradient_rounding(passes, found, ridge, space.scale, space.scale)
    decrement += stretch * rounding_of_gradient * float(np.sqrt(largest))
    # The inverse of B itself is no larger than that of what was computed over 1 - doubt.
    decrement /= float(np.sqrt(1.0 - doubt))
    largest /= 1.0 - doubt
    size = float(norms[counted].max())
    c = point.loss.third_derivative_factor * size * float(np.sqrt(largest)) * decrement
    return 0.5 * decrement**2 * (1.0 + c) if c < 1.0 else np.inf


def _in_part(passes: FeaturePasses, found: NewtonIterate, space: SearchSpace) -> dict[str, Any]:
    """What is proved by the rows that are not met already: a bound, and perhaps a minimum.

    Losses are positive, so that inf J >= inf of the loss of any part of the rows.  Where the
    features of that part span as much as all, and its loss has bounded level sets, so has J.
    """
    point, loss = found.point, found.point.loss
    is_met = loss.weights * point.losses <= MET * point.value
    weights = np.where(is_met, 0.0, loss.weights)
    if not np.any(weights) or not np.any(is_met & (loss.weights > 0.0)):
        return {}
    others = replace(loss, weights=weights)
    spanned = search_space(passes, weights, passes.weighted_gram(weights), 0.0)
    if spanned.rank is None:
        return {}
    least = iterate_at(passes, others, 0.0, found.theta, found.outputs)
    bound = decrement_bound(passes, least, 0.0, spanned)
    if not np.isfinite(bound):
        return {}
    has_minimum = spanned.rank == space.rank
    return {
        "bound": bound + max(0.0, point.value - least.point.value),
        "least_loss": point.value if has_minimum else least.point.value,
        "has_minimum": has_minimum,
        "part": None if has_minimum else separated_in_part(passes, loss, found.theta, spanned),
        "judged": max(space.tolerance, spanned.tolerance),
    }


def gradient_rounding(
    passes: FeaturePasses,
    found: NewtonIterate,
    ridge: float,
    scale: Array,
    judged_by: Array | None = None,
) -> float:
    """How far the gradient can be from the computed one, in norm, or divided by ``judged_by``.

    ``scale`` (p,) are sizes of the features, beside which each of them is rounded.

    A sum of n terms errs by at most n roundings of their sizes.  Outputs that err by less than 1/4
    change slopes by no more than 4 times the probability of a wrong class, and always by no more
    than 1, times their weight.
    """
    theta, norms = found.theta, passes.norms(judged_by)
    size = passes.n_terms * float(np.linalg.norm(scale[:, None] * theta))
    of_outputs = size * passes.norms(scale)
    slopes = np.sqrt(np.einsum("er,er->r", found.point.slopes, found.point.slopes))
    small = 2.0 * EPS * float(of_outputs.max()) < 0.25
    curvatures = np.minimum(1.0, 4.0 * found.point.wrong) if small else np.ones_like(slopes)
    errors = (passes.rows.n_rows + passes.n_terms) * slopes
    errors += found.point.loss.weights * curvatures * of_outputs
    judged = theta if judged_by is None else theta / judged_by[:, None]
    of_penalty = 4.0 * ridge * float(np.linalg.norm(judged))
    return 2.0 * EPS * (float(norms @ errors) + of_penalty)


def _gram_of(moments: Moments, unit: float) -> WeightedGram:
    """The Gram matrix behind moments whose weights are multiplied by ``unit``."""
    s = moments.layout.feature_weights
    powers = unit * moments.scaled_feature_powers() / s**2
    return WeightedGram(powers, lambda factors: moments.scaled_gram(np.sqrt(unit) * factors / s))
