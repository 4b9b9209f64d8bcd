"""Attempts against the truth: how far heads and function are off, and whether a claim is true."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from polyattn.data import boolean_sequences, random_sequences
from polyattn.model import SoftmaxAttention, match_heads
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.tasks.softmax_methods import Attempt, Task, finite

# Heads that are claimed may be off by this, or with noise by so many of their own error bars.
MOST_ERROR, BARS = 1e-3, 5.0

# A function is the planted one when its relative error on fresh sequences is below this.
SAME_FUNCTION = 1e-6

#: The family whose layers are parities.
PARITY = "parity"

# Fresh sequences, and the distance of their seeds from those of the examples.
N_FRESH, OTHER_SEEDS = 500, 10**6


@dataclass(frozen=True, eq=False)
class Truth:
    """The planted layer, and its outputs on sequences that no method has seen."""

    layer: SoftmaxAttention
    noise: float
    fresh: NDArray[np.float64] = field(repr=False)
    expected: NDArray[np.float64] = field(repr=False)

    @classmethod
    def of(cls, task: Task, seed: int, tokens: str = "boolean") -> Truth:
        """With fresh sequences of the length and the kind of those of the task."""
        _, n_tokens, n_dims = np.asarray(task.X).shape
        sizes, other_seed = (N_FRESH, n_tokens, n_dims), seed + OTHER_SEEDS
        fresh = np.asarray(
            boolean_sequences(*sizes, other_seed)
            if tokens == "boolean"
            else random_sequences(*sizes, 1.0, other_seed)
        )
        return cls(task.layer, task.noise, fresh, np.asarray(task.layer(fresh)))

    def function_error(self, layer: SoftmaxAttention) -> float:
        """||F - F'|| / ||F|| on the fresh sequences, without noise."""
        apart = np.linalg.norm(layer(self.fresh) - self.expected)
        return float(apart / np.linalg.norm(self.expected))

    def solved(self, layer: SoftmaxAttention) -> bool:
        """Whether it is the planted function; with noise, to better than a single target is."""
        size = float(np.sqrt(np.mean(self.expected**2)))
        return self.function_error(layer) <= max(SAME_FUNCTION, self.noise / size)

    def heads_right(self, attempt: Attempt) -> bool | None:
        """Whether its heads are the planted ones: the truth of the claim "recovered".

        None of heads that noise must have moved, where no error bars say by how much.
        """
        layer = attempt.layer
        if layer is None or layer.n_heads != self.layer.n_heads:
            return False
        if self.noise and (attempt.attn_bar is None or attempt.value_bar is None):
            return None
        match = match_heads(layer, self.layer)
        bars = BARS if self.noise else 0.0
        errors = ((match.worst_attn, attempt.attn_bar), (match.worst_value, attempt.value_bar))
        return all(error <= max(MOST_ERROR, bars * (bar or 0.0)) for error, bar in errors)

    def to_bound(self, attempt: Attempt) -> float | None:
        """The error of attn over its standard deviation (Cramér–Rao), where there is noise."""
        layer = attempt.layer
        if layer is None or not self.noise or not attempt.attn_deviation:
            return None
        if layer.n_heads != self.layer.n_heads:
            return None
        order = match_heads(layer, self.layer).order
        apart = np.linalg.norm(layer.attn[order] - self.layer.attn)
        return float(apart / attempt.attn_deviation)

    def row(self, method: str, attempt: Attempt) -> Row:
        """One line of a table; errors are None where there is nothing to compare."""
        layer = attempt.layer
        match = None if layer is None else match_heads(layer, self.layer)
        return {
            "method": method,
            "outcome": attempt.outcome,
            "claimed": attempt.claimed,
            "right": self.heads_right(attempt),
            "solved": layer is not None and self.solved(layer),
            "attn_error": None if match is None else finite(match.worst_attn),
            "value_error": None if match is None else finite(match.worst_value),
            "validation_error": attempt.validation_error,
            "function_error": None if layer is None else finite(self.function_error(layer)),
            "to_bound": self.to_bound(attempt),
            "n_starts": attempt.n_starts,
            "n_solved": attempt.n_solved,
            "n_given": attempt.n_sequences,
            "seconds": attempt.seconds,
        }


def succeeded(row: Row) -> bool:
    """Whether the heads are right; of a parity the function, since its heads are not determined.

    Both by one measure, which training in float32 can meet.
    """
    if row["family"] == PARITY:
        return row["function_error"] is not None and row["function_error"] <= MOST_ERROR
    return bool(row["right"])


def no_wrong_claim(rows: list[Row]) -> Gate:
    """The gate of both experiments: whoever says "recovered" has the planted heads."""
    claims = [row for row in rows if row["claimed"]]
    wrong = [row for row in claims if not row["right"]]
    seen = f"{len(wrong)} of {len(claims)} claims are wrong"
    if wrong:
        first = wrong[0]
        seen += f"; first: {first['method']}, seed {first['seed']}, attn {first['attn_error']}"
    return Gate('"recovered" is never said of wrong heads', bool(claims) and not wrong, seen)


def worst_error(row: Row) -> float:
    """The larger error of attn and value; infinite where there are none."""
    errors = (row["attn_error"], row["value_error"])
    return float(max(np.inf if error is None else error for error in errors))
