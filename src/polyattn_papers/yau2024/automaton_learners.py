"""Three ways to learn the universal automaton, and how many traces each of them needs.

``untied``: least squares of smallest norm, one coefficient each.  ``tied``: rules by relation,
learned from small machines and resized.  ``transformer``: the baseline of ``trace_transformer``.
All are judged alike: the share of next tokens that are right on machines and words never seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.model import LinearAttention
from polyattn.programs import Learned, Program, Trace, learn, traces, universal_dfa
from polyattn.programs.learning.coefficients import learn_coefficients
from polyattn_papers.reproduction import Row
from polyattn_papers.yau2024.automaton_search import fewest, first_of
from polyattn_papers.yau2024.transformer_settings import TransformerSettings

Sizes = tuple[int, int, int]

# What counts as learned, and the machines it is judged on.
ENOUGH, N_FRESH = 0.99, 200

# The search for untied learning begins and gives up at so many traces, and stops at a gap of this
# share of them.
FEWEST_UNTIED, MOST_UNTIED, RESOLUTION = 10, 5000, 0.03

# Whole histories are sought where next tokens took no more rows than this; others take minutes.
MOST_ROWS_FOR_HISTORIES = 5500

# Tied learning sees machines of these states, letters and longest words, whatever it is asked for.
TIED_SIZES: Sizes = (3, 3, 4)
MOST_TIED = 40

# Rows that the Transformer is given, one after the other: four to a decade.
LADDER = tuple(round(10 ** (3 + step / 4)) for step in range(9))


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


def untied(sizes: Sizes, seed: int) -> Row:
    """The traces that least squares needs for next tokens, and for whole histories if few."""
    machines = Machines(sizes, seed)
    seen: dict[int, tuple[float, float]] = {}

    def scores(count: int) -> tuple[float, float]:
        if count not in seen:
            found = learn_coefficients(machines.program.schema, machines.first(count))
            right = found.right(machines.fresh)
            seen[count] = _shares(np.array(right))
        return seen[count]

    def tokens_right(count: int) -> float:
        return scores(count)[0]

    def histories_right(count: int) -> float:
        return scores(count)[1]

    needed = fewest(tokens_right, ENOUGH, FEWEST_UNTIED, MOST_UNTIED, RESOLUTION)
    if needed is None:
        return {"accuracy": tokens_right(MOST_UNTIED)}
    row = _needed(machines.first(needed)) | {"accuracy": tokens_right(needed)}
    if row["rows"] > MOST_ROWS_FOR_HISTORIES:
        return row
    whole = fewest(histories_right, 1.0, needed, MOST_UNTIED, RESOLUTION)
    return row | ({"rows_for_histories": _needed(machines.first(whole))["rows"]} if whole else {})


def tied(sizes: Sizes, seed: int) -> Row:
    """The traces of small machines from which a program is learned that is right at ``sizes``.

    It must also say that it is learned: a guess that happens to be right does not count.
    """
    small, machines = Machines(TIED_SIZES, seed, *sizes, mixed=True), Machines(sizes, seed)
    n_states, n_letters, max_length = sizes
    asked: list[tuple[bool, float]] = []

    def score(count: int) -> float:
        found = learn(small.program.schema, small.first(count))
        larger = found.resize(n_states=n_states, n_letters=n_letters, max_length=max_length)
        asked.append((found.succeeded, share_right(larger, machines.fresh)))
        return asked[-1][1] if found.succeeded else 0.0

    needed = first_of(score, ENOUGH, MOST_TIED)
    row = _needed(small.first(needed)) if needed else {}
    wrong = sum(claimed and share < 1.0 for claimed, share in asked)
    return row | {"accuracy": asked[-1][1], "wrong_claims": wrong}


def transformer(sizes: Sizes, seed: int) -> Row:
    """The first step of the ladder from which the Transformer learns enough, or none."""
    from polyattn_papers.yau2024.trace_transformer import train_transformer

    machines, settings = Machines(sizes, seed), TransformerSettings(seed=seed, enough=ENOUGH)
    best = 0.0
    for some in _ladder(machines):
        accuracy = train_transformer(some, machines.fresh, settings).accuracy
        best = max(best, accuracy)
        if accuracy >= ENOUGH:
            return _needed(some) | {"accuracy": accuracy}
    return {"accuracy": best}


def share_right(program: Learned, judged: list[Trace]) -> float:
    """The share of next tokens that a program predicts, each from the tokens before it.

    Traces of one length, so that all go through the layer at once.
    """
    layer = LinearAttention(program.layer.attn, program.layer.value, mode="causal")
    tokens = np.stack([trace.tokens for trace in judged])
    n_followed = judged[0].n_rows
    said = program.schema.round(layer(tokens.astype(float))[:, -n_followed - 1 : -1])
    return float(np.mean(np.all(said == tokens[:, -n_followed:], axis=-1)))


def _ladder(machines: Machines) -> Iterator[list[Trace]]:
    (one,) = machines.first(1)
    counts = (-(-rows // one.n_rows) for rows in LADDER)
    return (machines.first(count) for count in counts)


def _needed(used: list[Trace]) -> Row:
    """Traces, the tokens of them that were predicted, and all their tokens, prompts included."""
    return {
        "traces": len(used),
        "rows": sum(trace.n_rows for trace in used),
        "tokens": sum(len(trace.tokens) for trace in used),
    }


def _shares(right: NDArray[np.bool_]) -> tuple[float, float]:
    """Next tokens and whole histories that are right, of tokens (histories, m)."""
    return float(right.mean()), float(right.all(axis=1).mean())
