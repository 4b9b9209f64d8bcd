"""By how much K* must be widened to contain all heads, with a stated confidence (ours).

The slack that a true head needs cannot be read from the targets: it is the disagreement of heads
on certified rows, and the heads are unknown.  But it can be measured where they are known.  Layers
of as many heads, of the sizes that the data show, are planted on the very tokens of the data, and
taken through phases 1 to 4.  The largest stray of their heads, in slacks of their own K*, is the
factor, up to a little safety: of B + 1 exchangeable numbers the last exceeds the largest of the
others with probability 1 / (B + 1) at most.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np

from polyattn.errors import require_confidence
from polyattn.softmax.examples import ExampleBlock, Matrix
from polyattn.softmax.polish.projection import patterns
from polyattn.softmax.sculpting.carve import Carved, carve
from polyattn.softmax.sculpting.sum_of_values import crude_sum, sculpt_again, sharpest

# Rows on which layers are planted; more take longer and change the factor little.
MOST_ROWS = 1 << 13

# Layers that only find the size of attention, and by how much each may change it.
SIZING, MOST_CHANGE = 3, 2.0

# The largest stray is raised by this, since sizes are only nearly those of the data.
SAFETY = 1.25


class Calibration(NamedTuple):
    """All slacks of K* times ``factor`` hold all heads with probability ``confidence`` at least.

    size : the standard deviation of the entries of planted attention
    strays : of the planted layers, each the largest of its heads, in slacks of its own K*
    """

    factor: float
    confidence: float
    size: float
    strays: tuple[float, ...]


def calibrate(
    blocks: tuple[ExampleBlock, ...],
    carved: Carved,
    S: Matrix,
    n_heads: int,
    rng: np.random.Generator,
    confidence: float,
) -> Calibration:
    """The factor by which the slacks of K* = ``carved`` are to be multiplied; at least 1.

    Planted attention has independent normal entries, of the size at which as many rows have a
    usable pattern as in the data: hard attention leaves fewer.  The size begins where the mean of m
    heads has the norm of the centre, and a few layers correct it that are not counted.  Planted
    values are of the size at which their sum has the norm of S.

    Guarantee: on a layer that was drawn like these, without noise, all A_i lie in the widened K*
    with probability ``confidence`` over its draw and those of the planted ones, as long as there
    are no more than MOST_ROWS rows and phase 3 ends where phase 4 does from the centre.  On other
    layers it is a measurement on layers of that size, no guarantee.
    Cost: SIZING + confidence / (1 - confidence) times phases 1 to 4 without programs.
    """
    require_confidence(confidence)
    n_layers = ceil(round(confidence / (1.0 - confidence), 9))
    some = _first_rows(blocks)
    usable = _usable(carved, blocks)
    size = float(np.linalg.norm(carved.centre) * np.sqrt(n_heads / carved.centre.size))
    strays = []
    for number in range(SIZING + n_layers):
        attn = size * rng.standard_normal((n_heads, *carved.centre.shape))
        value = rng.standard_normal((n_heads, *S.shape))
        value *= np.linalg.norm(S) / np.sqrt(n_heads * S.size)
        planted = _hull(_answered(some, attn, value), n_heads)
        if number < SIZING:
            more = _usable(planted, some) / usable
            size *= float(np.clip(more, 1 / MOST_CHANGE, MOST_CHANGE))
        else:
            strays.append(max(planted.body.stray(A) for A in attn))
    return Calibration(max(1.0, SAFETY * max(strays)), confidence, size, tuple(strays))


def _answered(
    blocks: tuple[ExampleBlock, ...], attn: Matrix, value: Matrix
) -> tuple[ExampleBlock, ...]:
    """The tokens of the blocks with the outputs of other heads."""
    answered = []
    for block in blocks:
        heads = zip(attn, value, strict=True)
        outputs = sum(patterns(block, A) @ (block.keys @ V) for A, V in heads)
        answered.append(ExampleBlock(block.keys, np.asarray(outputs), None))
    return tuple(answered)


def _usable(carved: Carved, blocks: tuple[ExampleBlock, ...]) -> float:
    """The share of rows with a usable pattern, at least that of one row."""
    n_rows = sum(block.n_rows for block in blocks if block.keys.shape[1] > 1)
    return max(carved.figures["usable"], 1) / n_rows


def _hull(blocks: tuple[ExampleBlock, ...], n_heads: int) -> Carved:
    """K* of phases 1 to 4."""
    crude = crude_sum(blocks)[0]
    sharp = sharpest(blocks, crude, {"centre": carve(blocks, crude).centre}).fit.S
    return sculpt_again(blocks, sharp, n_heads)[0]


def _first_rows(blocks: tuple[ExampleBlock, ...]) -> tuple[ExampleBlock, ...]:
    """The first sequences of every block, so that there are about MOST_ROWS rows at most."""
    total = sum(block.n_rows for block in blocks)
    if total <= MOST_ROWS:
        return blocks
    return tuple(block.part(0, max(1, len(block) * MOST_ROWS // total)) for block in blocks)
