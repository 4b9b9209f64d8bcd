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

# With fewer unknowns than this more examples cost nothing.
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
        return polish(examples, attn, n_steps, on_step)
    near = polish(few, attn, n_steps, on_step)
    return polish(examples, near.attn, n_steps, on_step)


def enough(examples: Examples, n_heads: int, equations: float = FAR_EQUATIONS) -> Examples:
    """The first examples, with about ``equations`` scalar targets for each unknown."""
    n_unknowns = n_heads * examples.n_dims * (examples.n_dims + examples.n_outputs)
    targets = examples.n_outputs * examples.n_rows / len(examples)
    return examples.first(max(FEWEST_EXAMPLES, round(equations * n_unknowns / targets)))
