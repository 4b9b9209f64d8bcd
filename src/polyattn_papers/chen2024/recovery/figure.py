"""The picture: errors and times against every size, one line per method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyattn.report.figures import FOURTH, OTHER, OURS, SOFT, THIRD, new_figure
from polyattn_papers.chen2024.recovery.cells import BASE, MANY, along
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import median

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# More ticks than this would run into each other, and more names in a row would be cut.
MOST_TICKS, LEGEND_COLUMNS = 7, 3

# Colour, marker, line and name of each method; the last is drawn on top.
METHODS = {
    "adam": (FOURTH, "v", "-", "Adam"),
    "control": (OTHER, "^", "-", "random starts"),
    "phases": (THIRD, "x", ":", "six phases alone"),
    "sculpt": (THIRD, "s", "-", "phases, then polish"),
    "moments": (OURS, "", "--", "moments alone"),
    "auto": (OURS, "o", "-", "polyattn"),
}


def draw(rows: list[Row]) -> Figure:
    """Error and time against examples; time against heads, coordinates, tokens; noise."""
    figure = new_figure(7.6, 8.4)
    axes = figure.subplots(3, 2)
    _errors_by_examples(axes[0, 0], rows)
    _times(axes[0, 1], rows, "n_sequences", "examples N")
    _times(axes[1, 0], rows, "n_heads", "heads m")
    _times(axes[1, 1], rows, "n_dims", "coordinates d")
    _times(axes[2, 0], rows, "n_tokens", "tokens k")
    _errors_by_noise(axes[2, 1], rows)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=LEGEND_COLUMNS)
    return figure


def _errors_by_examples(axes: Axes, rows: list[Row]) -> None:
    swept = along(rows, "n_sequences")
    for method in METHODS:
        _line(axes, swept, method, "n_sequences", "attn_error")
    counted = swept[0]["n_sequences"] / swept[0]["numbers_per_unknown"]
    axes.axvline(counted, color=SOFT, linestyle=":")
    axes.annotate(
        "as many numbers as unknowns", (counted, 0.4), xycoords=("data", "axes fraction"),
        xytext=(0.36, 0.4), textcoords="axes fraction", color=SOFT, fontsize=8, va="center",
        arrowprops={"arrowstyle": "->", "color": SOFT, "linewidth": 0.8},
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="examples N", ylabel="relative error of attn")
    _plain_ticks(axes, swept, "n_sequences")
    axes.set_title("Error of what was found")


def _times(axes: Axes, rows: list[Row], column: str, label: str) -> None:
    """Seconds of runs that say "recovered", and of random starts for each that ends well."""
    swept = along(rows, column)
    for method in ("sculpt", "moments", "auto"):
        _line(axes, [row for row in swept if row["claimed"]], method, column, "seconds")
    lucky = [
        row | {"seconds": row["seconds"] / row["n_solved"]} for row in swept if row["n_solved"]
    ]
    _line(axes, lucky, "control", column, "seconds")
    axes.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds to recovery")
    _plain_ticks(axes, swept, column)
    others = {"n_sequences": "N", "n_heads": "m", "n_dims": "d", "n_tokens": "k"}
    fixed = ", ".join(f"{sign} = {BASE[key]}" for key, sign in others.items() if key != column)
    axes.set_title(f"Time ({fixed})")


def _errors_by_noise(axes: Axes, rows: list[Row]) -> None:
    swept = [row for row in along(rows, "noise", n_sequences=MANY) if row["noise"]]
    for method in METHODS:
        _line(axes, swept, method, "noise", "attn_error")
    axes.set(xscale="log", yscale="log", xlabel="noise", ylabel="relative error of attn")
    axes.set_title(f"Error with noise (N = {MANY})")


def _line(axes: Axes, rows: list[Row], method: str, column: str, value: str) -> None:
    """Medians over seeds against a column, with every seed as a faint point."""
    colour, marker, style, name = METHODS[method]
    known = [row for row in rows if row["method"] == method and row[value] is not None]
    places = sorted({row[column] for row in known})
    middle = [median([row for row in known if row[column] == place], value) for place in places]
    axes.plot(places, middle, style, color=colour, marker=marker, label=name)
    points = ([row[column] for row in known], [row[value] for row in known])
    axes.plot(*points, ".", color=colour, alpha=0.3, markersize=3)


def _plain_ticks(axes: Axes, rows: list[Row], column: str) -> None:
    """Ticks at what was measured, as plain numbers; every other one where they are many."""
    places = sorted({row[column] for row in rows})
    shown = places[:: 1 + len(places) // MOST_TICKS]
    axes.set_xticks(shown, [f"{place:g}" for place in shown])
    axes.minorticks_off()
