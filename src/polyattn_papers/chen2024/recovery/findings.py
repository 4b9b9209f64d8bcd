"""What came out, in sentences: examples, time, chance and noise."""

from __future__ import annotations

import numpy as np

from polyattn_papers.chen2024.recovery.cells import BASE, along
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median, where
from polyattn_papers.tasks.softmax_truth import worst_error

# With this many target numbers for each unknown, examples are enough for every random layer.
ENOUGH = 3.0


def findings(rows: list[Row]) -> list[str]:
    """What the rows say about examples, time, chance and noise."""
    exact = promised(rows, "auto")
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
        own = promised(rows, method)
        right = sum(row["right"] for row in own)
        sentences.append(
            f"On the same layers, {name}: {right} of {len(own)} right, "
            f"{median(own, 'seconds'):.2g} s in the middle."
        )
    control, adam = promised(rows, "control"), promised(rows, "adam")
    starts, solved = (sum(row[key] for row in control) for key in ("n_starts", "n_solved"))
    sentences.append(
        f"Chance on the same layers: in the learner's time {solved} of {starts} random starts of "
        f"the same descent end at the planted function. Adam's error there is "
        f"{median(adam, 'function_error'):.1e} in the middle after {adam[0]['adam_seconds']:g} s."
    )
    mean, ratios = to_bound(rows)
    sentences.append(
        f"With noise, the error of attn is {mean:.2f} times its Cramér–Rao bound in the "
        f"mean of {len(ratios)} runs."
    )
    return sentences


def promised(rows: list[Row], method: str) -> list[Row]:
    """The runs of a method where exact recovery is promised: no noise, and enough examples."""
    exact = where(rows, method=method, noise=0.0)
    return [row for row in exact if row["numbers_per_unknown"] >= ENOUGH]


def noisy_runs(rows: list[Row]) -> list[Row]:
    """The runs of the learner on noisy targets."""
    return [row for row in where(rows, method="auto") if row["noise"]]


def to_bound(rows: list[Row]) -> tuple[float, list[float]]:
    """The mean error over its bound, infinite where no run has one, and that of every run."""
    ratios = [row["to_bound"] for row in noisy_runs(rows) if row["to_bound"] is not None]
    return (float(np.mean(ratios)) if ratios else np.inf), ratios


def _first_enough(rows: list[Row]) -> str:
    """From which number of examples on every seed succeeds, for the layers of ``BASE``."""
    swept = where(along(rows, "n_sequences"), method="auto")
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
