"""Figures of several panels with sizes in inches, so that their text never shrinks with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from polyattn.report.figures import PlotAxes, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What draws a picture on axes.
Draw: TypeAlias = "Callable[[PlotAxes], None]"

# A figure is no wider than a page of paper; then panels go on below.
WIDEST = 9.0


@dataclass(frozen=True, eq=False)
class Panel:
    """A picture: its name, what draws it, the size of its axes and the room around, in inches."""

    name: str
    draw: Draw
    width: float = 4.0
    height: float = 2.4
    left: float = 0.9
    right: float = 0.2
    top: float = 0.35
    bottom: float = 0.55

    @property
    def outer(self) -> tuple[float, float]:
        """Width and height with the room around."""
        return self.left + self.width + self.right, self.top + self.height + self.bottom


def panels_figure(groups: Sequence[Sequence[Panel]], widest: float = WIDEST) -> Figure:
    """One figure of all panels, in lines from left to right; those of a group stay together.

    A group that is wider than ``widest`` has a line of its own.  There is no global state: the
    figure is not known to pyplot.
    """
    lines = _lines(groups, widest)
    heights = [max(panel.outer[1] for panel in line) for line in lines]
    width = max(sum(panel.outer[0] for panel in line) for line in lines)
    height = sum(heights)
    with drawing():
        # matplotlib is imported when something is drawn.
        from polyattn.report.shown_figure import ShownFigure

        figure = ShownFigure(figsize=(width, height))
        below = height
        for line, line_height in zip(lines, heights, strict=True):
            at = 0.0
            for panel in line:
                bottom = below - panel.top - panel.height
                box = (at + panel.left, bottom, panel.width, panel.height)
                shares = (box[0] / width, box[1] / height, box[2] / width, box[3] / height)
                panel.draw(figure.add_axes(shares))
                at += panel.outer[0]
            below -= line_height
    return figure


def _lines(groups: Sequence[Sequence[Panel]], widest: float) -> list[list[Panel]]:
    lines: list[list[Panel]] = [[]]
    used = 0.0
    for group in groups:
        width = sum(panel.outer[0] for panel in group)
        if lines[-1] and used + width > widest:
            lines.append([])
            used = 0.0
        lines[-1].extend(group)
        used += width
    return lines
