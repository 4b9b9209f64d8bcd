"""Softmax attention learned from random examples, and from queries [chen2024]."""

from polyattn.softmax.hardness import parity_error_bound, parity_layer, parity_outputs
from polyattn.softmax.identifiability import HeadFinding, HeadReport, identifiable_heads
from polyattn.softmax.learn_softmax import learn_softmax
from polyattn.softmax.noisy_parity import (
    NoisyParityResult,
    noisy_parity_examples,
    solve_noisy_parity,
)
from polyattn.softmax.queries import QueryResult, learn_from_queries
from polyattn.softmax.result import LearnedSoftmax
from polyattn.softmax.sculpting import NonDegeneracy, non_degeneracy
from polyattn.softmax.statistical_queries import StatisticalQueryBound, statistical_query_bound

__all__ = [
    "HeadFinding",
    "HeadReport",
    "LearnedSoftmax",
    "NoisyParityResult",
    "NonDegeneracy",
    "QueryResult",
    "StatisticalQueryBound",
    "identifiable_heads",
    "learn_from_queries",
    "learn_softmax",
    "noisy_parity_examples",
    "non_degeneracy",
    "parity_error_bound",
    "parity_layer",
    "parity_outputs",
    "solve_noisy_parity",
    "statistical_query_bound",
]
