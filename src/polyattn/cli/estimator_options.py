"""The options that make a fit an estimator: ``--classify``, ``--scale`` and ``--impute``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from polyattn.cli.data import Command

# Those of SequenceImputer that need no number; named here, since scikit-learn is slow to load.
STRATEGIES = ("previous", "linear", "mean", "median")

OPTIONS = (
    click.option(
        "--classify", is_flag=True,
        help="Targets are labels of classes, texts or whole numbers; fit a classifier.",
    ),
    click.option(
        "--scale", is_flag=True,
        help="Scale each coordinate to mean 0 and deviation 1 first, over all tokens.",
    ),
    click.option(
        "--impute", type=click.Choice(STRATEGIES),
        help="Fill missing values of tokens first, in this way.",
    ),
)  # fmt: skip


def estimator_options(command: Command) -> Command:
    """Add the options that make the fit an estimator."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Wanted:
    """What is fitted: a classifier or a regressor, and what happens to tokens before."""

    classify: bool
    scale: bool
    impute: str | None

    def __bool__(self) -> bool:
        return self.classify or self.scale or self.impute is not None

    @property
    def option(self) -> str:
        """The first of the options that were given."""
        return "--classify" if self.classify else "--scale" if self.scale else "--impute"
