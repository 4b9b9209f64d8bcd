"""``polyattn reproduce``: an experiment of a paper, from data to table, picture and page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table

from polyattn.cli.console import emit, json_option, plain, progress
from polyattn.cli.options import FILE
from polyattn.errors import PolyattnError
from polyattn_papers.reproduction import NAMES, Reproduction, find
from polyattn_papers.reproduction import reproduce as run
from polyattn_papers.reproduction.experiment import PROFILES


@click.command(epilog="Names: " + ", ".join((*NAMES, "all")) + ".")
@click.argument("name")
@click.option(
    "--profile", type=click.Choice(PROFILES), default="smoke", show_default=True,
    help="smoke: under a minute each; full: the paper's sizes, an hour or two in all.",
)  # fmt: skip
@click.option(
    "--out", type=FILE, default=Path("reproduction"), show_default=True, metavar="DIR",
    help="The folder to write to.",
)  # fmt: skip
@click.option("--fresh", is_flag=True, help="Run finished cells again.")
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True,
    help="Cells at a time; above 1 measured times share the machine.",
)  # fmt: skip
@json_option
def reproduce(name: str, profile: str, out: Path, fresh: bool, jobs: int, as_json: bool) -> None:
    """Run an experiment of the papers again and write DIR/NAME with table, picture and page.

    An interrupted run goes on where it was when the same command is given again.  The exit code
    is 1 if a gate fails.
    """
    names = NAMES if name == "all" else (find(name).name,)
    made = [_one(one, profile, out, fresh, jobs) for one in names]
    content = {"reproductions": [_summary(one) for one in made], "index": str(out / "index.html")}
    emit(content, [*map(_table, made), f"page: {out / 'index.html'}"], as_json)
    failed = [one.experiment.name for one in made if not one.passed]
    if failed:
        raise PolyattnError(f"gates fail in: {', '.join(failed)}.")


def _one(name: str, profile: str, out: Path, fresh: bool, jobs: int) -> Reproduction:
    done = 0
    total = len(find(name).cells(profile))
    try:
        with progress(name, total) as move:

            def follow(number: int, _: int, __: str) -> None:
                nonlocal done
                done = number
                move(number)

            return run(name, out, profile, fresh, jobs, follow)
    except KeyboardInterrupt:
        click.echo(
            f"\n{name}: interrupted, {done} of {total} cells are finished; "
            f"the same command{' without --fresh' if fresh else ''} goes on from there.",
            err=True,
        )
        raise


def _summary(made: Reproduction) -> dict[str, Any]:
    """What is printed: all but the rows, which are in the table."""
    return {key: value for key, value in made.to_dict().items() if key != "rows"}


def _table(made: Reproduction) -> RenderableType:
    table = Table(title=f"{made.experiment.name}: {made.experiment.title}", title_justify="left")
    for heading in ("gate", "seen", ""):
        table.add_column(heading)
    for gate in made.gates:
        table.add_row(plain(gate.claim), plain(gate.seen), "holds" if gate.passed else "FAILS")
    return table
