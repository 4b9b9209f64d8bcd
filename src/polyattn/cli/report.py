"""``polyattn report``: a page about a file that polyattn wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.data import GivenData, data_argument, data_options, require_memory, take_data
from polyattn.cli.models import FittedEstimator, predictor
from polyattn.cli.sections import SectionedCommand
from polyattn.errors import InvalidInput
from polyattn.model.layer import AttentionLayer
from polyattn.programs import Compiled, Learned
from polyattn.programs.machines.ready import find_machine
from polyattn.report import write_program_report, write_report
from polyattn.sources import Source
from polyattn.sources.collected import collected


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
    learned softmax layer, an estimator or a pipeline, statistics, a certificate (.json), or a
    program, compiled or learned.
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
    if isinstance(model, FittedEstimator):
        return _of_estimator(model, given) | _names(model.layer, given)
    return _of_layer(model, given) | _names(model, given)


def _names(model: Any, given: GivenData) -> dict[str, Any]:
    """What coordinates are called: as the columns of tables, where each of these is one."""
    names = given.token_names
    known = isinstance(model, pa.FitResult | AttentionLayer) and model.n_dims == len(names)
    return {"coordinate_names": names} if known and names else {}


def _of_estimator(model: FittedEstimator, given: GivenData) -> dict[str, Any]:
    """X as it is, before the steps of a pipeline, and labels where there are classes."""
    if not given.has_targets:
        inputs = given.inputs(missing=model.fills_gaps)
        if isinstance(inputs["X"], Source):
            require_memory(inputs["X"], "report")
            read = collected(inputs["X"], None)
            inputs = {"X": read.batch, "context": read.context}
        return inputs
    # scikit-learn is slow to load.
    from polyattn.cli.estimator_data import estimator_data

    labels = model.classes is not None
    data = estimator_data(given, model.mode, labels, model.fills_gaps, in_memory=True)
    return data | {"Y": data.pop("y")}


def _of_layer(model: Any, given: GivenData) -> dict[str, Any]:
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
