"""Phase 2, sculpting: a convex body around the affine hull of all A_i [chen2024].

Rows on which one pattern explains the outputs are certified: what follows for A, in units of
deviations (see ``row_patterns``), holds for every head.  The centre of the body is the weighted
least-squares solution, rows that contradict it weighing less.  Its Gram matrix

    M = sum_q w_q n_q n_q^T / deviation_q^2

stands for the body in practice: {A : (A - centre)^T M (A - centre) <= 1} is long where K is long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from polyattn.softmax.examples import ExampleBlock, Matrix
from polyattn.softmax.recorder import Note, require_time
from polyattn.softmax.sculpting.body import ConvexBody
from polyattn.softmax.sculpting.row_patterns import Constraints, constraints, fit_rows

# The share of all rows that is certified, kept between so many constraints per unknown.
CERTIFIED_SHARE, LEAST_PER_UNKNOWN, MOST_PER_UNKNOWN = 0.02, 8, 32

# How often the weights of contradicted rows are revised, and the eigenvalues of the Gram matrix,
# relative to the largest, that are taken for zero.
REVISIONS, RIDGE = 4, 1e-9

# Rows that stray from the centre by more than so many medians are left out, and the slack is so
# many times what the centre needs for the others: errors of S that all rows share do not show.
# Rounding needs the third in any case.  How much more several heads need: ``calibrate``.
AGREEMENT, GENEROSITY, LEAST_SLACK = 2.0, 2.5, 1e-6


@dataclass(frozen=True)
class Carved:
    """K, its centre (d, d), and eigenvalues (d^2,), rising, and axes (d^2, d^2) of its Gram matrix.

    figures : how many rows are ``usable``, having a pattern, ``certified`` by a small residual,
        and ``kept`` in K; ``residuals``, quantiles 0, 1/2, 1 of those of certified rows; ``slack``,
        the median of the ``constraints``; ``needed``, the largest deviation, in its units, of the
        ``centre`` on kept rows
    """

    body: ConvexBody
    centre: Matrix
    spectrum: Matrix
    axes: Matrix
    figures: dict[str, Any]


def carve(blocks: tuple[ExampleBlock, ...], S: Matrix, note: Note | None = None) -> Carved:
    """Certify rows with the sum of values S, and cut K from their constraints.

    Guarantee: K contains its centre.  It contains an A_i whenever the deviations of A_i on kept
    rows are at most GENEROSITY times those of the centre, which several heads do not meet: K then
    has the right shape, and ``calibrate`` says by how much to widen it.
    Cost: O(rows n (n^2 + e)) + (1 + REVISIONS) Q d^4 for Q constraints.
    """
    fits = [fit_rows(block, S) for block in blocks if block.keys.shape[1] > 1]
    # Of all blocks together the rows of smallest residual.
    residual = np.concatenate([fit.residual.reshape(-1) for fit in fits])
    each = np.concatenate([np.full(fit.residual.size, fit.pattern.shape[2] - 1) for fit in fits])
    n_usable = int(np.count_nonzero(np.isfinite(residual)))
    order = np.argsort(residual, kind="stable")[:n_usable]
    least, most = LEAST_PER_UNKNOWN * len(S) ** 2, MOST_PER_UNKNOWN * len(S) ** 2
    wanted = np.clip(CERTIFIED_SHARE * each.sum(), least, most)
    order = order[: int(np.searchsorted(np.cumsum(each[order]), wanted)) + 1]
    certified = np.zeros(len(residual), dtype=bool)
    certified[order] = True
    borders = np.cumsum([fit.residual.size for fit in fits])[:-1]
    parts, n_certified = [], 0
    for fit, chosen in zip(fits, np.split(certified, borders), strict=True):
        parts.append(constraints(fit, np.flatnonzero(chosen), n_certified))
        n_certified += int(np.count_nonzero(chosen))
    given = Constraints(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    centre, spectrum, axes, strays = _centre(given, n_certified)
    kept = strays <= AGREEMENT * np.median(strays) if n_certified else strays < 0
    needed = float(strays[kept].max(initial=0.0))
    inside = kept[given.row]
    slack = np.maximum(GENEROSITY * needed * given.deviation[inside], LEAST_SLACK)
    K = ConvexBody(given.normals[inside], given.rhs[inside], slack)
    figures: dict[str, Any] = {
        "usable": n_usable,
        "certified": n_certified,
        "kept": int(np.count_nonzero(kept)),
        "constraints": len(K),
        "residuals": np.quantile(residual[order], [0.0, 0.5, 1.0]) if n_usable else [np.inf] * 3,
        "slack": float(np.median(slack)) if len(slack) else 0.0,
        "needed": needed,
        "centre": centre,
    }
    (note or Note()).say(
        "{certified} of {usable} rows with a pattern are certified, {kept} agree with the centre; "
        "{constraints} constraints, median slack {slack:.2g}.".format(**figures),
        **figures,
    )
    return Carved(K, centre, spectrum, axes, figures)


def _centre(given: Constraints, n_rows: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """The robust least-squares point, and the spectrum and axes of its Gram matrix.

    Then for each row its largest deviation from that point, in units, shape (n_rows,).
    """
    n_dims = given.normals.shape[1]
    flat = given.normals.reshape(len(given.rhs), n_dims * n_dims)
    scaled = flat / given.deviation[:, None]
    wanted = given.rhs / given.deviation
    weights = np.ones(len(given.rhs))
    for _ in range(REVISIONS + 1):
        require_time()
        weighted = weights[:, None] * scaled
        spectrum, axes = np.linalg.eigh(weighted.T @ scaled / max(weights.sum(), 1.0))
        moment = weighted.T @ wanted / max(weights.sum(), 1.0)
        damped = spectrum + max(RIDGE * spectrum[-1], np.finfo(float).tiny)
        centre = axes @ (axes.T @ moment / damped)
        strays = np.zeros(n_rows)
        np.maximum.at(strays, given.row, np.abs(flat @ centre - given.rhs) / given.deviation)
        if n_rows:
            typical = max(float(np.median(strays)), np.finfo(float).tiny)
            weights = (1 / (1 + (strays / typical) ** 2) ** 2)[given.row]
    return centre.reshape(n_dims, n_dims), spectrum, axes, strays
