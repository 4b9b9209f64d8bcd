"""The common form of a section: what is claimed first, then pictures, figures and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from polyattn.report.figures import inline_svg
from polyattn.report.page import Section, fill

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def plot(figure: Figure, label: str, caption: str = "") -> Markup:
    """A figure for a section: as wide as a phone, and no wider than its text stays small."""
    return Markup('<div class="plot">{}</div>').format(inline_svg(figure, label, caption))


def count(number: int, what: str) -> str:
    """A number with its noun: 1 head, 2,176 features."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
