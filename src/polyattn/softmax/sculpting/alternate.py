"""Phase 4: sculpting and sharpening alternate, and the last body is K* [chen2024].

With a sharper S certified rows are truer, with truer rows the centre of the body is closer to the
affine hull of the A_i, and with a better centre S is sharper again.  For one head this converges
to the truth; for several it comes to rest where the heads' disagreement on certified rows is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import ExampleBlock
from polyattn.softmax.recorder import Note
from polyattn.softmax.sculpting.carve import Carved, carve
from polyattn.softmax.sculpting.sharpen import sharpen

Matrix = NDArray[np.float64]

# Rounds of sculpting and sharpening; they end early once S has come to rest.
MOST_ROUNDS, AT_REST, AT_REST_ALONE = 10, 3e-3, 1e-9


@dataclass(frozen=True)
class Alternated:
    """K* as carved last, with the sum S (d, e) it was carved with; how much S moved per round."""

    carved: Carved
    S: Matrix
    moved: tuple[float, ...]

    def record(self, note: Note) -> None:
        """What phase 4 did."""
        note.say(
            f"{len(self.moved)} rounds, the last moved S by {(self.moved or (0.0,))[-1]:.1e}; "
            f"{self.carved.n_kept} rows in K*, median slack {self.carved.slack:.2g}.",
            **self.carved.figures,
            S=self.S.tolist(),
            moved=list(self.moved),
        )


def sculpt_again(blocks: tuple[ExampleBlock, ...], S: Matrix, n_heads: int) -> Alternated:
    """Alternate ``carve`` and ``sharpen`` from a sharp S.

    One head goes on for as long as anything moves, since then there is no floor.
    Cost: at most MOST_ROUNDS times phases 2 and 3, without programs.
    """
    enough = AT_REST if n_heads > 1 else AT_REST_ALONE
    carved = carve(blocks, S)
    moved: list[float] = []
    while len(moved) < MOST_ROUNDS and len(carved.body) > 0:
        sharper = sharpen(blocks, S, carved.centre).S
        size = max(float(np.linalg.norm(sharper)), np.finfo(float).tiny)
        moved.append(float(np.linalg.norm(sharper - S)) / size)
        S = sharper
        carved = carve(blocks, S)
        if moved[-1] <= enough:
            break
    return Alternated(carved, S, tuple(moved))
