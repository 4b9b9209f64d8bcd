"""Parity as a task: hidden coordinates and marker drawn by a seed, and other heads for it."""

from __future__ import annotations

from math import comb

import numpy as np

from polyattn.data import Planted, boolean_sequences
from polyattn.model import SoftmaxAttention
from polyattn.softmax import parity_layer
from polyattn_papers.tasks.softmax_methods import Task

#: Coordinates of the layers that hide parities: a marker, and the others, which may be hidden.
N_DIMS = 8


def parity_task(
    n_bits: int, beta: float, n_sequences: int, n_tokens: int, n_dims: int, seed: int
) -> Task:
    """Boolean sequences with the output of ``n_bits`` parity heads, and nothing else, as target."""
    chosen = np.random.default_rng(seed).permutation(n_dims)
    hidden, marker = chosen[:n_bits].tolist(), int(chosen[n_bits])
    layer = parity_layer(hidden, marker, 0, n_dims, beta, n_outputs=1)
    X = np.asarray(boolean_sequences(n_sequences, n_tokens, n_dims, random_state=seed))
    return Planted(X, layer(X), layer, 0.0)


def same_parity_layer(layer: SoftmaxAttention) -> SoftmaxAttention:
    """Other heads with the same outputs on all Boolean tokens.

    Heads t and s + 1 - t have one value, and attn beta (u -+ (2t - s - 1) e_mu) e_mu^T, u the sum
    over the hidden coordinates.  A query enters through beta (x u -+ (2t - s - 1) x_mu), the same
    two numbers for every x_mu in {-1, 1}; so x_nu of any other coordinate does as well.
    """
    attn = np.array(layer.attn)
    marker = int(np.flatnonzero(np.abs(layer.value[0]).sum(axis=1))[0])
    unused = np.flatnonzero(~np.abs(attn).sum(axis=(0, 2)).astype(bool))
    other = int(unused[unused != marker][0])
    attn[:, other] = attn[:, marker]
    attn[:, marker] = 0.0
    return SoftmaxAttention(attn, layer.value, layer.mode)


def n_parities(n_dims: int, n_bits: int) -> int:
    """The hidden sets that one marker leaves; sharp layers of different sets are uncorrelated."""
    return comb(n_dims - 1, n_bits)
