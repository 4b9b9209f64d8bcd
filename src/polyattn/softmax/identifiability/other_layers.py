"""Layers far from a given one, of as many heads, with the same outputs on given inputs."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from polyattn.model import SoftmaxAttention
from polyattn.model.compare import visible_attn
from polyattn.sequences import SequenceBatch
from polyattn.softmax.identifiability.mirrored import mirrored
from polyattn.softmax.identifiability.rearranged import Unexamined, rearranged
from polyattn.softmax.identifiability.token_span import HeadFinding, attending_queries

Matrix = NDArray[np.float64]

# Heads are alike, and outputs the same, up to this.
ALIKE, SAME = 1e-9, 1e-9

# Alternatives that are tried on all inputs.
MOST_TRIED = 16

SENTENCES = {
    "opposite_heads": (
        "Every query sees at most two kinds of tokens, and these equally often: heads {heads} can "
        "be replaced, since A, -A and 0 with values V, V and -2V cancel there."
    ),
    "two_valued": (
        "Heads {heads} have equal values, and the queries are so few that other heads have the "
        "same logits there, in another order: they give the same outputs."
    ),
}


def other_layers(
    layer: SoftmaxAttention, batch: SequenceBatch
) -> tuple[list[HeadFinding], tuple[int, ...]]:
    """A finding for another layer of as many heads, and heads for which not all were tried.

    Heads of other signs, and other pairings of heads of equal value, are tried on all inputs.
    The first of each kind that gives the same outputs is a finding.
    """
    attn, value = _of_order_one(visible_attn(layer)), _of_order_one(layer.value)
    if layer.bias:
        # The constant of the outputs belongs to no head.
        value[:, -1] = 0.0
    queries = np.concatenate([*attending_queries(layer, batch)])
    others = chain(mirrored(attn, value, ALIKE), rearranged(attn, value, queries, ALIKE))
    findings: dict[str, HeadFinding] = {}
    unexamined: tuple[int, ...] = ()
    outputs: Matrix | None = None
    exponent = _exponent(visible_attn(layer))
    for count, other in enumerate(others):
        if isinstance(other, Unexamined) or count >= MOST_TRIED:
            unexamined = other.heads
        elif other.name not in findings:
            if outputs is None:
                outputs = _outputs(layer, attn, value, exponent, batch)
            there = _outputs(layer, other.attn, other.value, exponent, batch)
            if np.abs(there - outputs).max() <= SAME * np.abs(outputs).max():
                sentence = SENTENCES[other.name].format(heads=sorted(other.heads))
                heads = tuple(sorted(other.heads))
                findings[other.name] = HeadFinding(other.name, sentence, heads)
    return list(findings.values()), unexamined


def _outputs(
    layer: SoftmaxAttention, attn: Matrix, value: Matrix, exponent: int, batch: SequenceBatch
) -> Matrix:
    """All outputs of other heads, whose attn was divided by 2**exponent."""
    return SoftmaxAttention(np.ldexp(attn, exponent), value, layer.mode, layer.bias)._rows(batch)


def _of_order_one(heads: Matrix) -> Matrix:
    return np.ldexp(heads, -_exponent(heads))


def _exponent(heads: Matrix) -> int:
    """The power of two next to the largest entry; 0 if all are zero."""
    return int(np.frexp(np.abs(heads).max())[1])
