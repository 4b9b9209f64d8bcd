"""``polyattn reproduce``: an experiment of the papers, run again on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from polyattn.cli import console, tables
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
@console.output_option(
    "The folder to write to.", "--out", default=Path("reproduction"), metavar="DIR", callback=None
)
@click.option("--recompute", "--fresh", "fresh", is_flag=True, help="Run finished cells again.")
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True,
    help="Cells at a time; above 1 measured times share the machine.",
)  # fmt: skip
@console.json_option
def reproduce(name: str, profile: str, output: Path, fresh: bool, jobs: int, as_json: bool) -> None:
    """Run an experiment of the papers again.

    It writes DIR/NAME with table, picture and page.  An interrupted run goes on where it was when
    the same command is given again.  The exit code is 1 if a gate fails.
    """
    names = NAMES if name == "all" else (find(name).name,)
    made = [_one(one, profile, output, fresh, jobs) for one in names]
    # The rows are in the table that was written.
    summaries = [
        {key: value for key, value in one.to_dict().items() if key != "rows"} for one in made
    ]
    index = str(output / "index.html")
    gates = [
        tables.table(
            f"{one.experiment.name}: {one.experiment.title}",
            ("gate", "seen", ""),
            ((gate.claim, gate.seen, "holds" if gate.passed else "FAILS") for gate in one.gates),
        )
        for one in made
    ]
    console.emit({"reproductions": summaries, "index": index}, [*gates, f"page: {index}"], as_json)
    failed = [one.experiment.name for one in made if not one.passed]
    if failed:
        raise PolyattnError(f"gates fail in: {', '.join(failed)}.")


def _one(name: str, profile: str, output: Path, fresh: bool, jobs: int) -> Reproduction:
    done = 0
    total = len(find(name).cells(profile))
    try:
        with console.progress(name, total) as move:

            def follow(number: int, _: int, __: str) -> None:
                nonlocal done
                done = number
                move(number)

            return run(name, output, profile, fresh, jobs, follow)
    except KeyboardInterrupt:
        click.echo(
            f"\n{name}: interrupted, {done} of {total} cells are finished; "
            f"the same command{' without --recompute' if fresh else ''} goes on from there.",
            err=True,
        )
        raise
