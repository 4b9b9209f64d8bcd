"""``polyattn audit``: a layer from anywhere, held against the optimum on the same data."""

from __future__ import annotations

from pathlib import Path

import click

from polyattn.auditing import Audit
from polyattn.auditing import audit as audit_layer
from polyattn.certify import domains
from polyattn.certify.verdict import IDENTIFIABLE, UNDECIDED
from polyattn.cli.certify import EXIT_CODES
from polyattn.cli.console import FILE, emit, json_option, output_option, passes, shown, working
from polyattn.cli.io import read_data, require_output
from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.storage import load, save


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--targets", type=FILE, help="Y as a .npy file.")
@click.option(
    "--domain", type=click.Choice(tuple(domains.BUILT_IN)), default="real", show_default=True,
    help="Where layers have to agree.",
)  # fmt: skip
@output_option("Where to save the audit (.safetensors).")
@json_option
@click.pass_context
def audit(
    ctx: click.Context, /, model: Path, data: Path, targets: Path | None, domain: str,
    output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Say how far MODEL is from the best layer for DATA, and whether DATA determine that one.

    MODEL is a layer or a fit result (.safetensors), DATA a .npz with X and Y as for polyattn fit.
    The best layer is that of linear attention; a MODEL of softmax attention may be better.

    Exit codes: 0 the data determine the layer, 3 they do not, 4 that is undecided, or they do
    and rounding hides whether MODEL is the best.
    """
    require_output(output)
    with working("reading"):
        layer = _layer(model)
        read = read_data(data, targets)
        X, Y = read.sequences(), read.targets(layer.mode)
    with passes("looking for the best layer"):
        found = audit_layer(layer, X, Y, domain=domain, sample_weight=read.weights)
    content, more = found.to_full_dict(), dict[str, object]()
    if output is not None:
        save(found, output)
        content["audit"] = more["saved to"] = str(output)
    emit(content, [*shown(found, more), *shown(found.certificate)], as_json)
    ctx.exit(_exit_code(found))


def _exit_code(found: Audit) -> int:
    """That of the certificate, or undecided where rounding hides whether the layer is optimal."""
    verdict = found.certificate.verdict
    undecided = verdict == IDENTIFIABLE and found.outcome.name == UNDECIDED
    return EXIT_CODES[UNDECIDED if undecided else verdict]


def _layer(path: Path) -> LinearAttention | SoftmaxAttention | FitResult:
    loaded = load(path)
    if not isinstance(loaded, LinearAttention | SoftmaxAttention | FitResult):
        raise InvalidInput(
            f"{str(path)!r} holds a {type(loaded).__name__}; MODEL must be a layer or a fit result."
        )
    return loaded
