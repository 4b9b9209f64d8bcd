"""What the rows on layers that are hard to learn say, and whether they must."""

from __future__ import annotations

from collections import Counter

import numpy as np

from polyattn_papers.chen2024.parity import N_DIMS, n_parities
from polyattn_papers.chen2024.scoring import (
    MOST_ERROR,
    PARITY,
    SAME_FUNCTION,
    median,
    no_wrong_claim,
    succeeded,
    worst_error,
)
from polyattn_papers.reproduction import Gate, Row

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
