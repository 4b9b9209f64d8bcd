"""Traces of random automata, and the fewest of them from which a learner is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from polyattn.model import LinearAttention
from polyattn.programs import Learned, Program, Trace, traces, universal_dfa

#: Numbers of states, letters, and letters of a word.
Sizes = tuple[int, int, int]

#: How good a learner is with so many traces: a share from 0 to 1.
Score = Callable[[int], float]

# Fresh machines that a learner is judged on.
N_FRESH = 200

# Numbers grow by the first factor, and by the second once most is right.
FAR, NEAR, MOST = 1.5, 1.12, 0.9


class Machines:
    """Traces of random automata of one size on random words: an endless supply, and fresh ones."""

    def __init__(self, sizes: Sizes, *seed: int, mixed: bool = False) -> None:
        self.program: Program = universal_dfa(*sizes, style="one_hot")
        length = sizes[2]
        self._lengths = (1 if mixed else length, length)
        self._supply, self._judge = (
            np.random.default_rng([*seed, *sizes, part]) for part in range(2)
        )
        self._drawn: list[Trace] = []

    def first(self, count: int) -> list[Trace]:
        """The first so many traces: fewer are always the beginning of more."""
        missing = count - len(self._drawn)
        if missing > 0:
            self._drawn += traces(self.program, missing, self._supply, lengths=self._lengths)
        return self._drawn[:count]

    @cached_property
    def fresh(self) -> list[Trace]:
        """What learners are judged on, the same for all numbers of traces."""
        return traces(self.program, N_FRESH, self._judge, lengths=self._lengths)


def letters_of(trace: Trace) -> int:
    """The length of the word that a trace runs on: tokens of its prompt with place and letter."""
    return int(trace.prompt[:, trace.schema.blocks["px"]].any(axis=1).sum())


def fewest(
    score: Score, enough: float, first: int, most: int, resolution: float = 0.0
) -> int | None:
    """The least number n with score(n) >= enough; None if not even ``most`` is.

    Numbers from ``first`` on grow until one is enough; then the gap to the last that was not is
    halved until it is one, or at most ``resolution`` of the number.  ``score`` is called once for
    each number.

    Guarantee: n is enough, and the number that the gap ended at is not.  It is the least of all if
    a learner that is right stays right with more traces (and resolution = 0).
    """
    below, number = first - 1, first
    while (seen := score(number)) < enough:
        if number == most:
            return None
        below = number
        number = min(most, int(number * (NEAR if seen >= MOST else FAR)) + 1)
    while number - below > max(1.0, resolution * number):
        middle = (below + number) // 2
        below, number = (below, middle) if score(middle) >= enough else (middle, number)
    return number


def first_of(score: Score, enough: float, most: int) -> int | None:
    """The first of 1, 2, ..., ``most`` that is enough: for learners that need few."""
    return next((number for number in range(1, most + 1) if score(number) >= enough), None)


def least_of(numbers: Sequence[int], score: Score, enough: float, first: int) -> int | None:
    """The least of ``numbers``, which grow, that is enough; None if not even the last is.

    From ``first``, one of them, on: to smaller ones while they are enough, else to larger ones
    until one is.

    Guarantee: the number is enough, and the one before it is not (or there is none).  It is the
    least of all if a learner that is right stays right with more traces.
    """
    at = numbers.index(first)
    if score(first) >= enough:
        while at > 0 and score(numbers[at - 1]) >= enough:
            at -= 1
        return numbers[at]
    return next((number for number in numbers[at + 1 :] if score(number) >= enough), None)


def share_right(program: Learned, judged: list[Trace]) -> float:
    """The share of next tokens that a program predicts, each from the tokens before it.

    Traces of one length, so that all go through the layer at once.
    """
    layer = LinearAttention(program.layer.attn, program.layer.value, mode="causal")
    tokens = np.stack([trace.tokens for trace in judged])
    n_followed = judged[0].n_rows
    said = program.schema.round(layer(tokens.astype(float))[:, -n_followed - 1 : -1])
    return float(np.mean(np.all(said == tokens[:, -n_followed:], axis=-1)))
