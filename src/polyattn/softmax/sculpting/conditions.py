"""What sculpting needs of the data, measured and named [chen2024].

The paper assumes non-degeneracy; here every assumption is a number that is compared with what is
needed, so that a failure has a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import ExampleBlock
from polyattn.softmax.sculpting.carve import Carved
from polyattn.softmax.sculpting.crude import CrudeSum
from polyattn.softmax.sculpting.search import Searched
from polyattn.softmax.sculpting.sharpen import SharpSum
from polyattn.softmax.sculpting.span import HeadSpan

Matrix = NDArray[np.float64]

# Shares, ratios and counts below which a condition is called broken.
LEAST_CARRIED, LEAST_SINGULAR, LEAST_GAP, ONE_HOT_PER_DIM = 0.05, 0.02, 1.2, 8
LARGEST_RESIDUAL, LARGEST_ERROR = 0.15, 0.3


@dataclass(frozen=True)
class Condition:
    """One assumption: its name, whether it holds, what was measured, what is needed, in words."""

    name: str
    holds: bool
    measured: float
    needed: float
    sentence: str

    def __str__(self) -> str:
        return f"{'holds' if self.holds else 'FAILS'}  {self.name}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; what is infinite becomes None."""
        return {
            "name": self.name,
            "holds": self.holds,
            "measured": self.measured if np.isfinite(self.measured) else None,
            "needed": self.needed,
            "sentence": self.sentence,
        }


def of_shapes(blocks: tuple[ExampleBlock, ...], n_heads: int) -> list[Condition]:
    """Whether outputs are enough for the residual to mean anything, by counting."""
    n_outputs = blocks[0].targets.shape[2]
    length = _shortest(blocks)
    unknowns = n_heads * (length - 1)
    return [
        _condition(
            "residual test",
            length <= n_outputs,
            length,
            n_outputs,
            f"a pattern over {length} tokens has {length - 1} unknowns and {n_outputs} equations; ",
            "what is left over tests whether heads agree.",
            "it explains any output, so the residual has no power.",
        ),
        _condition(
            "disagreement is seen",
            unknowns <= n_outputs,
            unknowns,
            n_outputs,
            f"the patterns of {n_heads} heads have {unknowns} unknowns on a row and {n_outputs} "
            "equations: ",
            "a residual of zero means agreement.",
            "heads can disagree without a residual.",
        ),
    ]


def of_sum(crude: CrudeSum, S: Matrix, blocks: tuple[ExampleBlock, ...]) -> list[Condition]:
    """Whether S is there, and whether patterns can be read through it."""
    sigma = np.linalg.svd(S, compute_uv=False)
    length = _shortest(blocks)
    position = min(length, len(sigma)) - 1
    ratio = float(sigma[position] / sigma[0]) if sigma[0] > 0 else 0.0
    return [
        _at_least(
            "sum of values",
            crude.carried,
            LEAST_CARRIED,
            f"the sum of the values carries {crude.carried:.0%} of the squared outputs",
            "the values nearly cancel, and no pattern can be read from the outputs",
        ),
        _at_least(
            "sum of values is regular",
            ratio if len(sigma) >= length - 1 else 0.0,
            LEAST_SINGULAR,
            f"singular value {position + 1} of the sum of values is {ratio:.2g} of the largest",
            "patterns cannot be distinguished through so singular a sum",
        ),
    ]


def of_rows(carved: Carved, sharp: SharpSum) -> list[Condition]:
    """Whether there are enough rows on which heads agree, how well they do, and one-hot rows.

    The paper's phase 3 rests on one-hot rows.
    """
    n_dims, count = len(carved.centre), len(carved.body)
    residual, n_free = carved.residuals[1], len(carved.body.free)
    return [
        _at_least(
            "rows on which heads agree",
            count,
            n_dims**2,
            f"{carved.n_kept} rows give {count} constraints for {n_dims**2} unknowns",
            "more examples are needed, or heads that agree more often",
        ),
        _condition(
            "heads agree well",
            residual <= LARGEST_RESIDUAL,
            residual,
            LARGEST_RESIDUAL,
            f"half of the certified rows have a residual below {residual:.2g} of the "
            "spread of the outputs",
            ".",
            "; heads disagree on them, or the outputs are noisy.",
        ),
        _condition(
            "K is bounded",
            n_free == 0,
            n_free,
            0,
            f"{n_free} directions are seen by no constraint.",
        ),
        _at_least(
            "one-hot rows",
            sharp.n_one_hot,
            ONE_HOT_PER_DIM * n_dims,
            f"{sharp.n_one_hot} rows attend to one token alone",
            "attention is soft everywhere, and S rests on patterns alone",
        ),
    ]


def of_search(span: HeadSpan, found: Searched) -> list[Condition]:
    """Whether the span stands out, and its heads explain examples they were not fitted to."""
    gap = _condition("spectral gap", True, 1, 1, "one head needs no directions.")
    if len(span.directions):
        gap = _at_least(
            "spectral gap",
            span.gap,
            LEAST_GAP,
            f"the first direction outside the span is {span.gap:.2g} times as well determined as "
            "the last one inside",
            "the span may hold wrong directions",
        )
    fit = _condition(
        "fit in the span",
        found.validated <= LARGEST_ERROR,
        found.validated,
        LARGEST_ERROR,
        f"the best heads of the span leave {found.validated:.2g} of held-out outputs unexplained",
        ".",
        ": noise, or the true heads are not near it.",
    )
    return [gap, fit]


def _shortest(blocks: tuple[ExampleBlock, ...]) -> int:
    """The fewest tokens, of two or more, that a query attends to."""
    return min(block.keys.shape[1] for block in blocks if block.keys.shape[1] > 1)


def _condition(
    name: str, holds: bool, measured: float, needed: float, fact: str, good: str = "", bad: str = ""
) -> Condition:
    """A condition whose sentence is the fact, and what it means if it holds or if it does not."""
    return Condition(name, holds, float(measured), float(needed), fact + (good if holds else bad))


def _at_least(name: str, measured: float, needed: float, fact: str, otherwise: str) -> Condition:
    below = "fewer than" if float(needed).is_integer() else "below"
    bad = f", {below} {needed:g}: {otherwise}."
    return _condition(name, bool(measured >= needed), measured, needed, fact, ".", bad)
