"""Maps of colours as SVG for pages: drawn here, since a page can have many, and in its colours."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from polyattn.report.maps import LINE_HEIGHT, MOST_POINTS, TEXT, Map, colours, pooled
from polyattn.report.page import fill

# Points of an inch, and an inch in the letters of a page: text is as large as that of plots.
POINTS, REMS = 72.0, 7.0


def map_picture(maps: Sequence[Map], label: str, caption: str) -> Markup:
    """Maps side by side as a figure; ``label`` says what it shows to those who do not see it."""
    sizes = [each.panel.outer for each in maps]
    width, height = sum(size[0] for size in sizes), max(size[1] for size in sizes)
    at, shown = 0.0, []
    for each, size in zip(maps, sizes, strict=True):
        shown.append(_placed(each, at))
        at += size[0]
    return fill(
        "map_picture", maps=shown, label=label, caption=caption, text=TEXT,
        width=POINTS * width, height=POINTS * height, page_width=f"{REMS * width:.2f}rem",
    )  # fmt: skip


def map_pixels(matrix: NDArray, largest: float) -> str:
    """A matrix as a PNG in a data address, one pixel per entry or block; zero is transparent.

    ``largest`` is the magnitude of full colour.
    """
    from matplotlib.image import imsave

    matrix = pooled(matrix, MOST_POINTS)
    # In halves, so that no difference leaves float64.
    shares = 0.5 + 0.5 * (matrix / largest) if largest > 0 else np.full(matrix.shape, 0.5)
    buffer = io.BytesIO()
    imsave(buffer, colours()(shares, bytes=True), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _placed(each: Map, left: float) -> dict[str, Any]:
    """Where the parts of a map are, in points; ``left``: where its room begins, in inches."""
    panel, (n_rows, n_columns) = each.panel, each.matrix.shape
    x, y = POINTS * (left + panel.left), POINTS * panel.top
    width, height = POINTS * each.width, POINTS * each.height
    return {
        "title": each.title,
        "pixels": map_pixels(each.matrix, each.largest),
        "x": x, "y": y, "width": width, "height": height,
        "rows": [(y + (i + 0.5) * height / n_rows, name) for i, name in each.row_ticks.items()],
        "columns": [
            (x + (j + 0.5) * width / n_columns, name) for j, name in each.column_ticks.items()
        ],
        "upright": each.upright,
        "row_label": each.rows.label,
        "row_label_x": POINTS * (left + LINE_HEIGHT),
        "column_label": each.columns.label,
        "column_label_y": y + height + POINTS * (each.below + LINE_HEIGHT) + 3,
    }  # fmt: skip
