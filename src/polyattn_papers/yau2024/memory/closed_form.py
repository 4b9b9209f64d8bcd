"""The closed form on associative memory: exact targets, noisy ones, and another minimiser."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate
from polyattn.certify.verdict import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn.data import Planted
from polyattn.fitting.fit import fit
from polyattn.model import LinearAttention
from polyattn.stats import Moments
from polyattn_papers.reproduction import Row

# Standard deviation of the noise on targets: without any, the closed form makes no error.
NOISE = 0.1


def closed_form_rows(
    task: Planted[LinearAttention], certificate: Certificate, n_draws: int, seed: int
) -> list[Row]:
    """Fits to the exact targets and to ``n_draws`` noisy copies, from the moments of all at once.

    Where data determine no layer, one row more: a layer that fits as well as the true one.
    """
    Y, truth = np.asarray(task.Y), task.layer.coef
    rng = np.random.default_rng([seed, 1])
    noisy = [Y + NOISE * rng.standard_normal(Y.shape) for _ in range(n_draws)]
    moments = Moments(task.layer.n_dims, Y.shape[1] * (1 + n_draws))
    moments.update(task.X, np.concatenate([Y, *noisy], axis=1))
    found = fit(statistics=moments).coef.reshape(1 + n_draws, *truth.shape)
    second = moments.second_moment
    none: Row = {"expected_distance": None, "expected_spread": None}
    expected = none
    if certificate.verdict == IDENTIFIABLE:
        expected = _expected(second, len(Y), Y.shape[1])
    rows = [_row("exact", 0, found[0] - truth, second) | none]
    rows += [
        _row("noisy", draw, coef - truth, second) | expected for draw, coef in enumerate(found[1:])
    ]
    if certificate.verdict == NOT_IDENTIFIABLE:
        other = certificate.witness(task.layer).layer_b
        row = _row("another minimiser", 0, other.coef - truth, second) | none
        # Its outputs show a risk that is lost to rounding in the quadratic form.
        rows.append(row | {"risk": float(np.mean(np.sum((other(task.X) - Y) ** 2, axis=1)))})
    return rows


def _row(target: str, repeat: int, difference: NDArray, second: NDArray) -> Row:
    """Distance, and risk on the exact targets: the quadratic form of the second moment."""
    flat = difference.reshape(len(difference), -1)
    risk = float(np.sum(flat @ second * flat))
    distance = float(np.linalg.norm(flat))
    return {"target": target, "repeat": repeat, "risk": max(risk, 0.0), "distance": distance}


def _expected(second: NDArray, n_rows: int, n_outputs: int) -> Row:
    """Noise of variance s^2 moves each output's coefficients by N(0, s^2 Lambda^-1 / N).

    The root mean square distance, and the standard deviation of the squared one.
    """
    variances = NOISE**2 / (n_rows * np.linalg.eigvalsh(second))
    return {
        "expected_distance": float(np.sqrt(n_outputs * np.sum(variances))),
        "expected_spread": float(np.sqrt(2 * n_outputs * np.sum(variances**2))),
    }
