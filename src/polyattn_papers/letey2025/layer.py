"""The layer of the paper as a form, its penalty, and its coefficients Gamma."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import polyattn as pa
from polyattn.data import InContextTask


def paper_form(n_dims: int) -> pa.Form:
    """Query x, key (x, y), value y, the mean, without the question: d(d + 1) coefficients."""
    return pa.Form(include_query=False, mean=True, query=range(n_dims), value=[n_dims])


def paper_units(X: NDArray) -> NDArray[np.float64]:
    """Prompts with x times sqrt(d) and y over sqrt(d).

    Their features are those of the paper, x ⊗ [d mean(y_i x_i), mean(y_i^2)], over sqrt(d).
    """
    root = np.sqrt(X.shape[2] - 1)
    units = np.full(X.shape[2], root)
    units[-1] = 1 / root
    return np.asarray(X * units, dtype=np.float64)


def fit_paper(task: InContextTask, ridge: float) -> pa.FitResult:
    """The optimum for prompts in ``paper_units``; (n/d) ridge penalises |Gamma|^2, as there."""
    d, n = task.optimum.n_dims, len(task.X)
    # With fewer prompts than coefficients the kernel is smaller, and needs no iteration.
    solver = "iterative" if n > d * (d + 1) else "auto"
    X, penalty = paper_units(task.X), n / d**2 * ridge
    return pa.fit(X, task.Y, form=paper_form(d), ridge=penalty, solver=solver)


def gamma_of(result: pa.FitResult) -> NDArray[np.float64]:
    """Gamma (d, d + 1) of a fit: predictions are x^T Gamma h in the units of the paper."""
    folded = result.coef[0].T
    return np.asarray(folded / np.sqrt(len(folded)), dtype=np.float64)
