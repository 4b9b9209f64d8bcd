"""What is run: a program learned from traces, then tried on machines."""

from __future__ import annotations

import time

from polyattn.programs import learn, traces, universal_turing_machine
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.turing_trials import judge

# States, letters and cells of the machines that traces are of.
SIZES = {"tied": (3, 3, 9), "untied": (3, 2, 8)}

TIED_TRACES = (10, 20, 40)

N_SEEDS = {"smoke": 1, "full": 8}

# About 18,000 rows and two gigabytes, so one seed.
UNTIED_TRACES = 934


def cells(profile: str) -> list[Settings]:
    """Tied learning from few traces; in full also one coefficient each, which takes longest."""
    tied = [
        {"learner": "tied", "traces": n_traces, "seed": seed}
        for n_traces in TIED_TRACES
        for seed in range(N_SEEDS[profile])
    ]
    if profile == "smoke":
        return tied
    return [{"learner": "untied", "traces": UNTIED_TRACES, "seed": 0}, *tied]


def run(settings: Settings) -> list[Row]:
    """Learn once, then try what was learned."""
    tied = settings["learner"] == "tied"
    program = universal_turing_machine(*SIZES[settings["learner"]])
    seen = traces(program, settings["traces"], random_state=settings["seed"])
    start = time.perf_counter()
    learned = learn(program.schema, seen, "rules" if tied else "coefficients")
    seconds = time.perf_counter() - start
    row = {
        "rows": sum(trace.n_rows for trace in seen),
        # One coefficient each, terms are counted in ten thousands and say nothing.
        "terms": len(learned.terms) if tied else None,
        "outcome": learned.outcome.name,
        # Untied, "fitted" is said of the traces alone and claims nothing of other machines.
        "claimed": learned.succeeded if tied else None,
    }
    return [row | judge(learned, tied, settings["seed"]) | {"seconds": round(seconds, 1)}]
