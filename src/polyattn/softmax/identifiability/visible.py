"""What given inputs show of the heads: the spans of their tokens, and the rank of the Jacobian.

A query x that attends to X sees attn through x A (x_j - x_l) alone.  So A + u n^T is the same
function for n orthogonal to all differences of tokens inside one sequence, and A + n v^T for n
orthogonal to all queries (of positions that attend to two tokens or more).

The Jacobian is the derivative of outputs by all visible parameters of the heads.
With p = softmax(x A_h X^T) the weights of a query x over the tokens X it attends to, and
Cov_p(X) their covariance under p,

    d y_c / d A_h[a, b] = x[a] (Cov_p(X) V_h)[b, c],      d y_c / d V_h[j, c] = (p X)[j].

With ``bias`` the last column of attn is left out (nothing depends on it), and instead of the
last rows of value there is one shared row, the constant of the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import norm, qr

from polyattn.model import SoftmaxAttention
from polyattn.model.layer import equal_blocks, ordinary_tokens
from polyattn.model.softmax import softmax
from polyattn.sequences import SequenceBatch

Matrix = NDArray[np.float64]

# Directions whose singular value is below this part of the largest are not spanned.
SPANNED = 1e-11

# Tokens that are read together.
BLOCK_TOKENS = 1 << 16

# Relative singular values above CLEAR are there, those below NOTHING are not.
CLEAR, NOTHING = 1e-7, 1e-12

# Weights below this are lost in rounding beside the others.
SHARP = 1e-10

# Numbers of a Jacobian that are in memory together, and flops that are spent at most.
BLOCK_NUMBERS = 1 << 21
MOST_FLOPS = 2e11


@dataclass(frozen=True)
class HeadFinding:
    """A reason why heads cannot be known: its name, a sentence, and which heads."""

    name: str
    sentence: str
    heads: tuple[int, ...]


def hidden_directions(layer: SoftmaxAttention, batch: SequenceBatch) -> Iterator[HeadFinding]:
    """Directions of attn that no query or no difference of tokens inside one sequence shows."""
    everyone = tuple(range(layer.n_heads))
    factor = np.zeros((0, batch.n_dims))
    pinned = np.ones(batch.n_dims, dtype=bool)
    firsts = np.repeat(batch.offsets[:-1], batch.lengths)
    for begin in range(0, len(firsts), BLOCK_TOKENS):
        some = slice(begin, begin + BLOCK_TOKENS)
        tokens = batch.values[some].astype(np.float64)
        pinned &= np.all(tokens == batch.values[0], axis=0)
        factor = triangular(factor, tokens - batch.values[firsts[some]].astype(np.float64))
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
            yield HeadFinding(name, sentence, everyone)
    queries = np.zeros((0, layer.n_dims + layer.bias))
    for block in attending_queries(layer, batch):
        queries = triangular(queries, block)
    for name, rows, words in (
        ("flat", factor[:, ~still], "Differences of tokens"),
        ("few_queries", queries, "The queries"),
    ):
        spanned, wanted = _rank(rows), rows.shape[1]
        if spanned < wanted:
            sentence = f"{words} span {spanned} of {wanted} directions: attn is free in the others."
            yield HeadFinding(name, sentence, everyone)


def triangular(factor: Matrix, rows: Matrix) -> Matrix:
    """The triangular factor of rows that are added below those of another one."""
    return qr(np.concatenate([factor, rows]), mode="r")[0][: rows.shape[1]]


def attending_queries(layer: SoftmaxAttention, batch: SequenceBatch) -> Iterator[Matrix]:
    """The queries (rows, D) that attend to two tokens or more, with the constant of ``bias``."""
    starts, ends = batch.offsets[:-1], batch.offsets[1:]
    attending = np.full(len(batch.values), layer.mode != "last")
    attending[ends - 1] = True
    attending[starts if layer.mode == "causal" else starts[batch.lengths == 1]] = False
    chosen = np.flatnonzero(attending)
    for begin in range(0, len(chosen), BLOCK_TOKENS):
        block = batch.values[chosen[begin : begin + BLOCK_TOKENS]].astype(np.float64)
        yield np.concatenate([block, np.ones((len(block), int(layer.bias)))], axis=1)


def _rank(factor: Matrix) -> int:
    """The number of spanned directions, of columns that were brought to length one."""
    sizes = np.array([norm(column) for column in factor.T])
    singular = np.linalg.svd(factor / np.where(sizes > 0, sizes, 1.0), compute_uv=False)
    return int(np.count_nonzero(singular > SPANNED * singular.max(initial=0.0)))


@dataclass(frozen=True)
class JacobianRank:
    """The rank of the Jacobian with columns of length one; None without a clear gap.

    ``complete``: all inputs were read, or enough of them for full rank.  ``involved`` are
    heads that take part in a change of parameters that no output shows, ``sharp`` those that
    give some token hardly any weight: what it would show of attn is lost in rounding.
    """

    rank: int | None
    complete: bool
    involved: tuple[int, ...]
    sharp: tuple[int, ...]


def n_visible(layer: SoftmaxAttention) -> int:
    """The number of parameters that inputs can show."""
    d, e = layer.n_dims, layer.n_outputs
    return layer.n_heads * d * (d + layer.bias + e) + layer.bias * e


def jacobian_rank(layer: SoftmaxAttention, batch: SequenceBatch) -> JacobianRank:
    """The rank of the Jacobian at all predicted positions; stops as soon as it is full.

    Cost: O(P^2) per output for P visible parameters, memory O(P^2).
    """
    n_parameters = n_visible(layer)
    factor = np.zeros((0, n_parameters))
    budget, n_equations, checked = MOST_FLOPS, 0, 0
    sharp = np.zeros(layer.n_heads, dtype=bool)
    for rows, hidden in jacobian_blocks(layer, batch):
        sharp |= hidden
        factor = triangular(factor, rows)
        n_equations += len(rows)
        budget -= 2.0 * len(rows) * n_parameters**2
        # Full rank may be seen early; looking is slow, so: whenever the rows have doubled.
        if n_equations >= max(n_parameters, 2 * checked):
            checked = n_equations
            found = _decompose(factor, layer, sharp, complete=True)
            if found.rank == n_parameters:
                return found
        if budget < 0:
            break
    return _decompose(factor, layer, sharp, complete=budget >= 0)


def jacobian_blocks(
    layer: SoftmaxAttention, batch: SequenceBatch
) -> Iterator[tuple[Matrix, NDArray[np.bool_]]]:
    """Rows (positions * outputs, P): all attn by head, all value by head, then the constant.

    Columns are scaled by powers of two where tokens or heads are of extreme size.  Beside the
    rows: which heads are sharp there.
    """
    attn, value, of_attn, _ = layer._scaled_heads
    tokens = ordinary_tokens(batch, layer.bias)
    exponent = of_attn + 2 * tokens.exponent
    at_once = max(1, BLOCK_NUMBERS // (n_visible(layer) * layer.n_outputs))
    for _, X in equal_blocks(tokens):
        step = max(1, at_once // X.shape[1])
        for first in range(0, len(X), step):
            yield _block(X[first : first + step], attn, value, layer, exponent)


def _block(
    X: Matrix, attn: Matrix, value: Matrix, layer: SoftmaxAttention, exponent: int
) -> tuple[Matrix, NDArray[np.bool_]]:
    """The rows of some sequences X (B, n, d) of one length."""
    queries = X[:, -1:] if layer.mode == "last" else X
    d, e = layer.n_dims, layer.n_outputs
    shape = (*queries.shape[:2], e)
    of_attn, of_value, sharp = [], [], []
    attended = np.ones((queries.shape[1], X.shape[1]), dtype=bool)
    if layer.mode == "causal":
        attended = np.tril(attended)
    for A, V in zip(attn, value, strict=True):
        logits = (queries @ A) @ X.transpose(0, 2, 1)
        logits[:, ~attended] = -np.inf
        weights = softmax(logits, exponent)
        sharp.append(bool(np.any(weights[:, attended] < SHARP)))
        mean = weights @ X
        spread = X[:, None, :, :d] - mean[:, :, None, :d]  # (B, rows, tokens, d)
        weighted = (weights[..., None] * spread).transpose(0, 1, 3, 2)
        effect = weighted @ (spread @ V[:d])  # Cov_p(X) V: (B, rows, d, e)
        of_attn.append(np.einsum("bra,brkc->brcak", queries, effect).reshape(*shape, -1))
        of_value.append(np.einsum("brj,cf->brcjf", mean[..., :d], np.eye(e)).reshape(*shape, -1))
    constant = np.broadcast_to(np.eye(e), (*shape, e))[..., : e * layer.bias]
    rows = np.concatenate([*of_attn, *of_value, constant], axis=-1)
    return rows.reshape(-1, n_visible(layer)), np.array(sharp)


def _decompose(
    factor: Matrix, layer: SoftmaxAttention, sharp: NDArray[np.bool_], complete: bool
) -> JacobianRank:
    sizes = np.linalg.norm(factor, axis=0)
    _, singular, directions = np.linalg.svd(factor / np.where(sizes > 0, sizes, 1.0))
    singular = np.concatenate([singular, np.zeros(factor.shape[1] - len(singular))])
    relative = singular / (singular[0] or 1.0)
    there = int(np.count_nonzero(relative > CLEAR))
    rank = there if np.all(relative[there:] <= NOTHING) else None
    unseen = directions[singular <= NOTHING * singular[0]]
    # The head of each parameter; -1 for the shared constant.
    d, e, heads = layer.n_dims, layer.n_outputs, np.arange(layer.n_heads)
    of_attn, of_value = np.repeat(heads, d * (d + layer.bias)), np.repeat(heads, d * e)
    owner = np.concatenate([of_attn, of_value, np.full(e * layer.bias, -1)])
    involved = tuple(h for h in heads.tolist() if np.any(np.abs(unseen[:, owner == h]) > 1e-6))
    return JacobianRank(rank, complete, involved, tuple(np.flatnonzero(sharp).tolist()))
