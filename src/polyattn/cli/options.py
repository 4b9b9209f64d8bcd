"""Option types that click lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

# Files are checked where they are read, so that a missing one is an error (1), not usage (2).
FILE = click.Path(path_type=Path)


class NumberOr(click.ParamType):
    """A number, or one of a few words."""

    def __init__(self, number: type[int] | type[float], words: tuple[str, ...]) -> None:
        self.number, self.words = number, words
        self.name = "|".join((number.__name__, *words))

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float | str:
        """The word itself, or the number."""
        if value in self.words:
            return str(value)
        try:
            return self.number(value)
        except ValueError:
            words = ", ".join(self.words)
            self.fail(f"{value!r} is neither a number nor one of {words}.", param, ctx)


class Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "float,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        """The list."""
        try:
            return [float(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers such as 0.1,1,10.", param, ctx)
