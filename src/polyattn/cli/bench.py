"""``polyattn bench``: quick comparisons on this machine, answers included."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import RenderableType
from rich.table import Table

from polyattn.cli.console import emit, json_option, progress
from polyattn.errors import PolyattnError
from polyattn_papers.comparisons import ALL, Comparison, comparisons


@click.command()
@click.option(
    "--scale", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
    help="Multiplies the number of sequences.",
)  # fmt: skip
@json_option
def bench(scale: float, as_json: bool) -> None:
    """Compare polyattn with the obvious way to do the same, on small data.

    Both sides run in this process; a difference of the answers beyond rounding is an error.
    """
    found: list[Comparison] = []
    with progress("comparing", len(ALL)) as move:
        for comparison in comparisons(scale):
            found.append(comparison)
            move(len(found))
    rows = [asdict(one) | {"ratio": one.ratio, "agrees": one.agrees} for one in found]
    emit({"comparisons": rows}, [_table(found)], as_json)
    wrong = [one.name for one in found if not one.agrees]
    if wrong:
        raise PolyattnError(f"the answers differ beyond rounding in: {', '.join(wrong)}.")


def _table(found: list[Comparison]) -> RenderableType:
    table = Table(title="polyattn bench: the best of a few runs each", title_justify="left")
    for heading in ("job", "polyattn", "other way", "ratio", "answers differ by"):
        table.add_column(heading)
    for one in found:
        table.add_row(
            f"{one.name} ({one.sizes})\nagainst {one.other}",
            f"{1e3 * one.seconds:.1f} ms", f"{1e3 * one.other_seconds:.1f} ms",
            f"{one.ratio:.2f}x", f"{one.difference:.0e}" + ("" if one.agrees else " – WRONG"),
        )  # fmt: skip
    return table
