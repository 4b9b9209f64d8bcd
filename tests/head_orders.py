"""How much of one softmax head each order explains, by features written out one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WrittenHead:
    """attn (D, D), value (D, e), and query (D, r), key (D, r'), by which coordinates are seen."""

    attn: Array
    value: Array
    query: Array
    key: Array


def shares_by_order(
    head: WrittenHead, train: Sequence[Array], test: Sequence[Array], mode: str
) -> tuple[Array, Array]:
    """Shares (4,) of the variance of a head, on ``train``, where it is fitted, and on ``test``.

    train, test : sequences (n, D), with the constant where there is one.  The orders are: a linear
    map of the token; the mean of the values, less their mean over ``train``; linear attention; and
    all products of two coordinates of queries and of keys.
    """
    mean = np.concatenate(train).mean(axis=0)
    seen = [_written_out(head, sequences, mean, mode) for sequences in (train, test)]
    centre = seen[0][0].mean(axis=0)
    shares = np.zeros((2, 4))
    for order in range(4):
        designs = [_design(tokens, pairs[:order], centre.size) for _, tokens, pairs in seen]
        fit = np.linalg.lstsq(designs[0], seen[0][0].ravel(), rcond=1e-12)[0]
        for side, (outputs, _, _) in enumerate(seen):
            left = outputs.ravel() - designs[side] @ fit
            shares[side, order] = 1.0 - np.sum(left**2) / np.sum((outputs - centre) ** 2)
    return shares[0], shares[1]


def _written_out(
    head: WrittenHead, sequences: Sequence[Array], mean: Array, mode: str
) -> tuple[Array, Array, list[Array]]:
    """Outputs (T, e), tokens (T, D), and for each order its own features (T, e, pairs)."""
    outputs, tokens = [], []
    found: list[list[Array]] = [[], [], []]
    for X in sequences:
        for t in range(len(X)) if mode != "last" else [len(X) - 1]:
            attended = X[: t + 1] if mode == "causal" else X
            logits = X[t] @ head.attn @ attended.T
            weights = np.exp(logits - logits.max())
            outputs.append(weights @ attended @ head.value / weights.sum())
            tokens.append(X[t])
            values = (attended - mean) @ head.value
            for order, pairs in enumerate(_pairs(X[t] @ head.query, attended @ head.key, values)):
                found[order].append(pairs)
    return np.array(outputs), np.array(tokens), [np.array(each) for each in found]


def _pairs(q: Array, k: Array, v: Array) -> list[Array]:
    """Columns mean_s phi_i(q) psi_j(k_s) v_s: of the pair of ones, linear, of second order."""
    phi, psi = _products(q), np.array([_products(each) for each in k])
    orders: list[list[Array]] = [[], [], []]
    for i, left in enumerate(phi):
        for j in range(psi.shape[1]):
            order = 2 if i > len(q) or j > k.shape[1] else int(i > 0 or j > 0)
            orders[order].append(left * np.mean(psi[:, j, None] * v, axis=0))
    return [np.array(each).T.reshape(v.shape[1], -1) for each in orders]


def _products(x: Array) -> Array:
    """[1, x_i, x_i x_j for i <= j]."""
    second = [x[i] * x[j] for i in range(len(x)) for j in range(i, len(x))]
    return np.array([1.0, *x, *second])


def _design(tokens: Array, pairs: list[Array], n_outputs: int) -> Array:
    """A row for each position and output: maps of the token for each output, then pairs."""
    own = np.column_stack([np.ones(len(tokens)), tokens])
    maps = np.einsum("ti,ab->taib", own, np.eye(n_outputs)).reshape(len(own) * n_outputs, -1)
    return np.hstack([maps, *(each.reshape(len(maps), -1) for each in pairs)])
