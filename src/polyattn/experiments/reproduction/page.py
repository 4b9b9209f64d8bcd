"""The page of an experiment: the paper's claim, ours, gates, picture, table; and the index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polyattn.errors import FileFormatError
from polyattn.experiments.reproduction.outcome import Reproduction
from polyattn.report.figures import drawing, inline_svg, save_figure
from polyattn.report.page import Section, fill, render_page, write_page

HERE = "polyattn.experiments.reproduction"

# A longer table stands behind a click.
SHORT_TABLE = 12


def write_pages(made: Reproduction, folder: Path) -> None:
    """figure.png, figure.svg and index.html in ``folder``, and the index beside it."""
    with drawing():
        figure = made.experiment.draw(made.rows)
    save_figure(figure, folder / "figure")
    experiment = made.experiment
    sections = [
        Section("What the paper says", fill("claim", HERE, made=made)),
        Section("What we found", fill("findings", HERE, made=made)),
        Section("The picture", inline_svg(figure, experiment.title)),
        Section("Gates", fill("gates", HERE, gates=made.gates)),
        Section("All rows", fill("rows", HERE, rows=made.rows, short_table=SHORT_TABLE)),
        Section("Run it again", fill("again", HERE, made=made)),
    ]
    lead = f"{experiment.name}, profile {made.profile}, {made.surroundings['date']}"
    write_page(folder / "index.html", render_page(experiment.title, lead, sections))
    write_index(folder.parent)


def write_index(out: Path) -> None:
    """OUT/index.html: every experiment that has a table there."""
    found = {path.parent.name: read_table(path) for path in sorted(out.glob("*/table.json"))}
    # Other things may be called so, too.
    tables = [table for folder, table in found.items() if table.get("name") == folder]
    sections = [Section("Experiments", fill("index", HERE, tables=tables))]
    lead = "Experiments of the papers, run again by polyattn."
    write_page(out / "index.html", render_page("The papers, reproduced", lead, sections))


def read_table(path: Path) -> dict[str, Any]:
    """The content of a table.json."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"{str(path)!r} is damaged ({error}); run its experiment again, or remove it."
        ) from None
    return content
