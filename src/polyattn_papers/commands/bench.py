"""``polyattn bench``: polyattn beside the obvious way to do the same, on this machine."""

from __future__ import annotations

from dataclasses import asdict

import click

from polyattn.cli import console, tables
from polyattn.errors import PolyattnError
from polyattn_papers.comparisons import ALL, Comparison, comparisons


@click.command()
@click.option(
    "--size-factor", "--scale", "scale", type=click.FloatRange(0, min_open=True), default=1.0,
    show_default=True, help="Multiplies the number of sequences.",
)  # fmt: skip
@console.json_option
def bench(scale: float, as_json: bool) -> None:
    """Compare polyattn with the obvious way to do the same.

    On small data, both sides in this process; answers that differ beyond rounding are an error.
    """
    found: list[Comparison] = []
    with console.progress("comparing", len(ALL)) as move:
        for comparison in comparisons(scale):
            found.append(comparison)
            move(len(found))
    rows = [asdict(one) | {"ratio": one.ratio, "agrees": one.agrees} for one in found]
    headings = ("job", "polyattn", "other way", "ratio", "answers differ by")
    lines = [
        (
            f"{one.name} ({one.sizes})\nagainst {one.other}",
            f"{1e3 * one.seconds:.1f} ms",
            f"{1e3 * one.other_seconds:.1f} ms",
            f"{one.ratio:.2f}x",
            f"{one.difference:.0e}" + ("" if one.agrees else " – WRONG"),
        )
        for one in found
    ]
    text = tables.table("polyattn bench: the best of a few runs each", headings, lines)
    console.emit({"comparisons": rows}, [text], as_json)
    wrong = [one.name for one in found if not one.agrees]
    if wrong:
        raise PolyattnError(f"the answers differ beyond rounding in: {', '.join(wrong)}.")
