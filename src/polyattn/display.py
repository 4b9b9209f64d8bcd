"""How things are shown: one description, from which text, JSON, cards and pages are made.

A thing says what it is once, in ``describe``.  ``str``, ``to_dict``, the card of a notebook, the
tables of the command line and the first lines of a page are renderings of that, and have no
knowledge of their own.  Describing computes nothing: no search and no proof starts by it.

Pages lie above everything else, so the methods find ``polyattn.report`` by name when they are
called: the one import that goes up, so that nothing below depends on pages.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from polyattn.outcome import Outcome


@dataclass(frozen=True)
class Description:
    """What a thing is, in the words and figures that are known of it.

    title : what it is, as the heading of a page: "A fitted attention layer"
    about : its sizes, in one line without a full stop
    sentence : what is to be said of it first
    doubts : why it should not be used without reading on; empty where there is no reason
    facts : figures by name, as plain JSON types; names are those of attributes
    lines : what is printed line by line, such as the terms of a program
    """

    title: str
    about: str
    sentence: str
    doubts: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = {label(name): figure(value) for name, value in self.facts.items()}
        width = max(map(len, shown), default=0)
        rows = [f"  {name:<{width}}  {value}" for name, value in shown.items()]
        return "\n".join([f"{self.title}: {self.about}.", self.sentence, *self.doubts, *rows])


def label(name: str) -> str:
    """The name of a fact for people: ``optimal_risk`` is "optimal risk"."""
    return name.replace("_", " ")


def figure(value: Any) -> str:
    """A fact for people: no more digits than one reads."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Carded:
    """A thing that notebooks show as a card; showing it computes nothing."""

    def _repr_html_(self) -> str:
        return str(import_module("polyattn.report.cards").card(self))


class Described(Carded):
    """A thing that describes itself: as text, as plain data, and as a card in a notebook."""

    def describe(self) -> Description:
        """What is known of it; computes nothing."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON types, without arrays."""
        return {"kind": type(self).__name__, **self.describe().facts}

    def __str__(self) -> str:
        return str(self.describe())


class Result(Described):
    """What a call returns: its outcome says what happened."""

    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        """The outcome and the figures as plain JSON types, without arrays."""
        plain = super().to_dict()
        return {"kind": plain.pop("kind"), "outcome": self.outcome.to_dict(), **plain}


class Reported(Carded):
    """A thing with a page of its own, which data make fuller."""

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        Y: Any = None,
        *,
        sample_weight: Any = None,
    ) -> None:
        """Write one self-contained HTML page that shows this.

        Parameters
        ----------
        path : where to write the page; it asks for nothing from anywhere
        X : sequences, as for ``fit``
            With them the page shows the certificate of what keeps no data, and bounds per input.
        Y : their targets, if they are known
            With them the page shows predictions beside them.
        sample_weight : array (N,), one weight per sequence
            With those of a weighted fit the page shows the error that the fit made least.
        """
        write_report = import_module("polyattn.report").write_report
        write_report(self, path, X, Y, sample_weight=sample_weight)


class ReportedProgram(Carded):
    """A program with a page of its own, which a machine and its input make fuller."""

    def report(self, path: str | os.PathLike[str], machine: Any = None, inputs: Any = None) -> None:
        """Write one self-contained HTML page: the program, and a run to click through.

        Parameters
        ----------
        path : where to write the page; it asks for nothing from anywhere
        machine : a machine to run, as for ``run``; a random one unless given
        inputs : its word or tape: numbers of letters, or a text of their names
        """
        import_module("polyattn.report").write_program_report(self, path, machine, inputs)
