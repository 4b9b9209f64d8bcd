"""What every page is made of: its frame, sections of one form, and cards.

A page is one file that asks for nothing from anywhere: a title, a lead, and sections of HTML made
from templates that escape what they are given.  Its content security policy forbids all requests
and allows no script but the one that the page carries, named by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from polyattn._version import __version__
from polyattn.display import Description, figure
from polyattn.files.atomic import write_atomically
from polyattn.quoting import counted
from polyattn.report.figures import NEGATIVE, POSITIVE, PlotAxes, drawing, inline_svg, new_figure
from polyattn.report.page_data import PageData
from polyattn.report.unbroken import unbroken

# A card shows so many lines.
SHOWN_LINES = 12

# A page says at more length what a fact is.
EXPLAINED = {
    "consistent": "outputs are those of the coefficients",
    "distance": "distance of coefficients to the optimum",
    "gap": "gap: risk above the optimal risk",
    "implied_distance": "distance, at most, by the certificate",
    "lambda_max": "largest eigenvalue of Λ",
    "lambda_min": "smallest eigenvalue of Λ",
    "objective_bound": "the objective is at most so much above its minimum",
    "optimal_risk": "optimal risk, with any number of heads",
    "rank": "rank: coefficients that the data determine",
    "relative_distance": "that distance beside the norm of the optimum",
    "risk": "risk on the data, mean ||y − F(X)||² with their weights",
    "rounding": "rounding, at most",
}
LOG_LOSS = {"risk": "risk on the data, mean log-loss with their weights"}


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; ``body`` is HTML that ``fill`` or a figure made."""

    title: str
    body: Markup


@dataclass(frozen=True)
class Page:
    """A page before it is written: ``script`` is the only JavaScript that it will run."""

    title: str
    lead: str
    sections: list[Section]
    script: str = ""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page: complete, or not at all."""
        write_page(path, render_page(self.title, self.lead, self.sections, self.script))


def render_page(
    title: str, lead: str | Markup, sections: Sequence[Section], script: str = ""
) -> str:
    """The HTML of a page; ``script`` is the only JavaScript that it will run."""
    # default-src does not include the last two.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
    return fill(
        "page", title=title, lead=lead, sections=sections, policy=policy, version=__version__,
        script=Markup(script),  # noqa: S704 – ours
    )  # fmt: skip


def write_page(path: str | os.PathLike[str], html: str) -> None:
    """Write a page: complete, or not at all."""
    # Names from files may hold half a character, which UTF-8 has no bytes for.
    content = html.encode(errors="xmlcharrefreplace")
    write_atomically(path, lambda file: file.write(content))


def fill(template: str, /, package: str = "polyattn.report", **content: Any) -> Markup:
    """The template ``templates/NAME.html`` of a package, filled; everything else is escaped."""
    return Markup(_templates(package).get_template(f"{template}.html").render(content))  # noqa: S704 – autoescaped


@cache
def _templates(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {"positive": POSITIVE, "negative": NEGATIVE}
    environment.filters["unbroken"] = unbroken
    environment.filters["short"] = lambda value: unbroken(figure(value, digits=3, unknown="–"))
    return environment


def lead(description: Description, data: PageData | None) -> str:
    """The line under the title: what the page is about, and beside which data."""
    if data is None:
        return description.lead
    lengths = data.batch.lengths
    tokens = (
        counted(int(lengths[0]), "token")
        if data.batch.common_length is not None
        else f"{lengths.min()} to {lengths.max()} tokens"
    )
    return f"{description.lead[:-1]}, beside {counted(len(data.batch), 'sequence')} of {tokens}."


def statement(
    title: str,
    claim: str = "",
    *,
    doubt: bool = False,
    lines: Sequence[str] = (),
    pictures: Sequence[Markup] = (),
    facts: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Section:
    """A section: a claim in a box, sentences, pictures, a table of figures, and notes.

    ``doubt`` marks a claim that is not the one to hope for.  Figures are shown as people read
    them; everything is escaped but the pictures.
    """
    body = fill(
        "statement", claim=claim, doubt=doubt, lines=lines, pictures=pictures, facts=facts or {},
        notes=notes,
    )  # fmt: skip
    return Section(title, body)


def described(
    title: str,
    thing: Any,
    left_out: Sequence[str] = (),
    instead: Mapping[str, Any] | None = None,
    **more: Any,
) -> Section:
    """The section that says what a thing is: its sentence, and its facts but for some."""
    made = thing.describe()
    facts = {name: value for name, value in made.facts.items() if name not in left_out}
    labels = EXPLAINED | (LOG_LOSS if facts.get("loss", "squared") != "squared" else {})
    shown = replace(made, facts=facts).table(labels) | dict(instead or {})
    return statement(title, made.statement, doubt=bool(made.doubts), facts=shown, **more)


def plot(
    draw: Callable[[PlotAxes], None], label: str, caption: str = "", height: float = 3.0
) -> Markup:
    """A figure for a section: as wide as a phone, and no wider than its text stays small.

    ``draw`` draws on its axes, ``height`` is in inches.
    """
    figure = new_figure(4.7, height)
    with drawing():
        draw(figure.add_subplot())
    return Markup('<div class="plot">{}</div>').format(inline_svg(figure, label, caption))


def card(thing: Any) -> Markup:
    """What notebooks show: a heading, a sentence, a few figures, small matrices, lines."""
    description = thing.describe()
    lines = list(description.lines[:SHOWN_LINES])
    if len(description.lines) > SHOWN_LINES:
        lines.append(f"... {len(description.lines) - SHOWN_LINES:,} lines more")
    # How strong the colour behind each entry is.
    matrices = {}
    for name, rows in description.matrices.items():
        largest = max((abs(entry) for row in rows for entry in row), default=0.0) or 1.0
        matrices[name] = [[(entry, 0.75 * abs(entry / largest)) for entry in row] for row in rows]
    return fill(
        "card", kind=type(thing).__name__, description=description, matrices=matrices, lines=lines
    )
