"""Noisy data of planted layers, for audits and the optimum they compare with."""

import numpy as np

import polyattn as pa

NOISE = 0.1


def task(mode="causal", n_sequences=120, bias=False, seed=0):
    """Sequences (N, 5, 3), noisy targets of a planted layer, and the layer."""
    rng = np.random.default_rng(seed)
    width = 3 + bias
    attn, value = rng.standard_normal((2, width, width)), rng.standard_normal((2, width, 2))
    layer = pa.LinearAttention(attn, value, mode, bias)
    X = rng.standard_normal((n_sequences, 5, 3))
    Y = layer(X)
    return X, Y + NOISE * rng.standard_normal(Y.shape), layer


def ragged(mode, n_sequences=60):
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((rng.integers(2, 9), 3)) for _ in range(n_sequences)]
    Y = pa.data.random_layer(3, 2, 2, mode, random_state=4)(X)
    if mode == "last":
        return X, Y + NOISE * rng.standard_normal(Y.shape)
    return X, [array + NOISE * rng.standard_normal(array.shape) for array in Y]
