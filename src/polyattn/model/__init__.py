"""Attention layers as values: frozen, comparable, callable."""

from polyattn.model.compare import coefficient_distance, same_function
from polyattn.model.linear import LinearAttention
from polyattn.model.softmax import SoftmaxAttention

__all__ = ["LinearAttention", "SoftmaxAttention", "coefficient_distance", "same_function"]
