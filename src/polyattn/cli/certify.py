"""``polyattn certify`` and ``audit``: what data determine, and how good a layer is on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from numpy.typing import NDArray

import polyattn as pa
from polyattn.certify import Certificate, NextData, Witness
from polyattn.certify.certify import METHODS
from polyattn.certify.check import objections
from polyattn.certify.outcomes import IDENTIFIABLE, UNDECIDED
from polyattn.cli import console, tables
from polyattn.cli.data import GivenData, data_argument, data_options, input_options, take_data
from polyattn.cli.form import form_options, refuse_form, take_form
from polyattn.cli.gathering import GatheringOptions, gathering_options, take_gathering
from polyattn.cli.io import NEEDED
from polyattn.cli.models import FittedEstimator
from polyattn.cli.sections import SectionedCommand
from polyattn.cli.tables import Grid
from polyattn.display import plain
from polyattn.errors import InvalidInput

# Codes 1 and 2 are errors and wrong usage.
EXIT_CODES = {"identifiable": 0, "not_identifiable": 3, "undecided": 4}


def _lengths(text: str) -> int | tuple[int, int | None]:
    """The number, or the pair (least, most)."""
    least, colon, most = text.partition(":")
    return (int(least), int(most) if most else None) if colon else int(least)


LENGTHS = console.Parsed("N|A:B", _lengths, "neither a number N nor a range A:B or A:")


@click.command(cls=SectionedCommand)
@data_argument()
@input_options
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
@gathering_options
@console.json_option
def certify(
    data: tuple[Path, ...], output: Path | None, stored: Path | None, witness: bool,
    next_data: bool, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Say whether DATA determine the layer, and prove it.

    DATA is a .npz or .npy as for polyattn fit, of which X and its context are read; or saved
    statistics (.safetensors).  Several files, patterns and tables are taken as by polyattn fit.

    Exit codes: 0 identifiable, 3 not identifiable, 4 undecided; with --certificate 0 if it
    is true of DATA, and 1 with every objection otherwise.
    """
    given, gathering = take_data(data, options), take_gathering(options, output)
    if stored is not None:
        gathering.refuse("with --certificate the data are read as they are needed")
        asked = _given(options | {"output": output, "witness": witness, "next": next_data})
        if asked:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
            raise InvalidInput(
                f"with --certificate everything is taken from its file; leave {names} out."
            )
        _check(given, stored, as_json)
        return
    form, chosen = take_form(options), _given(options)
    domain = pa.domains.BUILT_IN[chosen.pop("domain", "real")](chosen.pop("lengths", None))
    with console.working("reading the data"):
        chosen |= _evidence(given, form, gathering)
    with gathering.arguments() as more, console.passes("certifying", chosen.get("X")):
        certificate = pa.certify(domain=domain, **chosen, **more)
    content = certificate.to_full_dict()
    text = console.shown(certificate, console.saved(certificate, output, content))
    if witness and certificate.verdict == "not_identifiable":
        _add_witness(certificate.witness(), content, text)
    if next_data and not certificate.identifiable:
        _add_next(certificate.next_data(), content, text)
    console.emit(content, text, as_json, EXIT_CODES[certificate.verdict])


