"""How things are shown: one description, from which text, JSON, cards and pages are made.

A thing says what it is once, in ``describe``.  ``str``, ``to_dict``, the card of a notebook, the
tables of the command line and the first lines of a page are renderings of that, and have no
knowledge of their own.  Describing computes nothing: no search and no proof starts by it.

Pages lie above everything else, so the methods find ``polyattn.report`` by name when they are
called: the one import that goes up, so that nothing below depends on pages.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.outcome import Outcome

# Columns of text; longer sentences are broken into lines.
COLUMNS = 98

# Rows of a small table.
SHOWN_ROWS = 16

# Matrices up to this size are shown number by number.
SHOWN_DIMS, SHOWN_HEADS = 8, 4

# Facts whose attributes are not named as people would; of others ``n_`` is left out.
LABELS = {
    "accuracy": "accuracy on the training data",
    "baseline_risk": "risk of predicting the mean",
    "condition": "condition number",
    "data_sizes": "data",
    "dimension": "features of the domain",
    "heads": "search for heads",
    "implied_distance": "distance, at most",
    "lambda_max": "largest eigenvalue",
    "lambda_min": "smallest eigenvalue",
    "majority_share": "accuracy of one class for all",
    "max_length": "longest sequence",
    "n_dims": "coordinates",
    "n_held_out": "sequences held out",
    "n_queries": "sequences asked for",
    "n_rows": "predicted positions",
    "n_test": "sequences to test on",
    "n_training": "sequences of training",
    "n_undecided": "undecided rows",
    "optimal_norm": "norm of the optimum",
    "r2": "share explained (r2)",
    "rank_at_most": "rank, at most",
    "target_power": "risk of predicting zero",
    "verdict_on_real_inputs": "on all real inputs",
}


@dataclass(frozen=True)
class Description:
    """What a thing is, in the words and figures that are known of it.

    title : what it is, as the heading of a page: "A fitted attention layer"
    about : its sizes, in one line without a full stop
    sentence : what is to be said of it first; empty where the sizes say it
    doubts : why it should not be used without reading on; empty where there is no reason
    facts : figures by name, as plain JSON types; names are those of attributes
    lines : what is printed line by line, such as the terms of a program
    sizes : the figures that ``about`` says in words: in JSON only
    matrices : small ones by name, which cards and the command line show number by number
    outcome : the name of the outcome, if there is one
    labels : what tables call facts that mean something else here than elsewhere
    """

    title: str
    about: str
    sentence: str = ""
    doubts: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    sizes: dict[str, Any] = field(default_factory=dict)
    matrices: dict[str, list[list[float]]] = field(default_factory=dict)
    outcome: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def statement(self) -> str:
        """The sentence, and what it leaves unsaid of the doubts."""
        doubts = (doubt for doubt in self.doubts if doubt not in self.sentence)
        return " ".join((self.sentence, *doubts)).strip()

    @property
    def lead(self) -> str:
        """What it is about, as a sentence."""
        return f"{self.about[:1].upper()}{self.about[1:]}."

    def table(self, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The facts for people, by their ``labels``; what has parts of its own is left out."""
        words = LABELS | dict(labels or {}) | self.labels
        facts = {"outcome": self.outcome} if self.outcome else {}
        return facts | {
            words.get(name, name.removeprefix("n_").replace("_", " ")): value
            for name, value in self.facts.items()
            if not isinstance(value, dict | list | tuple)
        }

    def __str__(self) -> str:
        names = self.table()
        width = max(map(len, names), default=0)
        lines = _wrapped(self.statement) + _wrapped(self.lead)
        for name, value in names.items():
            first, *more = _wrapped(figure(value), COLUMNS - width - 4) or [""]
            lines += [f"  {name:<{width}}  {first}", *(f"{'':{width + 4}}{part}" for part in more)]
        return "\n".join(lines)


def _wrapped(text: str, columns: int = COLUMNS) -> list[str]:
    """Lines of a text; numbers such as 1e-15 stay whole."""
    return wrap(text, columns, break_on_hyphens=False)


