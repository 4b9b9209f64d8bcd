"""Phase 2, sculpting: a convex body around the affine hull of all A_i [chen2024].

Rows on which one pattern explains the outputs are certified; what follows for A holds for
every head.  Each constraint is measured in units of its own deviation (see ``rows``).

The centre of the body is the weighted least-squares solution of the constraints, rows that
contradict it weighing less.  Its Gram matrix

    M = sum_q w_q n_q n_q^T / deviation_q^2

stands for the body in practice: {A : (A - centre)^T M (A - centre) <= 1} is long where K is long.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import ExampleBlock
from polyattn.softmax.recorder import Note, require_time
from polyattn.softmax.sculpting.body import ConvexBody
from polyattn.softmax.sculpting.rows import Constraints, RowFit, constraints, fit_rows, joined

Matrix = NDArray[np.float64]

# The share of all rows that is certified, kept between so many constraints per unknown.
CERTIFIED_SHARE, LEAST_PER_UNKNOWN, MOST_PER_UNKNOWN = 0.02, 8, 32

# How often the weights of contradicted rows are revised, and the eigenvalues of the Gram matrix,
# relative to the largest, that are taken for zero.
REVISIONS, RIDGE = 4, 1e-9

# Rows that stray from the centre by more than so many medians are left out, and the slack is so
# many times what the centre needs for the others: errors of S that all rows share do not show.
# Rounding needs the third in any case.
AGREEMENT, GENEROSITY, LEAST_SLACK = 1.0, 3.0, 1e-6


@dataclass(frozen=True)
class Carved:
    """K, its centre (d, d), and eigenvalues (d^2,), rising, and axes (d^2, d^2) of its Gram matrix.

    n_usable : rows with a pattern; n_certified : rows with a small residual; n_kept : those in K
    residuals : quantiles 0, 1/2, 1 of the residuals of certified rows
    needed : the largest deviation, in its units, that the centre needs on kept rows
    """

    body: ConvexBody
    centre: Matrix
    spectrum: Matrix
    axes: Matrix
    n_usable: int
    n_certified: int
    n_kept: int
    residuals: tuple[float, float, float]
    needed: float

    @property
    def slack(self) -> float:
        """The median slack of a constraint of K."""
        return float(np.median(self.body.slack)) if len(self.body) else 0.0

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers as plain JSON types."""
        return {
            "usable": self.n_usable,
            "certified": self.n_certified,
            "kept": self.n_kept,
            "constraints": len(self.body),
            "residuals": [plain_number(value) for value in self.residuals],
            "slack": self.slack,
            "needed": self.needed,
            "centre": self.centre.tolist(),
        }


def carve(blocks: tuple[ExampleBlock, ...], S: Matrix, note: Note | None = None) -> Carved:
    """Certify rows with the sum of values S, and cut K from their constraints.

    Guarantee: K contains its centre.  It contains the A_i of one head whenever the deviations of
    the truth on kept rows are at most GENEROSITY times those of the centre; of several heads
    it contains the part of the affine hull on which kept rows agree.
    Cost: O(rows n (n^2 + e)) + (1 + REVISIONS) Q d^4 for Q constraints.
    """
    fits = [fit_rows(block, S) for block in blocks if block.keys.shape[1] > 1]
    chosen, n_usable, residuals = _certified(fits)
    parts = [constraints(fit, rows) for fit, rows in zip(fits, chosen, strict=True) if len(rows)]
    given = joined(parts, len(S))
    centre, spectrum, axes = _centre(given)
    strays = _strays(given, centre)
    kept = strays <= AGREEMENT * np.median(strays) if len(strays) else strays < 0
    inside = given.of(kept)
    needed = float(strays[kept].max(initial=0.0))
    slack = np.maximum(GENEROSITY * needed * inside.deviation, LEAST_SLACK)
    K = ConvexBody(inside.normals, inside.rhs, slack)
    counts = n_usable, given.n_rows, inside.n_rows
    carved = Carved(K, centre, spectrum, axes, *counts, residuals, needed)
    if note is not None:
        note.say(
            f"{carved.n_certified} of {n_usable} rows with a pattern are certified, "
            f"{carved.n_kept} agree with the centre; {len(K)} constraints, "
            f"median slack {carved.slack:.2g}.",
            **carved.figures,
        )
    return carved


def plain_number(value: float) -> float | None:
    """A figure of a phase: JSON has no inf and no nan."""
    return value if isfinite(value) else None


def _certified(
    fits: list[RowFit],
) -> tuple[list[NDArray[np.intp]], int, tuple[float, float, float]]:
    """Of each block the rows of smallest residual, over all blocks; and how small they are."""
    residual = np.concatenate([fit.residual.reshape(-1) for fit in fits])
    usable = np.isfinite(residual)
    each = np.concatenate([np.full(fit.residual.size, fit.pattern.shape[2] - 1) for fit in fits])
    order = np.argsort(residual, kind="stable")[: np.count_nonzero(usable)]
    n_unknowns = fits[0].block.keys.shape[2] ** 2
    least, most = LEAST_PER_UNKNOWN * n_unknowns, MOST_PER_UNKNOWN * n_unknowns
    wanted = np.clip(CERTIFIED_SHARE * each.sum(), least, most)
    order = order[: int(np.searchsorted(np.cumsum(each[order]), wanted)) + 1]
    certified = np.zeros(len(residual), dtype=bool)
    certified[order] = True
    borders = np.cumsum([fit.residual.size for fit in fits])[:-1]
    parts = [np.flatnonzero(part) for part in np.split(certified, borders)]
    if len(order) == 0:
        return parts, 0, (np.inf, np.inf, np.inf)
    low, middle, high = np.quantile(residual[order], [0.0, 0.5, 1.0]).tolist()
    return parts, int(usable.sum()), (low, middle, high)


def _centre(given: Constraints) -> tuple[Matrix, Matrix, Matrix]:
    """The robust least-squares point, and the spectrum and axes of its Gram matrix."""
    n_dims = given.normals.shape[1]
    weights = np.ones(len(given.rhs))
    scaled = given.normals.reshape(len(weights), n_dims * n_dims) / given.deviation[:, None]
    wanted = given.rhs / given.deviation
    centre = np.zeros((n_dims, n_dims))
    for revision in range(REVISIONS + 1):
        require_time()
        weighted = weights[:, None] * scaled
        spectrum, axes = np.linalg.eigh(weighted.T @ scaled / max(weights.sum(), 1.0))
        moment = weighted.T @ wanted / max(weights.sum(), 1.0)
        damped = spectrum + max(RIDGE * spectrum[-1], np.finfo(float).tiny)
        centre = (axes @ (axes.T @ moment / damped)).reshape(n_dims, n_dims)
        strays = _strays(given, centre)
        if revision < REVISIONS and len(strays):
            typical = max(float(np.median(strays)), np.finfo(float).tiny)
            weights = (1 / (1 + (strays / typical) ** 2) ** 2)[given.row]
    return centre, spectrum, axes


def _strays(given: Constraints, centre: Matrix) -> Matrix:
    """For each row its largest deviation from the centre, in units, shape (n_rows,)."""
    flat = given.normals.reshape(len(given.rhs), centre.size)
    off = np.abs(flat @ centre.reshape(-1) - given.rhs) / given.deviation
    strays = np.zeros(given.n_rows)
    np.maximum.at(strays, given.row, off)
    return strays
