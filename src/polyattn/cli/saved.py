"""Verbs about a file that polyattn wrote: ``show`` it, ``report`` on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.data import GivenData, data_argument, data_options, take_data
from polyattn.cli.fit import learned_text
from polyattn.cli.predict import predictor
from polyattn.cli.sections import SectionedCommand
from polyattn.errors import InvalidInput
from polyattn.model.layer import AttentionLayer
from polyattn.programs import Compiled, Learned
from polyattn.programs.machines.ready import find_machine
from polyattn.report import write_program_report, write_report


@click.command()
@click.argument("model", type=console.FILE)
@console.json_option
def show(model: Path, as_json: bool) -> None:
    """Say what is in MODEL, whatever polyattn saved.

    A layer, a result, statistics, a program, a certificate.  Nothing is computed for it.  With
    --json arrays are printed, too.
    """
    with console.working("reading"):
        loaded = pa.load(model)
    text = learned_text(loaded) if isinstance(loaded, pa.LearnedSoftmax) else console.shown(loaded)
    console.emit(loaded.to_full_dict(), text, as_json)


@click.command(cls=SectionedCommand)
@click.argument("model", type=console.FILE)
@data_argument(required=False)
@console.output_option("The page to write.", default=Path("report.html"))
@data_options
@click.option("--machine", help="For programs: a file, a ready name, or a text of rules.")
@click.option("--input", "word", metavar="WORD", help="For programs: the word or tape to run on.")
@console.json_option
def report(
    model: Path, data: tuple[Path, ...], output: Path, machine: str | None, word: str | None,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Write a page about MODEL, and DATA if they are given.

    MODEL is a file that polyattn wrote: a layer, a fit result, an audit, a learning curve, a
    learned softmax layer, statistics, a certificate (.json), or a program, compiled or learned.
    DATA is a .npz with X and perhaps Y, weights and context as for polyattn fit, or several files,
    or tables, which are held in memory; with them the page shows bounds, predictions and the
    certificate of what keeps no data.  Of a program the page shows a run to click through.

    The page is one file that asks for nothing from anywhere.
    """
    given = take_data(data, options)
    with console.working("reading"):
        loaded = pa.load(model)
    if isinstance(loaded, Compiled | Learned):
        _refuse(f"{str(model)!r} holds a program", DATA=data, **given.columns)
        named = None if machine is None else find_machine(machine)
        with console.working("running the program"):
            page = write_program_report(loaded, output, named, word)
    else:
        _refuse(f"{str(model)!r} holds no program", machine=machine, input=word)
        if not data:
            _refuse("there are no DATA", **given.columns)
        shown = _data(predictor(loaded), given) if data else {}
        with console.passes("writing the page"):
            page = write_report(loaded, output, **shown)
    titles = [section.title for section in page.sections]
    content = {
        "report": str(output), "kind": type(loaded).__name__, "title": page.title,
        "sections": titles, "bytes": output.stat().st_size,
    }  # fmt: skip
    console.emit(content, [f"{page.title}: {output}", *(f"  {title}" for title in titles)], as_json)


def _data(model: Any, given: GivenData) -> dict[str, Any]:
    """X, its context; targets and weights where the model predicts; and what was left out."""
    predicts = isinstance(model, pa.FitResult | AttentionLayer)
    held = given.held("report", model.mode if predicts else None, targets=False)
    content: dict[str, Any] = {"X": held.X, "context": held.context}
    if predicts:
        return content | {"Y": held.Y, "sample_weight": held.weights}
    unused = "The weights in the data were not used: every sequence counts once on this page."
    return content | {"notes": [] if held.weights is None else [unused]}


def _refuse(because: str, **options: object) -> None:
    """Options that say nothing about this kind of model are a mistake."""
    for name, given in options.items():
        if given:
            said = name if name.isupper() else f"--{name}"
            raise InvalidInput(f"{because}; leave {said} out.")
