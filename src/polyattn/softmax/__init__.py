"""Softmax attention learned from random examples, and from queries [chen2024]."""

from polyattn.softmax.hardness import parity_error_bound, parity_layer, parity_outputs
from polyattn.softmax.identifiability import HeadFinding, HeadReport, identifiable_heads
from polyattn.softmax.learn_softmax import learn_softmax
from polyattn.softmax.queries import QueryResult, learn_from_queries
from polyattn.softmax.result import LearnedSoftmax

__all__ = [
    "HeadFinding",
    "HeadReport",
    "LearnedSoftmax",
    "QueryResult",
    "identifiable_heads",
    "learn_from_queries",
    "learn_softmax",
    "parity_error_bound",
    "parity_layer",
    "parity_outputs",
]
