"""What learners needed at each size, and how that grows along states, letters and length."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import where
from polyattn_papers.tasks.automata import Sizes
from polyattn_papers.yau2024.universal_automaton.cells import BASE

#: Columns of a size, and what the paper calls them.
PLACES = {"n_states": "Q", "n_letters": "V", "length": "L"}

#: Needs along one of the sizes, the others being BASE: (size, need), sorted.
Line = list[tuple[int, float]]

# Fewer sizes than this bend no curve.
ENOUGH_SIZES = 4

# A law is told from another if it fits so many times better.
BETTER = 2.0


def sizes_of(row: Row) -> Sizes:
    """States, letters and length of a row."""
    return row["n_states"], row["n_letters"], row["length"]


def needed_by(rows: list[Row], learner: str, name: str = "rows") -> dict[Sizes, float]:
    """The median over seeds of what a learner needed, at the sizes where it got there."""
    seen: dict[Sizes, list[int]] = {}
    for row in where(rows, learner=learner):
        if row[name] is not None:
            seen.setdefault(sizes_of(row), []).append(row[name])
    return {sizes: median(values) for sizes, values in seen.items()}


def along(needed: dict[Sizes, float], varied: str) -> Line:
    """The needs at the sizes of which only ``varied`` (a column) may differ from BASE."""
    at = list(PLACES).index(varied)
    same = [sizes for sizes in needed if {*sizes[:at], *sizes[at + 1 :]} == {BASE}]
    return sorted((sizes[at], needed[sizes]) for sizes in same)


@dataclass(frozen=True)
class SizeGrowth:
    """Needs against a size: a power law and an exponential, each fitted to logarithms.

    ``power_error`` and ``exponential_error`` are root mean squares of what is left of log(need).
    """

    line: Line
    exponent: float
    power_error: float
    exponential_error: float

    @property
    def is_power(self) -> bool:
        """Whether a power fits clearly better than an exponential."""
        return BETTER * self.power_error <= self.exponential_error

    @classmethod
    def of(cls, line: Line) -> SizeGrowth:
        """Two least-squares lines: log need against log size, and against size."""
        sizes, needs = np.array(line, dtype=float).T
        exponent, power_error = _slope(np.log(sizes), np.log(needs))
        return cls(line, exponent, power_error, _slope(sizes, np.log(needs))[1])


def growths(rows: list[Row], learner: str) -> dict[str, SizeGrowth]:
    """How letters grow along Q, V, L, where enough sizes were reached."""
    needed = needed_by(rows, learner, "letters")
    lines = {name: along(needed, varied) for varied, name in PLACES.items()}
    return {name: SizeGrowth.of(line) for name, line in lines.items() if len(line) >= ENOUGH_SIZES}


def span(needed: list[int]) -> str:
    """From the least to the most."""
    least, most = min(needed), max(needed)
    return f"{least:,} to {most:,}" if most > least else f"{least:,}"


def _slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The slope of the least-squares line, and the root mean square of its residuals."""
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(np.sqrt(np.mean((y - slope * x - intercept) ** 2)))
