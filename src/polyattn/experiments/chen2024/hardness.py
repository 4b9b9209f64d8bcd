"""chen2024-hardness: layers that are hard to learn, from mild obstacles to parity.

One cell is one planted layer.  The learner, the same descent from random starts in the learner's
time, Adam, and queries, which choose their inputs.  For parities of several bits another layer
stands beside them that no Boolean sequence tells from the planted one.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np

from polyattn.data import planted_softmax
from polyattn.data.hard_softmax import FAMILIES
from polyattn.experiments.chen2024.attempts import (
    NO_CLAIM,
    Attempt,
    Task,
    by_adam,
    by_learner,
    by_queries,
    by_random_starts,
)
from polyattn.experiments.chen2024.hardness_figure import draw
from polyattn.experiments.chen2024.parity import n_parities, parity_task, twin_of_parity
from polyattn.experiments.chen2024.scoring import (
    MOST_ERROR,
    PARITY,
    SAME_FUNCTION,
    Truth,
    median,
    no_wrong_claim,
    succeeded,
    worst_error,
)
from polyattn.experiments.reproduction import Experiment, Gate, Row, Settings

N_DIMS, N_TOKENS = 8, 4

# Examples of the families and of parities.
FAMILY_EXAMPLES, PARITY_EXAMPLES = 2000, 3000

# Seconds that the learner may take for a layer of a family, far more than it needs; parities take
# all that they get.
FAMILY_SECONDS = 240.0

# Families of three heads are gated at this size of the logits.
GATED_LOGITS, GATED_HEADS, EXACT = 4.0, 3, 1e-6

# Twins have the same outputs up to rounding, and heads that are this far apart at least.
TWIN_ROUNDING, TWIN_APART = 1e-12, 0.1

# The sides that can succeed, as they are called in sentences.
SIDES = {
    "auto": "polyattn",
    "control": "random starts in its time",
    "adam": "Adam",
    "queries": "queries",
}

# Seeds of this experiment alone: nothing was tuned on them.
FIRST_SEED = 4000


def cells(profile: str) -> list[Settings]:
    """Families (with logits and heads) and parities (with sharpness and bits)."""
    if profile == "smoke":
        plan = [
            *product(("close", "same_value", "identity", "permutation"), (4.0,), (3,), (0,)),
            *product((PARITY,), (1.0, 4.0), (1,), (0,)),
            (PARITY, 2.0, 3, 0),
        ]
        return [_cell(*one, parity_seconds=4.0, adam_seconds=0.5) for one in plan]
    plan = [
        *product(FAMILIES, (4.0,), (3,), range(5)),
        *product(FAMILIES, (10.0,), (3,), range(3)),
        *product(FAMILIES, (4.0,), (4,), range(3)),
        *product((PARITY,), (0.5, 1.0, 2.0, 4.0, 8.0), (1,), range(4)),
        *product((PARITY,), (0.25, 0.5, 1.0, 2.0), (3,), range(4)),
        *product((PARITY,), (0.5,), (5,), range(2)),
    ]
    return [_cell(*one, parity_seconds=25.0, adam_seconds=2.0) for one in plan]


def run(settings: Settings) -> list[Row]:
    """All sides on one planted layer."""
    n_heads, seed = settings["n_heads"], settings["seed"]
    task = _task(settings)
    truth = Truth.of(task, seed)
    auto = by_learner(task, n_heads, max_seconds=settings["max_seconds"])
    sides = {
        "auto": auto,
        "control": by_random_starts(task, n_heads, auto.seconds, seed, truth.solved),
        "adam": by_adam(task, n_heads, settings["adam_seconds"], seed),
        "queries": by_queries(task, seed),
    }
    if settings["family"] == PARITY and n_heads > 1:
        sides["twin"] = Attempt(twin_of_parity(task.layer), NO_CLAIM, False, 0.0, 0)
    return [truth.row(method, attempt) for method, attempt in sides.items()]


def findings(rows: list[Row]) -> list[str]:
    """Families, then parities, then what is not determined, then the bound."""
    groups = sorted({_group(row) for row in rows})
    sentences = [_found([row for row in rows if _group(row) == group]) for group in groups]
    sentences.append(
        f"Counted are layers whose heads are off by at most {MOST_ERROR:g} of their size, and of "
        f"parities those whose outputs are; a start counts up to {SAME_FUNCTION:g} in its outputs."
    )
    twins = [row for row in rows if row["method"] == "twin"]
    apart = min(row["attn_error"] for row in twins)
    alike = max(row["function_error"] for row in twins)
    asked = [row for row in rows if row["method"] == "queries" and row["n_heads"] > 1]
    refused = [row for row in asked if not row["claimed"]]
    sentences.append(
        f"Boolean tokens do not determine the heads of a parity of several bits. For every one of "
        f"{len(twins)} such layers, heads that are off by {apart:.0%} or more compute the same "
        f"outputs, up to {alike:.0e}. Whoever solves it must not call its heads recovered."
    )
    sentences.append(
        "A learner that only uses averages over random examples needs d^Ω(s) averages for s bits, "
        "or averages as exact as d^Ω(s) examples make them. "
        f"One that chooses its inputs is not bound by that: queries recover "
        f"{len(asked) - len(refused)} of {len(asked)} layers of several heads; what they do not "
        f"recover ({_names(refused)}), they do not claim."
    )
    return sentences


def gates(rows: list[Row]) -> list[Gate]:
    """Families come back; nobody is wrong without saying so; parity is called what it is."""
    return [
        _families_recovered(rows),
        no_wrong_claim(rows),
        _functions_right(rows),
        _parities_not_claimed(rows),
        _twins(rows),
    ]


def _task(settings: Settings) -> Task:
    family, size, n_heads = settings["family"], settings["logits"], settings["n_heads"]
    n_sequences, seed = settings["n_sequences"], settings["seed"]
    if family == PARITY:
        return parity_task(n_heads, size, n_sequences, N_TOKENS, N_DIMS, seed)
    return planted_softmax(
        n_sequences, N_TOKENS, N_DIMS, n_heads=n_heads, logits=size, family=family,
        random_state=seed,
    )  # fmt: skip


def _cell(
    family: str,
    logits: float,
    n_heads: int,
    number: int,
    parity_seconds: float,
    adam_seconds: float,
) -> Settings:
    """``logits`` is the size of the logits of a family, and the sharpness beta of a parity."""
    return {
        "family": family,
        "logits": logits,
        "n_heads": n_heads,
        "n_sequences": PARITY_EXAMPLES if family == PARITY else FAMILY_EXAMPLES,
        "seed": FIRST_SEED + number,
        "max_seconds": parity_seconds if family == PARITY else FAMILY_SECONDS,
        "adam_seconds": adam_seconds,
    }


def _group(row: Row) -> tuple[bool, int, float]:
    """Families of one size belong together, and parities of as many bits."""
    parity = row["family"] == PARITY
    return parity, row["n_heads"], 0.0 if parity else row["logits"]


def _found(rows: list[Row]) -> str:
    """One sentence on the rows of a group."""
    parity, n_heads, logits = _group(rows[0])
    name = (
        f"Parity of {n_heads} of {N_DIMS - 1} bits ({n_parities(N_DIMS, n_heads)} hidden sets)"
        if parity
        else f"Families of {n_heads} heads with logits of size {logits:g}"
    )
    results = [_successes([row for row in rows if row["method"] == one], one) for one in SIDES]
    outcomes = Counter(row["outcome"] for row in rows if row["method"] == "auto")
    said = ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))
    return f"{name}: {'; '.join(results)}. The learner says: {said}."


def _successes(rows: list[Row], method: str) -> str:
    """How many of a side's runs succeeded, and what they took."""
    right = [row for row in rows if succeeded(row)]
    text = f"{SIDES[method]} {len(right)} of {len(rows)}"
    if method == "auto":
        return f"{text} layers, {median(rows, 'seconds'):.2g} s in the middle"
    if method == "control":
        solved, starts = (sum(row[key] for row in rows) for key in ("n_solved", "n_starts"))
        return f"{text} ({solved} of {starts} starts)"
    if method == "adam":
        return f"{text} (error {median(rows, 'function_error'):.0e} in the middle)"
    return f"{text} ({median(rows, 'n_given'):.0f} queries in the middle)"


