"""Attention layers as values: frozen, comparable, callable."""

from polyattn.model.canonical import canonical
from polyattn.model.compare import coefficient_distance, same_function
from polyattn.model.linear import LinearAttention
from polyattn.model.linearised import LinearisedAttention
from polyattn.model.match_heads import HeadMatch, match_heads
from polyattn.model.softmax import SoftmaxAttention

__all__ = [
    "HeadMatch",
    "LinearAttention",
    "LinearisedAttention",
    "SoftmaxAttention",
    "canonical",
    "coefficient_distance",
    "match_heads",
    "same_function",
]
