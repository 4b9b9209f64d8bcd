"""Attention as transformers have it, written out: what is added, normalised and turned."""

import numpy as np

import polyattn as pa


def planted(n_dims=6, n_heads=2, rank=3, bias=False, mode="causal", seed=1, size=1.0):
    """A layer whose logits are about ``size`` for tokens of entries about one."""
    rng = np.random.default_rng([seed, n_dims, n_heads, rank, bias])
    rows = n_dims + bias
    query, key, inner = rng.standard_normal((3, n_heads, rows, rank)) / n_dims**0.5
    attn = size * query @ key.transpose(0, 2, 1) / rank**0.5
    return pa.SoftmaxAttention(attn, _values(rng, inner, n_dims), mode, bias)


def turned(n_dims=6, n_heads=2, rank=4, mode="causal", seed=1, size=1.0, groups=2, theta=100.0):
    """A layer with rotary positions; ``groups`` heads share their keys and values."""
    rng = np.random.default_rng([seed, n_dims, n_heads, rank])
    query = size * rng.standard_normal((n_heads, n_dims, rank)) / (n_dims * rank) ** 0.5
    shared = rng.standard_normal((2, n_heads // groups, n_dims, rank)) / n_dims**0.5
    key, inner = np.repeat(shared, groups, axis=1)
    return pa.SoftmaxAttention((query, key), _values(rng, inner, n_dims), mode, rotary=theta)


def _values(rng, inner, n_outputs):
    outer = rng.standard_normal((len(inner), inner.shape[2], n_outputs))
    return inner @ outer / inner.shape[2] ** 0.5


def rms_norm(X, eps=1e-6):
    """Token by token, coordinate by coordinate."""
    return np.stack([[x / np.sqrt(sum(x * x) / len(x) + eps) for x in each] for each in X])


def layer_norm(X, eps=1e-5):
    def one(x):
        mean = sum(x) / len(x)
        return (x - mean) / np.sqrt(sum((x - mean) ** 2) / len(x) + eps)

    return np.stack([[one(x) for x in each] for each in X])


def visible(layer, centred):
    """What normalised tokens show of a layer: those of layer_norm have a mean of zero."""
    if not centred:
        return layer
    n_dims = layer.n_dims
    onto = np.eye(n_dims + layer.bias)
    onto[:n_dims, :n_dims] -= 1 / n_dims
    if layer.frequencies is None:
        return pa.SoftmaxAttention(
            onto @ layer.attn @ onto, onto @ layer.value, layer.mode, layer.bias
        )
    pair = onto @ layer.query, onto @ layer.key
    return pa.SoftmaxAttention(pair, onto @ layer.value, layer.mode, rotary=layer.frequencies)
