"""The page that ``polyattn demo`` writes: one HTML file that asks nobody for anything."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from polyattn._version import __version__

# The drawing area of the chart, in its own units; the page scales it.
LEFT, TOP, WIDTH, HEIGHT = 56.0, 12.0, 560.0, 240.0

# Errors below this are drawn at it: a perfect fit has no logarithm.
SMALLEST = 1e-40

MAX_TICKS = 7


def write_page(figures: dict[str, Any], path: Path) -> None:
    """Render the figures of a demo to ``path``."""
    environment = Environment(
        loader=PackageLoader("polyattn", "cli/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("demo.html.j2").render(
        **figures, chart=chart(figures), version=__version__
    )
    path.write_text(page, encoding="utf-8")


def chart(figures: dict[str, Any]) -> dict[str, Any] | None:
    """Where to draw what: Adam's validation error over time beside the closed form, log-log."""
    if figures["adam"] is None:
        return None
    curve, closed = figures["adam"]["curve"], figures["closed_form"]
    times = [*curve["seconds"], closed["seconds"]]
    errors = [max(error, SMALLEST) for error in (*curve["errors"], closed["validation_error"])]
    x_range, y_range = _decades(times), _decades(errors)

    def place(seconds: float, error: float) -> tuple[float, float]:
        x = LEFT + WIDTH * _fraction(seconds, x_range)
        y = TOP + HEIGHT * (1 - _fraction(error, y_range))
        return round(x, 1), round(y, 1)

    points = [place(*pair) for pair in zip(times, errors, strict=True)]
    return {
        "left": LEFT,
        "top": TOP,
        "right": LEFT + WIDTH,
        "bottom": TOP + HEIGHT,
        "adam": " ".join(f"{x},{y}" for x, y in points[:-1]),
        "adam_end": points[-2],
        "closed": points[-1],
        # The label stands on the side where there is room.
        "closed_anchor": "start" if points[-1][0] < LEFT + WIDTH / 2 else "end",
        "x_ticks": [(place(10.0**k, errors[0])[0], k) for k in _ticks(x_range)],
        "y_ticks": [(place(times[0], 10.0**k)[1], k) for k in _ticks(y_range)],
    }


def _decades(numbers: list[float]) -> tuple[int, int]:
    """Whole powers of ten around all numbers."""
    low, high = math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers)))
    return low, max(high, low + 1)


def _fraction(number: float, decades: tuple[int, int]) -> float:
    return (math.log10(number) - decades[0]) / (decades[1] - decades[0])


def _ticks(decades: tuple[int, int]) -> range:
    low, high = decades
    step = -(-(high - low) // (MAX_TICKS - 1))
    return range(low, high + 1, step)
