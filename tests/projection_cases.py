"""Projections for tests, and what they compute, by plain numpy."""

import numpy as np

import polyattn as pa

EPS = float(np.finfo(np.float64).eps)
KINDS = {"linear": pa.LinearAttention, "softmax": pa.SoftmaxAttention}


def outputs(found, X, mode):
    """What the docstring of Projections says, position by position."""
    result = np.zeros((*X.shape[:2], found["W_O"].shape[2]))
    zero = np.zeros(1)
    for i, tokens in enumerate(X):
        for t, token in enumerate(tokens):
            seen = tokens[: t + 1] if mode == "causal" else tokens
            for h, W_Q in enumerate(found["W_Q"]):
                query, keys, values = (
                    rows @ found[f"W_{name}"][h] + found.get(f"b_{name}", [zero] * (h + 1))[h]
                    for rows, name in ((token, "Q"), (seen, "K"), (seen, "V"))
                )
                weights = keys @ query / found["scale"]
                if found["kind"] == "softmax":
                    weights = np.exp(weights - weights.max())
                    weights /= weights.sum()
                assert query.shape == W_Q.shape[1:]
                result[i, t] += weights @ values @ found["W_O"][h]
            result[i, t] += found.get("b_O", 0.0)
    return result[:, -1] if mode == "last" else result


def content(projections):
    """The fields that are not None, by name."""
    names = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "scale", "kind")
    fields = {name: getattr(projections, name) for name in names}
    return {name: value for name, value in fields.items() if value is not None}


def layer_of(kind, ranks=(2, 3), n_dims=4, n_outputs=3, mode="causal", bias=False, seed=0):
    """Heads whose attn has these ranks, and value as much as fits."""
    rng = np.random.default_rng(seed)
    width = n_dims + bias
    attn = [
        rng.standard_normal((width, rank)) @ rng.standard_normal((rank, width)) for rank in ranks
    ]
    value = rng.standard_normal((len(ranks), width, n_outputs))
    return KINDS[kind](attn, value, mode, bias)


def relative(found, expected):
    return np.linalg.norm(found - expected) / (np.linalg.norm(expected) or 1.0)


def tokens_of(layer, seed=1):
    return np.random.default_rng(seed).standard_normal((2, 4, layer.n_dims))


def random_projections(kind, n_heads=2, n_dims=4, head_dim=3, value_dim=2, n_outputs=5, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {
        "W_Q": (n_heads, n_dims, head_dim), "W_K": (n_heads, n_dims, head_dim),
        "W_V": (n_heads, n_dims, value_dim), "W_O": (n_heads, value_dim, n_outputs),
        "b_Q": (n_heads, head_dim), "b_K": (n_heads, head_dim), "b_V": (n_heads, value_dim),
        "b_O": (n_outputs,),
    }  # fmt: skip
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return arrays | {"kind": kind, "scale": 1.7}


ALL = ("b_Q", "b_K", "b_V", "b_O")
