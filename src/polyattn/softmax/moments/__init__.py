"""Heads from moments of the examples: a start that needs no luck."""

from polyattn.softmax.moments.initialising import Initialisation, initialise, suggest_n_heads

__all__ = ["Initialisation", "initialise", "suggest_n_heads"]
