"""Heads from moments of the examples: a start that needs no luck."""

from polyattn.softmax.moments.initialising import Initialisation, initialise

__all__ = ["Initialisation", "initialise"]
