"""Sequences on which a direction of coefficients shows, for layers of any form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains.independence import lengths_seen
from polyattn.features.products import apply_coef
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.sequences import SequenceBatch

# Sequences that are tried for each length; many, where few show nothing: two given symbols are
# seldom together.  And how much less a shorter one may show.
TRIED, SHORTER = (64, 4096), 0.2

Pair = tuple[NDArray[np.float64], NDArray[np.float64] | None]


def separating_pair(
    direction: NDArray[np.float64],
    layout: Layout,
    lengths: tuple[int, int | None],
    draw: Callable[[int, int], NDArray[np.float64]],
    exponent: int,
    rng: np.random.Generator,
) -> Pair:
    """A sequence (n, d), and its context if there is one, with a large |<direction, psi>|.

    draw : (number of tokens, coordinates) -> random tokens of a domain
    exponent : tokens enter the features divided by 2**exponent
    Of random sequences of each length that makes a difference the one that shows the direction
    most; a shorter one, if it shows nearly as much.
    """
    context, most = layout.n_context_dims, 0.0
    for tried in TRIED:
        found: list[tuple[float, Pair]] = []
        for length in lengths_seen(layout.form, lengths):
            if length < lengths[0]:
                continue
            batch = _batch(draw, tried, length, layout.n_dims)
            other = None
            if context is not None:
                n_tokens = length if layout.form.mode == "causal" else int(rng.integers(1, 4))
                other = _batch(draw, tried, n_tokens, context)
            pair = largest_output(direction, layout, batch, other, exponent)
            found.append((largest_value(direction, layout, *pair, exponent), pair))
        most = max(value for value, _ in found)
        if most > 0.0:
            break
    return next(pair for value, pair in found if value >= SHORTER * most)


def largest_output(
    direction: NDArray[np.float64],
    layout: Layout,
    batch: SequenceBatch,
    context: SequenceBatch | None,
    exponent: int,
) -> Pair:
    """The sequence with the largest |<direction, psi>|, and its context."""
    values = _outputs(direction, layout, batch, context, exponent)
    row = int(np.argmax(values))
    last = layout.form.mode == "last"
    at = row if last else int(np.searchsorted(batch.offsets, row, "right")) - 1
    one, other = (
        None if each is None else np.asarray(each[at], dtype=np.float64)
        for each in (batch, context)
    )
    assert one is not None  # noqa: S101 - only a context may be missing
    return one, other


def largest_value(
    direction: NDArray[np.float64],
    layout: Layout,
    sequence: NDArray,
    context: NDArray | None,
    exponent: int,
) -> float:
    """The largest |<direction, psi>| over the predicted positions of one sequence."""
    other = None if context is None else SequenceBatch.from_sequences([context])
    batch = SequenceBatch.from_sequences([sequence])
    return float(_outputs(direction, layout, batch, other, exponent).max())


def _outputs(
    direction: NDArray,
    layout: Layout,
    batch: SequenceBatch,
    context: SequenceBatch | None,
    exponent: int,
) -> NDArray[np.float64]:
    coef = grid_of(direction, layout)[None]
    seen = SeenSequences(layout, batch, context, exponent)
    values = [np.abs(apply_coef(coef, block.sums, block.queries)[0]) for block in seen.blocks()]
    return np.concatenate(values)


def grid_of(direction: NDArray[np.float64], layout: Layout) -> NDArray[np.float64]:
    """Coefficients (m, r) of all products from those of the features (p,); others are zero."""
    grid = np.zeros(layout.n_sums * layout.n_queries)
    grid[slice(None) if layout.kept is None else layout.kept] = direction
    return grid.reshape(layout.n_sums, layout.n_queries)


def _batch(
    draw: Callable[[int, int], NDArray], count: int, length: int, n_dims: int
) -> SequenceBatch:
    return SequenceBatch.from_array(draw(count * length, n_dims).reshape(count, length, n_dims))
