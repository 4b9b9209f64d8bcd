"""What is run: a program learned from traces, then tried on machines.

``tied`` and ``untied``: how many machines, known and fresh, it runs.  ``histories``: learned one
coefficient each from few traces, how often single tokens and whole histories go wrong.
"""

from __future__ import annotations

import time
from typing import Any

from polyattn.programs import learn, traces, universal_turing_machine
from polyattn.programs.learning.coefficients import learn_coefficients
from polyattn_papers.reproduction.experiment import Row, Settings
from polyattn_papers.tasks.turing_histories import measure_histories
from polyattn_papers.tasks.turing_trials import TRIALS, judge

# States, letters and cells of the machines that traces are of.
SIZES = {"tied": (3, 3, 9), "untied": (3, 2, 8), "histories": (2, 2, 4)}

RULES_TRACES = (10, 20, 40)

N_SEEDS = {"smoke": 1, "full": 8}

# About 18,000 rows and two gigabytes, so one seed.
COEFFICIENTS_TRACES = 934

# Whole histories: traces to learn from, steps of the histories, and how many are drawn of each.
HISTORY_TRACES = {"smoke": (100, 300), "full": (50, 100, 150, 200, 250, 300, 400)}
HISTORY_STEPS = (2, 5, 10, 20)
N_HISTORIES = {"smoke": 40, "full": 500}

# Every row has these columns, empty where it says nothing of them.
COLUMNS = (
    "rows", "terms", "outcome", "claimed", "fresh_machines", "fresh_right", *TRIALS,
    "beaver_4_steps", "beaver_4_ones", "exact", "steps", "histories", "squared_error",
    "token_error", "forced_differ", "differ", "bound", "seconds",
)  # fmt: skip


def cells(profile: str) -> list[Settings]:
    """Rules from few traces, whole histories; in full also all coefficients, the longest cell."""
    n_seeds = N_SEEDS[profile]
    counts = RULES_TRACES if profile == "full" else (RULES_TRACES[0], RULES_TRACES[-1])
    asked = [
        *((n_traces, seed, "tied") for n_traces in counts for seed in range(n_seeds)),
        *((n_traces, 0, "histories") for n_traces in HISTORY_TRACES[profile]),
    ]
    if profile == "full":
        asked.insert(0, (COEFFICIENTS_TRACES, 0, "untied"))
    return [
        {"learner": learner, "traces": n_traces, "seed": seed, "drawn": _drawn(profile, learner)}
        for n_traces, seed, learner in asked
    ]


def _drawn(profile: str, learner: str) -> int | None:
    """How many histories are drawn for each number of steps, if that is what is looked at."""
    return N_HISTORIES[profile] if learner == "histories" else None


def run(settings: Settings) -> list[Row]:
    """Learn once, then try what was learned."""
    if settings["learner"] == "histories":
        return _run_histories(settings["traces"], settings["seed"], settings["drawn"])
    by_rules = settings["learner"] == "tied"
    program = universal_turing_machine(*SIZES[settings["learner"]])
    seen = traces(program, settings["traces"], random_state=settings["seed"])
    start = time.perf_counter()
    learned = learn(program.schema, seen, "rules" if by_rules else "coefficients")
    seconds = time.perf_counter() - start
    found = {
        "rows": sum(trace.n_rows for trace in seen),
        # One coefficient each, terms are counted in ten thousands and say nothing.
        "terms": len(learned.terms) if by_rules else None,
        "outcome": learned.outcome.name,
        # By coefficients, "fitted" is said of the traces alone, and claims nothing of others.
        "claimed": learned.succeeded if by_rules else None,
    }
    return [_row(found | judge(learned, by_rules, settings["seed"]), seconds)]


def _run_histories(n_traces: int, seed: int, drawn: int) -> list[Row]:
    """A row for each length of histories: how often tokens, and histories, are wrong."""
    program = universal_turing_machine(*SIZES["histories"])
    seen = traces(program, n_traces, random_state=seed)
    start = time.perf_counter()
    learned = learn_coefficients(program.schema, seen)
    seconds = time.perf_counter() - start
    found = {"rows": sum(trace.n_rows for trace in seen), "outcome": learned.outcome.name}
    return [
        _row(found | measure_histories(program, learned, steps, drawn, [seed, n_traces]), seconds)
        for steps in HISTORY_STEPS
    ]


def _row(found: dict[str, Any], seconds: float) -> Row:
    return {name: found.get(name) for name in COLUMNS} | {"seconds": round(seconds, 1)}
