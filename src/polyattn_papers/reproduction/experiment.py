"""What an experiment is: cells of work, and what their rows say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROFILES = ("smoke", "full")

#: One line of a table: names and plain values (numbers, text, yes or no; None where there is none).
Row = dict[str, Any]

#: All that determines a cell, seeds and sizes included, in plain values.
Settings = dict[str, Any]


@dataclass(frozen=True)
class Gate:
    """A claim that the rows keep or break, with what was seen."""

    claim: str
    passed: bool
    seen: str


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper.

    Attributes
    ----------
    claim, reference
        What the paper says, in our words, and where; the page shows it beside what we found.
    cells : profile -> settings of all cells
        Each cell is run by itself, in any order, kept when it is finished, and never run twice.
    run : settings -> rows
        Deterministic in its settings but for times.  The table prepends the settings to each row;
        all cells have the same names, and so have all rows.
    findings : rows -> sentences
        What came out, with the numbers that the rows hold.
    gates : rows -> gates
        What must hold in either profile.
    draw : rows -> figure
        One picture of all rows.
    needs_torch
        Whether a cell trains a baseline.
    revision
        To be raised when a change of the code makes finished cells worthless.
    """

    name: str
    title: str
    claim: str
    reference: str
    cells: Callable[[str], Sequence[Settings]]
    run: Callable[[Settings], list[Row]]
    findings: Callable[[list[Row]], list[str]]
    gates: Callable[[list[Row]], list[Gate]]
    draw: Callable[[list[Row]], Figure]
    needs_torch: bool = False
    revision: int = 1
