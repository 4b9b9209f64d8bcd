"""``polyattn predict``: a model applied to any number of sequences, written as they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.data import data_argument, input_options, take_data
from polyattn.cli.sections import SectionedCommand
from polyattn.errors import InvalidInput
from polyattn.model.layer import AttentionLayer
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
from polyattn.sources.prediction_tables import SUFFIXES, PredictedPart, write_predictions


@click.command(cls=SectionedCommand)
@click.argument("model", type=console.FILE)
@data_argument()
@input_options
@click.option("--probabilities", is_flag=True, help="Of classes, by a fit with --loss logistic.")
@console.output_option("A .npy or .npz file, or a table: .parquet or .csv.", required=True)
@console.json_option
def predict(
    model: Path, data: tuple[Path, ...], probabilities: bool, output: Path, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Apply MODEL to the sequences X of DATA; write predictions.

    One per sequence, or one per token for layers of mode causal and full.  A fit with --loss
    logistic predicts log-odds, or with --probabilities those of the classes.  A .npz holds them
    as Y – or, for sequences of different lengths, as values (n_tokens_total, n_outputs) with
    offsets: sequence i has values[offsets[i]:offsets[i+1]].  A table (.parquet, .csv) has a row
    for each of them.  Where MODEL attends to other sequences, DATA hold these as context, as for
    polyattn fit.

    Several files, patterns and tables are taken as by polyattn fit, in the order of their names,
    and predictions are written as they are made: neither need fit into memory.
    """
    _require_suffix(output)
    loaded = pa.load(model)
    layer = predictor(loaded)
    if not isinstance(layer, pa.FitResult | AttentionLayer):
        why = f"a {type(loaded).__name__}, not a layer."
        if isinstance(layer, pa.Moments | pa.TriangularFactor):
            why = (
                "statistics, not a layer; solve them first with: "
                f"polyattn fit {model} -o model.safetensors"
            )
        raise InvalidInput(f"{str(model)!r} holds {why}")
    given = take_data(data, options)
    given.refuse_output(output)
    X = given.inputs()
    batch = X["X"]
    if isinstance(batch, SequenceBatch):
        ragged = layer.mode != "last" and batch.common_length is None
        if output.suffix in ARRAY_SUFFIXES:
            require_array_suffix(output, ragged)
    with console.passes("predicting", batch):
        written = _write(output, _parts(layer, X, probabilities))
    content = {
        "predictions": str(output), "n_sequences": written.n_sequences, "n_rows": written.n_rows,
        "n_outputs": written.n_outputs, "ragged": written.ragged,
    }  # fmt: skip
    what = "sequences" if layer.mode == "last" else f"tokens of {written.n_sequences} sequences"
    text = f"predictions for {written.n_rows} {what} written to {output}"
    console.emit(content, [text], as_json)


def predictor(loaded: Any) -> Any:
    """What predicts: the layer of what was learned, if there is one, or what was loaded."""
    learned = isinstance(loaded, pa.LearnedSoftmax | pa.QueryResult) and loaded.layer is not None
    return loaded.layer if learned else loaded


def _require_suffix(output: Path) -> None:
    """Refuse what is neither arrays nor a table, before the work."""
    allowed = (*ARRAY_SUFFIXES, *SUFFIXES)
    if output.suffix not in allowed:
        raise InvalidInput(f"the output must be a {', '.join(allowed)} file; got {str(output)!r}.")


def _write(output: Path, parts: Iterator[PredictedPart]) -> Written:
    """Write the predictions as arrays or as a table, by the suffix."""
    if output.suffix in ARRAY_SUFFIXES:
        return write_prediction_arrays(output, parts)
    lengths: set[int] = set()
    counts = {"n_sequences": 0, "n_outputs": 0}

    def counted_parts() -> Iterator[PredictedPart]:
        for part in parts:
            lengths.update(() if part.lengths is None else np.unique(part.lengths).tolist())
            counts["n_sequences"] += len(part.values if part.lengths is None else part.lengths)
            counts["n_outputs"] = part.values.shape[1]
            yield part

    n_rows = write_predictions(output, counted_parts())
    return Written(counts["n_sequences"], n_rows, counts["n_outputs"], len(lengths) > 1)


def _parts(
    layer: pa.FitResult | AttentionLayer, given: dict[str, Any], probabilities: bool
) -> Iterator[PredictedPart]:
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
    layer: pa.FitResult | AttentionLayer, chunk: Chunk, probabilities: bool, names: SequenceNames
) -> list[PredictedPart]:
    """The predictions for a chunk; none where no sequence begins in it."""
    read = chunk.read_inputs()
    if read is None:
        return []
    names.add(read.names)
    # The passes over a chunk are none over the data.
    with listening(lambda *_: None):
        return [_predicted(layer, read, probabilities)]


def _predicted(
    layer: pa.FitResult | AttentionLayer, data: ChunkData, probabilities: bool
) -> PredictedPart:
    outputs = _outputs(layer, data.batch, data.context, probabilities)
    rows = np.concatenate(outputs) if isinstance(outputs, list) else outputs
    lengths = None if layer.mode == "last" else data.batch.lengths
    return PredictedPart(rows.reshape(-1, rows.shape[-1]), lengths, data.names)


def _outputs(
    layer: pa.FitResult | AttentionLayer,
    batch: SequenceBatch,
    context: SequenceBatch | None,
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
