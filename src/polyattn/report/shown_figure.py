"""ShownFigure: a figure that notebooks show by themselves, whether pyplot is there or not."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure without global state; as the last line of a notebook's cell it is shown."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()
