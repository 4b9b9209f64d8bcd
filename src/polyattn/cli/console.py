"""What all verbs share: options, JSON or text on stdout, progress on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from polyattn.display import Described, figure
from polyattn.progress import listening
from polyattn.quoting import printable

Command = TypeVar("Command", bound=Callable[..., Any])

# Files are checked where they are read, so that a missing one is an error (1), not usage (2).
FILE = click.Path(path_type=Path)

# Lines that no terminal wraps may be as long as what is to be said.
UNLIMITED = 10_000


def json_option(command: Command) -> Command:
    """The option ``--json``, the same for every verb."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else."
    )
    return option(command)


class NumberOr(click.ParamType):
    """A number, or one of a few words."""

    def __init__(self, number: type[int] | type[float], words: tuple[str, ...]) -> None:
        self.number, self.words = number, words
        self.name = "|".join((number.__name__, *words))

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float | str:
        """The word itself, or the number."""
        if value in self.words:
            return str(value)
        try:
            return self.number(value)
        except ValueError:
            words = ", ".join(self.words)
            self.fail(f"{value!r} is neither a number nor one of {words}.", param, ctx)


class Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "float,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """The list."""
        try:
            return [float(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0.1,1,10.", param, ctx)


def output_option(
    help_text: str, *names: str, default: Path | None = None, metavar: str | None = None
) -> Callable[[Command], Command]:
    """The option ``-o/--output``, the same for every verb; ``names`` are older ones."""
    return click.option(
        "-o", "--output", *names, "output", type=FILE, default=default,
        show_default=default is not None, metavar=metavar, help=help_text,
    )  # fmt: skip


def emit(content: dict[str, Any], text: list[RenderableType], as_json: bool) -> None:
    """Print ``content`` as JSON, or ``text`` for people."""
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = UNLIMITED
    for part in text:
        # Sentences wrap in the terminal, not here, so that a pipe gets whole lines.
        if isinstance(part, str):
            console.print(plain(part), soft_wrap=True)
        else:
            console.print(part)


def shown(
    thing: Described, more: dict[str, object] | None = None, numbers: bool = True
) -> list[Any]:
    """What a thing says of itself, as text: its sentence, figures and ``more``, small matrices."""
    made = thing.describe()
    rows: dict[str, object] = {name: figure(value) for name, value in made.table().items()}
    text: list[Any] = [made.statement] if made.statement else []
    text.append(made.lead)
    if rows or more:
        text.append(facts("", rows | (more or {})))
    for name, matrix in made.matrices.items() if numbers else ():
        text += [f"{name}:", *("  ".join(f"{number:10.4g}" for number in row) for row in matrix)]
    if numbers and not made.matrices and thing.arrays():
        sizes = (f"{name} {array.shape}" for name, array in thing.arrays().items())
        text.append(f"{', '.join(sizes)}: --json prints them.")
    return [*text, *made.lines]


def facts(title: str, rows: dict[str, object]) -> Table:
    """A table of two columns: names and what they are."""
    table = Table(title=title or None, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, entry in rows.items():
        table.add_row(plain(name), plain(entry))
    return table


def plain(entry: object) -> Text:
    """Anything as text of the console: no markup, and what a terminal would obey is escaped."""
    return Text(printable(str(entry)))


@contextmanager
def working(message: str) -> Iterator[None]:
    """A turning sign on stderr while something of unknown length is done; terminals only."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(message):
        yield


@contextmanager
def progress(message: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, moved by calling what is yielded with the amount done so far."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(message, total=total)
        yield lambda done: bar.update(task, completed=min(done, total))


@contextmanager
def passes(message: str) -> Iterator[None]:
    """A bar on stderr that follows each pass over the data from its start to its end."""
    with progress(message, 1.0) as move, listening(lambda done, total: move(done / total)):
        yield
