"""``polyattn learning-curve``: how the risk of the best layer falls with more data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import polyattn as pa
from polyattn.cli import console
from polyattn.cli.data import GivenData, data_argument, data_options, take_data
from polyattn.cli.form import form_options, take_form
from polyattn.cli.sections import SectionedCommand
from polyattn.solve.ridge import RULES

SIZES = console.Parsed(
    "SIZES",
    lambda text: [int(part) for part in text.split(",")],
    "not a list of whole numbers such as 10,100,1000",
)


@click.command("learning-curve", cls=SectionedCommand)
@data_argument()
@data_options
@click.option("--train-sizes", type=SIZES, help="Numbers of sequences [default: eight].")
@click.option(
    "--test-data", type=console.FILE, multiple=True,
    help="What to test on, files like DATA; may be repeated.",
)  # fmt: skip
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
    data: tuple[Path, ...],
    test_data: tuple[Path, ...],
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit more and more of DATA, and measure the risk on the rest.

    Every fit is a global optimum: the curve shows the data and the layer, and nothing of an
    optimiser.  DATA is a .npz with arrays X and Y as for polyattn fit, but without weights: every
    sequence counts once.  Several files, and tables, are taken as by fit, and held in memory.  A
    quarter of the sequences is held out to test on, unless --test-data is given.
    Error bars are over repeats, and of test risks over the sequences held out, too.
    polyattn report draws a curve that was saved.
    """
    form, given = take_form(options) or pa.Form(), take_data(data, options)
    arrays = _arrays(given, form.mode)
    if test_data:
        tested = _arrays(given.others(test_data), form.mode)
        arrays |= {f"{name}_test": each for name, each in tested.items()}
    with console.passes("fitting"):
        curve = pa.learning_curve(**arrays, form=form, **options)
    content = curve.to_dict()
    rows = console.saved(curve, output, content, "saved")
    console.emit(content, console.shown(curve, rows, numbers=False), as_json)


def _arrays(given: GivenData, mode: str) -> dict[str, Any]:
    held = given.held("learning-curve", mode)
    held.require_equal_weights("learning-curve")
    return {"X": held.X, "Y": held.Y, "context": held.context}
