"""Seeded generators of sequences, layers, traces and tasks with a known answer."""

from polyattn.data.chaos import lorenz
from polyattn.data.memory import associative_memory
from polyattn.data.one_step import OneStep
from polyattn.data.recovery import (
    Planted,
    boolean_sequences,
    planted,
    random_layer,
    random_sequences,
)
from polyattn.data.regression import (
    InContextTask,
    in_context_regression,
    proportional_regression,
)
from polyattn.data.softmax import hard_softmax_layer, planted_softmax, random_softmax_layer
from polyattn.data.traces import automaton_traces, turing_traces, with_wrong_labels

__all__ = [
    "InContextTask",
    "OneStep",
    "Planted",
    "associative_memory",
    "automaton_traces",
    "boolean_sequences",
    "hard_softmax_layer",
    "in_context_regression",
    "lorenz",
    "planted",
    "planted_softmax",
    "proportional_regression",
    "random_layer",
    "random_sequences",
    "random_softmax_layer",
    "turing_traces",
    "with_wrong_labels",
]
