"""``polyattn audit``: a layer from anywhere, held against the optimum on the same data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from polyattn.auditing import Audit
from polyattn.auditing import audit as audit_layer
from polyattn.certify import domains
from polyattn.certify.document import to_document
from polyattn.certify.verdict import IDENTIFIABLE, UNDECIDED
from polyattn.cli.certify import EXIT_CODES
from polyattn.cli.console import emit, facts, json_option, passes, working
from polyattn.cli.io import read_data
from polyattn.cli.options import FILE
from polyattn.cli.show import certificate_facts
from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.storage import load


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--targets", type=FILE, help="Y as a .npy file.")
@click.option(
    "--domain", type=click.Choice(tuple(domains.BUILT_IN)), default="real", show_default=True,
    help="Where layers have to agree.",
)  # fmt: skip
@json_option
@click.pass_context
def audit(
    ctx: click.Context, /, model: Path, data: Path, targets: Path | None, domain: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Say how far MODEL is from the best layer for DATA, and whether DATA determine that one.

    MODEL is a layer or a fit result (.safetensors), DATA a .npz with X and Y as for polyattn fit.
    The best layer is that of linear attention; a MODEL of softmax attention may be better.

    Exit codes: 0 the data determine the layer, 3 they do not, 4 that is undecided, or they do
    and rounding hides whether MODEL is the best.
    """
    with working("reading"):
        layer = _layer(model)
        read = read_data(data, targets)
        X, Y = read.sequences(), read.targets(layer.mode)
    with passes("looking for the best layer"):
        found = audit_layer(layer, X, Y, domain=domain, sample_weight=read.weights)
    tables = [
        facts("audit", _facts(found)),
        facts("certificate", certificate_facts(found.certificate)),
    ]
    emit(
        audit_json(found),
        [found.sentence, tables[0], found.certificate.sentence, tables[1]],
        as_json,
    )
    ctx.exit(_exit_code(found))


def audit_json(found: Audit) -> dict[str, Any]:
    """An audit in plain types; null where there is no bound."""
    limit = None if found.implied is None else found.implied.distance
    return {
        "outcome": found.outcome,
        "risk": found.risk,
        "optimal_risk": found.optimal_risk,
        "gap": found.gap,
        "rounding": found.rounding,
        "distance": found.distance,
        "relative_distance": found.relative_distance,
        "implied_distance": limit if limit is not None and math.isfinite(limit) else None,
        "consistent": bool(found.consistent),
        "sentence": found.sentence,
        "certificate": to_document(found.certificate),
    }


def _facts(found: Audit) -> dict[str, object]:
    rows: dict[str, object] = {
        "outcome": found.outcome,
        "risk": f"{found.risk:.6g}",
        "optimal risk": f"{found.optimal_risk:.6g}",
        "gap": f"{found.gap:.6g} (rounding: at most {found.rounding:.1e})",
    }
    if found.distance is not None:
        rows["distance of coefficients"] = f"{found.distance:.6g}"
    if found.relative_distance is not None:
        rows["beside the norm of the best"] = f"{found.relative_distance:.6g}"
    if found.implied is not None and math.isfinite(found.implied.distance):
        rows["at most, by the certificate"] = f"{found.implied.distance:.6g}"
    return rows | {"consistent": "yes" if found.consistent else "no"}


def _exit_code(found: Audit) -> int:
    """That of the certificate, or undecided where rounding hides whether the layer is optimal."""
    verdict = found.certificate.verdict
    undecided = verdict == IDENTIFIABLE and found.outcome == UNDECIDED
    return EXIT_CODES[UNDECIDED if undecided else verdict]


def _layer(path: Path) -> LinearAttention | SoftmaxAttention | FitResult:
    loaded = load(path)
    if not isinstance(loaded, LinearAttention | SoftmaxAttention | FitResult):
        raise InvalidInput(
            f"{str(path)!r} holds a {type(loaded).__name__}; MODEL must be a layer or a fit result."
        )
    return loaded
