"""What came out, in sentences: how often it was learned, and what it runs."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.turing_trials import TRIALS


def findings(rows: list[Row]) -> list[str]:
    """How often it was learned, what it runs, and what one coefficient each takes."""
    by_rules = where(rows, learner="tied")
    said = []
    for n_traces in sorted({row["traces"] for row in by_rules}):
        some = [row for row in by_rules if row["traces"] == n_traces]
        said.append(
            f"From {n_traces} traces ({_span(some, 'rows')} predicted tokens) tied "
            f"learning is exact in {sum(row['exact'] for row in some)} of {len(some)} tries, and "
            f"says so in {sum(row['claimed'] for row in some)}."
        )
    best = [row for row in by_rules if row["exact"]]
    if best:
        said.append(
            f"An exact program has {_span(best, 'terms')} terms and runs "
            f"{best[0]['fresh_machines']} random machines of sizes never seen, the busy beavers "
            "of 2 to 4 states to their halt, 3000 steps of that of 5 states on 128 cells, "
            "increment, addition and palindromes."
        )
    said += [_coefficients_sentence(row) for row in where(rows, learner="untied")]
    return said


def known_machines(row: Row) -> str:
    """Which of the known machines that fit run exactly."""
    tried = {name: row[name] for name in TRIALS if row[name] is not None}
    wrong = [name for name, right in tried.items() if not right]
    return f"{len(tried) - len(wrong)} of {len(tried)} known machines" + (
        f" (not {', '.join(wrong)})" if wrong else ""
    )


def _coefficients_sentence(row: Row) -> str:
    return (
        f"One coefficient each, {row['traces']} traces ({row['rows']:,} predicted tokens) of "
        f"machines with 3 states, 2 letters and 8 cells: {row['fresh_right']} of "
        f"{row['fresh_machines']} fresh machines of that size run exactly; {known_machines(row)}."
    )


def _span(rows: list[Row], name: str) -> str:
    values = {row[name] for row in rows}
    return f"{min(values)} to {max(values)}" if len(values) > 1 else str(*values)
