"""Phase 1, the crude sum: what all heads together do to the mean token [chen2024].

The paper estimates S = sum_i V_i by correlating the mean token with the outputs.  To first order
in the logits

    y_r = mean(X) S + sum_i x_r A_i C V_i + ...,      E[C] = (1 - 1/n) Cov(x),

so part of y_r is linear in x_r, which is itself a part of the mean token.  Regressing on both,
with x_r weighed by 1 - 1/n, takes that part out and leaves half of the error or less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from polyattn.softmax.examples import ExampleBlock
from polyattn.softmax.recorder import Note

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class CrudeSum:
    """S (d, e), and what can be known of its quality without knowing S.

    carried : the share of the squared outputs that mean(X) S explains
    turned : how far S is from the plain regression on the mean token, relatively; that one errs
        by the first order in the logits, so this is the size of the terms that were left out
    """

    S: Matrix
    carried: float
    turned: float

    def record(self, note: Note) -> None:
        """What phase 1 found."""
        note.say(
            f"the mean token explains {self.carried:.0%} of the squared outputs; terms of "
            f"first order, taken out, were {self.turned:.0%} of the sum.",
            S=self.S.tolist(),
            carried=self.carried,
            turned=self.turned,
        )


def crude_sum(blocks: tuple[ExampleBlock, ...]) -> CrudeSum:
    """Estimate S by regressing y_r on mean(X) and (1 - 1/n) x_r.

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
    plain = lstsq(gram[:n_dims, :n_dims], moment[:n_dims])[0]
    explained = float(np.einsum("ac,ab,bc->", S, gram[:n_dims, :n_dims], S))
    size = float(np.linalg.norm(plain))
    return CrudeSum(
        S,
        explained / power if power > 0 else 0.0,
        float(np.linalg.norm(S - plain)) / size if size > 0 else 0.0,
    )
