"""Verbs about a file that polyattn wrote: ``show`` it, ``predict`` with it, ``report`` on it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.fit import learned_text
from polyattn.cli.io import DataFile, read_data, require_suffix
from polyattn.errors import InvalidInput
from polyattn.files.atomic import write_atomically
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


@click.command()
@click.argument("model", type=console.FILE)
@click.argument("data", type=console.FILE)
@click.option("--probabilities", is_flag=True, help="Of classes, by a fit with --loss logistic.")
@console.output_option("A .npy or .npz file.", required=True)
@console.json_option
def predict(model: Path, data: Path, probabilities: bool, output: Path, as_json: bool) -> None:
    """Apply MODEL to the sequences X of DATA; write predictions.

    One per sequence, or one per token for layers of mode causal and full.  A fit with --loss
    logistic predicts log-odds, or with --probabilities those of the classes.  A .npz holds them
    as Y – or, for sequences of different lengths, as values (n_tokens_total, n_outputs) with
    offsets: sequence i has values[offsets[i]:offsets[i+1]].  Where MODEL attends to other
    sequences, DATA hold these as context, as for polyattn fit.
    """
    require_suffix(output)
    loaded = pa.load(model)
    layer = _model(loaded)
    if not isinstance(layer, pa.FitResult | AttentionLayer):
        why = f"a {type(loaded).__name__}, not a layer."
        if isinstance(layer, pa.Moments | pa.TriangularFactor):
            why = (
                "statistics, not a layer; solve them first with: "
                f"polyattn fit {model} -o model.safetensors"
            )
        raise InvalidInput(f"{str(model)!r} holds {why}")
    read, mode = read_data(data), layer.mode
    batch, context = read.sequences(), read.context()
    ragged = mode != "last" and batch.common_length is None
    require_suffix(output, ragged)
    with console.passes("predicting"):
        outputs = _outputs(layer, batch, context, probabilities)
    rows = np.concatenate(outputs) if isinstance(outputs, list) else outputs
    shape = (len(batch), -1) if mode == "last" else (len(batch), batch.common_length or 1, -1)
    arrays = {"values": rows, "offsets": batch.offsets} if ragged else {"Y": rows.reshape(shape)}
    archive = output.suffix == ".npz"
    write = partial(np.savez, **arrays) if archive else partial(np.save, arr=arrays["Y"])
    write_atomically(output, write)
    content = {
        "predictions": str(output), "n_sequences": len(batch), "n_rows": len(rows),
        "n_outputs": rows.shape[1], "ragged": ragged,
    }  # fmt: skip
    what = "sequences" if mode == "last" else f"tokens of {len(batch)} sequences"
    console.emit(content, [f"predictions for {len(rows)} {what} written to {output}"], as_json)


def _model(loaded: Any) -> Any:
    """What predicts: the layer of what was learned, if there is one, or what was loaded."""
    learned = isinstance(loaded, pa.LearnedSoftmax | pa.QueryResult) and loaded.layer is not None
    return loaded.layer if learned else loaded


@click.command()
@click.argument("model", type=console.FILE)
@click.argument("data", type=console.FILE, required=False)
@console.output_option("The page to write.", default=Path("report.html"))
@click.option("--targets", type=console.FILE, help="Y as a .npy file.")
@click.option("--machine", help="For programs: a file, a ready name, or a text of rules.")
@click.option("--input", "word", metavar="WORD", help="For programs: the word or tape to run on.")
@console.json_option
def report(
    model: Path, data: Path | None, output: Path, targets: Path | None, machine: str | None,
    word: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a page about MODEL, and DATA if they are given.

    MODEL is a file that polyattn wrote: a layer, a fit result, an audit, a learning curve, a
    learned softmax layer, statistics, a certificate (.json), or a program, compiled or learned.
    DATA is a .npz with X and perhaps Y, weights and context as for polyattn fit; with them the page
    shows bounds, predictions and the certificate of what keeps no data.  Of a program the page
    shows a run to click through.

    The page is one file that asks for nothing from anywhere.
    """
    with console.working("reading"):
        loaded = pa.load(model)
    if isinstance(loaded, Compiled | Learned):
        _refuse(f"{str(model)!r} holds a program", DATA=data, targets=targets)
        named = None if machine is None else find_machine(machine)
        with console.working("running the program"):
            page = write_program_report(loaded, output, named, word)
    else:
        _refuse(f"{str(model)!r} holds no program", machine=machine, input=word)
        if data is None:
            _refuse("there are no DATA", targets=targets)
        given = {} if data is None else _data(_model(loaded), read_data(data, targets))
        with console.passes("writing the page"):
            page = write_report(loaded, output, **given)
    titles = [section.title for section in page.sections]
    content = {
        "report": str(output), "kind": type(loaded).__name__, "title": page.title,
        "sections": titles, "bytes": output.stat().st_size,
    }  # fmt: skip
    console.emit(content, [f"{page.title}: {output}", *(f"  {title}" for title in titles)], as_json)


def _outputs(
    layer: pa.FitResult | AttentionLayer,
    batch: pa.SequenceBatch,
    context: pa.SequenceBatch | None,
    probabilities: bool,
) -> Any:
    """The predictions of a fit or a layer."""
    if probabilities and not (isinstance(layer, pa.FitResult) and layer.loss == "logistic"):
        raise InvalidInput("--probabilities needs a MODEL by polyattn fit --loss logistic.")
    if isinstance(layer, pa.FitResult):
        return (layer.predict_proba if probabilities else layer.predict)(batch, context)
    if isinstance(layer, pa.LinearAttention):
        return layer(batch, context)
    if context is not None:
        raise InvalidInput("a softmax layer attends to X itself; leave 'context' out of DATA.")
    return layer(batch)


def _data(model: Any, read: DataFile) -> dict[str, Any]:
    """X, its context; targets and weights where the model predicts; and what was left out."""
    given = {"X": read.sequences(), "context": read.context()}
    if not isinstance(model, pa.FitResult | AttentionLayer):
        unused = "The weights in the data were not used: every sequence counts once on this page."
        return given | {"notes": [] if read.weights is None else [unused]}
    targets = read.targets(model.mode) if "Y" in read.arrays else None
    return given | {"Y": targets, "sample_weight": read.weights}


def _refuse(because: str, **options: object) -> None:
    """Options that say nothing about this kind of model are a mistake."""
    for name, given in options.items():
        if given is not None:
            said = name if name.isupper() else f"--{name}"
            raise InvalidInput(f"{because}; leave {said} out.")
