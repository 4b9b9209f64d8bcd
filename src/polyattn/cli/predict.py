"""``polyattn predict``: a fitted layer applied to sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from polyattn.cli.console import emit, json_option, passes
from polyattn.cli.io import read_data, require_output, require_suffix, write_arrays
from polyattn.cli.options import FILE
from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.stats import Moments, TriangularFactor
from polyattn.storage import load


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="A .npy or .npz file.")
@json_option
def predict(model: Path, data: Path, output: Path, as_json: bool) -> None:
    """Apply MODEL to the sequences X of DATA and write the predictions.

    One per sequence, or one per token for layers of mode causal and full.  A .npz holds them
    as Y – or, for sequences of different lengths, as values (n_tokens_total, n_outputs) with
    offsets: sequence i has values[offsets[i]:offsets[i+1]].
    """
    require_suffix(output)
    require_output(output)
    mode, function = _function(model)
    batch = read_data(data).sequences()
    ragged = mode != "last" and batch.common_length is None
    require_suffix(output, ragged)
    with passes("predicting"):
        outputs = function(batch)
    rows = np.concatenate(outputs) if isinstance(outputs, list) else outputs
    if ragged:
        write_arrays(output, {"values": rows, "offsets": batch.offsets})
    else:
        shape = (len(batch), -1) if mode == "last" else (len(batch), batch.common_length or 1, -1)
        write_arrays(output, {"Y": rows.reshape(shape)})
    content = {
        "predictions": str(output), "n_sequences": len(batch), "n_rows": len(rows),
        "n_outputs": rows.shape[1], "ragged": ragged,
    }  # fmt: skip
    what = "sequences" if mode == "last" else f"tokens of {len(batch)} sequences"
    emit(content, [f"predictions for {len(rows)} {what} written to {output}"], as_json)


def _function(path: Path) -> tuple[str, Callable[[Any], Any]]:
    """The mode of a saved model and the function it computes."""
    loaded = load(path)
    if isinstance(loaded, FitResult):
        return loaded.mode, loaded.predict
    if isinstance(loaded, LinearAttention | SoftmaxAttention):
        return loaded.mode, loaded
    if isinstance(loaded, LearnedSoftmax | QueryResult) and loaded.layer is not None:
        return loaded.layer.mode, loaded.layer
    if isinstance(loaded, Moments | TriangularFactor):
        raise InvalidInput(
            f"{str(path)!r} holds statistics, not a layer; solve them first with: "
            f"polyattn fit {path} -o model.safetensors"
        )
    raise InvalidInput(f"{str(path)!r} holds a {type(loaded).__name__}, not a layer.")
