"""Linear attention of every form as operators."""

from __future__ import annotations

from polyattn.interop.onnx.causal import causal_heads, distance_weights
from polyattn.interop.onnx.graph import Graph
from polyattn.interop.onnx.token_maps import seen_tokens
from polyattn.interop.scale_heads import FARTHEST, HeadsOfScale, heads_by_scale
from polyattn.model import LinearAttention

ROLES = ("query", "key", "value")


def linear_attention(graph: Graph, layer: LinearAttention, X: str, context: str | None) -> str:
    """Outputs (B, n, e), in mode last (B, 1, e), of tokens X (B, n, d)."""
    layout = layer.layout
    if context is None or layout.n_context_dims is None:
        seen = seen_tokens(graph, layout, ROLES, X, layout.n_dims)
    else:
        seen = seen_tokens(graph, layout, ROLES[:1], X, layout.n_dims)
        seen |= seen_tokens(graph, layout, ROLES[1:], context, layout.n_context_dims)
    Q = graph.part(seen["query"], 1, -1) if layer.mode == "last" else seen["query"]
    scales = heads_by_scale(layer.form, layer.head_scales)
    heads = [_scale(graph, layer, each, Q, seen["key"], seen["value"]) for each in scales]
    outputs = graph.added(heads)
    if layer.form.mean:
        divisor = _attended(graph, layer, seen["key"])
        if layer.mode == "causal":
            outputs = graph("Div", outputs, divisor)
        else:
            outputs = graph.divided(outputs, divisor, layer.n_outputs)
    if layer.skip is not None:
        outputs = graph("Add", outputs, graph("MatMul", Q, graph.numbers(layer.skip)))
    if layer.intercept is not None:
        outputs = graph("Add", outputs, graph.numbers(layer.intercept))
    return outputs


def _scale(
    graph: Graph, layer: LinearAttention, scale: HeadsOfScale, Q: str, K: str, V: str
) -> str:
    """The heads of one scale."""
    own = slice(None) if scale.own is None else scale.own
    attn, value = layer.attn[own], layer.value[own]
    if layer.mode == "causal":
        return causal_heads(graph, scale, attn, value, Q, K, V)
    if layer.mode == "full" and not layer.form.include_query:
        # Tokens before and tokens after: nothing is subtracted.
        turned = (graph.backwards(each, 1) for each in (Q, K, V))
        after = graph.backwards(causal_heads(graph, scale, attn, value, *turned), 1)
        return graph("Add", causal_heads(graph, scale, attn, value, Q, K, V), after)
    if layer.mode == "last" and (scale.start, scale.stop, scale.decay) != (0, None, 1.0):
        distances = graph.backwards(graph.places(graph.length(K, 1)), 0)
        weights = distance_weights(graph, distances, scale.start, scale.stop, scale.decay)
        V = graph("Mul", V, graph("Unsqueeze", weights, graph.integers(1)))
    # One (r, e) matrix per sequence serves all its tokens: sum_h A_h S V_h.
    sums = graph("MatMul", graph("Transpose", K, perm=[0, 2, 1]), V)
    sums = graph("Unsqueeze", sums, graph.integers(1))
    mixed = graph("MatMul", graph("MatMul", graph.numbers(attn), sums), graph.numbers(value))
    return graph("MatMul", Q, graph.sum_over(mixed, 1))


def _attended(graph: Graph, layer: LinearAttention, keys: str) -> str:
    """How many tokens are attended to: a number, or in mode causal one for each token (n, 1)."""
    n_tokens = graph.length(keys, 1)
    if layer.mode == "causal":
        n_tokens = graph("Add", graph.places(n_tokens), graph.integer(1))
        n_tokens = graph("Unsqueeze", n_tokens, graph.integers(1))
    form = layer.form
    most = graph.integer(min(form.window or FARTHEST, FARTHEST))
    counted = graph("Min", n_tokens, most)
    if not form.include_query:
        counted = graph("Sub", counted, graph.integer(1))
    return graph.floating(graph("Max", counted, graph.integer(1)))
