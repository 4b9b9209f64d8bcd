"""Heads from moments of the examples: a start that needs no luck."""

from polyattn.softmax.moments.initialise import Initialisation, initialise

__all__ = ["Initialisation", "initialise"]
