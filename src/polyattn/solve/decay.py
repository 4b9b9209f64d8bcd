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
from polyattn.solve.primal import solve_primal
from polyattn.solve.ridge import leave_one_out
from polyattn.stats.rows import Rows

# Rates -log(decay) that are tried first; 0 is no decay.
RATES = np.append(0.0, np.geomspace(5e-4, 5.0, 22))

# How exactly the rate is searched for, beside itself, and in how many steps at most.
EXACT, MOST_STEPS = 1e-10, 60

# The step by which the curvature of the risk is measured, in units of its own error bar.
STEP = 0.3


@dataclass(frozen=True)
class DecayPath:
    """The error of prediction (mean squared norm, sequences left out) for each decay tried.

    error_bar : the standard error of ``best`` under independent noise of one variance; None where
        the search ended at no decay, or noise cannot be estimated
    """

    decays: NDArray[np.float64]
    errors: NDArray[np.float64]
    best: float
    error_bar: float | None


def chosen_decay(rows: Rows, ridge: float | None) -> tuple[float, DecayPath]:
    """The decay of least leave-one-sequence-out error; ``ridge=None``: the best of a grid of them.

    rows : read with any decay
    Cost: some 50 times that of ``leave_one_out``.
    """
    # Of SciPy's optimisation only this is needed, and only here.
    from scipy.optimize import minimize_scalar

    ridges = None if not ridge else np.array([ridge])
    tried: dict[float, float] = {}

    def error(rate: float) -> float:
        decay = float(np.exp(-rate))
        if decay not in tried:
            tried[decay] = float(leave_one_out(with_decay(rows, decay), ridges).errors.min())
            report(min(len(tried), MOST_STEPS), MOST_STEPS)
        return tried[decay]

    errors = np.array([error(float(rate)) for rate in RATES])
    at = int(np.argmin(errors))
    low, high = RATES[max(at - 1, 0)], RATES[min(at + 1, len(RATES) - 1)]
    options = {"xatol": EXACT * max(float(RATES[at]), 1e-3), "maxiter": MOST_STEPS}
    minimize_scalar(error, bounds=(low, high), method="bounded", options=options)
    best = min(tried, key=tried.__getitem__)
    decays = np.array(sorted(tried))
    target = rows.target_exponent or 0
    found = np.array([as_risk(tried[decay], target, negligible=0.0) for decay in decays])
    return best, DecayPath(decays, found, best, error_bar(rows, best, ridge or 0.0))


def with_decay(rows: Rows, decay: float) -> Rows:
    """The same rows, their tokens weighed by another decay."""
    layout = rows.layout
    form: Form = replace(layout.form, decay=decay)
    return replace(rows, layout=Layout.of(form, layout.n_dims, layout.n_context_dims))


def error_bar(rows: Rows, decay: float, ridge: float) -> float | None:
    """The standard error of a decay that minimises the squared errors.

    With the linear parameters eliminated, the sum of squares grows as ||(I - P) dF||^2 t^2 for a
    change t of the decay, dF the derivative of the outputs by it and P the projection onto the
    features.  Noise of variance s^2 then moves the minimum by s / ||(I - P) dF||.
    """
    spare = rows.n_outputs * (rows.n_positive - rows.n_features)
    if decay == 1.0 or spare <= 0:
        return None

    def power(at: float) -> float:
        return solve_primal(with_decay(rows, at), ridge).residual_power

    least, step = power(decay), 1e-3 * (1.0 - decay)
    variance = least / spare
    # The step is adapted once: too small a one shows rounding, too large a one higher orders.
    for _ in range(2):
        growth = 0.5 * (power(decay - step) + power(decay + step)) - least
        if not growth > 0.0:
            return None
        bar = float(np.sqrt(variance / growth) * step)
        step = float(np.clip(STEP * bar, 1e-5 * (1.0 - decay), 0.2 * (1.0 - decay)))
    return bar
