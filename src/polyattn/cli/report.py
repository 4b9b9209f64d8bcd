"""``polyattn report``: one page about a file that polyattn wrote, and about data beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from polyattn.cli.console import emit, json_option, passes, working
from polyattn.cli.io import DataFile, read_data, require_output
from polyattn.cli.options import FILE
from polyattn.cli.program.machines import find_machine
from polyattn.errors import InvalidInput
from polyattn.programs import Compiled
from polyattn.report import Page, write_program_report, write_report
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.storage import load


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE, required=False)
@click.option(
    "-o", "--output", type=FILE, default=Path("report.html"), show_default=True,
    help="The page to write.",
)  # fmt: skip
@click.option("--targets", type=FILE, help="Y as a .npy file.")
@click.option("--machine", help="For programs: a file, a ready name, or a text of rules.")
@click.option("--input", "word", metavar="WORD", help="For programs: the word or tape to run on.")
@json_option
def report(
    model: Path, data: Path | None, output: Path, targets: Path | None, machine: str | None,
    word: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a page about MODEL, a file that polyattn wrote, and DATA.

    MODEL is a layer, a fit result, a learned softmax layer, statistics, a certificate (.json), or
    a compiled program.  DATA is a .npz with X and perhaps Y and weights as for polyattn fit; with
    them the page shows bounds, predictions and the certificate of what keeps no data.  Of a
    program the page shows a run to click through.

    The page is one file that asks for nothing from anywhere.
    """
    require_output(output)
    with working("reading"):
        loaded = load(model)
    if isinstance(loaded, Compiled):
        _refuse(f"{str(model)!r} holds a program", DATA=data, targets=targets)
        named = None if machine is None else find_machine(machine)
        with working("running the program"):
            page = write_program_report(loaded, output, named, word)
    else:
        _refuse(f"{str(model)!r} holds no program", machine=machine, input=word)
        if data is None:
            _refuse("there are no DATA", targets=targets)
        given = {} if data is None else _data(loaded, read_data(data, targets))
        with passes("writing the page"):
            page = write_report(loaded, output, **given)
    emit(_content(loaded, page, output), [f"{page.title}: {output}", *_titles(page)], as_json)


def _data(loaded: Any, read: DataFile) -> dict[str, Any]:
    """X; targets and weights where the model predicts something; and what was left out."""
    about: Any = loaded
    if isinstance(loaded, LearnedSoftmax | QueryResult):
        about = loaded.layer
    predicts = hasattr(about, "predict") or callable(about)
    if not predicts:
        unused = "The weights in the data were not used: every sequence counts once on this page."
        return {"X": read.sequences(), "notes": [] if read.weights is None else [unused]}
    targets = read.targets(about.mode) if "Y" in read.arrays else None
    return {"X": read.sequences(), "Y": targets, "sample_weight": read.weights}


def _refuse(because: str, **options: object) -> None:
    """Options that say nothing about this kind of model are a mistake."""
    for name, given in options.items():
        if given is not None:
            said = name if name.isupper() else f"--{name}"
            raise InvalidInput(f"{because}; leave {said} out.")


def _content(loaded: Any, page: Page, output: Path) -> dict[str, Any]:
    return {
        "report": str(output),
        "kind": type(loaded).__name__,
        "title": page.title,
        "sections": [section.title for section in page.sections],
        "bytes": output.stat().st_size,
    }


def _titles(page: Page) -> list[str]:
    return [f"  {section.title}" for section in page.sections]
