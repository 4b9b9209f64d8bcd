"""Attention layers as values: frozen, comparable, callable."""

from polyattn.model.compare import coefficient_distance, same_function
from polyattn.model.linear import LinearAttention

__all__ = ["LinearAttention", "coefficient_distance", "same_function"]
