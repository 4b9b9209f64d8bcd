"""What is run: three ways to learn the universal automaton, and what each of them needs.

``untied``: least squares of smallest norm, one coefficient each.  ``tied``: rules by relation,
learned from small machines and resized.  ``transformer``: the baseline of ``train_transformer``.
All are judged alike: the share of next tokens that are right on machines and words never seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.programs import Trace, learn
from polyattn.programs.learning.coefficients import learn_coefficients
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.automata import Machines, Sizes, fewest, first_of, share_right

# One of states, letters and length varies, the others stay at this.
BASE = 4

LARGEST = {"smoke": 4, "full": 8}

# Seeds of a size; where a single search takes minutes, one must do.
N_SEEDS, LARGE = 3, 6

# What a learner that has nothing to say of it leaves open.
COLUMNS = ("traces", "rows", "tokens", "accuracy", "rows_for_histories", "wrong_claims")

# What counts as learned.
ENOUGH = 0.99

# The search by coefficients begins and gives up at so many traces, and stops at a gap of this
# share of them.
FEWEST_TRACES, MOST_TRACES, RESOLUTION = 10, 5000, 0.03

# Whole histories are sought where next tokens took no more rows than this; others take minutes.
MOST_ROWS_FOR_HISTORIES = 5500

# Learning by rules sees machines of these states, letters and longest words, whatever the size.
RULES_SIZES: Sizes = (3, 3, 4)

MOST_BY_RULES = 40

#: How the Transformer is built and trained.
TRANSFORMER: dict[str, Any] = {
    "n_layers": 2, "width": 128, "n_heads": 4, "n_steps": 600, "batch_size": 32,
    "learning_rate": 2e-3, "warm_up": 50, "look": 50, "patience": 6,
}  # fmt: skip

# Rows that the Transformer is given, one number after the other: four to a decade.
TRANSFORMER_ROWS = tuple(round(10 ** (3 + step / 4)) for step in range(9))


def cells(profile: str) -> list[Settings]:
    """Every learner at every size; the longest cells first, so that none is waited for."""
    sizes = sorted(swept(LARGEST[profile]), key=_work, reverse=True)
    if profile == "smoke":
        return [_cell(learner, one, 0) for learner in ("untied", "tied") for one in sizes]
    seeds = {one: 1 if max(one[:2]) >= LARGE else N_SEEDS for one in sizes}
    return [
        *(_cell("untied", one, seed) for one in sizes for seed in range(seeds[one])),
        *(_cell("transformer", one, 0) for one in sizes),
        *(_cell("tied", one, seed) for one in sizes for seed in range(N_SEEDS)),
    ]


def run(settings: Settings) -> list[Row]:
    """How much one learner needs at one size."""
    sizes = settings["n_states"], settings["n_letters"], settings["length"]
    start = time.perf_counter()
    found = LEARNERS[settings["learner"]](sizes, settings["seed"])
    seconds = round(time.perf_counter() - start, 1)
    return [{name: found.get(name) for name in COLUMNS} | {"seconds": seconds}]


def swept(largest: int) -> Sequence[Sizes]:
    """Sizes (states, letters, length) with one of them from 2 to ``largest``."""
    values = range(2, largest + 1)
    found = {(n, BASE, BASE) for n in values} | {(BASE, n, BASE) for n in values}
    return sorted(found | {(BASE, BASE, n) for n in values})


def by_coefficients(sizes: Sizes, seed: int) -> Row:
    """The traces that least squares needs for next tokens, and for whole histories if few."""
    machines = Machines(sizes, seed)

    @cache
    def right(count: int) -> NDArray[np.bool_]:
        """Which tokens are right, (histories, m)."""
        found = learn_coefficients(machines.program.schema, machines.first(count))
        return np.array(found.right(machines.fresh))

    def tokens_right(count: int) -> float:
        return float(right(count).mean())

    def histories_right(count: int) -> float:
        return float(right(count).all(axis=1).mean())

    needed = fewest(tokens_right, ENOUGH, FEWEST_TRACES, MOST_TRACES, RESOLUTION)
    if needed is None:
        return {"accuracy": tokens_right(MOST_TRACES)}
    row = _needed(machines.first(needed)) | {"accuracy": tokens_right(needed)}
    if row["rows"] > MOST_ROWS_FOR_HISTORIES:
        return row
    whole = fewest(histories_right, 1.0, needed, MOST_TRACES, RESOLUTION)
    return row | ({"rows_for_histories": _needed(machines.first(whole))["rows"]} if whole else {})


def by_rules(sizes: Sizes, seed: int) -> Row:
    """The traces of small machines from which a program is learned that is right at ``sizes``.

    It must also say that it is learned: a guess that happens to be right does not count.
    """
    small, machines = Machines(RULES_SIZES, seed, *sizes, mixed=True), Machines(sizes, seed)
    n_states, n_letters, max_length = sizes
    tried: list[tuple[bool, float]] = []

    def score(count: int) -> float:
        found = learn(small.program.schema, small.first(count))
        larger = found.resize(n_states=n_states, n_letters=n_letters, max_length=max_length)
        tried.append((found.succeeded, share_right(larger, machines.fresh)))
        return tried[-1][1] if found.succeeded else 0.0

    needed = first_of(score, ENOUGH, MOST_BY_RULES)
    row = _needed(small.first(needed)) if needed else {}
    wrong = sum(claimed and share < 1.0 for claimed, share in tried)
    return row | {"accuracy": tried[-1][1], "wrong_claims": wrong}


def transformer(sizes: Sizes, seed: int) -> Row:
    """The first number of rows from which the Transformer learns enough, or none."""
    from polyattn_papers.baselines.train_transformer import TransformerSettings, train_transformer

    machines = Machines(sizes, seed)
    settings = TransformerSettings(**TRANSFORMER, enough=ENOUGH, seed=seed)
    (one,) = machines.first(1)
    best = 0.0
    for rows in TRANSFORMER_ROWS:
        some = machines.first(-(-rows // one.n_rows))
        accuracy = train_transformer(some, machines.fresh, settings).accuracy
        best = max(best, accuracy)
        if accuracy >= ENOUGH:
            return _needed(some) | {"accuracy": accuracy}
    return {"accuracy": best}


def _cell(learner: str, sizes: Sizes, seed: int) -> Settings:
    names = ("n_states", "n_letters", "length")
    return {"learner": learner} | dict(zip(names, sizes, strict=True)) | {"seed": seed}


def _work(sizes: Sizes) -> int:
    """What the time of learning by coefficients grows with."""
    n_states, n_letters, length = sizes
    return n_states * n_states * n_letters * n_letters * length


def _needed(used: list[Trace]) -> Row:
    """Traces, the tokens of them that were predicted, and all their tokens, prompts included."""
    return {
        "traces": len(used),
        "rows": sum(trace.n_rows for trace in used),
        "tokens": sum(len(trace.tokens) for trace in used),
    }


LEARNERS = {"untied": by_coefficients, "tied": by_rules, "transformer": transformer}
