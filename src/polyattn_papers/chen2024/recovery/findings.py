"""What came out, in sentences: examples, time, chance and noise."""

from __future__ import annotations

import numpy as np

from polyattn_papers.chen2024.recovery.cells import BASE, along
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median, where
from polyattn_papers.tasks.softmax_phases import CONFIDENCE
from polyattn_papers.tasks.softmax_truth import worst_error

# What was run of the paper's method, each under its own name.
PHASES = {
    "phases": "the six phases of the paper alone, without polish",
    "sculpt": "the six phases and then the learner's polish from where they end",
}

# What is measured of the phases: in words, and whether it is to fall.
PHASE_ERRORS = {
    "crude_sum": ("crude sum off by", True),
    "last_sum": ("last sum off by", True),
    "hull_distance": ("distance from the hull", True),
    "body_width": ("width of K*", True),
    "span_cosine": ("cosine to the span", False),
    "heads_error": ("heads off by", True),
}

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
    for method, name in (("counted", "heads counted"), *PHASES.items()):
        own = promised(rows, method)
        right = sum(row["right"] for row in own)
        sentences.append(
            f"On the same layers, {name}: {right} of {len(own)} right, the error of a head "
            f"{median(own, 'attn_error'):.1e} and the time {median(own, 'seconds'):.2g} s in the "
            "middle."
        )
    sentences += _by_phase(rows)
    control, adam = promised(rows, "control"), promised(rows, "adam")
    starts, solved = (sum(row[key] for row in control) for key in ("n_starts", "n_solved"))
    sentences.append(
        f"Chance on the same layers: in the learner's time {solved} of {starts} random starts of "
        f"that polish end at the planted function. Adam's error there is "
        f"{median(adam, 'function_error'):.1e} in the middle after {adam[0]['adam_seconds']:g} s."
    )
    mean, ratios = to_bound(rows)
    sentences.append(
        f"With noise, the error of attn is {mean:.2f} times its Cramér–Rao bound in the "
        f"mean of {len(ratios)} runs."
    )
    return sentences


def _by_phase(rows: list[Row]) -> list[str]:
    """What each phase alone comes to, and what more examples make of it."""
    own = carved(rows)
    several = [row for row in promised(rows, "phases") if row["n_heads"] > 1]
    contained, one_hot, certified = (
        sum(row[name] for row in own) for name in ("contained", "one_hot", "certified")
    )
    sentences = [
        (
            "Phase by phase, without polish, where K* is bounded: it contains all heads in "
            f"{contained} of {len(own)} runs (calibrated to {CONFIDENCE:.0%}), phase 3 rests on "
            f"one-hot rows in {one_hot}, and the heads of phase 6 lie in K* in {certified}. Of "
            f"layers of several heads {sum(row['right'] for row in several)} of {len(several)} "
            "are right."
        )
    ]
    few, many = ends(rows)
    if few and many:
        said = ", ".join(
            f"{name} {median(few, column):.2g} → {median(many, column):.2g}"
            for column, (name, _) in PHASE_ERRORS.items()
        )
        sentences.append(
            f"From {few[0]['n_sequences']} to {many[0]['n_sequences']} examples of two heads the "
            f"phases alone come from → to, in the middle: {said}."
        )
    return sentences


def carved(rows: list[Row]) -> list[Row]:
    """The runs of the phases alone in which certified rows bound K*.

    With as many tokens as outputs there are none, and K*, which is then everything, contains the
    heads for nothing.
    """
    return [row for row in promised(rows, "phases") if row["body_width"] is not None]


def ends(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The phases alone on layers of ``BASE`` with the fewest and the most examples, if they differ.

    Fewest of those that are enough.
    """
    swept = promised(along(rows, "n_sequences"), "phases")
    counts = sorted({row["n_sequences"] for row in swept})
    if len(counts) < 2:
        return [], []
    return where(swept, n_sequences=counts[0]), where(swept, n_sequences=counts[-1])


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
