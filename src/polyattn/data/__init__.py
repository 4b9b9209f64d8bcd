"""Seeded generators of sequences, layers and tasks with a known answer."""

from polyattn.data.memory import associative_memory
from polyattn.data.recovery import Planted, planted, random_layer, random_sequences

__all__ = ["Planted", "associative_memory", "planted", "random_layer", "random_sequences"]
