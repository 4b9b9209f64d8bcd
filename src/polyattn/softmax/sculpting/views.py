"""Examples as a position sees them: blocks in which every query sees every key."""

from __future__ import annotations

import numpy as np

from polyattn.errors import InvalidInput
from polyattn.softmax.examples import Block, Examples

# Rows that the phases before the search look at; more of them sharpen nothing that counts.
MOST_ROWS = 1 << 19


def views(training: Examples) -> tuple[Block, ...]:
    """Blocks without hidden keys: position r of a causal sequence is the last of r + 1 tokens.

    Lengths in which no query sees a second token stay: they show the sum of the values.
    """
    if training.n_rows > MOST_ROWS:
        training = training.first(max(1, len(training) * MOST_ROWS // training.n_rows))
    blocks = tuple(view for group in training.groups for view in _split(group))
    if all(view.keys.shape[1] == 1 for view in blocks):
        raise InvalidInput(
            "sculpting needs sequences in which a query sees at least two tokens; all of these "
            "have one, and with one token attention has no choice."
        )
    return blocks


def _split(block: Block) -> list[Block]:
    if block.hidden is None or not block.hidden.any():
        return [Block(block.keys, block.targets, None)]
    length = block.keys.shape[1]
    if not np.array_equal(block.hidden, ~np.tri(length, dtype=bool)):
        raise InvalidInput(
            "sculpting takes the modes 'full', 'causal' and 'last'; here keys are hidden in "
            "another pattern."
        )
    return [Block(block.keys[:, : r + 1], block.targets[:, r : r + 1], None) for r in range(length)]
