"""What must hold, in either profile."""

from __future__ import annotations

from scipy.special import betaincinv

from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.turing_histories import MARKOV
from polyattn_papers.yau2024.turing_machine.cells import RULES_TRACES
from polyattn_papers.yau2024.turing_machine.findings import known_machines

# What the busy beaver of four states does on a blank tape.
BEAVER_STEPS, BEAVER_ONES = 107, 13

# A share that was counted may be this unlikely on either side.
UNLIKELY = 1e-4


def gates(rows: list[Row]) -> list[Gate]:
    """From most traces exact, no wrong claim, the busy beaver halts, histories keep the bound."""
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
    found += [_coefficients_gate(row) for row in where(rows, learner="untied")]
    histories = where(rows, learner="histories")
    return [*found, *_history_gates(histories)] if histories else found


def _history_gates(rows: list[Row]) -> list[Gate]:
    """The bound on whole histories, that by squared error, and that more traces help."""
    beyond = [row for row in rows if not keeps_the_bound(row)]
    large = [row for row in rows if row["token_error"] > MARKOV * row["squared_error"] + 1e-12]
    most = max(row["traces"] for row in rows)
    left = sum(row["differ"] + row["forced_differ"] for row in rows if row["traces"] == most)
    return [
        Gate(
            "free runs differ no more often than the tokens of a run times the share of wrong ones",
            not beyond,
            f"{len(beyond)} of {len(rows)} shares beyond the bound and both their errors",
        ),
        Gate(
            f"wrong tokens are at most {MARKOV:g} times the squared error",
            not large,
            f"{len(large)} of {len(rows)} shares are more",
        ),
        Gate(
            f"from {most} traces of small machines all histories are right",
            left == 0,
            f"{left:.1%} of histories wrong, all lengths added",
        ),
    ]


def keeps_the_bound(row: Row) -> bool:
    """Whether the share of free runs that differ fits the bound, which is of another sample.

    The share may be as small as its lower limit of confidence, and the bound grows by what the
    other sample may have missed: both are counts of ``histories``.
    """
    count = row["histories"]
    least = _limits(row["differ"], count)[0]
    missed = _limits(row["forced_differ"], count)[1] - row["forced_differ"]
    return bool(least <= row["bound"] + missed)


def _limits(share: float, count: int) -> tuple[float, float]:
    """What a share of so many may be, by Clopper and Pearson."""
    hits = round(share * count)
    low = betaincinv(hits, count - hits + 1, UNLIKELY) if hits else 0.0
    high = betaincinv(hits + 1, count - hits, 1.0 - UNLIKELY) if hits < count else 1.0
    return float(low), float(high)


def _coefficients_gate(row: Row) -> Gate:
    return Gate(
        f"one coefficient each, {row['rows']:,} rows: the busy beaver of 3 states runs exactly",
        row["beaver_3"] is True,
        f"{row['fresh_right']} of {row['fresh_machines']} fresh machines, {known_machines(row)}",
    )