def _names(rows: list[Row]) -> str:
    return ", ".join(sorted({row["family"] for row in rows})) or "none"


def _families_recovered(rows: list[Row]) -> Gate:
    own = [
        row for row in rows
        if row["method"] == "auto" and _group(row) == (False, GATED_HEADS, GATED_LOGITS)
    ]  # fmt: skip
    errors = [worst_error(row) for row in own]
    back = sum(row["claimed"] and error <= EXACT for row, error in zip(own, errors, strict=True))
    return Gate(
        f"every hard family of {GATED_HEADS} heads at logits {GATED_LOGITS:g} is recovered",
        bool(own) and back == len(own),
        f"{back} of {len(own)} to {EXACT:.0e}, largest error {max(errors, default=np.inf):.1e}",
    )


def _functions_right(rows: list[Row]) -> Gate:
    own = [row for row in rows if row["outcome"] in ("recovered", "ambiguous")]
    errors = [np.inf if row["function_error"] is None else row["function_error"] for row in own]
    return Gate(
        'what is called recovered or "ambiguous" is the planted function',
        bool(own) and max(errors) <= SAME_FUNCTION,
        f"largest error {max(errors, default=np.inf):.1e} of {len(own)} runs",
    )


def _parities_not_claimed(rows: list[Row]) -> Gate:
    several = [
        row for row in rows
        if row["family"] == PARITY and row["n_heads"] > 1 and row["method"] == "auto"
    ]  # fmt: skip
    solved = [row for row in several if row["solved"]]
    ambiguous = sum(row["outcome"] == "ambiguous" for row in solved)
    claimed = sum(row["claimed"] for row in several)
    return Gate(
        "from Boolean tokens, heads of a parity of several bits are never called recovered",
        bool(several) and not claimed,
        f"{claimed} of {len(several)}; of {len(solved)} solved, {ambiguous} are called ambiguous",
    )


def _twins(rows: list[Row]) -> Gate:
    own = [row for row in rows if row["method"] == "twin"]
    apart = min((row["attn_error"] for row in own), default=0.0)
    alike = max((row["function_error"] for row in own), default=np.inf)
    return Gate(
        "and rightly so: other heads compute the same parity",
        apart >= TWIN_APART and alike <= TWIN_ROUNDING,
        f"layers: {len(own)}; heads off by {apart:.2g} or more, outputs by {alike:.0e} at most",
    )


EXPERIMENT = Experiment(
    name="chen2024-hardness",
    title="Softmax layers that are hard to learn",
    claim=(
        "Exponential dependence on the number of heads is unavoidable in the worst case: from "
        "random examples no statistical-query learner, and under cryptographic assumptions none "
        "at all, learns every layer of m heads in time polynomial in m. These are theorems; here "
        "are layers that hide parities, and families that are hard for milder reasons."
    ),
    reference="Chen and Li (arXiv 2402.04084), the lower bounds.",
    cells=cells,
    run=run,
    findings=findings,
    gates=gates,
    draw=draw,
    needs_torch=True,
)
