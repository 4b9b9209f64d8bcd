"""The decay: one number that the data choose, by the error of predicting sequences left out.

For a fixed decay the layer is linear in its parameters and has a closed form; the decay itself is
searched for, first on a grid of half-lives, then between the neighbours of the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.numerics.scaling import as_risk
from polyattn.progress import report
from polyattn.solve.distinct_inputs import with_distinct_inputs
from polyattn.solve.primal import solve_primal
from polyattn.solve.ridge import left_out_once
from polyattn.stats.rows import Rows

# Rates -log(decay) that are tried first; 0 is no decay.
RATES = np.append(0.0, np.geomspace(5e-4, 5.0, 22))

# Errors that differ by no more than this part of themselves are equal, and so are those below the
# other part of the squares of the largest target: they are rounding.
EQUAL, ROUNDING = 1e-9, 1e-20

# How exactly the rate is searched for, beside itself, and in how many steps at most.  A rate that
# is no larger than the last is none.
EXACT, MOST_STEPS, NO_RATE = 1e-10, 60, 1e-9

# The step by which the curvature of the risk is measured, in units of its own error bar; and the
# least and the largest, beside the scale on which outputs change.
STEP, LEAST_STEP, MOST_STEP = 0.3, 1e-5, 0.2

# Decays at the border of what noise hides are so many error bars away, and differences of errors
# up to so many standard deviations are noise: then two bars cover 98 % of 544 planted decays, of
# signals from none to three times the noise (by the curvature alone 80 %).
BARS, CHANCE = 2.0, 3.0


@dataclass(frozen=True)
class DecayPath:
    """The error of prediction (mean squared norm, sequences left out) for each decay tried.

    errors : those of the layers that a fit with the same ridge finds, no smaller than rounding.
        Of a fit without a ridge to no more rows than features, those of the best ridge
    best : the decay of least error; 1 where all have the same
    error_bar : the standard error of ``best`` under independent noise of one variance, or half the
        distance of the farthest decay that noise may have put behind it; None where data say
        nothing of it: all decays have one error, no rows are left to estimate noise from, or the
        squared error has no minimum near it
    """

    decays: NDArray[np.float64]
    errors: NDArray[np.float64]
    best: float
    error_bar: float | None

    @property
    def is_flat(self) -> bool:
        """Whether all decays predict equally well: data say nothing of it."""
        return bool(np.ptp(self.errors) <= EQUAL * self.errors.max())

    @property
    def is_least_tried(self) -> bool:
        """Whether the best is the smallest that was tried, and a smaller one may be better."""
        return not self.is_flat and self.best <= float(self.decays[0]) * (1.0 + 1e-6)


def chosen_decay(rows: Rows, ridges: NDArray | None, penalised: bool = True) -> DecayPath:
    """The decay of least leave-one-sequence-out error, each with the best of some ridges.

    rows : read with any decay
    ridges : for scaled tokens, all positive; None: a wide grid of them
    penalised : False: of that grid the smallest ridge, which is none, while there are more rows
        than features; errors of fewer rows would be those of noise
    Cost: some 50 times that of ``leave_one_out``.
    """
    rows, varying = with_distinct_inputs(rows)
    within = float(varying.sum()) / rows.total_weight
    # Of SciPy's optimisation only this is needed, and only here.
    from scipy.optimize import minimize_scalar

    tried: dict[float, float] = {}
    is_least = not penalised and rows.n_positive > rows.n_features
    target = rows.target_exponent or 0
    least = ROUNDING * float(np.ldexp(rows.output_sizes.max(), -target)) ** 2

    def error(rate: float) -> float:
        decay = float(np.exp(-rate))
        if decay not in tried:
            errors = left_out_once(with_decay(rows, decay), ridges, "decay").errors
            tried[decay] = max(float(errors[0] if is_least else errors.min()), least)
            report(min(len(tried), MOST_STEPS), MOST_STEPS)
        return tried[decay]

    def path(best: float, error_bar: float | None) -> DecayPath:
        decays = np.array(sorted(tried))
        errors = [as_risk(tried[decay] + within, target, negligible=np.inf) for decay in decays]
        return DecayPath(decays, np.array(errors), best, error_bar)

    at = int(np.argmin([error(float(rate)) for rate in RATES]))
    coarse = path(1.0, None)
    if coarse.is_flat:
        return coarse
    low, high = RATES[max(at - 1, 0)], RATES[min(at + 1, len(RATES) - 1)]
    options = {"xatol": EXACT * max(float(RATES[at]), 1e-3), "maxiter": MOST_STEPS}
    minimize_scalar(error, bounds=(low, high), method="bounded", options=options)
    best = min(tried, key=tried.__getitem__)
    best = best if -np.log(best) > NO_RATE else 1.0
    fixed = float(ridges[0]) if ridges is not None and len(ridges) == 1 else 0.0
    bar = error_bar(rows, best, fixed, least)
    if bar is not None:
        bar = max(_covering(bar, best, tried, rows), options["xatol"])
    return path(best, bar)


def _covering(bar: float, best: float, tried: dict[float, float], rows: Rows) -> float:
    """An error bar that covers, twice, the decays of the grid that noise may have put behind.

    The decay itself is a number fitted to noise; and two decays fit noise with different features:
    with c the cosine of their weights of the tokens, gamma^0, gamma^1, ..., the difference of
    p e (1 - c^2) fitted unknowns has a standard deviation of 2 sqrt(p e (1 - c^2)) variances.
    """
    n, p, n_outputs = rows.n_positive, rows.n_features, rows.n_outputs
    lags = np.arange(rows.max_length)
    decays = np.array([float(np.exp(-rate)) for rate in RATES])
    weights, own = decays[:, None] ** lags, best**lags
    cosine = weights @ own / np.linalg.norm(weights, axis=1) / np.linalg.norm(own)
    differing = p * n_outputs * np.maximum(0.0, 1.0 - cosine**2)
    # Errors of sequences left out vary more, the fewer rows are spare.
    chance = (BARS**2 + CHANCE * 2.0 * np.sqrt(differing)) * (n / max(n - p, 1)) ** 2
    errors = np.array([tried[decay] for decay in decays.tolist()])
    growth = (errors / min(tried.values()) - 1.0) * n * n_outputs
    away = np.abs(decays - best)[growth <= chance]
    return max(bar, float(away.max(initial=0.0)) / BARS)


def with_decay(rows: Rows, decay: float) -> Rows:
    """The same rows, their tokens weighed by another decay."""
    layout = rows.layout
    form: Form = replace(layout.form, decay=decay)
    made = replace(rows, layout=Layout.of(form, layout.n_dims, layout.n_context_dims))
    return made if rows.origin is None else made.come_from(rows.origin)


def error_bar(rows: Rows, decay: float, ridge: float, rounding: float) -> float | None:
    """The standard error of a decay that minimises the squared errors.

    With the linear parameters eliminated, the sum of squares grows as ||(I - P) dF||^2 t^2 for a
    change t of the decay, dF the derivative of the outputs by it and P the projection onto the
    features.  Noise of variance s^2 then moves the minimum by s / ||(I - P) dF||.
    rounding : what of each squared error is rounding, and moves the minimum as well
    """

    def power(at: float) -> float:
        return solve_primal(with_decay(rows, at), ridge).residual_power

    best = solve_primal(with_decay(rows, decay), ridge)
    rank = rows.n_features if best.rank is None else best.rank
    spare = rows.n_outputs * (rows.n_positive - rank)
    if spare <= 0:
        return None
    variance = max(best.residual_power / spare, rounding * rows.n_outputs * rows.n_positive)
    # Outputs change with the decay over this scale.  Near the ends of (0, 1] the curvature is
    # measured beside them.
    scale = max(1.0 - decay, 1.0 / rows.max_length)
    least, most = LEAST_STEP * scale, min(MOST_STEP * scale, 0.5 * decay)
    step = min(1e-3 * scale, most)
    # The step is adapted once: too small a one shows rounding, too large a one higher orders.
    for _ in range(2):
        middle = min(decay, 1.0 - step)
        growth = 0.5 * (power(middle - step) + power(middle + step)) - power(middle)
        if not growth > 0.0:
            return None
        bar = float(np.sqrt(variance / growth) * step)
        step = min(max(STEP * bar, least), most)
    return bar
