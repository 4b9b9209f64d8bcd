"""Weights of trained attention layers: read from modules and files, and written for them."""

from polyattn.interop.weights.from_weights import from_weights, read_projections
from polyattn.interop.weights.to_weights import to_weights

__all__ = ["from_weights", "read_projections", "to_weights"]
