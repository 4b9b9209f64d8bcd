"""What is run: a program learned from traces, then tried on machines."""

from __future__ import annotations

import time

from polyattn.programs import learn, traces, universal_turing_machine
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.turing_trials import judge

# States, letters and cells of the machines that traces are of.
SIZES = {"tied": (3, 3, 9), "untied": (3, 2, 8)}

RULES_TRACES = (10, 20, 40)

N_SEEDS = {"smoke": 1, "full": 8}

# About 18,000 rows and two gigabytes, so one seed.
COEFFICIENTS_TRACES = 934


def cells(profile: str) -> list[Settings]:
    """Rules from few traces; in full also one coefficient each, which takes longest."""
    by_rules = [
        {"learner": "tied", "traces": n_traces, "seed": seed}
        for n_traces in RULES_TRACES
        for seed in range(N_SEEDS[profile])
    ]
    if profile == "smoke":
        return by_rules
    return [{"learner": "untied", "traces": COEFFICIENTS_TRACES, "seed": 0}, *by_rules]


def run(settings: Settings) -> list[Row]:
    """Learn once, then try what was learned."""
    by_rules = settings["learner"] == "tied"
    program = universal_turing_machine(*SIZES[settings["learner"]])
    seen = traces(program, settings["traces"], random_state=settings["seed"])
    start = time.perf_counter()
    learned = learn(program.schema, seen, "rules" if by_rules else "coefficients")
    seconds = time.perf_counter() - start
    row = {
        "rows": sum(trace.n_rows for trace in seen),
        # One coefficient each, terms are counted in ten thousands and say nothing.
        "terms": len(learned.terms) if by_rules else None,
        "outcome": learned.outcome.name,
        # By coefficients, "fitted" is said of the traces alone, and claims nothing of others.
        "claimed": learned.succeeded if by_rules else None,
    }
    return [row | judge(learned, by_rules, settings["seed"]) | {"seconds": round(seconds, 1)}]
