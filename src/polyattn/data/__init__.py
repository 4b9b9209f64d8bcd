"""Seeded generators of sequences, layers, traces and tasks with a known answer."""

from polyattn.data.memory import associative_memory
from polyattn.data.recovery import Planted, planted, random_layer, random_sequences
from polyattn.data.traces import automaton_traces, turing_traces, with_wrong_labels

__all__ = [
    "Planted",
    "associative_memory",
    "automaton_traces",
    "planted",
    "random_layer",
    "random_sequences",
    "turing_traces",
    "with_wrong_labels",
]