@click.command(cls=SectionedCommand)
@click.argument("model", type=console.FILE)
@data_argument()
@data_options
@click.option(
    "--domain", type=click.Choice(tuple(pa.domains.BUILT_IN)), default="real", show_default=True,
    help="Where layers have to agree.",
)  # fmt: skip
@console.saved_option("Where to save the audit")
@console.json_option
def audit(
    model: Path, data: tuple[Path, ...], domain: str, output: Path | None, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Say how far MODEL is from the best layer for DATA.

    And whether DATA determine that one.  MODEL is a layer, a fit result or an estimator
    (.safetensors), DATA a .npz with X and Y, or several files or tables, as for polyattn fit.  The
    best layer is that of linear attention; a MODEL of softmax attention may be better.  A
    classifier is judged by squared error of the indicators of its classes, for tokens as its
    steps --impute and --scale make them.

    If MODEL is a softmax layer and DATA have no Y: how much of each of its heads linear attention
    explains, on a quarter of the sequences, which is held out.

    Exit codes: 0 the data determine the layer, 3 they do not, 4 that is undecided, or they do
    and rounding hides whether MODEL is the best.  Of heads 0, and 4 where they are undecided.
    """
    with console.working("reading"):
        loaded, taken = pa.load(model), take_data(data, options)
    if isinstance(loaded, pa.SoftmaxAttention) and not taken.has_targets:
        _audit_heads(loaded, taken, domain, output, as_json)
        return
    with console.working("reading"):
        layer, given = _audited(model, loaded, taken)
    with console.passes("looking for the best layer", given["X"]):
        found = pa.audit(layer, **given, domain=domain)
    content = found.to_full_dict()
    text = [
        *console.shown(found, console.saved(found, output, content, "audit")),
        *console.shown(found.certificate),
    ]
    # Where rounding hides whether the layer is optimal, the answer is undecided, too.
    verdict = found.certificate.verdict
    hidden = verdict == IDENTIFIABLE and found.outcome.name == UNDECIDED
    console.emit(content, text, as_json, EXIT_CODES[UNDECIDED if hidden else verdict])


def _audit_heads(
    layer: pa.SoftmaxAttention, given: GivenData, domain: str, output: Path | None, as_json: bool
) -> None:
    """Print how linear the heads of a softmax layer are."""
    held = given.held("audit", None, targets=False)
    for name, value in (("weights", held.weights), ("context", held.context)):
        if value is not None:
            raise InvalidInput(f"the heads of a softmax layer are audited without {name}.")
    if domain != "real":
        raise InvalidInput("--domain belongs to an audit with targets; leave it out.")
    with console.working("looking into the heads"):
        found = pa.audit(layer, held.X)
    content = found.to_full_dict()
    text = console.shown(found, console.saved(found, output, content, "audit"))
    console.emit(content, text, as_json, 0 if found.outcome.ok else EXIT_CODES[UNDECIDED])


def _audited(model: Path, loaded: Any, given: GivenData) -> tuple[Any, dict[str, Any]]:
    """The layer of MODEL, and data as ``audit`` takes them."""
    fitted = FittedEstimator.of(loaded)
    if fitted is not None:
        # scikit-learn is slow to load.
        from polyattn.cli.estimator_data import audited_data

        return fitted.layer, audited_data(given, fitted)
    if not isinstance(loaded, pa.LinearAttention | pa.SoftmaxAttention | pa.FitResult):
        raise InvalidInput(
            f"{str(model)!r} holds a {type(loaded).__name__}; MODEL must be a layer, a fit result "
            "or an estimator."
        )
    return loaded, given.arguments(loaded.mode)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; 0 is one that was."""
    return {
        name: value for name, value in options.items() if value is not None and value is not False
    }


def _evidence(
    given: GivenData, form: pa.Form | None, gathering: GatheringOptions
) -> dict[str, Any]:
    """Data or statistics, as ``certify`` takes them."""
    if given.are_statistics:
        statistics = given.statistics(NEEDED)
        refuse_form(form, "statistics")
        gathering.refuse("statistics are sums already, and nothing is gathered")
        return {"statistics": statistics}
    return given.inputs(gathering.asked) | {"form": form}


def _check(given: GivenData, path: Path, as_json: bool) -> None:
    """Print whether the certificate holds."""
    with console.working("reading the data"):
        certificate, data = Certificate.load(path), given.inputs()
    with console.passes("checking", data["X"]):
        found = objections(certificate, **data)
    content = {
        "verified": not found, "objections": found, "certificate": str(path),
        "verdict": certificate.verdict,
    }  # fmt: skip
    text: list[str | Grid] = [
        "The certificate is true of these data: all of it was recomputed.",
        certificate.sentence,
    ]
    if found:
        text = ["The certificate is not true of these data.", *(f"- {each}" for each in found)]
    console.emit(content, text, as_json, 1 if found else 0)


def _add_witness(witness: Witness, content: dict[str, Any], text: list[str | Grid]) -> None:
    arrays = {name: getattr(witness, name) for name in ("input", "output_a", "output_b")}
    content["witness"] = plain(arrays) | {
        "difference": witness.difference,
        "training_disagreement": witness.training_disagreement,
        "layer_a": witness.layer_a.to_full_dict(),
        "layer_b": witness.layer_b.to_full_dict(),
    }
    rows = {name.replace("_", " "): _tokens(array) for name, array in arrays.items()}
    text += [witness.sentence, tables.facts("witness", rows)]


def _add_next(found: NextData, content: dict[str, Any], text: list[str | Grid]) -> None:
    names = ("sequences", "ranks", "lambda_min", "complete")
    content["next_data"] = plain({name: getattr(found, name) for name in names})
    text.append(found.sentence)
    rows = {f"{i + 1}": _tokens(sequence) for i, sequence in enumerate(found.sequences)}
    if rows:
        text.append(tables.facts("sequences to collect", rows))


def _tokens(array: NDArray) -> str:
    """One line per token; --json prints all digits."""
    rows = array.reshape(-1, array.shape[-1])
    return "\n".join("  ".join(f"{number:10.4g}" for number in row) for row in rows)
