"""Heads from moments of the examples: a start that is not drawn at random."""

from polyattn.softmax.moments.initialise import Initialisation, initialise

__all__ = ["Initialisation", "initialise"]
