"""Heads from moments: correlate, unfold, separate, and descend inside the span.

In bases P_a, Q_b of the spans the heads are B_i = sum_a G[i,a] P_a, V_i = sum_b H[i,b] Q_b.  With
l_a the logits of P_a, a head moves the mean token by its cumulants,

    y = ... + sum_ab T1[a,b] k(l_a, z) Q_b + 1/2 sum_aa'b T2[a,a',b] k(l_a, l_a', z) Q_b + ...,
    T1 = G^T H,      T2[a] = G^T diag(G[:, a]) H,

so T2[a] T1^-1 = G^T diag(G[:, a]) G^-T: common eigenvectors, and eigenvalues G (Jennrich).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.linalg import inv
from scipy.linalg import LinAlgError, lstsq, qr

from polyattn.softmax.examples import ExampleBlock, Examples, Matrix
from polyattn.softmax.moments.first_order import Spans, WhiteFrame, correlate, frame_of, unfold
from polyattn.softmax.polish import enough, polish, project
from polyattn.softmax.recorder import Recorder

# First-order moments see saturated logits too small: factors by which heads are enlarged.
GAINS = (1.0, 1.6, 2.5)

# Random combinations of the span that compete with the separated heads, and their sizes.
N_MIXTURES, SIZES = 4, (0.5, 2.0)

# Steps of the descent inside the span, and scalar targets for each unknown there and when starts
# are compared.
N_STEPS, EQUATIONS = 12, 8.0

# Fourth cumulants take part up to this many heads; beyond the second number, not even third.
FOURTH_ORDER, THIRD_ORDER = 4, 10

# Scalar targets that take part: the tables are small.
MOST_TARGETS, BLOCK_NUMBERS = 40_000, 1 << 21

# Random combinations of the T2[a] T1^-1 of which the best separated one is diagonalised.
N_COMBINATIONS = 20

# Beyond this condition number T1 has no inverse worth having.
WORST_CONDITION = 1e8


class Initialisation(NamedTuple):
    """Heads to start from.

    attn : (m, d, d)
    singular_values : of the unfolded moment tensor, largest first; they drop after m
    span : (s, d, d), orthonormal, s <= m: where the heads were looked for
    """

    attn: Matrix
    singular_values: Matrix
    span: Matrix


def initialise(
    examples: Examples,
    n_heads: int,
    rng: np.random.Generator,
    recorder: Recorder | None = None,
) -> Initialisation:
    """Heads (m, d, d) near those that made the examples, from low-order moments.

    The tokens should be independent draws of a distribution without odd moments; then the span
    is right up to a bias of third order in the logits.  Other tokens make the start worse.

    Cost: O(rows d^3 e + d^6) and a few steps of descent on some of the examples.
    """
    recorder = recorder or Recorder()
    with recorder.phase("moments") as note:
        frame = frame_of(examples)
        folded, visible, explained = correlate(examples, frame)
        spans = unfold(folded, visible, n_heads, rng)
        sigma, drop = spans.singular_values, None
        sentence = f"linear functions explain {explained:.0%} of the targets' power"
        if len(sigma) > n_heads and sigma[n_heads] > 0.0:
            drop = float(sigma[n_heads - 1] / sigma[n_heads])
            sentence += f"; singular values drop {drop:.1f}x after {n_heads}"
        note.say(sentence, explained=explained, singular_values=sigma.tolist(), drop=drop)
    with recorder.phase("separation") as note:
        few = enough(examples, n_heads, EQUATIONS)
        coordinates = separate(examples, frame, spans, rng)
        basis = frame.heads(spans.attn)
        starts = _starts(coordinates, basis, n_heads, rng)
        errors = [project(few, start).error for start in starts]
        chosen = int(np.argmin(errors))
        attn, separated = starts[chosen], coordinates is not None and chosen < len(GAINS)
        if separated:
            sentence = "heads separated by joint diagonalisation of second and third cumulants"
        elif coordinates is None:
            sentence = "cumulants do not separate the heads; the best of random mixtures was taken"
        else:
            sentence = "separated heads were worse than a random mixture, which was taken"
        note.say(sentence, separated=separated, error=errors[chosen])
    within = basis
    if len(basis):
        # An orthonormal basis (s, d, d) of the span.
        factor, triangle, _ = qr(basis.reshape(len(basis), -1).T, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(triangle))
        kept = sizes > 1e-10 * sizes.max()
        within = factor[:, kept].T.reshape(-1, *basis.shape[1:])
    if len(within):
        with recorder.phase("span descent") as note:
            inside = polish(few, attn, N_STEPS, within=within)
            attn = inside.attn
            note.say(
                f"descent inside the span leaves {inside.error:.2g} of the targets",
                steps=len(inside.errors) - 1,
                error=inside.error,
            )
    return Initialisation(attn, sigma, within)


def _starts(
    coordinates: Matrix | None, basis: Matrix, n_heads: int, rng: np.random.Generator
) -> list[Matrix]:
    """Separated heads at several gains, and mixtures of the span; the first are separated."""
    size, width = len(basis), basis.shape[1]
    starts = []
    if coordinates is not None:
        extra = rng.standard_normal((n_heads - size, size))
        every = np.concatenate([coordinates, extra])
        starts = [np.tensordot(gain * every, basis, axes=1) for gain in GAINS]
    for scale in SIZES if size else ():
        mixtures = scale * rng.standard_normal((N_MIXTURES, n_heads, size))
        starts += [np.tensordot(mixture, basis, axes=1) for mixture in mixtures]
    if not starts:
        starts = [rng.standard_normal((n_heads, width, width)) / width]
    return starts


def separate(
    examples: Examples, frame: WhiteFrame, spans: Spans, rng: np.random.Generator
) -> Matrix | None:
    """Coordinates G (s, s) of s heads in the bases; None where they cannot be told apart."""
    size, n_outputs = len(spans.attn), examples.n_outputs
    if size == 0 or size > THIRD_ORDER:
        return None
    # Targets are regressed on every cumulant k(l_a, ..., z) Q_b; keys are the a's it is made of.
    orders = range(4 if size <= FOURTH_ORDER else 3)
    keys = [key for order in orders for key in combinations_with_replacement(range(size), order)]
    n_features = len(keys) * size
    gram: Matrix = np.zeros((n_features, n_features))
    crossed: Matrix = np.zeros(n_features)
    few = examples.first(MOST_TARGETS * len(examples) // (examples.n_rows * n_outputs) + 1)
    for block in few.blocks(max(1, BLOCK_NUMBERS // (n_features * n_outputs))):
        columns = [
            (moved @ spans.value[:, None]).reshape(size, -1)
            for moved in _cumulants(block, frame, spans, len(orders))
        ]
        features = np.concatenate(columns)
        gram += features @ features.T
        crossed += features @ block.targets.reshape(-1)
    solution = lstsq(gram, crossed, cond=1e-12)[0].reshape(len(keys), size)
    first = solution[1 : 1 + size]
    if np.linalg.cond(first) > WORST_CONDITION:
        return None
    second = np.empty((size, size, size))
    a, b = np.triu_indices(size)
    rows = solution[1 + size : 1 + size + len(a)]
    second[a, b] = second[b, a] = rows * np.where(a == b, 2.0, 1.0)[:, None]
    return _joint_eigenvalues(second @ inv(first), rng)


def _cumulants(
    block: ExampleBlock, frame: WhiteFrame, spans: Spans, n_orders: int
) -> Iterator[Matrix]:
    """Joint cumulants (B, q, r) of logits and tokens, in the order of the table's keys."""
    queries, keys, weights, mean = frame.white(block)
    yield mean
    logits = []
    for P in spans.attn:
        raw = (queries @ P) @ keys.transpose(0, 2, 1)
        logits.append(raw - (weights * raw).sum(axis=2, keepdims=True))

    def correlated(factor: Matrix) -> Matrix:
        weighted = weights * factor
        return weighted @ keys - weighted.sum(axis=2, keepdims=True) * mean

    size = len(logits)
    firsts = [correlated(logit) for logit in logits]
    yield from firsts
    for a, b in combinations_with_replacement(range(size), 2):
        yield correlated(logits[a] * logits[b])
    if n_orders < 4:
        return
    pairs = [[(weights * x * y).sum(axis=2, keepdims=True) for y in logits] for x in logits]
    for a, b, c in combinations_with_replacement(range(size), 3):
        whole = correlated(logits[a] * logits[b] * logits[c])
        yield whole - pairs[a][b] * firsts[c] - pairs[a][c] * firsts[b] - pairs[b][c] * firsts[a]


def _joint_eigenvalues(family: Matrix, rng: np.random.Generator) -> Matrix | None:
    """G[i, a], the i-th joint eigenvalue of family[a], from the best separated combination."""
    best, found = -1.0, None
    for _ in range(N_COMBINATIONS):
        direction = rng.standard_normal(len(family))
        values, vectors = np.linalg.eig(np.tensordot(direction, family, axes=1))
        if np.iscomplexobj(values):
            continue
        distances = np.abs(values[:, None] - values) + np.diag(np.full(len(values), np.inf))
        gap = float(distances.min() / np.abs(values).max(initial=1e-300))
        if gap > best:
            best, found = gap, vectors
    try:
        return None if found is None else np.einsum("ij,ajk,ki->ia", inv(found), family, found)
    except LinAlgError:
        return None
