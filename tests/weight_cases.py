"""State dicts of every layout with random weights, and what they compute, by plain numpy."""

import numpy as np

N_DIMS, N_HEADS, HEAD_DIM = 32, 4, 8


def outputs(heads, X, causal=False, scale=None, frequencies=None):
    """Attention position by position and head by head, as modules compute it.

    heads : W_Q, W_K, W_V (H, d, r), W_O (H, r, e), and b_Q, b_K, b_V (H, r), b_O (e,) if any
    """
    n_heads, _, width = heads["W_Q"].shape
    scale = np.sqrt(width) if scale is None else scale
    result = np.zeros((*X.shape[:2], heads["W_O"].shape[2]))
    for i, tokens in enumerate(X):
        for h in range(n_heads):
            q, k, v = (
                tokens @ heads[f"W_{name}"][h] + heads.get(f"b_{name}", np.zeros((n_heads, 1)))[h]
                for name in "QKV"
            )
            if frequencies is not None:
                q, k = turned(q, frequencies), turned(k, frequencies)
            logits = q @ k.T / scale
            if causal:
                logits[np.triu_indices(len(tokens), 1)] = -np.inf
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            result[i] += weights @ v @ heads["W_O"][h]
    return result + heads.get("b_O", 0.0)


def turned(rows, frequencies):
    """Rows (n, r): coordinates i and i + r/2 of row t turned by t * frequencies[i]."""
    result = rows.copy()
    half = len(frequencies)
    for t, row in enumerate(rows):
        for i, frequency in enumerate(frequencies):
            cos, sin = np.cos(t * frequency), np.sin(t * frequency)
            result[t, i] = cos * row[i] - sin * row[i + half]
            result[t, i + half] = sin * row[i] + cos * row[i + half]
    return result


def random_heads(n_dims=12, n_heads=3, head_dim=4, n_kv_heads=None, bias=True, seed=0):
    """Heads of weights of size one."""
    rng = np.random.default_rng(seed)
    shared = n_heads // (n_kv_heads or n_heads)
    counts = {"Q": n_heads, "K": n_heads // shared, "V": n_heads // shared}
    heads = {
        f"W_{name}": rng.standard_normal((count, n_dims, head_dim)) / np.sqrt(n_dims)
        for name, count in counts.items()
    }
    heads["W_O"] = rng.standard_normal((n_heads, head_dim, n_dims)) / np.sqrt(n_dims)
    if bias:
        heads |= {f"b_{n}": rng.standard_normal((count, head_dim)) for n, count in counts.items()}
        heads["b_O"] = rng.standard_normal(n_dims)
    return heads


def repeated(heads):
    """The same heads with keys and values for each of them."""
    n_heads = len(heads["W_Q"])
    return {
        name: each
        if name == "b_O" or len(each) == n_heads
        else np.repeat(each, n_heads // len(each), axis=0)
        for name, each in heads.items()
    }


def side_by_side(each):
    """(H, d, r) -> (d, H r)."""
    return np.concatenate(list(each), axis=-1)


def linear_state(heads, names, prefix=""):
    """Four nn.Linear: weights (out, in)."""
    state = {}
    for role, name in zip("QKVO", names.split(), strict=True):
        matrix = heads[f"W_{role}"]
        flat = np.concatenate(list(matrix), axis=0) if role == "O" else side_by_side(matrix)
        state[f"{prefix}{name}.weight"] = flat.T.copy()
        if f"b_{role}" in heads:
            state[f"{prefix}{name}.bias"] = heads[f"b_{role}"].ravel()
    return state


def bert_state(heads, prefix="attention."):
    return linear_state(heads, "self.query self.key self.value output.dense", prefix)


def albert_state(heads, prefix="attention."):
    return linear_state(heads, "query key value dense", prefix)


def llama_state(heads, prefix="self_attn."):
    return linear_state(heads, "q_proj k_proj v_proj o_proj", prefix)


def gpt2_state(heads, prefix="attn."):
    parts = [side_by_side(heads[f"W_{role}"]) for role in "QKV"]
    state = {"c_attn.weight": np.concatenate(parts, axis=1)}
    state["c_proj.weight"] = np.concatenate(list(heads["W_O"]), axis=0)
    if "b_Q" in heads:
        state["c_attn.bias"] = np.concatenate([heads[f"b_{role}"].ravel() for role in "QKV"])
        state["c_proj.bias"] = heads["b_O"]
    return {f"{prefix}{name}": each for name, each in state.items()}


def multihead_state(heads, prefix="", separate=False):
    rows = [side_by_side(heads[f"W_{role}"]).T for role in "QKV"]
    state = {"in_proj_weight": np.concatenate(rows)}
    if separate:
        state = {f"{n}_proj_weight": each for n, each in zip("qkv", rows, strict=True)}
    state["out_proj.weight"] = np.concatenate(list(heads["W_O"]), axis=0).T
    if "b_Q" in heads:
        state["in_proj_bias"] = np.concatenate([heads[f"b_{role}"].ravel() for role in "QKV"])
        state["out_proj.bias"] = heads["b_O"]
    return {f"{prefix}{name}": each for name, each in state.items()}


def lens_state(heads, prefix="blocks.0.attn."):
    grouped = len(heads["W_K"]) < len(heads["W_Q"])
    return {
        f"{prefix}{'_' if grouped and name[-1] in 'KV' else ''}{name}": each
        for name, each in heads.items()
    }


# For each layout: how a state dict is made, and what from_weights must be told beside n_heads.
STATES = {
    "multihead": (multihead_state, {}),
    "bert": (bert_state, {}),
    "albert": (albert_state, {}),
    "gpt2": (gpt2_state, {}),
    "llama": (llama_state, {"rotary": 500.0}),
    "transformer_lens": (lens_state, {"mode": "causal"}),
}
CAUSAL = ("gpt2", "llama", "transformer_lens")


def powers(theta, head_dim):
    """The frequencies of a theta."""
    return np.array([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)])
