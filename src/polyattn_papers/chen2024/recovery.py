"""chen2024-recovery: heads of random softmax layers from random examples, against every size.

One cell is one planted layer.  The learner (with its number of heads told, and counted), its two
roads by themselves, the same descent from random starts in the learner's time, and Adam.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from polyattn.data import planted_softmax
from polyattn_papers.chen2024.attempts import (
    REFUSED,
    Attempt,
    by_adam,
    by_learner,
    by_random_starts,
)
from polyattn_papers.chen2024.recovery_figure import draw
from polyattn_papers.chen2024.recovery_sizes import BASE, MANY, along
from polyattn_papers.chen2024.scoring import Truth, median, no_wrong_claim, worst_error
from polyattn_papers.reproduction import Experiment, Gate, Row, Settings

# Sculpting solves programmes over d^2 unknowns for every row; above this it takes minutes.
MOST_SCULPTED_DIMS = 16

# Seconds that a run of the learner may take, far more than any needs on a quiet machine.
MOST_SECONDS = 240.0

# With this many target numbers for each unknown, examples are enough for every random layer.
ENOUGH, EXACT = 3.0, 1e-9

# Seeds of this experiment alone: nothing was tuned on them.
FIRST_SEED = 3000

# How far above the Cramér–Rao bound the mean error of noisy runs may be.
MOST_TO_BOUND = 1.5

LEARNERS = ("auto", "counted", "moments", "sculpt")


def cells(profile: str) -> list[Settings]:
    """Sweeps of one size at a time around ``BASE``, and of noise for one to three heads."""
    sizes: dict[str, tuple[Any, ...]]
    if profile == "smoke":
        counts: tuple[int, ...] = (6, 16, 24, 50, 200)
        sizes = {"n_heads": (1, 3), "n_dims": (4, 12), "n_tokens": (2, 8)}
        seeds, more_seeds, noisy, adam_seconds = 1, 1, product((1e-2, 1e-1), (2,)), 0.5
    else:
        counts = (6, 10, 16, 20, 24, 32, 50, 100, 200, 600, 2000)
        sizes = {
            "n_heads": (1, 3, 4, 6, 8), "n_dims": (4, 6, 12, 16, 24), "n_tokens": (2, 3, 6, 8, 16),
            "logits": (0.5, 2.0, 4.0), "tokens": ("gaussian",),
        }  # fmt: skip
        seeds, more_seeds, noisy, adam_seconds = 3, 5, product((1e-3, 1e-2, 1e-1), (1, 2, 3)), 2.0
    changes = [{name: value} for name, values in sizes.items() for value in values]
    changes += [{"n_sequences": MANY, "noise": noise, "n_heads": m} for noise, m in noisy]
    planned = [(change, seeds) for change in changes]
    planned += [({"n_sequences": count}, more_seeds) for count in counts]
    return [
        BASE | change | {"seed": seed, "adam_seconds": adam_seconds}
        for change, n_seeds in planned
        for seed in range(FIRST_SEED, FIRST_SEED + n_seeds)
    ]


def run(settings: Settings) -> list[Row]:
    """All sides on one planted layer."""
    n_heads, seed, adam_seconds = (settings[key] for key in ("n_heads", "seed", "adam_seconds"))
    task = planted_softmax(
        settings["n_sequences"], settings["n_tokens"], settings["n_dims"], n_heads=n_heads,
        logits=settings["logits"], distribution=settings["tokens"], noise=settings["noise"],
        random_state=seed,
    )  # fmt: skip
    truth = Truth.of(task, seed, settings["tokens"])
    sides = {"auto": by_learner(task, n_heads, max_seconds=MOST_SECONDS)}
    if not task.noise:
        sides["counted"] = by_learner(task, None, max_seconds=MOST_SECONDS)
        sides["moments"] = by_learner(task, n_heads, "moments", MOST_SECONDS)
    if settings["n_dims"] <= MOST_SCULPTED_DIMS:
        sides["sculpt"] = by_learner(task, n_heads, "sculpt", MOST_SECONDS)
    seconds = _time_of_control(sides["auto"], adam_seconds)
    sides["control"] = by_random_starts(task, n_heads, seconds, seed, truth.solved)
    sides["adam"] = by_adam(task, n_heads, adam_seconds, seed)
    per_unknown = np.size(task.Y) / (task.layer.attn.size + task.layer.value.size)
    return [
        {"numbers_per_unknown": per_unknown} | truth.row(method, attempt)
        for method, attempt in sides.items()
    ]


def findings(rows: list[Row]) -> list[str]:
    """What the rows say about examples, time, chance and noise."""
    exact = [row for row in rows if row["method"] == "auto" and _generic(row)]
    worst, longest = (max(map(of, exact)) for of in (worst_error, lambda row: row["seconds"]))
    sentences = [
        (
            f"With {ENOUGH:g} target numbers for each unknown or more, "
            f"{sum(row['right'] for row in exact)} of {len(exact)} random layers come back: the "
            f"largest relative error of a head is {worst:.1e}, the time "
            f"{median(exact, 'seconds'):.2g} s in the middle and {longest:.2g} s at most."
        ),
        _first_enough(rows),
    ]
    for method, name in (("sculpt", "the six phases of the paper"), ("counted", "heads counted")):
        own = [row for row in rows if row["method"] == method and _generic(row)]
        right = sum(row["right"] for row in own)
        sentences.append(
            f"On the same layers, {name}: {right} of {len(own)} right, "
            f"{median(own, 'seconds'):.2g} s in the middle."
        )
    control = [row for row in rows if row["method"] == "control" and _generic(row)]
    adam = [row for row in rows if row["method"] == "adam" and _generic(row)]
    starts, solved = (sum(row[key] for row in control) for key in ("n_starts", "n_solved"))
    sentences.append(
        f"Chance on the same layers: in the learner's time {solved} of {starts} random starts of "
        f"the same descent end at the planted function. Adam's error there is "
        f"{median(adam, 'function_error'):.1e} in the middle after {adam[0]['adam_seconds']:g} s."
    )
    mean, ratios = _to_bound(rows)
    sentences.append(
        f"With noise, the error of attn is {mean:.2f} times its Cramér–Rao bound in the "
        f"mean of {len(ratios)} runs."
    )
    return sentences


def gates(rows: list[Row]) -> list[Gate]:
    """Exact where examples are enough, honest where they are not, efficient with noise."""
    return [
        _exact(rows, "auto"),
        _exact(rows, "moments"),
        no_wrong_claim(rows),
        _refused_below_the_count(rows),
        _near_the_bound(rows),
    ]


def _time_of_control(auto: Attempt, otherwise: float) -> float:
    """As long as the learner took; where it refused to begin, as long as Adam."""
    return otherwise if auto.outcome == REFUSED else auto.seconds


def _generic(row: Row) -> bool:
    """Whether exact recovery is promised: no noise, and enough examples."""
    return not row["noise"] and row["numbers_per_unknown"] >= ENOUGH


def _exact(rows: list[Row], method: str) -> Gate:
    own = [row for row in rows if row["method"] == method and _generic(row)]
    worst = max((worst_error(row) for row in own), default=np.inf)
    claimed = sum(row["claimed"] for row in own)
    return Gate(
        f"{method}: exact and claimed on every noise-free layer with enough examples",
        worst <= EXACT and claimed == len(own),
        f"{claimed} of {len(own)} claimed, largest error {worst:.1e} (at most {EXACT:.0e})",
    )


def _refused_below_the_count(rows: list[Row]) -> Gate:
    few = [row for row in rows if row["method"] in LEARNERS and row["numbers_per_unknown"] < 1.0]
    said = sum(row["outcome"] == REFUSED and not row["claimed"] for row in few)
    return Gate(
        "fewer target numbers than unknowns: the learner refuses and claims nothing",
        bool(few) and said == len(few),
        f"{said} of {len(few)} runs refused",
    )


def _near_the_bound(rows: list[Row]) -> Gate:
    mean, ratios = _to_bound(rows)
    return Gate(
        f"with noise: every run claimed, mean error at most {MOST_TO_BOUND:g} times the bound",
        mean <= MOST_TO_BOUND and all(row["claimed"] for row in _noisy(rows)),
        f"mean {mean:.2f}, largest {max(ratios, default=np.inf):.2f} of {len(ratios)} runs",
    )


def _noisy(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["method"] == "auto" and row["noise"]]


def _to_bound(rows: list[Row]) -> tuple[float, list[float]]:
    """The mean error over its bound, infinite where no run has one, and that of every run."""
    ratios = [row["to_bound"] for row in _noisy(rows) if row["to_bound"] is not None]
    return (float(np.mean(ratios)) if ratios else np.inf), ratios


def _first_enough(rows: list[Row]) -> str:
    """From which number of examples on every seed succeeds, for the layers of ``BASE``."""
    swept = [row for row in along(rows, "n_sequences") if row["method"] == "auto"]
    counts = sorted({row["n_sequences"] for row in swept})
    failed = [row for row in swept if not row["claimed"]]
    first = min((n for n in counts if all(row["n_sequences"] < n for row in failed)), default=None)
    unknowns = round(swept[0]["n_sequences"] / swept[0]["numbers_per_unknown"])
    outcomes = ", ".join(sorted({row["outcome"] for row in failed})) or "nothing"
    enough = "No number here is" if first is None else f"{first} examples are"
    return (
        f"Two heads of {BASE['n_dims']} coordinates have as many unknowns as {unknowns} examples "
        f"have target numbers. {enough} enough; of what is not recovered with fewer, the learner "
        f"says: {outcomes}."
    )


EXPERIMENT = Experiment(
    name="chen2024-recovery",
    title="Softmax heads from random examples",
    claim=(
        "The attention and value matrices of a softmax layer of m heads can be learned from "
        "uniformly random Boolean examples, up to the order of heads, in time (dk)^O(m^3) for d "
        "coordinates and k tokens, if the heads are not degenerate. This is a theorem; here its "
        "road is run beside faster ones, beside chance and beside Adam."
    ),
    reference="Chen and Li (arXiv 2402.04084), the main theorem.",
    cells=cells,
    run=run,
    findings=findings,
    gates=gates,
    draw=draw,
    needs_torch=True,
)
