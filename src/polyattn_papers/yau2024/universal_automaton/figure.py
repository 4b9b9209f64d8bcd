"""The picture: examples times length of the word, as in the paper, against each size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.report.figures import FOURTH, OTHER, OURS, THIRD, new_figure
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.yau2024.universal_automaton.needs import along, needed_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = {"n_states": "states", "n_letters": "letters", "length": "length of the word"}

LINES = {
    "untied": ("closed form, one coefficient each", OURS, "o"),
    "tied": ("rules, tied by relation", THIRD, "s"),
    "transformer": ("small Transformer, our tokens", OTHER, "^"),
    "decoder": ("decoder, the paper's strings", FOURTH, "D"),
}


def draw(rows: list[Row]) -> Figure:
    """Examples times length of the word against states, letters and length, for each learner."""
    figure = new_figure(7.2, 3.2)
    axes = figure.subplots(1, 3, sharey=True)
    for axis, varied in zip(axes, WORDS, strict=True):
        for learner, (label, colour, marker) in LINES.items():
            line = along(needed_by(rows, learner, "letters"), varied)
            if line:
                axis.plot(*zip(*line, strict=True), color=colour, marker=marker, label=label)
        axis.set(yscale="log", xlabel=WORDS[varied])
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("examples × length for 99 %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure
