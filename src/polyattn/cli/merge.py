"""``polyattn merge``: statistics that were saved apart, added up into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import polyattn as pa
from polyattn.cli import console, tables
from polyattn.cli.data import GivenData, data_argument
from polyattn.cli.tables import Grid
from polyattn.errors import InvalidInput


@click.command()
@data_argument(name="statistics")
@console.saved_option("Where to save the sum", required=True)
@console.json_option
def merge(statistics: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Add up STATISTICS that were saved apart.

    They are files (.safetensors) of Moments or of TriangularFactor, or patterns of their names,
    all of one kind, one form and equally many coordinates.  The sum is that of all their data
    together, for polyattn fit and certify.  Chunks that two of them count are refused, and so are
    two files with the same content.
    """
    given = GivenData(statistics)
    given.refuse_output(output)
    with console.working("adding up"):
        if not given.are_statistics:
            raise InvalidInput(
                f"{str(given.files[0])!r} is no file of statistics (.safetensors); "
                "polyattn.Moments.save writes them."
            )
        total = given.statistics("; merge adds up saved statistics.")
    content = total.to_dict() | {"files": [str(path) for path in given.files]}
    content["contents"] = total.contents.to_metadata()
    rows = {"files": len(given.files)} | console.saved(total, output, content, "output")
    console.emit(content, [*console.shown(total, rows, numbers=False), *_inside(total)], as_json)


def _inside(total: pa.Moments | pa.TriangularFactor) -> list[str | Grid]:
    """Which chunks are in, as a table of sources; what has no name cannot be recognised again."""
    sources: list[dict[str, Any]] = total.contents.to_metadata()["sources"]
    text: list[str | Grid] = []
    if sources:
        ranges = [
            (each["source"], ", ".join(f"{first}..{stop}" for first, stop in each["ranges"]))
            for each in sources[: console.MOST_LINES]
        ]
        text.append(tables.table("counted, each once", ("source", "ranges"), ranges))
    if len(sources) > console.MOST_LINES:
        text.append(f"and {len(sources) - console.MOST_LINES} more (--json prints all)")
    if total.contents.unnamed:
        which = "Some of these" if sources else "These"
        text.append(f"{which} data have no name: whether they are counted twice is not known.")
    return text
