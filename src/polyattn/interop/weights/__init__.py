"""Weights of trained attention layers: read from modules and files, and written for them."""

from polyattn.interop.weights.from_weights import from_weights, read_projections

__all__ = ["from_weights", "read_projections"]
