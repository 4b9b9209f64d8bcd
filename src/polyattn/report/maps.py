"""Matrices as maps of colours: cells that can be seen, rows and columns that are named."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.display import figure
from polyattn.report.figures import LINE, NEGATIVE, POSITIVE, PlotAxes
from polyattn.report.names import Side
from polyattn.report.panels import Panel

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

# In inches: the largest cell, the longest side of a map, also of one with many cells, and its
# shortest: cells are square unless a map would be thinner.
CELL, SIDE, WIDE_SIDE, THIN = 0.22, 1.5, 2.4, 0.16
MANY_CELLS = 64

# Text of ticks and labels, in points; the width of a letter and the height of a line, in inches.
TEXT, LETTER, LINE_HEIGHT = 8, 0.068, 0.15

# A name that is longer is cut.
LONGEST_NAME = 16

# A map that is so many times as long as it is wide fills its axes; others have square cells.
MOST_SLENDER = 6

# Points along a side; of more entries than that, blocks share one.  So many points and shades keep
# the pages of layers with many wide heads below a megabyte.
MOST_POINTS, SHADES = 128, 63

# matplotlib draws numbers of up to so many powers of two; of others a multiple is drawn.
MOST_POWERS = 300


@dataclass(frozen=True, eq=False)
class Map:
    """A matrix (rows, columns), what stands along its sides, and where everything is, in inches.

    largest : the magnitude of full colour
    cell : the side of a cell, of ``cell_size``
    """

    title: str
    matrix: NDArray[np.float64]
    largest: float
    rows: Side
    columns: Side
    cell: float

    @property
    def width(self) -> float:
        """Of the cells alone."""
        return max(self.cell * self.matrix.shape[1], THIN)

    @property
    def height(self) -> float:
        """Of the cells alone."""
        return max(self.cell * self.matrix.shape[0], THIN)

    @cached_property
    def row_ticks(self) -> dict[int, str]:
        """The names of rows for which there is room."""
        return _ticks(self.rows, self.height)

    @cached_property
    def column_ticks(self) -> dict[int, str]:
        """The names of columns for which there is room."""
        return _ticks(self.columns, self.width, across=True)

    @cached_property
    def upright(self) -> bool:
        """Whether names of columns are turned so that they do not overlap."""
        ticks, count = self.column_ticks, self.matrix.shape[1]
        if len(ticks) < 2:
            return _longest(ticks) * LETTER > self.width + 0.2
        apart = self.width / count * min(np.diff(list(ticks)))
        return bool((_longest(ticks) + 0.5) * LETTER > apart)

    @property
    def below(self) -> float:
        """The room of the names of columns."""
        return LETTER * _longest(self.column_ticks) if self.upright else LINE_HEIGHT

    @cached_property
    def panel(self) -> Panel:
        """The map for a figure of matplotlib, with room for all words around it."""
        left = LINE_HEIGHT + LETTER * _longest(self.row_ticks) + 0.18
        # Labels start where the map does; a small map has room for all of them around it.
        words = LETTER * max(len(self.columns.label), len(self.title) + 2)
        right = max(0.12, words - self.width)
        bottom = max(0.1 + self.below + LINE_HEIGHT, LETTER * len(self.rows.label) - self.height)
        return Panel(self.title, self.draw, self.width, self.height, left, right, 0.3, bottom)

    def draw(self, axes: PlotAxes) -> None:
        """On axes of matplotlib, whatever their size."""
        draw_map(axes, self.matrix, self.largest)
        options: Any = {"fontsize": TEXT}
        axes.set_yticks(list(self.row_ticks), list(self.row_ticks.values()), **options)
        ticks, turned = self.column_ticks, 90 if self.upright else 0
        axes.set_xticks(list(ticks), list(ticks.values()), rotation=turned, **options)
        axes.tick_params(length=2, pad=2)
        axes.set_title(self.title, fontsize=TEXT + 1, pad=4)
        axes.set_xlabel(self.columns.label, loc="left", labelpad=2, **options)
        axes.set_ylabel(self.rows.label, loc="top", labelpad=2, **options)


def cell_size(*shapes: tuple[int, ...]) -> float:
    """Inches of the side of a cell, for matrices that are shown side by side."""
    longest = max(max(shape) for shape in shapes)
    return min(CELL, (SIDE if longest <= MANY_CELLS else WIDE_SIDE) / longest)


def draw_map(axes: PlotAxes, matrix: NDArray, largest: float) -> None:
    """The entries of a matrix as colours: zero is transparent, ``largest`` full colour."""
    n_rows, n_columns = matrix.shape
    matrix = pooled(matrix, MOST_POINTS)
    exponent = int(np.frexp(largest)[1])
    if abs(exponent) > MOST_POWERS:
        matrix, largest = np.ldexp(matrix, -exponent), float(np.ldexp(largest, -exponent))
    limit = largest or 1.0
    slender = max(n_rows, n_columns) > MOST_SLENDER * min(n_rows, n_columns)
    axes.imshow(
        matrix, cmap=colours(), vmin=-limit, vmax=limit, interpolation="none",
        aspect="auto" if slender else "equal",
        extent=(-0.5, n_columns - 0.5, n_rows - 0.5, -0.5),
    )  # fmt: skip
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=LINE, linewidth=0.8)


def pooled(matrix: NDArray, most: int) -> NDArray:
    """A matrix of at most so many rows and columns: of each block the entry of largest size."""
    for axis in (0, 1):
        count = matrix.shape[axis]
        starts = np.arange(min(most, count)) * count // min(most, count)
        high = np.maximum.reduceat(matrix, starts, axis)
        low = np.minimum.reduceat(matrix, starts, axis)
        matrix = np.where(high >= -low, high, low)
    return matrix


def legend_panel(name: str, largest: float) -> Panel:
    """What the colours of maps mean: a ramp from minus to plus full colour, with numbers."""

    def draw(axes: PlotAxes) -> None:
        draw_map(axes, np.linspace(-1.0, 1.0, 101)[None], 1.0)
        axes.set_yticks([])
        ends = [figure(-largest, 3), "0", figure(largest, 3)]
        axes.set_xticks([0, 50, 100], ends, fontsize=TEXT)
        axes.set_title(f"entries of {name}", fontsize=TEXT + 1, pad=4)

    return Panel(f"entries of {name}", draw, 1.5, 0.12, 0.4, 0.4, 0.3, 0.35)


@cache
def colours() -> Colormap:
    """From negative over nothing to positive; what is drawn on shows through."""
    from matplotlib.colors import LinearSegmentedColormap

    def of(colour: tuple[int, int, int], strength: float) -> tuple[float, ...]:
        return (*(each / 255 for each in colour), strength)

    ends = [(0.0, of(NEGATIVE, 1)), (0.5, of(NEGATIVE, 0)), (0.5, of(POSITIVE, 0)),
            (1.0, of(POSITIVE, 1))]  # fmt: skip
    return LinearSegmentedColormap.from_list("polyattn", ends, N=SHADES)


def _ticks(side: Side, length: float, across: bool = False) -> dict[int, str]:
    """Which entries are named along a side of so many inches: all where there is room."""
    names = [_cut(name) for name in side.names]
    count = len(names)
    plain = across and all(len(name) * LETTER < 0.9 * length / count for name in names)
    if plain or length / count >= 0.9 * LINE_HEIGHT or count <= 2:
        return dict(enumerate(names))
    return {0: names[0], count - 1: names[-1]}


def _longest(ticks: dict[int, str]) -> int:
    return max(map(len, ticks.values()), default=0)


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