def figure(value: Any, digits: int = 4, unknown: str = "unknown") -> str:
    """A fact for people: no more digits than one reads, powers of ten where they are needed."""
    if value is None:
        return unknown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def table_lines(columns: tuple[str, ...], rows: Iterable[Sequence[Any]]) -> tuple[str, ...]:
    """A small table as lines of text, numbers as people read them; of many rows the first ones.

    >>> table_lines(("head", "size"), [(0, 1.25), (1, 0.5)])
    ('head  size', '0     1.25', '1     0.5')
    """
    every = [[figure(each, unknown="–") for each in row] for row in rows]
    shown = [list(columns), *every[:SHOWN_ROWS]]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = [
        "  ".join(f"{each:<{width}}" for each, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]
    more = len(every) - SHOWN_ROWS
    return (*lines, f"... and {more:,} more") if more > 0 else tuple(lines)


def head_matrices(attn: NDArray, value: NDArray) -> dict[str, list[list[float]]]:
    """The matrices of each head by name, or nothing where they are too large to be looked at."""
    if len(attn) > SHOWN_HEADS or max(*attn.shape[1:], *value.shape[1:]) > SHOWN_DIMS:
        return {}
    return {
        f"{name} of head {h + 1}": matrices[h].tolist()
        for h in range(len(attn))
        for name, matrices in (("attn", attn), ("value", value))
    }


def plain(value: Any) -> Any:
    """Numbers, lists and mappings as JSON has them: no numpy, and null for what is not finite."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


class Carded:
    """A thing that notebooks show as a card; showing it computes nothing."""

    def _repr_html_(self) -> str:
        return str(import_module("polyattn.report.page").card(self))


class Described(Carded):
    """A thing that describes itself: as text, as plain data, and as a card in a notebook."""

    def describe(self) -> Description:
        """What is known of it; computes nothing."""
        raise NotImplementedError

    def arrays(self) -> dict[str, NDArray]:
        """The arrays that are known and that ``to_dict`` leaves out."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain JSON types, without arrays; null where one is not finite."""
        described = self.describe()
        kind = getattr(self, "kind", type(self).__name__)
        return {"kind": kind, **plain(described.facts | described.sizes)}

    def to_full_dict(self) -> dict[str, Any]:
        """The same with arrays as lists: what ``polyattn show --json`` prints."""
        return self.to_dict() | plain(self.arrays())

    def __str__(self) -> str:
        return str(self.describe())


class Tabled(Described):
    """A thing whose text ends with the ``lines`` of its description: a small table."""

    def __str__(self) -> str:
        described = self.describe()
        return "\n".join([str(described), *(f"  {line}" for line in described.lines)])


class Result(Described):
    """What a call returns: its outcome says what happened."""

    if TYPE_CHECKING:

        @property
        def outcome(self) -> Outcome[Any]:
            """What happened, by name and in words."""

    @property
    def sentence(self) -> str:
        """The outcome in words: ``str(result.outcome)``."""
        return str(self.outcome)

    def to_dict(self) -> dict[str, Any]:
        """The outcome and the figures as plain JSON types, without arrays."""
        content = super().to_dict()
        return {"kind": content.pop("kind"), "outcome": self.outcome.to_dict(), **content}

    def _described(self, title: str, about: str, facts: dict[str, Any], **more: Any) -> Description:
        """The description of a result: what its outcome advises is a doubt unless all is well."""
        outcome = self.outcome
        more["outcome"] = outcome.name
        if outcome.ok:
            return Description(title, about, str(outcome), facts=facts, **more)
        doubts = (outcome.next_step or "Read the sentence before you use it.",)
        return Description(title, about, outcome.sentence, doubts, facts, **more)


class Plotted:
    """A thing that can be drawn; ``polyattn.report`` lies above it and is found by name."""

    def plot(
        self,
        *,
        ax: Any = None,
        coordinate_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> Any:
        """Draw what matters most and return the figure of matplotlib.

        Heads are maps of colours, largest first and at most 16; a certificate is its spectrum, a
        learning curve the curve.  The figure is not known to pyplot: save it by
        ``figure.savefig``; notebooks show it by themselves.

        Parameters
        ----------
        ax : Axes, or as many of them as there are panels (an error says which they are)
            Where to draw, instead of a new figure.
        coordinate_names, output_names : as in ``report``
        """
        return import_module("polyattn.report").make_plot(
            self, ax=ax, coordinate_names=coordinate_names, output_names=output_names
        )


class Reported(Plotted, Carded):
    """A thing with a page of its own, which data make fuller."""

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        Y: Any = None,
        *,
        sample_weight: Any = None,
        context: Any = None,
        coordinate_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
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
        context : what the sequences of X attend to, one for each of them, where these are others
        coordinate_names, output_names : texts, one for each coordinate of a token and each output
            What they are called on the page; otherwise they are numbered from 0.
        """
        import_module("polyattn.report").write_report(
            self, path, X, Y, sample_weight=sample_weight, context=context,
            coordinate_names=coordinate_names, output_names=output_names,
        )  # fmt: skip


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
