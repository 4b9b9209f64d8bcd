"""What all verbs share: options, JSON or text on stdout, progress on stderr."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from polyattn.cli.command_words import current_command, in_command_words
from polyattn.cli.tables import Grid, facts, plain
from polyattn.display import Described, figure
from polyattn.files.atomic import refuse_other_format, require_writable
from polyattn.progress import listening
from polyattn.quoting import printable, readable_bytes
from polyattn.sources import Source
from polyattn.storage import save

Command = TypeVar("Command", bound=Callable[..., Any])

# Files are checked where they are read, so that a missing one is an error (1), not usage (2).
FILE = click.Path(path_type=Path)

# The exit code where what was found was not confirmed; 1 and 2 are errors and wrong usage.
UNCONFIRMED = 4

# Longer lists are cut; --json prints them whole.
MOST_LINES = 40


# The option of every verb.
_JSON_HELP = "Print one JSON object, and nothing else."
json_option = click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)


class Parsed(click.ParamType):
    """What ``parse`` makes of a text, which raises ValueError of what is none of ``wanted``."""

    def __init__(self, name: str, parse: Callable[[str], Any], wanted: str) -> None:
        self.name, self.parse, self.wanted = name, parse, wanted

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, or a line that says what it should have been."""
        try:
            return self.parse(str(value))
        except ValueError:
            self.fail(f"{value!r} is {self.wanted}.", param, ctx)


def number_or(number: type[int] | type[float], words: tuple[str, ...]) -> Parsed:
    """A number, or one of a few words."""
    return Parsed(
        "|".join((number.__name__, *words)),
        lambda text: text if text in words else number(text),
        f"neither a number nor one of {', '.join(words)}",
    )


def output_option(help_text: str, *names: str, **more: Any) -> Callable[[Command], Command]:
    """The option ``-o/--output``, the same for every verb; ``names`` are older ones."""
    options: dict[str, Any] = {"callback": writable, "show_default": "default" in more} | more
    return click.option("-o", "--output", *names, "output", type=FILE, help=help_text, **options)


def saved_option(
    help_text: str, *names: str, suffix: str = ".safetensors", required: bool = False
) -> Callable[[Command], Command]:
    """``-o/--output`` of verbs that save a thing in a file of this format."""

    def named(context: click.Context, option: click.Parameter, output: Path | None) -> Path | None:
        place = writable(context, option, output)
        if place is not None:
            refuse_other_format(place, suffix, "the output")
        return place

    said = f"{help_text} ({suffix})."
    return output_option(said, *names, callback=named, required=required)


def writable(_: click.Context, __: click.Parameter, output: Path | None) -> Path | None:
    """A file to write, refused before the work, not after it, if that could not be done."""
    return output if output is None else require_writable(output, "the output")


def saved(
    thing: Any, path: Path | None, content: dict[str, Any], key: str = "", said: str = "saved to"
) -> dict[str, str]:
    """Save a thing where a path was given: a row that says so; ``content`` gets it by its key."""
    if path is None:
        return {}
    with working("writing"):
        save(thing, path)
    if key:
        content[key] = str(path)
    return {said: str(path)}


def emit(
    content: dict[str, Any], text: Sequence[str | Grid], as_json: bool, exit_code: int = 0
) -> None:
    """Print ``content`` as JSON, or ``text`` for people; end with the exit code if it is not 0."""
    if as_json:
        click.echo(json.dumps(content, indent=2, allow_nan=False))
        text = ()
    console = Console(highlight=False)
    if not console.is_terminal:
        # Lines that no terminal wraps may be as long as what is to be said.
        console.width = 10_000
    for part in text:
        for each in part.fitted(console.width) if isinstance(part, Grid) else [plain(part)]:
            # Sentences wrap in the terminal, not here, so that a pipe gets whole lines.
            console.print(each, soft_wrap=isinstance(each, Text))
    if exit_code:
        raise click.exceptions.Exit(exit_code)


def shown(
    thing: Described, more: Mapping[str, object] | None = None, numbers: bool = True
) -> list[Any]:
    """What a thing says of itself, as text: its sentence, figures and ``more``, small matrices."""
    made, command = thing.describe(), current_command()
    facts_said = made.table().items()
    rows = {name: in_command_words(figure(value), command) for name, value in facts_said}
    rows |= {name: str(each) for name, each in (more or {}).items()}
    text: list[Any] = [in_command_words(made.statement, command)] if made.statement else []
    text += [made.lead, *([facts("", rows)] if rows else [])]
    for name, matrix in made.matrices.items() if numbers else ():
        text += [f"{name}:", *("  ".join(f"{number:10.4g}" for number in row) for row in matrix)]
    if numbers and not made.matrices and thing.arrays():
        sizes = (f"{name} {array.shape}" for name, array in thing.arrays().items())
        text.append(f"{', '.join(sizes)}: --json prints them.")
    return [*text, *made.lines]


def numbered(texts: Sequence[str]) -> list[str]:
    """Numbered lines, not more than a screen of them."""
    more = len(texts) - MOST_LINES
    lines = [f"{i + 1:4d}. {text}" for i, text in enumerate(texts[:MOST_LINES])]
    return [*lines, *([f"      ... {more} more (--json prints all)"] if more > 0 else [])]


def sizes_text(sizes: Mapping[str, object]) -> str:
    """Sizes by name on one line."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


@contextmanager
def working(message: str) -> Iterator[Callable[[str], None]]:
    """A turning sign on stderr while something of unknown length is done; terminals only.

    Calling what is yielded changes the message.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(message) as status:
        yield status.update


@contextmanager
def progress(message: str, total: float) -> Iterator[Callable[..., None]]:
    """A bar on stderr, moved by calling what is yielded with the amount done so far.

    A second argument is what stands beside the message.
    """
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(message, total=total)

        def move(done: float, beside: str = "") -> None:
            text = f"{message}: {printable(beside)}" if beside else message
            bar.update(task, completed=min(done, total), description=text)

        yield move


@contextmanager
def passes(message: str, data: object = None) -> Iterator[None]:
    """A bar on stderr that follows each pass over the data from its start to its end.

    Where ``data`` are a source, a pass over its bytes names the file and counts them.
    """
    place = _Place(data) if isinstance(data, Source) else None
    with progress(message, 1.0) as move:

        def follow(done: int, total: int) -> None:
            move(done / total, "" if place is None else place.at(done, total))

        with listening(follow):
            yield


class _Place:
    """Where in the files of a source a pass over its bytes is."""

    def __init__(self, source: Source) -> None:
        chunks = source.chunks
        self.ends = list(accumulate(chunk.n_bytes for chunk in chunks))
        self.names = [Path(chunk.identity.source).name for chunk in chunks]

    def at(self, done: int, total: int) -> str:
        """The file, and how many bytes are done; nothing in passes over something else."""
        if total != self.ends[-1]:
            return ""
        name = self.names[min(bisect_right(self.ends, done), len(self.names) - 1)]
        return f"{name}, {readable_bytes(done)} of {readable_bytes(total)}"
