"""Attention layers as values: frozen, comparable, callable."""

from polyattn.model.compare import (
    HeadMatch,
    canonical,
    coefficient_distance,
    match_heads,
    same_function,
)
from polyattn.model.linear import LinearAttention
from polyattn.model.softmax import SoftmaxAttention

__all__ = [
    "HeadMatch",
    "LinearAttention",
    "SoftmaxAttention",
    "canonical",
    "coefficient_distance",
    "match_heads",
    "same_function",
]
