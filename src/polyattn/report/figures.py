"""Figures that follow the page: drawn by matplotlib, shown as SVG in the colours of the page.

A figure is drawn in the fixed colours below.  On a page they become the CSS variables of the
page, so one drawing serves light, dark and print; in a file they stay as they are.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from markupsafe import Markup, escape

from polyattn.errors import missing_extra
from polyattn.report.unbroken import unbroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: What a plot is drawn on; matplotlib is imported when one is.
PlotAxes: TypeAlias = "Axes"

INK, SOFT, LINE = "#1d2430", "#5c6675", "#d5d8d0"
OURS, OTHER, THIRD, FOURTH = "#0b6e4f", "#b3541e", "#35569c", "#8a3b78"

# Red, green and blue of positive and negative entries: readable on white, on black, in print.
POSITIVE, NEGATIVE = (217, 105, 43), (70, 120, 214)

#: Colours of a drawing and what they are called on a page.
VARIABLES = {
    INK: "--ink", SOFT: "--soft", LINE: "--line",
    OURS: "--ours", OTHER: "--other", THIRD: "--third", FOURTH: "--fourth",
}  # fmt: skip

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "polyattn",
    # Names can hold dollar signs, and styles of the user do not reach in here.
    "text.parse_math": False,
    "text.usetex": False,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "savefig.dpi": 160,
}

# Where logarithmic axes end.
TINY, LARGEST = np.finfo(np.float64).tiny, np.finfo(np.float64).max / 4

_numbers = count(1)


def new_figure(width: float = 6.4, height: float = 3.2) -> Figure:
    """An empty figure (inches) without any global state; draw on it within ``drawing()``."""
    with drawing():
        from matplotlib.figure import Figure

        return Figure(figsize=(width, height), layout="constrained")


@contextmanager
def drawing() -> Iterator[None]:
    """Within the block axes, text and lines are made in the style of the pages."""
    require_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def inline_svg(figure: Figure, label: str, caption: str = "") -> Markup:
    """The figure as part of a page; ``label`` says what it shows to those who do not see it."""
    buffer = io.BytesIO()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            _without_formulas(axis)
    with drawing():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # The first tag gets no fixed size, so the page decides, and is readable aloud.
    name = str(escape(label)).replace("\\", "\\\\")
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        rf'viewBox="\1" role="img" aria-label="{name}">'
    )
    text = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', opening, text, count=1)
    # Several figures share one page, so their names must differ.
    prefix = f"f{next(_numbers)}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{prefix}", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    shown = f"<figcaption>{unbroken(caption)}</figcaption>" if caption else ""
    return Markup(f"<figure>{text}{shown}</figure>")  # noqa: S704 – matplotlib escapes its text


def finish_ranked(axes: Axes) -> None:
    """Ticks and legend of sizes over their numbers: whole numbers below, powers of ten beside."""
    from matplotlib.ticker import MaxNLocator

    # Of a single one, no fractions around it.
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    log_ticks(axes.yaxis)
    axes.legend(loc="best")


def log_ticks(axis: Axis) -> None:
    """Few ticks with plain numbers on a logarithmic axis; call it when everything is drawn.

    matplotlib would typeset powers of ten as formulas, which takes longer than all the rest.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = map(float, axis.get_data_interval())
    if 0 < low <= high < 1.01 * low:
        # A single number, or several that differ by rounding: an axis needs a range.
        axes: Axes = axis.axes
        name: Literal["x", "y"] = "x" if axis is axes.xaxis else "y"
        axes.autoscale(enable=False, axis=name)
        axes.set(**{f"{name}lim": (max(low / 2, TINY), min(2 * high, LARGEST))})
    low, high = map(float, axis.get_view_interval())
    between = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=between, numticks=7))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda number, _: f"{number:g}")


def _without_formulas(axis: Axis) -> None:
    """Plain numbers where matplotlib would write powers as formulas, which pages do not typeset."""
    from matplotlib.ticker import LogFormatterMathtext, NullLocator

    if not isinstance(axis.get_major_formatter(), LogFormatterMathtext):
        return
    if getattr(axis.get_transform(), "base", 10) == 10:
        log_ticks(axis)
        return
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda number, _: f"{number:g}")


def require_matplotlib() -> None:
    """Refuse before the work, not after it, where matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise missing_extra("matplotlib", "plots") from None
