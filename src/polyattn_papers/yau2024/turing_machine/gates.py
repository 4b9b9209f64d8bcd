"""What must hold, in either profile."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.yau2024.turing_machine.cells import RULES_TRACES
from polyattn_papers.yau2024.turing_machine.findings import known_machines

# What the busy beaver of four states does on a blank tape.
BEAVER_STEPS, BEAVER_ONES = 107, 13


def gates(rows: list[Row]) -> list[Gate]:
    """From most traces always exact; never a wrong claim; the busy beaver halts where it must."""
    by_rules = where(rows, learner="tied")
    most = [row for row in by_rules if row["traces"] == RULES_TRACES[-1]]
    exact = sum(row["exact"] and row["claimed"] for row in most)
    wrong = sum(row["claimed"] and not row["exact"] for row in by_rules)
    beavers = {(row["beaver_4_steps"], row["beaver_4_ones"]) for row in most}
    ran = ", ".join(f"{steps} steps, {ones} ones" for steps, ones in sorted(beavers, key=str))
    found = [
        Gate(
            f"from {RULES_TRACES[-1]} traces every seed is learned and exact on all machines",
            bool(most) and exact == len(most),
            f"{exact} of {len(most)} seeds",
        ),
        Gate(
            "what is called learned is exact, whatever the number of traces",
            bool(by_rules) and wrong == 0,
            f"{wrong} wrong claims of {sum(row['claimed'] for row in by_rules)}",
        ),
        Gate(
            f"the busy beaver of 4 states runs {BEAVER_STEPS} steps and leaves {BEAVER_ONES} ones",
            beavers == {(BEAVER_STEPS, BEAVER_ONES)},
            ran or "not run",
        ),
    ]
    return found + [_coefficients_gate(row) for row in where(rows, learner="untied")]


def _coefficients_gate(row: Row) -> Gate:
    return Gate(
        f"one coefficient each, {row['rows']:,} rows: the busy beaver of 3 states runs exactly",
        row["beaver_3"] is True,
        f"{row['fresh_right']} of {row['fresh_machines']} fresh machines, {known_machines(row)}",
    )
