"""What all verbs share in printing: JSON or text on stdout, progress on stderr."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from polyattn.progress import listening
from polyattn.quoting import printable

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """The option ``--json``, the same for every verb."""
    option = click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else."
    )
    return option(command)


def emit(content: dict[str, Any], text: list[RenderableType], as_json: bool) -> None:
    """Print ``content`` as JSON, or ``text`` for people."""
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    for part in text:
        # Sentences wrap in the terminal, not here, so that a pipe gets whole lines.
        if isinstance(part, str):
            console.print(plain(part), soft_wrap=True)
        else:
            console.print(part)


def facts(title: str, rows: dict[str, object]) -> Table:
    """A table of two columns: names and what they are."""
    table = Table(title=title, title_justify="left", show_header=False)
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
