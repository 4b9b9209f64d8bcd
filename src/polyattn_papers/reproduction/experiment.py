"""What an experiment is: cells of work, and what their rows say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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


class CellsModule(Protocol):
    """The module ``cells`` of an experiment: what is run.

    ``cells``: profile -> settings of all cells.  Each cell is run by itself, in any order, kept
    when it is finished, and never run twice.

    ``run``: settings -> rows, deterministic in its settings but for times.  The table prepends the
    settings to each row; all cells have the same names, and so have all rows.
    """

    def cells(self, profile: str) -> Sequence[Settings]: ...
    def run(self, settings: Settings) -> list[Row]: ...


class FindingsModule(Protocol):
    """The module ``findings``: sentences on what came out, with the numbers that the rows hold."""

    def findings(self, rows: list[Row]) -> list[str]: ...


class GatesModule(Protocol):
    """The module ``gates``: what must hold in either profile."""

    def gates(self, rows: list[Row]) -> list[Gate]: ...


class FigureModule(Protocol):
    """The module ``figure``: one picture of all rows."""

    def draw(self, rows: list[Row]) -> Figure: ...


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper; the functions are those of the modules in its folder.

    Attributes
    ----------
    claim, reference
        What the paper says, in our words, and where; the page shows it beside what we found.
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

    @classmethod
    def of(
        cls,
        name: str,
        cells: CellsModule,
        findings: FindingsModule,
        gates: GatesModule,
        figure: FigureModule,
        *,
        title: str,
        claim: str,
        reference: str,
        needs_torch: bool = False,
        revision: int = 1,
    ) -> Experiment:
        """The experiment whose folder holds these four modules; texts may be broken into lines."""
        title, claim, reference = (" ".join(text.split()) for text in (title, claim, reference))
        return cls(
            name, title, claim, reference, cells.cells, cells.run, findings.findings, gates.gates,
            figure.draw, needs_torch, revision,
        )  # fmt: skip
