"""The options that describe a layer, the same for every verb that takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

import polyattn as pa
from polyattn.cli import console
from polyattn.errors import InvalidInput
from polyattn.sequences import MODES

Command = TypeVar("Command", bound=Callable[..., Any])


def _coordinates(text: str) -> list[int] | slice:
    """One coordinate, several with commas between, or a slice A:B or A:B:STEP."""
    if ":" in text:
        parts = [int(part) if part else None for part in text.split(":")]
        if len(parts) > 3:
            raise ValueError(text)
        return slice(*parts)
    return [int(part) for part in text.split(",")]


def _decay(text: str) -> float | list[float] | str:
    """A number, several with commas between, or the word loo."""
    if text == "loo":
        return text
    numbers = [float(part) for part in text.split(",")]
    return numbers[0] if len(numbers) == 1 else numbers


COORDINATES = console.Parsed("A:B|I,J", _coordinates, "neither a slice A:B nor a list I,J,K")
DECAY = console.Parsed("float|loo", _decay, "neither a number, nor a list of them, nor loo")

OPTIONS = (
    click.option("--mode", type=click.Choice(MODES), help="Positions to predict [default: last]."),
    click.option("--bias", is_flag=True, help="Append a constant 1 to every token."),
    click.option("--no-include-query", is_flag=True, help="A token does not attend to itself."),
    click.option("--mean", is_flag=True, help="Divide by the number of tokens attended to."),
    click.option("--window", type=int, help="Attend to so many of the latest tokens."),
    click.option(
        "--decay",
        type=DECAY,
        help="Weigh a token at distance t by decay^t; 0.5,0.9: heads for each; loo: fit finds it.",
    ),
    click.option("--lags", type=int, help="Heads for each of so many distances."),
    click.option("--query", type=COORDINATES, help="Coordinates of the query, as 0:5 or 0,2,4."),
    click.option("--key", type=COORDINATES, help="Coordinates of the keys."),
    click.option("--value", type=COORDINATES, help="Coordinates of the values."),
    click.option("--skip", is_flag=True, help="Add a linear map of the query."),
    click.option("--intercept", is_flag=True, help="Add a constant to the outputs."),
)
NAMES = (
    "mode", "bias", "no_include_query", "mean", "window", "decay", "lags", "query", "key",
    "value", "skip", "intercept",
)  # fmt: skip


def form_options(command: Command) -> Command:
    """Add the options of a form to a verb."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def take_form(options: dict[str, Any]) -> pa.Form | None:
    """The form that was asked for, taken out of ``options``; None if nothing was."""
    given = {name: options.pop(name, None) for name in NAMES}
    chosen = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    if not chosen:
        return None
    if chosen.pop("no_include_query", False):
        chosen["include_query"] = False
    return pa.Form(**chosen)


def refuse_form(form: pa.Form | None, what: str) -> None:
    """Refuse options of a form beside a file that holds one."""
    if form is not None:
        chosen = (
            "no_include_query" if name == "include_query" else name for name in form.to_dict()
        )
        names = ", ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise InvalidInput(f"{what} already contain the form of the layer; leave {names} out.")
