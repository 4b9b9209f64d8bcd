"""Whether heads are told apart by generic inputs, where the given ones leave something open.

Heads that are distinct and not idle have no open direction on generic real inputs.  So a layer
that has open directions on random tokens, too, has heads that are equal or idle up to rounding,
and what is open is no gap in the examples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyattn.softmax.examples import Block, Examples
from polyattn.softmax.judging.uncertainty import ROUNDINGS, uncertainty
from polyattn.softmax.polish.projection import Projection, project

# Tokens of a random sequence, and numbers of output for each unknown.
N_TOKENS, EQUATIONS = 4, 4

# Generic inputs must show a direction clearly, not just above rounding.
CLEARLY = 1e4


def open_on_generic_inputs(projection: Projection, bias: bool) -> bool:
    """Whether random tokens, of the size of the scaled examples, leave directions open as well.

    Cost: that of error bars on EQUATIONS times as many numbers as there are parameters.
    """
    _, width, n_outputs = projection.value.shape
    n_parameters = projection.attn.size + projection.value.size
    n_sequences = 1 + EQUATIONS * n_parameters // (N_TOKENS * n_outputs)
    # Always the same tokens: a judge draws no lots.
    keys = np.random.default_rng(0).standard_normal((n_sequences, N_TOKENS, width))
    if bias:
        keys[:, :, -1] = 1.0
    block = Block(keys, np.zeros((n_sequences, N_TOKENS, n_outputs)), None, bias)
    examples = Examples((block,))
    there = replace(project(examples, projection.attn), value=projection.value)
    return uncertainty(examples, there, 1.0, CLEARLY * ROUNDINGS).n_open > 0
