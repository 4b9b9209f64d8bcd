"""``polyattn show``: what is in a file that polyattn wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.table import Table

from polyattn.certify import Certificate
from polyattn.certify.document import to_document
from polyattn.cli.console import emit, facts, json_option, working
from polyattn.cli.learn_softmax import learned_text
from polyattn.cli.options import FILE
from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.stats import Moments, TriangularFactor
from polyattn.storage import load

# Layers up to this size are printed number by number.
SHOWN_DIMS, SHOWN_HEADS = 8, 4


@click.command()
@click.argument("model", type=FILE)
@json_option
def show(model: Path, as_json: bool) -> None:
    """Say what is in MODEL: a layer, what was fitted or learned, statistics, or a certificate."""
    with working("reading"):
        loaded = load(model)
    if isinstance(loaded, LinearAttention | SoftmaxAttention):
        emit(layer_json(loaded), layer_text(loaded), as_json)
    elif isinstance(loaded, FitResult):
        table = facts("fit result", result_facts(loaded))
        text = [str(loaded.outcome), table, *layer_text(loaded.layer)]
        emit(layer_json(loaded.layer) | result_json(loaded), text, as_json)
    elif isinstance(loaded, Certificate):
        table = facts("certificate", certificate_facts(loaded))
        emit(to_document(loaded), [loaded.sentence, table], as_json)
    elif isinstance(loaded, LearnedSoftmax):
        emit(loaded.to_full_dict(), learned_text(loaded), as_json)
    elif isinstance(loaded, QueryResult):
        emit(loaded.to_full_dict(), [str(loaded)], as_json)
    elif isinstance(loaded, Moments | TriangularFactor):
        content = statistics_json(loaded)
        emit(content, [facts("statistics", content)], as_json)
    else:
        raise InvalidInput(
            f"{str(model)!r} holds a {type(loaded).__name__}; show takes layers, fit results, "
            "what was learned, statistics and certificates."
        )


def layer_json(layer: LinearAttention | SoftmaxAttention) -> dict[str, Any]:
    """A layer in plain types, parameters included."""
    return {
        "kind": layer.kind,
        "n_heads": layer.n_heads,
        "n_dims": layer.n_dims,
        "n_outputs": layer.n_outputs,
        "mode": layer.mode,
        "bias": layer.bias,
        "attn": layer.attn.tolist(),
        "value": layer.value.tolist(),
    }


def layer_text(layer: LinearAttention | SoftmaxAttention) -> list[RenderableType]:
    """A line, and the matrices of each head where they are small."""
    lines: list[RenderableType] = [repr(layer)]
    if layer.n_heads > SHOWN_HEADS or layer.attn.shape[1] > SHOWN_DIMS:
        return [*lines, f"attn {layer.attn.shape}, value {layer.value.shape}: --json prints them."]
    for h in range(layer.n_heads):
        table = Table(title=f"head {h + 1}", title_justify="left")
        table.add_column("attn", justify="right", no_wrap=True)
        table.add_column("value", justify="right", no_wrap=True)
        for attn_row, value_row in zip(layer.attn[h], layer.value[h], strict=True):
            table.add_row(_numbers(attn_row), _numbers(value_row))
        lines.append(table)
    return lines


def result_json(result: FitResult) -> dict[str, Any]:
    """A result in plain types, without its arrays; looks for the heads first."""
    return {
        "kind": "fit_result",
        "outcome": result.outcome.to_dict(),
        "risk": result.risk,
        "optimal_risk": result.optimal_risk,
        "gap": result.gap,
        "ridge": result.ridge,
        "rank": result.rank,
        "n_features": result.n_features,
        "condition": result.condition,
        "solver": result.solver,
        "mode": result.mode,
        "bias": result.bias,
        "n_dims": result.n_dims,
        "n_outputs": len(result.coef),
        "n_heads": result.layer.n_heads,
        "heads": result.heads.sentence,
    }


def result_facts(result: FitResult) -> dict[str, object]:
    """The same for people."""
    rank = "not examined" if result.rank is None else f"{result.rank} of {result.n_features}"
    limited = result.outcome.name == "limited_heads"
    best = "minimiser with this ridge" if result.ridge > 0 else "optimum"
    gap = f" ({best} over any number of heads: {result.optimal_risk:.6g})" if limited else ""
    condition = {} if result.condition is None else {"condition": f"{result.condition:.3g}"}
    return {
        "layer": repr(result.layer),
        "risk": f"{result.risk:.6g}{gap}",
        "rank": rank,
        **condition,
        "ridge": f"{result.ridge:.6g}",
        "solver": result.solver,
        "heads": f"{result.layer.n_heads} – {result.heads.sentence}",
    }


def certificate_facts(certificate: Certificate) -> dict[str, object]:
    """The figures of a certificate for people."""
    of = certificate.n_features if certificate.dimension is None else certificate.dimension
    figures: dict[str, object] = {
        "verdict": certificate.verdict,
        "on real inputs": certificate.verdict_on_real_inputs,
        "domain": certificate.domain,
        "mode": certificate.mode + (", bias" if certificate.bias else ""),
        "data": f"{certificate.n_sequences} sequences, {certificate.n_rows} predicted positions, "
        f"{certificate.n_dims} coordinates",
        "rank": f"{'unknown' if certificate.rank is None else certificate.rank} of {of}",
        "features": certificate.n_features,
        "method": certificate.method,
        "rounding": f"{certificate.rounding:.3g}",
    }
    ends = {"lambda_min": certificate.lambda_min, "lambda_max": certificate.lambda_max}
    figures |= {name: f"{end:.6g}" for name, end in ends.items() if end is not None}
    if certificate.prime is not None:
        figures["prime"] = certificate.prime
    return figures | {"digest": certificate.digest}


def statistics_json(sums: Moments | TriangularFactor) -> dict[str, Any]:
    """Statistics in plain types, without their arrays."""
    names = ("n_dims", "n_outputs", "mode", "bias", "n_sequences", "n_rows", "total_weight")
    return {
        "kind": sums.kind,
        **{name: getattr(sums, name) for name in names},
        "n_features": sums.n_features,
        "longest_sequence": sums.max_length,
    }


def _numbers(row: NDArray) -> str:
    return "  ".join(f"{number:10.4g}" for number in row)
