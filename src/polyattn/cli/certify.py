"""``polyattn certify`` and ``audit``: what data determine, and how good a layer is on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray
from rich.console import RenderableType

import polyattn as pa
from polyattn.certify import Certificate, NextData, Witness
from polyattn.certify.certify import METHODS
from polyattn.certify.check import objections
from polyattn.certify.outcomes import IDENTIFIABLE, UNDECIDED
from polyattn.cli import console
from polyattn.cli.form import FormCommand, form_options, refuse_form, take_form
from polyattn.cli.io import NEEDED, load_as, read_data
from polyattn.display import plain
from polyattn.errors import InvalidInput

# Codes 1 and 2 are errors and wrong usage.
EXIT_CODES = {"identifiable": 0, "not_identifiable": 3, "undecided": 4}


def _lengths(text: str) -> int | tuple[int, int | None]:
    """The number, or the pair (least, most)."""
    least, colon, most = text.partition(":")
    return (int(least), int(most) if most else None) if colon else int(least)


LENGTHS = console.Parsed("N|A:B", _lengths, "neither a number N nor a range A:B or A:")


@click.command(cls=FormCommand)
@click.argument("data", type=console.FILE)
@form_options
@click.option(
    "--domain", type=click.Choice(tuple(pa.domains.BUILT_IN)),
    help="Where layers have to agree [default: real].",
)  # fmt: skip
@click.option("--lengths", type=LENGTHS, help="Of the domain's sequences: N, A:B or A: [any].")
@click.option("--method", type=click.Choice(METHODS), help="Arithmetic [default: auto].")
@console.saved_option("Where to save the certificate", "--save", suffix=".json")
@click.option(
    "--certificate", "--check", "stored", type=console.FILE,
    help="Recompute this certificate instead of making one.",
)  # fmt: skip
@click.option("--witness", is_flag=True, help="Show two layers that the data cannot tell apart.")
@click.option("--next", "next_data", is_flag=True, help="Say which sequences to collect.")
@console.json_option
def certify(
    data: Path, output: Path | None, stored: Path | None, witness: bool, next_data: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Say whether DATA determine the layer, and prove it.

    DATA is a .npz or .npy as for polyattn fit, of which X and its context are read; or saved
    statistics (.safetensors).

    Exit codes: 0 identifiable, 3 not identifiable, 4 undecided; with --certificate 0 if it
    is true of DATA, and 1 with every objection otherwise.
    """
    if stored is not None:
        asked = _given(options | {"output": output, "witness": witness, "next": next_data})
        if asked:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
            raise InvalidInput(
                f"with --certificate everything is taken from its file; leave {names} out."
            )
        _check(data, stored, as_json)
        return
    form, chosen = take_form(options), _given(options)
    domain = pa.domains.BUILT_IN[chosen.pop("domain", "real")](chosen.pop("lengths", None))
    with console.working("reading the data"):
        if data.suffix == ".safetensors":
            chosen["statistics"] = load_as(data, (pa.Moments, pa.TriangularFactor), NEEDED)
            refuse_form(form, "statistics")
        else:
            read = read_data(data)
            chosen |= {"X": read.sequences(), "context": read.context(), "form": form}
    with console.passes("certifying"):
        certificate = pa.certify(domain=domain, **chosen)
    content = certificate.to_full_dict()
    text = console.shown(certificate, console.saved(certificate, output, content))
    if witness and certificate.verdict == "not_identifiable":
        _add_witness(certificate.witness(), content, text)
    if next_data and not certificate.identifiable:
        _add_next(certificate.next_data(), content, text)
    console.emit(content, text, as_json, EXIT_CODES[certificate.verdict])


@click.command()
@click.argument("model", type=console.FILE)
@click.argument("data", type=console.FILE)
@click.option("--targets", type=console.FILE, help="Y as a .npy file.")
@click.option(
    "--domain", type=click.Choice(tuple(pa.domains.BUILT_IN)), default="real", show_default=True,
    help="Where layers have to agree.",
)  # fmt: skip
@console.saved_option("Where to save the audit")
@console.json_option
def audit(
    model: Path, data: Path, targets: Path | None, domain: str, output: Path | None, as_json: bool
) -> None:
    """Say how far MODEL is from the best layer for DATA.

    And whether DATA determine that one.  MODEL is a layer or a fit result (.safetensors), DATA a
    .npz with X and Y as for polyattn fit.  The best layer is that of linear attention; a MODEL of
    softmax attention may be better.

    Exit codes: 0 the data determine the layer, 3 they do not, 4 that is undecided, or they do
    and rounding hides whether MODEL is the best.
    """
    with console.working("reading"):
        kinds = (pa.LinearAttention, pa.SoftmaxAttention, pa.FitResult)
        layer = load_as(model, kinds, "; MODEL must be a layer or a fit result.")
        read = read_data(data, targets)
        X, Y = read.sequences(), read.targets(layer.mode)
    with console.passes("looking for the best layer"):
        weights, context = read.weights, read.context()
        found = pa.audit(layer, X, Y, domain=domain, sample_weight=weights, context=context)
    content = found.to_full_dict()
    text = [
        *console.shown(found, console.saved(found, output, content, "audit")),
        *console.shown(found.certificate),
    ]
    # Where rounding hides whether the layer is optimal, the answer is undecided, too.
    verdict = found.certificate.verdict
    hidden = verdict == IDENTIFIABLE and found.outcome.name == UNDECIDED
    console.emit(content, text, as_json, EXIT_CODES[UNDECIDED if hidden else verdict])


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; 0 is one that was."""
    return {
        name: value for name, value in options.items() if value is not None and value is not False
    }


def _check(data: Path, path: Path, as_json: bool) -> None:
    """Print whether the certificate holds."""
    with console.working("reading the data"):
        certificate, read = Certificate.load(path), read_data(data)
        X, context = read.sequences(), read.context()
    with console.passes("checking"):
        found = objections(certificate, X, context=context)
    content = {
        "verified": not found, "objections": found, "certificate": str(path),
        "verdict": certificate.verdict,
    }  # fmt: skip
    text: list[RenderableType] = [
        "The certificate is true of these data: all of it was recomputed.",
        certificate.sentence,
    ]
    if found:
        text = ["The certificate is not true of these data.", *(f"- {each}" for each in found)]
    console.emit(content, text, as_json, 1 if found else 0)


def _add_witness(witness: Witness, content: dict[str, Any], text: list[RenderableType]) -> None:
    arrays = {name: getattr(witness, name) for name in ("input", "output_a", "output_b")}
    content["witness"] = plain(arrays) | {
        "difference": witness.difference,
        "training_disagreement": witness.training_disagreement,
        "layer_a": witness.layer_a.to_full_dict(),
        "layer_b": witness.layer_b.to_full_dict(),
    }
    rows = {name.replace("_", " "): _tokens(array) for name, array in arrays.items()}
    text += [witness.sentence, console.facts("witness", rows)]


def _add_next(found: NextData, content: dict[str, Any], text: list[RenderableType]) -> None:
    names = ("sequences", "ranks", "lambda_min", "complete")
    content["next_data"] = plain({name: getattr(found, name) for name in names})
    text.append(found.sentence)
    rows = {f"{i + 1}": _tokens(sequence) for i, sequence in enumerate(found.sequences)}
    if rows:
        text.append(console.facts("sequences to collect", rows))


def _tokens(array: NDArray) -> str:
    """One line per token; --json prints all digits."""
    rows = array.reshape(-1, array.shape[-1])
    return "\n".join("  ".join(f"{number:10.4g}" for number in row) for row in rows)
