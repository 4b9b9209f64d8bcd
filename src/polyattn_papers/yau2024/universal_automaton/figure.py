"""The picture: predicted tokens against states, letters and length, for each learner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.report.figures import OTHER, OURS, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.tasks.automata import Sizes
from polyattn_papers.yau2024.universal_automaton.cells import BASE
from polyattn_papers.yau2024.universal_automaton.findings import needed_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("n_states", "n_letters", "length")

WORDS = {"n_states": "states", "n_letters": "letters", "length": "length of the word"}

LINES = {
    "untied": ("closed form, one coefficient each", OURS, "o"),
    "tied": ("rules, tied by relation", THIRD, "s"),
    "transformer": ("small Transformer", OTHER, "^"),
}


def draw(rows: list[Row]) -> Figure:
    """Predicted tokens against states, letters and length, for each learner."""
    figure = new_figure(7.2, 3.0)
    axes = figure.subplots(1, 3, sharey=True)
    for axis, varied in zip(axes, NAMES, strict=True):
        for learner, (label, colour, marker) in LINES.items():
            line = _line(needed_by(rows, learner), varied)
            if line:
                axis.plot(*zip(*line, strict=True), color=colour, marker=marker, label=label)
        axis.set(yscale="log", xlabel=WORDS[varied])
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("predicted tokens for 99 %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def _line(needed: dict[Sizes, float], varied: str) -> list[tuple[int, float]]:
    """Points (size, rows) of the sizes whose other two places are those that stay."""
    at = NAMES.index(varied)
    same = [sizes for sizes in needed if {*sizes[:at], *sizes[at + 1 :]} == {BASE}]
    return sorted((sizes[at], needed[sizes]) for sizes in same)
