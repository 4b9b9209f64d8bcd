"""What is run: four ways to learn the universal automaton, and what each of them needs.

``untied``: least squares of smallest norm, one coefficient each.  ``tied``: rules by relation,
learned from small machines and resized.  ``transformer``: the baseline of ``train_transformer``.
These see tokens of ``universal_dfa``.  ``decoder``: the baseline of ``train_decoder``, on strings
in the paper's encoding, with sizes and training as near to the paper's as was affordable.
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
from polyattn_papers.tasks.automata import (
    N_FRESH,
    Machines,
    Sizes,
    fewest,
    first_of,
    least_of,
    letters_of,
    share_right,
)
from polyattn_papers.tasks.automaton_strings import StringEncoding

# One of states, letters and length varies, the others stay at this.
BASE = 4

LARGEST = {"smoke": 4, "full": 8}
SMALLEST = 2

# Seeds of a size; where a single search takes minutes, one must do.
N_SEEDS, LARGE = 3, 6

# What a learner that has nothing to say of it leaves open.
COLUMNS = (
    "traces", "rows", "tokens", "letters", "accuracy", "rows_for_histories", "wrong_claims",
    "letters_for_states", "accuracy_states", "steps",
)  # fmt: skip

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

#: How the decoder is built and trained on the paper's strings.
DECODER: dict[str, Any] = {
    "n_epochs": 100, "n_steps": 4000, "batch_size": 16, "learning_rate": 2e-3, "warm_up": 50,
    "look": 50, "patience": 10,
}  # fmt: skip

# Sizes that it is trained at: some minutes each, and more the larger they are.
DECODER_SWEPT: tuple[Sizes, ...] = (
    (2, 4, 4), (3, 4, 4), (4, 4, 4), (4, 2, 4), (4, 3, 4), (4, 4, 2), (4, 4, 3), (4, 4, 6),
)  # fmt: skip

DECODER_SIZES = {"n_layers": 4, "n_heads": 4, "width": 64}

# Numbers of strings, the paper's as far as they were affordable: its list goes on to 65,536.
# The search begins in their middle: a run that is enough ends early, whatever the number.
DECODER_STRINGS, DECODER_FIRST = (16, 32, 64, 128, 256, 512, 1024, 2048), 512


def cells(profile: str) -> list[Settings]:
    """Every learner at every size; the longest cells first, so that none is waited for."""
    sizes = sorted(swept(LARGEST[profile]), key=_work, reverse=True)
    if profile == "smoke":
        ends = [one for one in sizes if set(one) <= {SMALLEST, BASE}]
        return [_cell(learner, one, 0) for learner in ("untied", "tied") for one in ends]
    seeds = {one: 1 if max(one[:2]) >= LARGE else N_SEEDS for one in sizes}
    return [
        *(_cell("untied", one, seed) for one in sizes for seed in range(seeds[one])),
        *(_cell("transformer", one, 0) for one in sizes),
        *(_cell("decoder", one, 0) for one in sizes if one in DECODER_SWEPT),
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
    """Sizes (states, letters, length) with one of them from SMALLEST to ``largest``."""
    values = range(SMALLEST, largest + 1)
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


def decoder(sizes: Sizes, seed: int) -> Row:
    """The fewest strings from which the decoder learns enough, or none.

    One number for all tokens of the histories, and one for the new states alone, which none of
    the easy tokens helps along.
    """
    from polyattn_papers.baselines.decoder import DecoderSizes
    from polyattn_papers.baselines.train_decoder import (
        DecoderRun,
        DecoderSettings,
        ReadTokens,
        train_decoder,
    )

    encoding = StringEncoding(*sizes)
    supply, judge = (np.random.default_rng([seed, *sizes, part]) for part in range(2))
    strings = encoding.draw(DECODER_STRINGS[-1], supply)
    fresh = encoding.draw(N_FRESH, judge)
    read = ReadTokens(encoding.n_symbols, encoding.n_history, encoding.new_states)
    settings = DecoderSettings(DecoderSizes(**DECODER_SIZES), **DECODER, enough=ENOUGH, seed=seed)

    @cache
    def trained(count: int) -> DecoderRun:
        return train_decoder(strings[:count], fresh, read, settings)

    needed = least_of(DECODER_STRINGS, lambda count: trained(count).accuracy, ENOUGH, DECODER_FIRST)
    if needed is None:
        last = trained(DECODER_STRINGS[-1])
        return {"accuracy": last.accuracy, "accuracy_states": last.hard_accuracy}
    row = {
        "traces": needed, "rows": needed * encoding.n_history,
        "tokens": needed * encoding.n_tokens, "letters": needed * encoding.length,
        "accuracy": trained(needed).accuracy, "accuracy_states": trained(needed).hard_accuracy,
        "steps": trained(needed).n_steps,
    }  # fmt: skip
    whole = least_of(DECODER_STRINGS, lambda count: trained(count).hard_accuracy, ENOUGH, needed)
    return row | ({"letters_for_states": whole * encoding.length} if whole else {})


def _cell(learner: str, sizes: Sizes, seed: int) -> Settings:
    names = ("n_states", "n_letters", "length")
    return {"learner": learner} | dict(zip(names, sizes, strict=True)) | {"seed": seed}


def _work(sizes: Sizes) -> int:
    """What the time of learning by coefficients grows with."""
    n_states, n_letters, length = sizes
    return n_states * n_states * n_letters * n_letters * length


def _needed(used: list[Trace]) -> Row:
    """Traces, the tokens of them that were predicted, all their tokens, and letters of words.

    Letters are the paper's unit: the number of examples times the length of the word.
    """
    return {
        "traces": len(used),
        "rows": sum(trace.n_rows for trace in used),
        "tokens": sum(len(trace.tokens) for trace in used),
        "letters": sum(letters_of(trace) for trace in used),
    }


LEARNERS = {
    "untied": by_coefficients,
    "tied": by_rules,
    "transformer": transformer,
    "decoder": decoder,
}
