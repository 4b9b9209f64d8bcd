"""Softmax attention as operators, with rotary positions or without."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from polyattn.interop.onnx.graph import Graph
from polyattn.model import SoftmaxAttention
from polyattn.model.rotary import RotaryHeads


def softmax_attention(graph: Graph, layer: SoftmaxAttention, X: str) -> str:
    """Outputs (B, n, e), in mode last (B, 1, e), of tokens X (B, n, d)."""
    tokens = graph.with_constant(X) if layer.bias else X
    keys = graph("Unsqueeze", tokens, graph.integers(1))  # (B, 1, n, d)
    asking = graph.part(keys, 2, -1) if layer.mode == "last" else keys
    if layer.rotary_heads is None:
        queries = graph("MatMul", asking, graph.numbers(layer.attn))
        logits = graph("MatMul", queries, _transposed(graph, keys))
    else:
        logits = _turned_logits(graph, layer.rotary_heads, asking, keys, layer.mode == "last")
    if layer.mode == "causal":
        logits = graph("Where", _later_tokens(graph, tokens), graph.numbers(-np.inf), logits)
    means = graph("MatMul", graph("Softmax", logits, axis=3), keys)
    return graph.sum_over(graph("MatMul", means, graph.numbers(layer.value)), 1)


def _transposed(graph: Graph, keys: str) -> str:
    return graph("Transpose", keys, perm=[0, 1, 3, 2])


def _later_tokens(graph: Graph, tokens: str) -> str:
    """Which keys stand behind each query (n, n)."""
    places = graph.places(graph.length(tokens, 1))
    return graph("Greater", places, graph("Unsqueeze", places, graph.integers(1)))


def _turned_logits(
    graph: Graph, heads: RotaryHeads, asking: str, keys: str, only_last: bool
) -> str:
    """Logits (B, H, queries, n) of queries and keys that are turned by their positions."""
    positions = graph("Cast", graph.places(graph.length(keys, 2)), to=TensorProto.DOUBLE)
    angles = graph(
        "Mul", graph("Unsqueeze", positions, graph.integers(1)), graph.doubles(heads.frequencies)
    )
    # Angles of far positions need float64; and some runtimes have no cosine of it.
    halves = graph("Sin", graph("Mul", angles, graph.doubles(0.5)))
    doubled = graph("Mul", graph("Mul", halves, halves), graph.doubles(2.0))
    cosines = graph.floating(graph("Sub", graph.doubles(1.0), doubled))
    sines = graph.floating(graph("Sin", angles))
    own = (graph.part(each, 0, -1) for each in (cosines, sines)) if only_last else (cosines, sines)
    queries = graph("MatMul", asking, graph.numbers(heads.query))
    projected = graph("MatMul", keys, graph.numbers(heads.key))
    half = len(heads.frequencies)
    return graph(
        "MatMul",
        _turned(graph, queries, half, *own),
        _transposed(graph, _turned(graph, projected, half, cosines, sines)),
    )


def _turned(graph: Graph, projected: str, half: int, cosines: str, sines: str) -> str:
    """Queries or keys (B, H, n, r), turned."""
    real, imaginary = graph.part(projected, 3, 0, half), graph.part(projected, 3, half)
    left = graph("Sub", graph("Mul", real, cosines), graph("Mul", imaginary, sines))
    right = graph("Add", graph("Mul", imaginary, cosines), graph("Mul", real, sines))
    return graph("Concat", left, right, axis=3)
