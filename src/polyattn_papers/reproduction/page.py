"""The page of an experiment: the paper's claim, ours, gates, picture, table; and the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyattn.files.fields import digest, entries, flag, listed, number, one_of, text
from polyattn.report.figures import drawing, inline_svg, save_figure
from polyattn.report.page import Section, fill, render_page, write_page
from polyattn_papers.reproduction.experiment import PROFILES
from polyattn_papers.reproduction.outcome import Reproduction
from polyattn_papers.reproduction.sealing import (
    ROWS,
    SURROUNDINGS,
    read_object,
    require_sealed,
)

HERE = "polyattn_papers.reproduction"

TABLE = entries({
    "name": text(1000), "title": text(), "reference": text(), "claim": text(),
    "findings": listed(text()),
    "gates": listed(entries({"claim": text(), "passed": flag, "seen": text()})),
    "passed": flag, "profile": one_of(PROFILES), "seconds": number(0),
    "surroundings": SURROUNDINGS, "rows": ROWS, "digest": digest,
})  # fmt: skip

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
    found = (read_table(path) for path in sorted(out.glob("*/table.json")))
    sections = [
        Section("Experiments", fill("index", HERE, tables=[each for each in found if each])),
    ]
    lead = "Experiments of the papers, run again by polyattn."
    write_page(out / "index.html", render_page("The papers, reproduced", lead, sections))


def read_table(path: Path) -> dict[str, Any] | None:
    """The content of the table.json of an experiment, which has the name of its folder.

    Other things may be called so, too: None for the table of anything else.
    """
    remedy = "run its experiment again, or remove it"
    content = read_object(path, remedy)
    if content.get("name") != path.parent.name:
        return None
    return require_sealed(content, path, TABLE, remedy)
