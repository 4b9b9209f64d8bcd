"""Descent on few examples while far, on all of them at the end."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish.descent import Polished, polish
from polyattn.softmax.polish.projection import Projection

Matrix = NDArray[np.float64]

# Equations for each unknown while far from a solution: with fewer there are more local minima.
FAR_EQUATIONS = 16.0

# Descent ends when four steps gain less than this: on few examples, and on all.
FAR_GAIN, NEAR_GAIN = 1e-3, 1e-4

# So many examples cost next to nothing, however few the unknowns.
FEWEST_EXAMPLES = 100


def descend(
    examples: Examples,
    attn: Matrix,
    n_steps: int = 60,
    on_step: Callable[[Projection], None] | None = None,
    *,
    equations: float = FAR_EQUATIONS,
) -> Polished:
    """``polish`` on enough examples to see the way, then on all.

    Guarantee: the result is at rest on all examples, or ``n_steps`` were made there.
    """
    few = enough(examples, len(attn), equations)
    if 2 * len(few) > len(examples):
        return polish(examples, attn, n_steps, on_step, gain=NEAR_GAIN)
    near = polish(few, attn, n_steps, on_step, gain=FAR_GAIN)
    return polish(examples, near.attn, n_steps, on_step, gain=NEAR_GAIN)


def enough(examples: Examples, n_heads: int, equations: float = FAR_EQUATIONS) -> Examples:
    """The first examples, with about ``equations`` scalar targets for each unknown."""
    n_unknowns = examples.n_unknowns(n_heads)
    targets = examples.n_outputs * examples.n_rows / len(examples)
    return examples.first(max(FEWEST_EXAMPLES, round(equations * n_unknowns / targets)))
