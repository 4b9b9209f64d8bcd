"""A universal Turing machine, learned from traces and run on machines never seen.

[yau2024: Appendix C, Lemma C.5] for the claim; the traces are of random machines of 3 states.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from polyattn.programs import learn, traces, universal_turing_machine
from polyattn.report.figures import OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.reproduction import Experiment, Gate, Row, Settings
from polyattn_papers.yau2024.turing_judging import TRIALS, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# States, letters and cells of the machines that traces are of.
SIZES = {"tied": (3, 3, 9), "untied": (3, 2, 8)}

TIED_TRACES = (10, 20, 40)
N_SEEDS = {"smoke": 1, "full": 8}

# About 18,000 rows and two gigabytes, so one seed.
UNTIED_TRACES = 934

# What the busy beaver of four states does on a blank tape.
BEAVER_STEPS, BEAVER_ONES = 107, 13

# Whether a program is exact, and whether it was called learned.
KINDS = {
    (True, True): ("learned, exact", OURS),
    (True, False): ("exact, not claimed", THIRD),
    (False, False): ("not exact, not claimed", SOFT),
    (False, True): ("claimed, but wrong", OTHER),
}


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


def findings(rows: list[Row]) -> list[str]:
    """How often it was learned, what it runs, and what one coefficient each takes."""
    tied = _of(rows, "tied")
    said = []
    for n_traces in sorted({row["traces"] for row in tied}):
        some = [row for row in tied if row["traces"] == n_traces]
        said.append(
            f"From {n_traces} traces ({_span(some, 'rows')} predicted tokens) tied "
            f"learning is exact in {sum(row['exact'] for row in some)} of {len(some)} tries, and "
            f"says so in {sum(row['claimed'] for row in some)}."
        )
    best = [row for row in tied if row["exact"]]
    if best:
        said.append(
            f"An exact program has {_span(best, 'terms')} terms and runs "
            f"{best[0]['fresh_machines']} random machines of sizes never seen, the busy beavers "
            "of 2 to 4 states to their halt, 3000 steps of that of 5 states on 128 cells, "
            "increment, addition and palindromes."
        )
    said += [_untied_sentence(row) for row in _of(rows, "untied")]
    return said


def gates(rows: list[Row]) -> list[Gate]:
    """From most traces always exact; never a wrong claim; the busy beaver halts where it must."""
    tied = _of(rows, "tied")
    most = [row for row in tied if row["traces"] == TIED_TRACES[-1]]
    exact = sum(row["exact"] and row["claimed"] for row in most)
    wrong = sum(row["claimed"] and not row["exact"] for row in tied)
    beavers = {(row["beaver_4_steps"], row["beaver_4_ones"]) for row in most}
    ran = ", ".join(f"{steps} steps, {ones} ones" for steps, ones in sorted(beavers, key=str))
    found = [
        Gate(
            f"from {TIED_TRACES[-1]} traces every seed is learned and exact on all machines",
            bool(most) and exact == len(most),
            f"{exact} of {len(most)} seeds",
        ),
        Gate(
            "what is called learned is exact, whatever the number of traces",
            bool(tied) and wrong == 0,
            f"{wrong} wrong claims of {sum(row['claimed'] for row in tied)}",
        ),
        Gate(
            f"the busy beaver of 4 states runs {BEAVER_STEPS} steps and leaves {BEAVER_ONES} ones",
            beavers == {(BEAVER_STEPS, BEAVER_ONES)},
            ran or "not run",
        ),
    ]
    return found + [_untied_gate(row) for row in _of(rows, "untied")]


def draw(rows: list[Row]) -> Figure:
    """What became of all tries, and the share of fresh machines that each of them runs."""
    tied = _of(rows, "tied")
    numbers = sorted({row["traces"] for row in tied})
    figure = new_figure(7.2, 3.0)
    tries, shares = figure.subplots(1, 2)
    below = [0] * len(numbers)
    for kind, (label, colour) in KINDS.items():
        counts = Counter(r["traces"] for r in tied if (r["exact"], r["claimed"]) == kind)
        heights = [counts[number] for number in numbers]
        tries.bar(
            [str(number) for number in numbers], heights, 0.6, below, color=colour, label=label
        )
        below = [low + height for low, height in zip(below, heights, strict=True)]
    tries.set(xlabel="traces", ylabel="tries")
    tries.yaxis.get_major_locator().set_params(integer=True)
    colours = [KINDS[row["exact"], row["claimed"]][1] for row in tied]
    right = [100 * row["fresh_right"] / row["fresh_machines"] for row in tied]
    shares.scatter([row["rows"] for row in tied], right, c=colours, s=24, clip_on=False, zorder=3)
    shares.set(xlabel="predicted tokens in the traces", ylabel="fresh machines run exactly, %")
    shares.set(ylim=(0, 100), xlim=(0, None))
    figure.legend(*tries.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return figure


def _untied_gate(row: Row) -> Gate:
    return Gate(
        f"one coefficient each, {row['rows']:,} rows: the busy beaver of 3 states runs exactly",
        row["beaver_3"] is True,
        f"{row['fresh_right']} of {row['fresh_machines']} fresh machines, {_known(row)}",
    )


def _untied_sentence(row: Row) -> str:
    return (
        f"One coefficient each, {row['traces']} traces ({row['rows']:,} predicted tokens) of "
        f"machines with 3 states, 2 letters and 8 cells: {row['fresh_right']} of "
        f"{row['fresh_machines']} fresh machines of that size run exactly; {_known(row)}."
    )


def _known(row: Row) -> str:
    """Which of the known machines that fit run exactly."""
    tried = {name: row[name] for name in TRIALS if row[name] is not None}
    wrong = [name for name, right in tried.items() if not right]
    return f"{len(tried) - len(wrong)} of {len(tried)} known machines" + (
        f" (not {', '.join(wrong)})" if wrong else ""
    )


def _span(rows: list[Row], name: str) -> str:
    values = {row[name] for row in rows}
    return f"{min(values)} to {max(values)}" if len(values) > 1 else str(*values)


def _of(rows: list[Row], learner: str) -> list[Row]:
    return [row for row in rows if row["learner"] == learner]


EXPERIMENT = Experiment(
    name="yau2024-utm",
    title="A universal Turing machine, learned from runs",
    claim=(
        "Linear attention that writes one token after the other can run any Turing machine for a "
        "bounded time on a bounded tape, and enough runs determine it: it can be learned from "
        "them in polynomial time."
    ),
    reference="Yau et al. (arXiv 2410.10101), Appendix C, Lemma C.5.",
    cells=cells,
    run=run,
    findings=findings,
    gates=gates,
    draw=draw,
)
