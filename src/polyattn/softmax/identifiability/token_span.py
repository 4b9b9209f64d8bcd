"""What the tokens of given sequences cannot show of any softmax layer.

A query x that attends to X sees attn through x A (x_j - x_l) alone.  So with D the span of all
differences of tokens inside one sequence and Q the span of all queries (of positions that attend
to two tokens or more), A + u n^T is the same function for n orthogonal to D and any u, and
A + n v^T for n orthogonal to Q and any v.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm, qr

from polyattn.model import SoftmaxAttention
from polyattn.sequences import SequenceBatch

Matrix = NDArray[np.float64]

# Directions whose singular value is below this part of the largest are not spanned.
SPANNED = 1e-11

# Tokens that are looked at together.
BLOCK_TOKENS = 1 << 16


@dataclass(frozen=True)
class HeadFinding:
    """A reason why heads cannot be known: its name, a sentence, and which heads."""

    name: str
    sentence: str
    heads: tuple[int, ...]


def token_findings(layer: SoftmaxAttention, batch: SequenceBatch) -> Iterator[HeadFinding]:
    """All that the tokens of these sequences hide, whatever the heads."""
    longest = int(batch.lengths.max())
    if longest < 2:
        sentence = "All sequences have one token, whose weight is 1 whatever attn is."
        yield HeadFinding("one_token", sentence, tuple(range(layer.n_heads)))
        return
    yield from hidden_directions(layer, batch)


def hidden_directions(layer: SoftmaxAttention, batch: SequenceBatch) -> Iterator[HeadFinding]:
    """Directions of attn that no query or no difference of tokens shows."""
    everyone = tuple(range(layer.n_heads))
    yield from _hidden_differences(batch, everyone)
    wanted = layer.n_dims + layer.bias
    factor = np.zeros((0, wanted))
    for block in attending_queries(layer, batch):
        factor = triangular(factor, block)
    spanned = _rank(factor)
    if spanned < wanted:
        sentence = f"The queries span {spanned} of {wanted} directions: attn is free in the others."
        yield HeadFinding("few_queries", sentence, everyone)


def triangular(factor: Matrix, rows: Matrix) -> Matrix:
    """The triangular factor of rows that are added below those of another one."""
    return qr(np.concatenate([factor, rows]), mode="r")[0][: rows.shape[1]]


def _hidden_differences(batch: SequenceBatch, heads: tuple[int, ...]) -> Iterator[HeadFinding]:
    """Columns of attn that no difference of tokens inside one sequence shows."""
    factor = np.zeros((0, batch.n_dims))
    pinned = np.ones(batch.n_dims, dtype=bool)
    for tokens, first in _pieces(batch):
        pinned &= np.all(tokens == batch.values[0], axis=0)
        factor = triangular(factor, tokens - first)
    still = ~np.any(factor, axis=0)
    for name, which, words in (
        ("pinned", pinned, "are the same in all tokens"),
        ("constant_within", still & ~pinned, "do not change inside any sequence"),
    ):
        if np.any(which):
            sentence = (
                f"Coordinates {np.flatnonzero(which).tolist()} {words}: they shift all logits of a "
                "query alike, so these columns of attn are free."
            )
            yield HeadFinding(name, sentence, heads)
    moving = factor[:, ~still]
    spanned = _rank(moving)
    if spanned < moving.shape[1]:
        sentence = (
            f"Differences of tokens span {spanned} of {moving.shape[1]} directions: attn is free "
            "in the others."
        )
        yield HeadFinding("flat", sentence, heads)


def attending_queries(layer: SoftmaxAttention, batch: SequenceBatch) -> Iterator[Matrix]:
    """The queries (rows, D) that attend to two tokens or more, with the constant of ``bias``."""
    starts, ends = batch.offsets[:-1], batch.offsets[1:]
    attending = np.ones(len(batch.values), dtype=bool)
    if layer.mode == "last":
        attending[:] = False
        attending[ends - 1] = True
    elif layer.mode == "causal":
        attending[starts] = False
    attending[starts[batch.lengths == 1]] = False
    chosen = np.flatnonzero(attending)
    for begin in range(0, len(chosen), BLOCK_TOKENS):
        block = batch.values[chosen[begin : begin + BLOCK_TOKENS]].astype(np.float64)
        if layer.bias:
            block = np.concatenate([block, np.ones((len(block), 1))], axis=1)
        yield block


def _pieces(batch: SequenceBatch) -> Iterator[tuple[Matrix, Matrix]]:
    """Tokens, and beside each the first token of its sequence."""
    firsts = np.repeat(batch.offsets[:-1], batch.lengths)
    for begin in range(0, len(firsts), BLOCK_TOKENS):
        some = slice(begin, begin + BLOCK_TOKENS)
        yield batch.values[some].astype(np.float64), batch.values[firsts[some]].astype(np.float64)


def _rank(factor: Matrix) -> int:
    """The number of spanned directions, of columns that were brought to length one."""
    sizes = np.array([norm(column) for column in factor.T])
    if not np.any(sizes > 0):
        return 0
    singular = np.linalg.svd(factor / np.where(sizes > 0, sizes, 1.0), compute_uv=False)
    return int(np.count_nonzero(singular > SPANNED * singular[0]))
