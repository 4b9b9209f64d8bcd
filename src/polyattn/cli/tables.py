"""Tables for terminals of any width: no word of a cell is broken, and nothing is cut.

Where the longest words of all columns do not fit beside each other, the rows are printed as lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from polyattn.quoting import printable


@dataclass(frozen=True)
class Grid:
    """Rows of texts under headings.

    right : headings of the columns that stand at the right
    whole : headings of the columns whose entries are typed again, and so stand on one line
    """

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    has_headings: bool = True

    def fitted(self, width: int) -> list[Table | Text]:
        """One table, or lines that a terminal wraps, for a terminal with so many columns."""
        columns = self._columns()
        natural = [max(map(cell_len, _lines(column)), default=0) for column in columns]
        least = [
            own if heading in self.whole else max(map(cell_len, _words(column)), default=0)
            for heading, column, own in zip(self.headings, columns, natural, strict=True)
        ]
        spare = width - 3 * len(columns) - 1 - sum(least)
        if spare < 0:
            return [plain(line) for line in self._as_lines()]
        title = [plain(self.title)] if self.title else []
        return [*title, self._table(_shared(least, natural, spare))]

    def _columns(self) -> list[list[str]]:
        """The entries of each column, with its heading if that is shown."""
        shown = (self.headings, *self.rows) if self.has_headings else self.rows
        return [[row[j] for row in shown] for j in range(len(self.headings))]

    def _table(self, widths: Sequence[int]) -> Table:
        made = Table(show_header=self.has_headings)
        for j, (heading, width) in enumerate(zip(self.headings, widths, strict=True)):
            justify: Any = "right" if heading in self.right else "left"
            style = None if self.has_headings or j else "bold"
            made.add_column(plain(heading), justify=justify, style=style, width=max(1, width))
        for row in self.rows:
            made.add_row(*map(plain, row))
        return made

    def _as_lines(self) -> list[str]:
        """The title, then each row: its first entry, and the others below it by their headings."""
        lines = [self.title] if self.title else []
        for first, *others in self.rows:
            if not self.has_headings:
                lines.append(_beside(f"{first}:", others[0]))
                continue
            lines.append(first)
            named = zip(self.headings[1:], others, strict=True)
            lines += [_beside(f"  {heading}:", other) for heading, other in named if other]
        return lines


def table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Iterable[object]],
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> Grid:
    """A table of anything; columns by their headings: at the ``right``, or ``whole`` on a line."""
    texts = tuple(tuple(map(str, row)) for row in rows)
    return Grid(title, tuple(headings), texts, frozenset(right), frozenset(whole))


def facts(title: str, rows: Mapping[str, object]) -> Grid:
    """A table of two columns: names and what they are."""
    texts = tuple((str(name), str(each)) for name, each in rows.items())
    return Grid(title, ("name", "what it is"), texts, has_headings=False)


def plain(entry: object) -> Text:
    """Anything as text of the console: no markup, and what a terminal would obey is escaped."""
    return Text(printable(str(entry)))


def _shared(least: list[int], natural: list[int], spare: int) -> list[int]:
    """The least widths, and what is spare given to the columns that need more, evenly."""
    widths = list(least)
    wanting = sorted(range(len(least)), key=lambda j: natural[j] - least[j])
    for done, j in enumerate(wanting):
        given = min(natural[j] - least[j], spare // (len(wanting) - done))
        widths[j] += given
        spare -= given
    return widths


def _lines(entries: Iterable[str]) -> list[str]:
    return [line for entry in entries for line in printable(entry).split("\n")]


def _words(entries: Iterable[str]) -> list[str]:
    return [word for entry in entries for word in printable(entry).split()]


def _beside(name: str, entry: str) -> str:
    """A name and its entry on one line; an entry of several lines stands below."""
    return f"{name}\n{entry}" if "\n" in entry else f"{name} {entry}"
