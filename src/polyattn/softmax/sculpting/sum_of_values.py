"""Phases 1, 3 and 4: the sum S of the values, crude, sharp, and sharper with every body [chen2024].

Phase 1 regresses the outputs on the mean token, and on x_r as well: to first order in the logits a
part of y_r is linear in x_r.  Phase 3 takes the point of least norm in K, or its centre, for an
average attention matrix A0, and solves y_r = x_j S on the rows of largest margin, x_j their top
key, or y_r = p_0 X S on the rows of smallest residual, whichever equations hold better.
Phase 4 alternates: with a sharper S certified rows are truer, and the centre of the body closer to
the affine hull of the A_i.  Where this departs from the paper, and why:
``docs/derivations/softmax_sculpting.md``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lstsq

from polyattn.softmax.examples import ExampleBlock, Matrix
from polyattn.softmax.polish.projection import patterns
from polyattn.softmax.recorder import Note
from polyattn.softmax.sculpting.carve import GENEROSITY, Carved, carve

# The share of rows that is trusted, at least so many per coordinate, and how often it is revised.
TRUSTED_SHARE, TRUSTED_PER_DIM, REVISIONS = 0.05, 8, 10

# The share of rows, those of largest margin, that is taken for one-hot, the half of them that is
# trusted (a smaller part may be a handful of tokens), and how much better their equations must
# hold.
ONE_HOT_SHARE, TRUSTED_ONE_HOT, ONE_HOT_GAIN = 5e-3, 0.5, 2.0

# Directions that trusted rows show by less than this, relatively, keep the S they had; of one-hot
# rows, which may be few different tokens, every direction must be shown by the second.
SHOWN, WELL_SHOWN = 1e-3, 0.2

# Rounds of sculpting and sharpening; they end early once S has come to rest.
MOST_ROUNDS, AT_REST, AT_REST_ALONE = 10, 3e-3, 1e-9


def crude_sum(blocks: tuple[ExampleBlock, ...], note: Note | None = None) -> tuple[Matrix, float]:
    """Estimate S (d, e) by regressing y_r on mean(X) and (1 - 1/n) x_r.

    Beside it: the share of the squared outputs that mean(X) S explains.

    Guarantee: exact for sequences of one token; otherwise right to first order in the logits, and
    no number of examples removes what is left.
    Cost: O(rows d^2).
    """
    n_dims, n_outputs = blocks[0].keys.shape[2], blocks[0].targets.shape[2]
    gram = np.zeros((2 * n_dims, 2 * n_dims))
    moment = np.zeros((2 * n_dims, n_outputs))
    power = 0.0
    for block in blocks:
        means = np.broadcast_to(block.keys.mean(axis=1, keepdims=True), block.queries.shape)
        own = (1 - 1 / block.keys.shape[1]) * block.queries
        features = np.concatenate([means, own], axis=2).reshape(block.n_rows, -1)
        targets = block.targets.reshape(block.n_rows, n_outputs)
        gram += features.T @ features
        moment += features.T @ targets
        power += float(np.vdot(targets, targets))
    S = lstsq(gram, moment)[0][:n_dims]
    explained = float(np.einsum("ac,ab,bc->", S, gram[:n_dims, :n_dims], S))
    carried = explained / power if power > 0 else 0.0
    # The plain regression errs by the first order in the logits, so this is the size of the terms
    # that it leaves out.
    plain = lstsq(gram[:n_dims, :n_dims], moment[:n_dims])[0]
    turned = _apart(S, plain) if plain.any() else 0.0
    (note or Note()).say(
        f"the mean token explains {carried:.0%} of the squared outputs; terms of "
        f"first order, taken out, were {turned:.0%} of the sum.",
        S=S,
        carried=carried,
        turned=turned,
    )
    return S, carried


class SumFit(NamedTuple):
    """S (d, e) from ``n_rows`` rows, which it leaves unexplained to ``residual`` per output.

    ``least_margin`` is the smallest margin of these rows; ``shown``, how much they show of the
    direction of S that they show least, relative to the most.
    """

    S: Matrix
    n_rows: int
    residual: float
    least_margin: float
    shown: float


class Sharpened(NamedTuple):
    """S of the best equations, where they come from, and how well each kind of them holds.

    anchor : "centre" or "minimum norm", whose patterns or one-hot rows gave ``fit``
    one_hot : whether rows of largest margin gave it, as in the paper
    gain : how many times smaller the residual of the best one-hot rows is than that of patterns
    """

    fit: SumFit
    anchor: str
    one_hot: bool
    gain: float


def sharp_sum(
    blocks: tuple[ExampleBlock, ...], S: Matrix, carved: Carved, note: Note | None = None
) -> Sharpened:
    """Sharpen S at the minimum-norm point of K and at its centre, by patterns and one-hot rows.

    The body of the minimum-norm point is the tightest that holds the centre: the slack of K is for
    the heads, and would only shorten the point.
    """
    least = carved.body.widened(1 / GENEROSITY).minimum_norm()
    anchors = {"centre": carved.centre}
    if least.point is not None:
        anchors["minimum norm"] = least.point
    sharp = sharpest(blocks, S, anchors)
    apart = _apart(anchors.get("minimum norm", carved.centre), carved.centre)
    kind = "one-hot rows" if sharp.one_hot else "patterns"
    (note or Note()).say(
        f"the point of least norm {least.value:.3g} lies {apart:.0%} from the centre; S comes from "
        f"{sharp.fit.n_rows} rows, {kind} at the {sharp.anchor}; one-hot equations hold "
        f"{sharp.gain:.2g} times as well as those of patterns.",
        S=sharp.fit.S,
        norm=least.value,
        apart=apart,
        anchor=sharp.anchor,
        one_hot=sharp.one_hot,
        gain=sharp.gain,
        least_margin=sharp.fit.least_margin,
        rows=sharp.fit.n_rows,
        residual=sharp.fit.residual,
    )
    return sharp


def sharpest(blocks: tuple[ExampleBlock, ...], S: Matrix, anchors: dict[str, Matrix]) -> Sharpened:
    """The sum whose equations hold best: patterns of the anchors, or their one-hot rows.

    One-hot rows must hold better by ONE_HOT_GAIN: there are fewer of them to choose from.
    """
    fits = {
        (one_hot, name): sharpen(blocks, S, A0, one_hot)
        for one_hot in (False, True)
        for name, A0 in anchors.items()
    }
    soft, hard = (
        min((key for key in fits if key[0] == one_hot), key=lambda key: fits[key].residual)
        for one_hot in (False, True)
    )
    floor = np.finfo(float).tiny
    gain = max(fits[soft].residual, floor) / max(fits[hard].residual, floor)
    best = hard if gain >= ONE_HOT_GAIN else soft
    return Sharpened(fits[best], best[1], best[0], float(gain))


def sharpen(
    blocks: tuple[ExampleBlock, ...], S: Matrix, A0: Matrix, one_hot: bool = False
) -> SumFit:
    """Least squares for S on the rows that the pattern of A0 explains best.

    With ``one_hot`` only the rows of largest margin are used, the gap between the two largest
    logits of A0, and the pattern is replaced by the one-hot one: y_r = x_j S.  They are as many as
    show every direction of S; if all do not, the residual is infinite.
    Cost: O(rows d (n + e)) + REVISIONS rows d e.
    """
    # Equations z S = y.
    rows, outputs, gaps = [], [], []
    for block in blocks:
        p = patterns(block, A0)
        gaps.append(_margins(p).reshape(-1))
        if one_hot:
            p = np.eye(p.shape[2])[p.argmax(axis=2)]
        rows.append((p @ block.keys).reshape(block.n_rows, -1))
        outputs.append(block.targets.reshape(block.n_rows, -1))
    seen, targets, margins = (np.concatenate(parts) for parts in (rows, outputs, gaps))
    least = TRUSTED_PER_DIM * S.shape[0]
    if not one_hot:
        return _trusting(seen, targets, margins, S, max(int(TRUSTED_SHARE * len(seen)), least))
    order = np.argsort(-margins, kind="stable")
    count = max(int(ONE_HOT_SHARE * len(seen)), 2 * least)
    while True:
        rows_of = order[:count]
        half = max(int(TRUSTED_ONE_HOT * len(rows_of)), least)
        fit = _trusting(seen[rows_of], targets[rows_of], margins[rows_of], S, half)
        if fit.shown >= WELL_SHOWN:
            return fit
        if count >= len(order):
            return fit._replace(residual=np.inf)
        count *= 2


def _trusting(seen: Matrix, targets: Matrix, margins: Matrix, S: Matrix, count: int) -> SumFit:
    """Least squares for S on the ``count`` rows of smallest residual, revised a few times."""
    count = min(len(seen), count)
    for _ in range(REVISIONS):
        left = targets - seen @ S
        trusted = np.argpartition(np.sum(left**2, axis=1), count - 1)[:count]
        S = S + lstsq(seen[trusted], left[trusted], cond=SHOWN, check_finite=False)[0]
    left = targets[trusted] - seen[trusted] @ S
    sizes = np.linalg.svd(seen[trusted], compute_uv=False)
    shown = float(sizes[-1] / max(sizes[0], np.finfo(float).tiny)) if count >= len(S) else 0.0
    residual = float(np.sqrt(np.mean(left**2)))
    return SumFit(S, count, residual, float(margins[trusted].min()), shown)


def _margins(p: Matrix) -> Matrix:
    """The gap between the two largest logits of patterns (B, r, n); infinite for one key."""
    if p.shape[2] == 1:
        return np.full(p.shape[:2], np.inf)
    second, top = np.moveaxis(np.sort(p, axis=2)[:, :, -2:], 2, 0)
    return np.log(top / np.maximum(second, np.finfo(float).tiny))


def _apart(one: Matrix, other: Matrix) -> float:
    return float(np.linalg.norm(one - other) / max(np.linalg.norm(other), np.finfo(float).tiny))


def sculpt_again(
    blocks: tuple[ExampleBlock, ...], S: Matrix, n_heads: int, note: Note | None = None
) -> tuple[Carved, Matrix]:
    """Alternate ``carve`` and ``sharpest`` from a sharp S: K* and the sum it was carved with.

    One head goes on for as long as anything moves, since then there is no floor.
    Cost: at most MOST_ROUNDS times phases 2 and 3, without programs.
    """
    enough = AT_REST if n_heads > 1 else AT_REST_ALONE
    carved = carve(blocks, S)
    moved: list[float] = []
    while len(moved) < MOST_ROUNDS and len(carved.body) > 0:
        sharper = sharpest(blocks, S, {"centre": carved.centre}).fit.S
        moved.append(_apart(S, sharper))
        S = sharper
        carved = carve(blocks, S)
        if moved[-1] <= enough:
            break
    (note or Note()).say(
        f"{len(moved)} rounds, the last moved S by {(moved or [0.0])[-1]:.1e}; "
        f"{carved.figures['kept']} rows in K*, median slack {carved.figures['slack']:.2g}.",
        **carved.figures,
        S=S,
        moved=moved,
    )
    return carved, S
