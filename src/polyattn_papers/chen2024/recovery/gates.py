"""What must hold, in either profile."""

from __future__ import annotations

import numpy as np

from polyattn_papers.chen2024.recovery.findings import noisy_runs, promised, to_bound
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.tasks.softmax_methods import REFUSED
from polyattn_papers.tasks.softmax_truth import no_wrong_claim, worst_error

# The largest error of a head that counts as exact.
EXACT = 1e-9

# How far above the Cramér–Rao bound the mean error of noisy runs may be.
MOST_TO_BOUND = 1.5

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
