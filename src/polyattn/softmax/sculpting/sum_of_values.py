"""Phases 1, 3 and 4: the sum S of the values, crude, sharp, and sharper with every body [chen2024].

Phase 1 regresses the outputs on the mean token, and on x_r as well: to first order in the logits a
part of y_r is linear in x_r.  Phase 3 takes the point of least norm in K, or its centre, for an
average attention matrix A0, and solves y_r = p_0 X S on the rows that show the smallest residual.
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
from polyattn.softmax.sculpting.carve import Carved, carve

# The share of rows that is trusted, at least so many per coordinate, and how often it is revised.
TRUSTED_SHARE, TRUSTED_PER_DIM, REVISIONS = 0.05, 8, 10

# A pattern with this weight on one key is called one-hot.  Of one-hot rows half is trusted: there
# are few, and a small share of them may be a handful of tokens.
ONE_HOT, TRUSTED_ONE_HOT = 0.9, 0.5

# Directions that trusted rows show by less than this, relatively, keep the S they had.
SHOWN = 1e-3

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
    """S (d, e) from ``n_rows`` rows, which it leaves unexplained to ``residual`` per output."""

    S: Matrix
    n_rows: int
    residual: float


def sharp_sum(
    blocks: tuple[ExampleBlock, ...], S: Matrix, carved: Carved, note: Note | None = None
) -> tuple[Matrix, int]:
    """Sharpen S at the minimum-norm point of K and at its centre, and keep the better one.

    Beside it: how many rows have a one-hot pattern there.
    """
    least = carved.body.minimum_norm()
    anchors = {"centre": carved.centre}
    if least.point is not None:
        anchors["minimum norm"] = least.point
    found = {name: sharpen(blocks, S, A) for name, A in anchors.items()}
    best = min(found, key=lambda name: found[name].residual)
    sharp = found[best]
    # The two largest weights of all rows that see two keys or more.
    tops = [
        np.sort(patterns(block, anchors[best]), axis=2)[:, :, -2:].reshape(-1, 2)
        for block in blocks
        if block.keys.shape[1] > 1
    ]
    second, top = np.concatenate(tops).T
    margins = np.log(top / np.maximum(second, np.finfo(float).tiny))
    n_one_hot = int(np.count_nonzero(top >= ONE_HOT))
    # How much the sum from one-hot rows alone, as in the paper, differs.
    differs = None
    if n_one_hot >= TRUSTED_PER_DIM * S.shape[0]:
        differs = _apart(sharpen(blocks, S, anchors[best], least_weight=ONE_HOT).S, sharp.S)
    apart = _apart(anchors.get("minimum norm", carved.centre), carved.centre)
    (note or Note()).say(
        f"the point of least norm {least.value:.3g} lies {apart:.0%} from the centre; "
        f"S comes from {sharp.n_rows} rows at the {best}, {n_one_hot} rows are one-hot.",
        S=sharp.S,
        norm=least.value,
        apart=apart,
        anchor=best,
        margins=np.quantile(margins, [0.5, 0.9, 1.0]),
        rows=sharp.n_rows,
        residual=sharp.residual,
        one_hot_rows=n_one_hot,
        one_hot_differs=differs,
    )
    return sharp.S, n_one_hot


def sharpen(
    blocks: tuple[ExampleBlock, ...], S: Matrix, A0: Matrix, least_weight: float = 0.0
) -> SumFit:
    """Least squares for S on the rows that the pattern of A0 explains best.

    With ``least_weight`` only rows whose pattern has that weight on one key are used, and the
    pattern is replaced by the one-hot one.
    Cost: O(rows d (n + e)) + REVISIONS rows d e.
    """
    # Equations z S = y.
    rows, outputs = [], []
    for block in blocks:
        p = patterns(block, A0)
        used = p.max(axis=2) >= least_weight
        if least_weight > 0.0:
            p = np.eye(p.shape[2])[p.argmax(axis=2)]
        rows.append((p @ block.keys)[used])
        outputs.append(block.targets[used])
    seen, targets = np.concatenate(rows), np.concatenate(outputs)
    share = TRUSTED_ONE_HOT if least_weight > 0.0 else TRUSTED_SHARE
    count = min(len(seen), max(int(share * len(seen)), TRUSTED_PER_DIM * S.shape[0]))
    for _ in range(REVISIONS):
        left = targets - seen @ S
        trusted = np.argpartition(np.sum(left**2, axis=1), count - 1)[:count]
        S = S + lstsq(seen[trusted], left[trusted], cond=SHOWN, check_finite=False)[0]
    left = targets[trusted] - seen[trusted] @ S
    return SumFit(S, count, float(np.sqrt(np.mean(left**2))))


def _apart(one: Matrix, other: Matrix) -> float:
    return float(np.linalg.norm(one - other) / max(np.linalg.norm(other), np.finfo(float).tiny))


def sculpt_again(
    blocks: tuple[ExampleBlock, ...], S: Matrix, n_heads: int, note: Note | None = None
) -> tuple[Carved, Matrix]:
    """Alternate ``carve`` and ``sharpen`` from a sharp S: K* and the sum it was carved with.

    One head goes on for as long as anything moves, since then there is no floor.
    Cost: at most MOST_ROUNDS times phases 2 and 3, without programs.
    """
    enough = AT_REST if n_heads > 1 else AT_REST_ALONE
    carved = carve(blocks, S)
    moved: list[float] = []
    while len(moved) < MOST_ROUNDS and len(carved.body) > 0:
        sharper = sharpen(blocks, S, carved.centre).S
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
