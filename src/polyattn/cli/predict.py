"""``polyattn predict``: a model applied to any number of sequences, written as they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.data import GivenData, data_argument, input_options, take_data
from polyattn.cli.models import FittedEstimator, predicted_by, require_predictor
from polyattn.cli.sections import SectionedCommand
from polyattn.errors import InvalidInput
from polyattn.progress import listening, report
from polyattn.sequences import SequenceBatch
from polyattn.sources import Chunk, ChunkData, Source
from polyattn.sources.names import SequenceNames
from polyattn.sources.prediction_arrays import (
    ARRAY_SUFFIXES,
    Written,
    require_array_suffix,
    write_prediction_arrays,
)
from polyattn.sources.prediction_tables import (
    SUFFIXES,
    PredictedPart,
    PredictionColumns,
    write_predictions,
)


@click.command(cls=SectionedCommand)
@click.argument("model", type=console.FILE)
@data_argument()
@input_options
@click.option(
    "--probabilities", is_flag=True,
    help="Of classes, beside their labels; of models by --loss logistic.",
)  # fmt: skip
@console.output_option("A .npy or .npz file, or a table: .parquet or .csv.", required=True)
@console.json_option
def predict(
    model: Path, data: tuple[Path, ...], probabilities: bool, output: Path, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Apply MODEL to the sequences X of DATA; write predictions.

    One per sequence, or one per token for layers of mode causal and full.  A MODEL by polyattn
    fit --classify predicts labels; a fit with --loss logistic alone predicts log-odds.  With
    --probabilities there is one for each class.

    A table (.parquet, .csv) has a row for each prediction, with the columns --sequence and --order
    of DATA, and label and probability_of_LABEL, or prediction_0 and so on.  A .npz holds them as
    Y – or, for sequences of different lengths, as values (n_tokens_total, n_outputs) with offsets:
    sequence i has values[offsets[i]:offsets[i+1]].  Where MODEL attends to other sequences, DATA
    hold these as context, as for polyattn fit.

    Several files, patterns and tables are taken as by polyattn fit, in the order of their names,
    and predictions are written as they are made: neither need fit into memory.
    """
    _require_suffix(output)
    layer = require_predictor(pa.load(model), model)
    if probabilities:
        _require_probabilities(layer)
    given = take_data(data, options)
    given.refuse_output(output)
    X = given.inputs(missing=isinstance(layer, FittedEstimator) and layer.fills_gaps)
    batch = X["X"]
    if isinstance(batch, SequenceBatch):
        ragged = layer.mode != "last" and batch.common_length is None
        if output.suffix in ARRAY_SUFFIXES:
            require_array_suffix(output, ragged)
    classes = layer.classes if isinstance(layer, FittedEstimator) else None
    columns = _columns(given, classes if probabilities else None)
    with console.passes("predicting", batch):
        parts = _parts(layer, X, probabilities)
        written = _write(output, parts, columns, classes if probabilities else None)
    content = {
        "predictions": str(output), "n_sequences": written.n_sequences, "n_rows": written.n_rows,
        "n_outputs": written.n_outputs, "ragged": written.ragged,
    }  # fmt: skip
    if classes is not None:
        content["classes"] = classes.tolist()
    what = "sequences" if layer.mode == "last" else f"tokens of {written.n_sequences} sequences"
    kind = "predictions" if classes is None else "labels"
    if probabilities:
        # A table has room for both.
        kind = "labels and probabilities" if output.suffix in SUFFIXES else "probabilities"
    text = f"{kind} for {written.n_rows} {what} written to {output}"
    console.emit(content, [text], as_json)


def _require_suffix(output: Path) -> None:
    """Refuse what is neither arrays nor a table, before the work."""
    allowed = (*ARRAY_SUFFIXES, *SUFFIXES)
    if output.suffix not in allowed:
        raise InvalidInput(f"the output must be a {', '.join(allowed)} file; got {str(output)!r}.")


def _require_probabilities(layer: Any) -> None:
    """Refuse a model whose outputs are none."""
    known = isinstance(layer, pa.FitResult) and layer.loss == "logistic"
    if not known and not (isinstance(layer, FittedEstimator) and layer.has_probabilities):
        raise InvalidInput("--probabilities needs a MODEL by polyattn fit --loss logistic.")


def _columns(given: GivenData, classes: Any) -> PredictionColumns:
    """What the columns of a table are called: as in DATA, and by the classes."""
    known = {"sequence": given.columns.get("sequence"), "position": given.columns.get("order")}
    named = {name: each for name, each in known.items() if each is not None}
    values = None if classes is None else tuple(f"probability_of_{each}" for each in classes)
    return PredictionColumns(**named, values=values)


def _write(
    output: Path, parts: Iterator[PredictedPart], columns: PredictionColumns, classes: Any
) -> Written:
    """Write the predictions as arrays or as a table, by the suffix."""
    if output.suffix in ARRAY_SUFFIXES:
        return write_prediction_arrays(output, parts, classes)
    lengths: set[int] = set()
    counts = {"n_sequences": 0, "n_outputs": 0}

    def counted_parts() -> Iterator[PredictedPart]:
        for part in parts:
            lengths.update(() if part.lengths is None else np.unique(part.lengths).tolist())
            counts["n_sequences"] += len(part.values if part.lengths is None else part.lengths)
            counts["n_outputs"] = part.values.shape[1] or 1
            yield part

    n_rows = write_predictions(output, counted_parts(), columns)
    return Written(counts["n_sequences"], n_rows, counts["n_outputs"], len(lengths) > 1)


def _parts(layer: Any, given: dict[str, Any], probabilities: bool) -> Iterator[PredictedPart]:
    """The predictions, chunk by chunk."""
    source = given["X"]
    if not isinstance(source, Source):
        yield _predicted(layer, ChunkData(source, context=given["context"]), probabilities)
        return
    done, names = 0, SequenceNames()
    for chunk in source.chunks:
        # By a function that ends before they are written: no chunk is then in memory.
        yield from _predicted_chunk(layer, chunk, probabilities, names)
        done += chunk.n_bytes
        report(done, source.n_bytes)


def _predicted_chunk(
    layer: Any, chunk: Chunk, probabilities: bool, names: SequenceNames
) -> list[PredictedPart]:
    """The predictions for a chunk; none where no sequence begins in it."""
    read = chunk.read_inputs()
    if read is None:
        return []
    names.add(read.names)
    # The passes over a chunk are none over the data.
    with listening(lambda *_: None):
        return [_predicted(layer, read, probabilities)]


def _predicted(layer: Any, data: ChunkData, probabilities: bool) -> PredictedPart:
    if isinstance(layer, FittedEstimator):
        return layer.predicted(data, probabilities)
    return predicted_by(layer, data, probabilities)
