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

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from polyattn.numerics.blas import factor_lower
from polyattn.numerics.scaling import EPS
from polyattn.solve.curvature_model import (
    GRAM_FEATURES,
    SearchSpace,
    WeightedGram,
    search_space,
    whitened_inverse,
)
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.iterative import kept_numbers
from polyattn.solve.log_loss import LogLoss
from polyattn.solve.newton import NewtonIterate, minimise
from polyattn.stats import Moments
from polyattn.stats.rows import Rows

Array = NDArray[np.float64]

# A bound of this part of the objective is good enough; above it, a sharper one is looked for.
SMALL_BOUND = 1e-10

JUDGED = (
    " The rank was judged from second moments, which cannot see singular values below 1e-7 of the "
    "largest."
)


@dataclass(frozen=True)
class LogisticSolution:
    """Coefficients in the coordinates of the norm, for scaled tokens and weights.

    theta : (p, e); if ``separates``, all margins are positive and the least is 1
    loss : sum_i w_i loss_i
    least_loss : its infimum, where that is known; else ``loss``
    objective : with the penalty
    bound : the objective is at most so much above its minimum; None: not proved
    rank : of the features, where there is no ridge and it is known
    condition : of the equilibrated features, estimated
    moments : the sums of the features, where they were made
    note : a sentence for the outcome, beginning with a space
    """

    theta: Array
    loss: float
    least_loss: float
    objective: float
    bound: float | None
    rank: int | None
    condition: float
    n_steps: int
    n_products: int
    separates: bool
    moments: Moments | None
    note: str = ""


def solve_logistic(rows: Rows, loss: LogLoss, ridge: float) -> LogisticSolution:
    """The minimiser for rows without targets; ``loss`` has their weights, up to a constant.

    Cost: one Gram matrix of the features and its factor (up to ``GRAM_FEATURES``), and some tens of
    passes; without a ridge a second Gram matrix for the bound.
    """
    rows = replace(rows, kept_numbers=kept_numbers())
    passes = FeaturePasses(replace(rows, sequence_weights=None))
    moments, space = None, None
    # The weights of the loss are those of the rows times a power of two.
    unit = float(loss.weights.sum()) / rows.total_weight
    if rows.n_features <= GRAM_FEATURES:
        moments = Moments.of(rows)
        space = search_space(_gram_of(moments, unit), 2.0 * ridge)
        inverse = space.inverse(space.gram, loss.first_curvature, 2.0 * ridge)
    else:
        inverse = whitened_inverse(rows, unit * loss.first_curvature, 2.0 * ridge)
    found = minimise(passes, loss, ridge, inverse, space)
    value = found.point.value
    solution = LogisticSolution(
        theta=found.theta,
        loss=value,
        least_loss=value,
        objective=found.objective,
        bound=None,
        rank=None if space is None else space.rank,
        condition=float("nan") if space is None else space.condition,
        n_steps=found.n_steps,
        n_products=found.n_products,
        separates=found.separates,
        moments=moments,
    )
    if found.separates:
        # All rows that have features come as near to zero as one likes.
        without = float(loss.weights @ ~passes.has_features())
        return replace(solution, least_loss=without * float(np.log(loss.n_classes)))
    bound = np.inf
    if ridge > 0.0:
        sizes = np.ones(rows.n_features) if space is None else space.scale
        norm = float(np.linalg.norm(found.gradient))
        norm += gradient_rounding(passes, found, ridge, sizes)
        bound = norm**2 / (4.0 * ridge)
    if space is not None:
        if bound > SMALL_BOUND * found.objective:
            bound = min(bound, decrement_bound(passes, found, ridge, space))
        theta, note = space.smallest(found.theta)
        note = f"{JUDGED}{note}" if space.vectors is not None else ""
        solution = replace(solution, theta=theta, note=note)
    return replace(solution, bound=bound if np.isfinite(bound) else None)


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
    least = WeightedGram(*passes.weighted_gram(point.least_curvature))
    factor = np.asfortranarray(space.matrix(least, 1.0, 2.0 * ridge))
    norm = lapack.dlange("1", factor)
    if not factor_lower(factor):
        return np.inf
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    largest = float(np.abs(inverse).sum(axis=0).max())  # at least the largest eigenvalue
    if not EPS * 10.0 * len(inverse) * norm * largest < 1.0:
        return np.inf
    gradient = space.restricted(found.gradient)
    decrement = float(np.sqrt(max(0.0, np.sum(gradient * (inverse @ gradient)))))
    rounding = gradient_rounding(passes, found, ridge, space.scale, space.scale)
    decrement += rounding * float(np.sqrt(largest))
    size = float(passes.norms(space.scale)[point.loss.weights > 0.0].max())
    c = point.loss.third_derivative_factor * size * float(np.sqrt(largest)) * decrement
    return 0.5 * decrement**2 * (1.0 + c) if c < 1.0 else np.inf


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
