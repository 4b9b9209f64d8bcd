"""What came out, in sentences: how often it was learned, and what it runs."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.turing_histories import most_tokens
from polyattn_papers.tasks.turing_trials import TRIALS


def findings(rows: list[Row]) -> list[str]:
    """How often it was learned, what it runs, and how often histories go wrong."""
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
    histories = where(rows, learner="histories")
    return said + (_history_sentences(histories) if histories else [])


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


def _history_sentences(rows: list[Row]) -> list[str]:
    """How often tokens and whole histories go wrong, and how near the bound is."""
    said = []
    for steps in sorted({row["steps"] for row in rows}):
        some = sorted((r for r in rows if r["steps"] == steps), key=lambda row: row["traces"])
        wrong = [row for row in some if row["bound"] > 0]
        free = next((row["traces"] for row in some if not row["bound"] + row["differ"]), None)
        ends = f"none from {free} traces on" if free else "some from any number of traces"
        shares = ", ".join(f"{row['differ']:.1%} from {row['traces']}" for row in wrong)
        said.append(
            f"Histories of {steps} steps (up to {most_tokens(steps)} tokens) that differ, one "
            f"coefficient each: {shares}{'; ' if shares else ''}{ends}."
        )
    open_ = [row for row in rows if 0 < row["bound"] < 1]
    loose = [row["bound"] / row["differ"] for row in open_ if row["differ"]]
    said.append(
        f"The bound, tokens of a run times the share of wrong tokens, says something (is below 1) "
        f"in {len(open_)} of {len(rows)} cases"
        + (f", there {_times(loose)} times the share seen on other machines." if loose else ".")
    )
    return said


def _times(factors: list[float]) -> str:
    least, most = (f"{factor:.1f}" for factor in (min(factors), max(factors)))
    return least if least == most else f"{least} to {most}"


def _span(rows: list[Row], name: str) -> str:
    values = {row[name] for row in rows}
    return f"{min(values)} to {max(values)}" if len(values) > 1 else str(*values)
