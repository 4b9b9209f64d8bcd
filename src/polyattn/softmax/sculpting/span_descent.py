"""Heads within a span, A_i = sum_a G_ia B_a: features, and Levenberg–Marquardt over G.

Logits are linear in G, so those of the basis are computed once,

    L_a = X B_a X^T,    p_i = softmax(sum_a G_ia L_a),    d p_i / d G_ia = p_i (L_a - <p_i, L_a>),

and a step costs no more than the m^2 columns of its Jacobian.  Values are eliminated as in
``polish``: every trial has the best ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq, qr

from polyattn.model.softmax import softmax
from polyattn.softmax.examples import ExampleBlock
from polyattn.softmax.recorder import require_time

Matrix = NDArray[np.float64]

# Damping: where it starts, how it moves; how many steps, how many trials for each.
FIRST_DAMPING, DAMPING_FACTOR, MOST_STEPS, MOST_TRIALS = 1e-3, 8.0, 40, 8

# Descent ends when a step gains less than this, relatively.
GAIN = 1e-4


class SpanFamily:
    """All heads in the span of a basis (m', d, d), on blocks in which no key is hidden."""

    def __init__(self, blocks: tuple[ExampleBlock, ...], basis: Matrix) -> None:
        self.basis = basis
        self.blocks = blocks
        self.targets = np.concatenate(
            [block.targets.reshape(block.n_rows, -1) for block in self.blocks]
        )
        self.size = max(float(np.linalg.norm(self.targets)), np.finfo(float).tiny)
        self._logits = [_logits(block, basis) for block in self.blocks]

    def attn(self, G: Matrix) -> Matrix:
        """Heads (m, d, d) of coefficients G (m, m')."""
        return np.tensordot(G, self.basis, axes=1)

    def seen(self, G: Matrix) -> Matrix:
        """[p_1 X, ..., p_m X], shape (rows, m d)."""
        parts = []
        for block, weights in zip(self.blocks, self._weights(G), strict=True):
            features = weights @ block.keys[None]
            parts.append(features.transpose(1, 2, 0, 3).reshape(block.n_rows, -1))
        return np.concatenate(parts)

    def slopes(self, G: Matrix, value: Matrix) -> Matrix:
        """d y / d G for values (m, d, e), shape (rows, e, m m')."""
        parts = []
        for block, logits, weights in zip(self.blocks, self._logits, self._weights(G), strict=True):
            columns = []
            for p, V in zip(weights, value, strict=True):
                outputs = block.keys @ V
                moved = p * (logits - np.sum(p * logits, axis=3, keepdims=True))
                columns.append(moved @ outputs[None])
            both = np.concatenate(columns)
            parts.append(both.transpose(1, 2, 3, 0).reshape(block.n_rows, -1, len(both)))
        return np.concatenate(parts)

    def _weights(self, G: Matrix) -> list[Matrix]:
        """Patterns (m, B, r, n) of every block."""
        return [softmax(np.tensordot(G, logits, axes=1)) for logits in self._logits]


@dataclass(frozen=True)
class SpanFit:
    """Coefficients G (m, m') with their best values (m, d, e) and relative residual."""

    G: Matrix
    value: Matrix
    error: float
    seen: Matrix
    residual: Matrix


def fit_values(family: SpanFamily, G: Matrix) -> SpanFit:
    """The values of least squared error for the heads of G."""
    seen = family.seen(G)
    stacked = lstsq(seen, family.targets, cond=1e-12, check_finite=False)[0]
    residual = family.targets - seen @ stacked
    value = stacked.reshape(len(G), family.basis.shape[1], -1)
    return SpanFit(G, value, float(np.linalg.norm(residual)) / family.size, seen, residual)


def descend(family: SpanFamily, G: Matrix) -> SpanFit:
    """Levenberg–Marquardt over G (m, m') until nothing is gained.

    Guarantee: the error never rises.
    Cost: O(rows (m d)^2 + rows e (m m')^2) per step.
    """
    here = fit_values(family, G)
    damping = FIRST_DAMPING
    for _ in range(MOST_STEPS):
        require_time()
        step = _damped_steps(*_normal_equations(family, here))
        for _ in range(MOST_TRIALS):
            trial = fit_values(family, here.G + step(damping).reshape(G.shape))
            if trial.error < here.error:
                break
            damping *= DAMPING_FACTOR
        else:
            return here
        gained = here.error - trial.error
        here, damping = trial, max(damping / DAMPING_FACTOR, 1e-9)
        if gained < GAIN * here.error:
            break
    return here


def _normal_equations(family: SpanFamily, here: SpanFit) -> tuple[Matrix, Matrix]:
    """J^T (1 - Z Z^+) J and J^T residual (Kaufman)."""
    slopes = family.slopes(here.G, here.value)
    rows, n_outputs, count = slopes.shape
    flat = slopes.reshape(rows * n_outputs, count)
    orthonormal = qr(here.seen, mode="economic", check_finite=False)[0]
    followed = np.tensordot(orthonormal.T, slopes, axes=1).reshape(-1, count)
    hessian = flat.T @ flat - followed.T @ followed
    return (hessian + hessian.T) / 2, flat.T @ here.residual.reshape(-1)


def _damped_steps(hessian: Matrix, gradient: Matrix) -> Callable[[float], Matrix]:
    """damping -> (hessian + damping diag(hessian))^-1 gradient, from one decomposition."""
    diagonal = np.diag(hessian)
    scale = np.sqrt(np.maximum(diagonal, 1e-12 * max(diagonal.max(), np.finfo(float).tiny)))
    sizes, axes = np.linalg.eigh(hessian / np.outer(scale, scale))
    wanted = axes.T @ (gradient / scale)

    def step(damping: float) -> Matrix:
        return (axes @ (wanted / (np.maximum(sizes, 0.0) + damping))) / scale

    return step


def _logits(block: ExampleBlock, basis: Matrix) -> Matrix:
    """X B_a X^T at the predicted positions, shape (m', B, r, n)."""
    return (block.queries[None] @ basis[:, None]) @ block.keys.transpose(0, 2, 1)[None]
