"""How things are shown: as a page on request, and as a card in a notebook.

What a thing looks like is not its own business.  Layers, results, certificates and programs take
these methods from here, and the methods find ``polyattn.report`` when they are called: the one
import that goes up the house, by name, so that nothing below depends on pages.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


class Carded:
    """A thing that notebooks show as a card; showing it computes nothing."""

    def _repr_html_(self) -> str:
        return str(import_module("polyattn.report.cards").card(self))


class Shown(Carded):
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


class ShownProgram(Carded):
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
