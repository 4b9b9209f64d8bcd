"""What must hold, in either profile."""

from __future__ import annotations

import numpy as np

from polyattn_papers.chen2024.recovery.findings import (
    PHASE_ERRORS,
    carved,
    ends,
    noisy_runs,
    promised,
    to_bound,
)
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import median
from polyattn_papers.tasks.softmax_methods import REFUSED
from polyattn_papers.tasks.softmax_phases import CONFIDENCE
from polyattn_papers.tasks.softmax_truth import no_wrong_claim, worst_error

# The largest error of a head that counts as exact.
EXACT = 1e-9

# How far above the Cramér–Rao bound the mean error of noisy runs may be.
MOST_TO_BOUND = 1.5

# How many standard errors below its confidence the share of bodies that contain all heads may be.
MOST_BELOW = 3.0

# The share of layers on which the phases with the polish must be right.
LEAST_POLISHED = 0.9

# The methods of the learner.
LEARNERS = ("auto", "counted", "moments", "sculpt")


def gates(rows: list[Row]) -> list[Gate]:
    """Exact where examples are enough, honest where they are not, efficient with noise."""
    return [
        _exact(rows, "auto"),
        _exact(rows, "moments"),
        no_wrong_claim(rows),
        _refused_below_the_count(rows),
        _near_the_bound(rows),
        _contained(rows),
        _better_with_more(rows),
        _polished(rows),
    ]


def _exact(rows: list[Row], method: str) -> Gate:
    own = promised(rows, method)
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
    mean, ratios = to_bound(rows)
    return Gate(
        f"with noise: every run claimed, mean error at most {MOST_TO_BOUND:g} times the bound",
        mean <= MOST_TO_BOUND and all(row["claimed"] for row in noisy_runs(rows)),
        f"mean {mean:.2f}, largest {max(ratios, default=np.inf):.2f} of {len(ratios)} runs",
    )


def _contained(rows: list[Row]) -> Gate:
    own = carved(rows)
    inside = sum(row["contained"] for row in own)
    error = np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / max(len(own), 1))
    least = (CONFIDENCE - MOST_BELOW * error) * len(own)
    return Gate(
        f"phases alone: K* contains all heads as often as it says, {CONFIDENCE:.0%}",
        bool(own and inside >= least),
        f"{inside} of {len(own)} runs (at least {least:.0f})",
    )


def _better_with_more(rows: list[Row]) -> Gate:
    few, many = ends(rows)
    changes = {
        name: (median(few, column), median(many, column), falls)
        for column, (name, falls) in PHASE_ERRORS.items()
    }
    better = [name for name, (a, b, falls) in changes.items() if (b < a) == falls and a != b]
    return Gate(
        "phases alone: more examples make every phase better",
        bool(few) and len(better) == len(changes),
        "; ".join(f"{name} {a:.2g} → {b:.2g}" for name, (a, b, _) in changes.items()),
    )


def _polished(rows: list[Row]) -> Gate:
    own = promised(rows, "sculpt")
    right = sum(row["right"] for row in own)
    return Gate(
        f"phases with polish: right on {LEAST_POLISHED:.0%} of the layers with enough examples",
        bool(own) and right >= LEAST_POLISHED * len(own),
        f"{right} of {len(own)} right",
    )
