"""What came out, in sentences: families, parities, what is not determined, and the bound."""

from __future__ import annotations

from collections import Counter

from polyattn.softmax import statistical_query_bound
from polyattn_papers.chen2024.hardness.cells import SAME_PARITY
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median, where
from polyattn_papers.tasks.parity import N_DIMS, n_parities
from polyattn_papers.tasks.softmax_truth import MOST_ERROR, PARITY, SAME_FUNCTION, succeeded

# The methods that can succeed, as they are called in sentences.
METHODS = {
    "auto": "polyattn",
    "control": "random starts in its time",
    "adam": "Adam",
    "queries": "queries",
}


# Averages that are right to this: those of about a hundred examples.
TOLERANCE = 0.1


def findings(rows: list[Row]) -> list[str]:
    """Families, parities, what is not determined, queries, and what the bound has to do with it."""
    groups = sorted({group_of(row) for row in rows})
    sentences = [_found([row for row in rows if group_of(row) == group]) for group in groups]
    sentences.append(
        f"Counted are layers whose heads are off by at most {MOST_ERROR:g} of their size, and of "
        f"parities those whose outputs are; a start counts up to {SAME_FUNCTION:g} in its outputs."
    )
    others = where(rows, method=SAME_PARITY)
    apart = min(row["attn_error"] for row in others)
    alike = max(row["function_error"] for row in others)
    sentences.append(
        f"Boolean tokens do not determine the heads of a parity of several bits. For every one of "
        f"{len(others)} such layers, heads that are off by {apart:.0%} or more compute the same "
        f"outputs, up to {alike:.0e}. Whoever solves it must not call its heads recovered."
    )
    sentences += [_queries(rows), _bound()]
    return sentences


def group_of(row: Row) -> tuple[bool, int, float]:
    """Families of one size belong together, and parities of as many bits."""
    parity = row["family"] == PARITY
    return parity, row["n_heads"], 0.0 if parity else row["logits"]


def _found(rows: list[Row]) -> str:
    """One sentence on the rows of a group."""
    parity, n_heads, logits = group_of(rows[0])
    name = (
        f"Parity of {n_heads} of {N_DIMS - 1} bits ({n_parities(N_DIMS, n_heads)} hidden sets)"
        if parity
        else f"Families of {n_heads} heads with logits of size {logits:g}"
    )
    results = [_successes(where(rows, method=one), one) for one in METHODS]
    outcomes = Counter(row["outcome"] for row in where(rows, method="auto"))
    said = ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))
    return f"{name}: {'; '.join(results)}. The learner says: {said}."


def _successes(rows: list[Row], method: str) -> str:
    """How many of a method's runs succeeded, and what they took."""
    right = [row for row in rows if succeeded(row)]
    text = f"{METHODS[method]} {len(right)} of {len(rows)}"
    if method == "auto":
        return f"{text} layers, {median(rows, 'seconds'):.2g} s in the middle"
    if method == "control":
        solved, starts = (sum(row[key] for row in rows) for key in ("n_solved", "n_starts"))
        return f"{text} ({solved} of {starts} starts)"
    if method == "adam":
        return f"{text} (error {median(rows, 'function_error'):.0e} in the middle)"
    return f"{text} ({median(rows, 'n_given'):.0f} queries in the middle)"


def _queries(rows: list[Row]) -> str:
    """What queries recover; a claim counts only where the heads are right."""
    queried = [row for row in where(rows, method="queries") if row["n_heads"] > 1]
    recovered = [row for row in queried if row["claimed"] and row["right"]]
    missed = [row for row in queried if not (row["claimed"] and row["right"])]
    wrong = sum(row["claimed"] for row in missed)
    return (
        f"Whoever chooses the inputs recovers {len(recovered)} of {len(queried)} layers of several "
        f"heads; of those that queries do not recover ({_names(missed)}), {wrong} are claimed."
    )


def _bound() -> str:
    """What the lower bound says at these sizes: computed, and next to nothing."""
    largest = max((statistical_query_bound(N_DIMS, s, TOLERANCE).n_queries or 0) for s in (1, 3, 5))
    d, s = 64, 5
    far = statistical_query_bound(d, s, TOLERANCE)
    return (
        "What is seen here is how far these methods get, not a lower bound: for parities of "
        f"{N_DIMS - 1} bits that of statistical queries is {largest} at tolerance {TOLERANCE:g}. "
        f"It grows like d^s and is {far.n_queries:,} for {s} of {d - 1} bits; chen2024-lower has "
        "its table. It is for sharp layers: soft ones show their bits in low degrees."
    )


def _names(rows: list[Row]) -> str:
    return ", ".join(sorted({row["family"] for row in rows})) or "none"
