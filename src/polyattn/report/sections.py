"""Parts that all pages share: the line under the title, sections of one form, cards.

All of them are made from descriptions; nothing is computed for a card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from polyattn.display import Description
from polyattn.quoting import counted
from polyattn.report.figures import inline_svg
from polyattn.report.page import Section, fill
from polyattn.report.page_data import PageData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A card shows so many lines.
SHOWN_LINES = 12

# A page says at more length what a fact is.
EXPLAINED = {
    "consistent": "outputs are those of the coefficients",
    "distance": "distance of coefficients to the optimum",
    "gap": "gap: risk above the least",
    "implied_distance": "distance, at most, by the certificate",
    "lambda_max": "largest eigenvalue of Λ",
    "lambda_min": "smallest eigenvalue of Λ",
    "optimal_risk": "least risk with any number of heads",
    "rank": "rank: coefficients that the data determine",
    "relative_distance": "that distance beside the norm of the optimum",
    "risk": "risk on the data, mean ||y − F(X)||² with their weights",
    "rounding": "rounding, at most",
}


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
    shown = replace(made, facts=facts).table(EXPLAINED) | dict(instead or {})
    return statement(title, made.statement, doubt=bool(made.doubts), facts=shown, **more)


def plot(figure: Figure, label: str, caption: str = "") -> Markup:
    """A figure for a section: as wide as a phone, and no wider than its text stays small."""
    return Markup('<div class="plot">{}</div>').format(inline_svg(figure, label, caption))


def card(thing: Any) -> Markup:
    """What notebooks show: a heading, a sentence, a few figures, small matrices, lines."""
    description = thing.describe()
    lines = list(description.lines[:SHOWN_LINES])
    if len(description.lines) > SHOWN_LINES:
        lines.append(f"... {len(description.lines) - SHOWN_LINES:,} lines more")
    matrices = {name: _coloured(rows) for name, rows in description.matrices.items()}
    return fill(
        "card", kind=type(thing).__name__, description=description, matrices=matrices, lines=lines
    )


def _coloured(matrix: list[list[float]]) -> list[list[tuple[float, str]]]:
    """Entries with a colour behind them: warm if positive, cool if negative, strong if large."""
    largest = max((abs(entry) for row in matrix for entry in row), default=0.0) or 1.0

    def colour(entry: float) -> str:
        tone = "217, 105, 43" if entry >= 0 else "70, 120, 214"
        return f"rgba({tone}, {0.75 * abs(entry / largest):.2f})"

    return [[(entry, colour(entry)) for entry in row] for row in matrix]
