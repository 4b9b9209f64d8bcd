"""Softmax layers with rotary positions, for tests."""

import numpy as np

import polyattn as pa


def random_rotary(mode="full", bias=False, seed=0, n_heads=2, n_dims=3, n_outputs=2, head_dim=4):
    """A layer of independent normal numbers, whose frequencies are those of theta = 10."""
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, n_heads, n_dims + bias, head_dim))
    value = rng.standard_normal((n_heads, n_dims + bias, n_outputs))
    return pa.SoftmaxAttention((query, key), value, mode, bias, rotary=10.0)
