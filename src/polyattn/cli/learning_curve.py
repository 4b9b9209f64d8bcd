"""``polyattn learning-curve``: how the risk of the best layer falls with more data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.form import FormCommand, form_options, take_form
from polyattn.cli.io import read_data
from polyattn.solve.ridge import RULES

SIZES = console.Parsed(
    "int,...",
    lambda text: [int(part) for part in text.split(",")],
    "not a list of whole numbers such as 10,100,1000",
)


@click.command("learning-curve", cls=FormCommand)
@click.argument("data", type=console.FILE)
@click.option("--targets", type=console.FILE, help="Y as a .npy file.")
@click.option("--train-sizes", type=SIZES, help="Numbers of sequences [default: eight].")
@click.option("--test-data", type=console.FILE, help="What to test on, a .npz like DATA.")
@form_options
@click.option(
    "--ridge", type=console.number_or(float, RULES), default=0.0, show_default=True,
    help="The penalty, or the rule that chooses it for every fit.",
)  # fmt: skip
@click.option(
    "--n-repeats", type=int, default=5, show_default=True,
    help="How often sequences are drawn anew.",
)  # fmt: skip
@click.option("--random-state", "--seed", "random_state", type=int, default=0, show_default=True)
@console.saved_option("Where to save the curve")
@console.json_option
def learning_curve(
    data: Path,
    targets: Path | None,
    test_data: Path | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit more and more of DATA, and measure the risk on the rest.

    Every fit is a global optimum: the curve shows the data and the layer, and nothing of an
    optimiser.  DATA is a .npz with arrays X and Y as for polyattn fit, but without weights: every
    sequence counts once.  A quarter of it is held out to test on, unless --test-data is given.
    Error bars are over repeats, and of test risks over the sequences held out, too.
    polyattn report draws a curve that was saved.
    """
    form = take_form(options) or pa.Form()
    given = _arrays(data, targets, form.mode)
    if test_data is not None:
        tested = _arrays(test_data, None, form.mode)
        given |= {f"{name}_test": each for name, each in tested.items()}
    with console.passes("fitting"):
        curve = pa.learning_curve(**given, form=form, **options)
    content = curve.to_dict()
    rows = console.saved(curve, output, content, "saved")
    console.emit(content, console.shown(curve, rows, numbers=False), as_json)


def _arrays(path: Path, targets: Path | None, mode: str) -> dict[str, Any]:
    with console.working("reading the data"):
        read = read_data(path, targets)
        X = read.sequences()
        read.require_equal_weights(X, "learning-curve")
        return {"X": X, "Y": read.targets(mode), "context": read.context()}
