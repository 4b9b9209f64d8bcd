"""Causal linear attention as operators: the heads of one scale, at a cost linear in the length.

Tokens stand in chunks of CHUNK.  A chunk sees itself, and those in which a window ends, by scores;
all between by their sums of keys times values, weighed by a matrix whose side is the number of
chunks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.interop.onnx.graph import Graph
from polyattn.interop.scale_heads import HeadsOfScale

# Tokens of a chunk: scores are formed inside a chunk only.
CHUNK = 64


def causal_heads(
    graph: Graph, scale: HeadsOfScale, attn: NDArray, value: NDArray, Q: str, K: str, V: str
) -> str:
    """Outputs (B, n, e): distances start <= t - s < stop, weights decay^(t - s).

    attn, value : the heads (H, r, rk) and (H, rv, e) of this scale
    Q, K, V : queries, keys and values (B, n, .)
    """
    width = None if scale.stop is None else scale.stop - scale.start
    # Tokens at distance ``start`` come as if they stood at the query.
    K, V = (graph.later(each, scale.start, 1, 3) for each in (K, V))
    if width == 1:
        outputs = _one_token(graph, attn, value, Q, K, V)
    else:
        outputs = _in_chunks(graph, width, scale.decay, attn, value, Q, K, V)
    weight = scale.decay**scale.start
    return outputs if weight == 1.0 else graph.scaled(outputs, weight, value.shape[2])


def _one_token(graph: Graph, attn: NDArray, value: NDArray, Q: str, K: str, V: str) -> str:
    """Every token attends to the one at its own place."""
    Q, K, V = (graph("Unsqueeze", each, graph.integers(1)) for each in (Q, K, V))
    products = graph("Mul", graph("MatMul", Q, graph.numbers(attn)), K)
    scores = graph.sum_over(products, 3, keepdims=1)
    heads = graph("MatMul", graph("Mul", scores, V), graph.numbers(value))
    return graph.sum_over(heads, 1)


def _in_chunks(
    graph: Graph, width: int | None, decay: float, attn: NDArray, value: NDArray,
    Q: str, K: str, V: str,
) -> str:  # fmt: skip
    """Distances 0 <= t - s < width, or all."""
    n_tokens = graph.length(Q, 1)
    sizes = attn.shape[1], attn.shape[2], value.shape[1]
    Q, K, V = (
        _chunks(graph, each, size, n_tokens) for each, size in zip((Q, K, V), sizes, strict=True)
    )
    queries = graph("MatMul", Q, graph.numbers(attn[:, None]))  # (B, H, chunks, CHUNK, rk)
    mixed = []
    for back in [0] if width is None else sorted({0, width // CHUNK, width // CHUNK + 1}):
        keys, values = (graph.later(each, back, 2, 5) for each in (K, V))
        scores = graph("MatMul", queries, _transposed(graph, keys))
        weights = graph.numbers(_weights(back, width, decay))
        mixed.append(graph("MatMul", graph("Mul", scores, weights), values))
    most = None if width is None else width // CHUNK - 1
    if most is None or most > 0:
        places = np.arange(CHUNK)[:, None]
        weighed = graph("Mul", K, graph.numbers(decay ** (CHUNK - 1.0 - places)))
        sums = graph("MatMul", _transposed(graph, weighed), V)
        earlier = _earlier(graph, sums, most, decay**CHUNK, sizes[1:])
        seen = graph("MatMul", queries, earlier)
        mixed.append(graph("Mul", seen, graph.numbers(decay ** (places + 1.0))))
    heads = graph("MatMul", graph.added(mixed), graph.numbers(value[:, None]))
    outputs = graph.sum_over(heads, 1)
    whole = graph("Reshape", outputs, graph.integers(0, -1, value.shape[2]))
    return graph.first(whole, 1, n_tokens)


def _chunks(graph: Graph, tokens: str, size: int, n_tokens: str) -> str:
    """Tokens (B, n, size) as (B, 1, chunks, CHUNK, size), with zeros behind them."""
    # Up to the next multiple of CHUNK.
    missing = graph("Mod", graph("Neg", n_tokens), graph.integer(CHUNK))
    behind = graph("Unsqueeze", missing, graph.integers(0))
    pads = graph("Concat", graph.integers(0, 0, 0, 0), behind, graph.integers(0), axis=0)
    padded = graph("Pad", tokens, pads, graph.numbers(0.0))
    return graph("Reshape", padded, graph.integers(0, 1, -1, CHUNK, size))


def _transposed(graph: Graph, chunks: str) -> str:
    return graph("Transpose", chunks, perm=[0, 1, 2, 4, 3])


def _weights(back: int, width: int | None, decay: float) -> NDArray[np.float64]:
    """Weights (CHUNK, CHUNK) with which a chunk sees the one ``back`` chunks before it."""
    places = np.arange(CHUNK)
    distances = back * CHUNK + places[:, None] - places
    attended = (distances >= 0) & (distances < (np.inf if width is None else width))
    return np.where(attended, decay ** np.maximum(distances, 0.0), 0.0)


def _earlier(
    graph: Graph, sums: str, most: int | None, decay: float, sizes: tuple[int, int]
) -> str:
    """Sums (B, 1, chunks, rk, rv) over ``most`` chunks before each one, or over all."""
    places = graph.places(graph.length(sums, 2))
    after = graph("Unsqueeze", places, graph.integers(1))
    distances = graph("Sub", graph("Sub", after, places), graph.integer(1))
    weights = distance_weights(graph, distances, 0, most, decay)
    rows = graph("Reshape", sums, graph.integers(0, 1, -1, sizes[0] * sizes[1]))
    found = graph("MatMul", weights, rows)
    return graph("Reshape", found, graph.integers(0, 1, -1, *sizes))


def distance_weights(
    graph: Graph, distances: str, start: int, stop: int | None, decay: float
) -> str:
    """decay^distance where start <= distance < stop, else zero; distances are integers."""
    attended = graph("GreaterOrEqual", distances, graph.integer(start))
    if stop is not None:
        attended = graph("And", attended, graph("Less", distances, graph.integer(stop)))
    if decay == 1.0:
        return graph.floating(attended)
    exponents = graph.floating(graph("Max", distances, graph.integer(0)))
    powers = graph("Pow", graph.numbers(decay), exponents)
    return graph("Where", attended, powers, graph.numbers(0.0))
