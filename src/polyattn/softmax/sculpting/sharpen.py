"""Phase 3, a sharp sum: rows whose pattern is known are clean equations for S [chen2024].

The point of least norm in K stands for an average attention matrix A0.  In the paper, rows on which
A0 is nearly one-hot with a large margin have y_r = x_j S.  Here the pattern of A0 is used as it
is, y_r = p_0 X S, which tends to that equation as the margin grows and is right without a margin
too; rows on which the heads differ show a residual, and the rows of smallest residual are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from polyattn.softmax.examples import ExampleBlock
from polyattn.softmax.polish.projection import patterns
from polyattn.softmax.recorder import Note
from polyattn.softmax.sculpting.carve import Carved, plain_number

Matrix = NDArray[np.float64]

# The share of rows that is trusted, at least so many per coordinate, and how often it is revised.
TRUSTED_SHARE, TRUSTED_PER_DIM, REVISIONS = 0.05, 8, 10

# Of one-hot rows half: there are few, and a small share of them may be a handful of tokens.
TRUSTED_ONE_HOT = 0.5

# Directions that trusted rows show by less than this, relatively, keep the S they had.
SHOWN = 1e-3

# A pattern with this weight on one key is called one-hot.
ONE_HOT = 0.9


@dataclass(frozen=True)
class SumFit:
    """S (d, e) from ``n_rows`` rows, which it leaves unexplained to ``residual`` per output."""

    S: Matrix
    n_rows: int
    residual: float


@dataclass(frozen=True)
class SharpSum:
    """What phase 3 found.

    anchor : "minimum norm" or "centre", whichever matrix explains its trusted rows better
    found : the sum with that anchor
    norm : Frobenius norm of the minimum-norm point; inf if it was not found
    apart : how far it is from the centre, relative to the norm of the centre
    margins : quantiles 1/2, 9/10, 1 of the margins log(p_top / p_second) at the anchor
    n_one_hot : rows with a one-hot pattern at the anchor
    one_hot_differs : ||S' - S|| / ||S|| for the sum S' from one-hot rows alone, as in the paper;
        nan if there are too few
    """

    anchor: str
    found: SumFit
    norm: float
    apart: float
    margins: tuple[float, float, float]
    n_one_hot: int
    one_hot_differs: float

    def record(self, note: Note) -> None:
        """What phase 3 found."""
        note.say(
            f"the point of least norm {self.norm:.3g} lies {self.apart:.0%} from the centre; "
            f"S comes from {self.found.n_rows} rows at the {self.anchor}, "
            f"{self.n_one_hot} rows are one-hot.",
            S=self.found.S.tolist(),
            norm=plain_number(self.norm),
            apart=self.apart,
            anchor=self.anchor,
            margins=list(self.margins),
            rows=self.found.n_rows,
            residual=self.found.residual,
            one_hot_rows=self.n_one_hot,
            one_hot_differs=plain_number(self.one_hot_differs),
        )


def sharp_sum(blocks: tuple[ExampleBlock, ...], S: Matrix, carved: Carved) -> SharpSum:
    """Sharpen S at the minimum-norm point of K and at its centre, and keep the better one."""
    least = carved.body.minimum_norm()
    anchors = {"centre": carved.centre}
    if least.point is not None:
        anchors["minimum norm"] = least.point
    found = {name: sharpen(blocks, S, A) for name, A in anchors.items()}
    best = min(found, key=lambda name: found[name].residual)
    margins, heavy = _margins(blocks, anchors[best])
    enough = np.count_nonzero(heavy >= ONE_HOT) >= TRUSTED_PER_DIM * S.shape[0]
    differs = float("nan")
    if enough:
        alone = sharpen(blocks, S, anchors[best], least_weight=ONE_HOT).S
        differs = _apart(alone, found[best].S)
    middle, high, top = np.quantile(margins, [0.5, 0.9, 1.0])
    return SharpSum(
        best,
        found[best],
        least.value,
        _apart(anchors.get("minimum norm", carved.centre), carved.centre),
        (float(middle), float(high), float(top)),
        int(np.count_nonzero(heavy >= ONE_HOT)),
        differs,
    )


def sharpen(
    blocks: tuple[ExampleBlock, ...], S: Matrix, A0: Matrix, least_weight: float = 0.0
) -> SumFit:
    """Least squares for S on the rows that the pattern of A0 explains best.

    With ``least_weight`` only rows whose pattern has that weight on one key are used, and the
    pattern is replaced by the one-hot one.
    Cost: O(rows d (n + e)) + REVISIONS rows d e.
    """
    pieces = [_equations(block, A0, least_weight) for block in blocks]
    seen = np.concatenate([piece[0] for piece in pieces])
    targets = np.concatenate([piece[1] for piece in pieces])
    share = TRUSTED_ONE_HOT if least_weight > 0.0 else TRUSTED_SHARE
    count = min(len(seen), max(int(share * len(seen)), TRUSTED_PER_DIM * S.shape[0]))
    for _ in range(REVISIONS):
        left = targets - seen @ S
        trusted = np.argpartition(np.sum(left**2, axis=1), count - 1)[:count]
        S = S + lstsq(seen[trusted], left[trusted], cond=SHOWN, check_finite=False)[0]
    left = targets[trusted] - seen[trusted] @ S
    return SumFit(S, count, float(np.sqrt(np.mean(left**2))))


def _equations(block: ExampleBlock, A0: Matrix, least_weight: float) -> tuple[Matrix, Matrix]:
    """Rows z (R, d) and y (R, e) of z S = y."""
    p = patterns(block, A0)
    targets = block.targets.reshape(block.n_rows, -1)
    if least_weight == 0.0:
        return (p @ block.keys).reshape(block.n_rows, -1), targets
    heavy = p.max(axis=2).reshape(-1) >= least_weight
    top = np.take_along_axis(block.keys, p.argmax(axis=2)[:, :, None], axis=1)
    return top.reshape(block.n_rows, -1)[heavy], targets[heavy]


def _margins(blocks: tuple[ExampleBlock, ...], A0: Matrix) -> tuple[Matrix, Matrix]:
    """log(p_top / p_second) and p_top of all rows that see two keys or more."""
    tops = [
        np.sort(patterns(block, A0), axis=2)[:, :, -2:].reshape(-1, 2)
        for block in blocks
        if block.keys.shape[1] > 1
    ]
    second, top = np.concatenate(tops).T
    return np.log(top / np.maximum(second, np.finfo(float).tiny)), top


def _apart(one: Matrix, other: Matrix) -> float:
    return float(np.linalg.norm(one - other) / max(np.linalg.norm(other), np.finfo(float).tiny))
