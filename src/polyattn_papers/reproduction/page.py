"""The page of an experiment: the paper's claim, ours, gates, picture, table; and the index."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from polyattn.files.atomic import write_atomically
from polyattn.report.figures import drawing, inline_svg
from polyattn.report.page import Section, fill, render_page, write_page
from polyattn_papers.reproduction.result import Reproduction, read_table

HERE = "polyattn_papers.reproduction"

# A longer table stands behind a click.
SHORT_TABLE = 12


def write_pages(made: Reproduction, folder: Path) -> None:
    """figure.png, figure.svg and index.html in ``folder``, and the index beside it."""
    with drawing():
        figure = made.experiment.draw(made.rows)
    for suffix, metadata in (("png", None), ("svg", {"Date": None})):
        save = partial(figure.savefig, format=suffix, facecolor="white", metadata=metadata)
        with drawing():
            write_atomically(folder / f"figure.{suffix}", save)
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
