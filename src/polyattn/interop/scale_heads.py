"""The heads of a linear layer by the scales of its form, as plain numbers that graphs can hold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyattn.form.form import Form

# No sequence is longer: distances beyond it are as good as none.
FARTHEST = 1 << 40


class HeadsOfScale(NamedTuple):
    """The heads of one scale: their numbers (None: all), and whom they attend to."""

    own: list[int] | None
    start: int
    stop: int | None
    decay: float


def heads_by_scale(form: Form, head_scales: NDArray[np.int64]) -> list[HeadsOfScale]:
    """The heads of every scale that has some."""
    found = []
    for number, (start, stop, decay) in enumerate(form.scales):
        own = np.flatnonzero(head_scales == number).tolist()
        every = len(own) == len(head_scales)
        end = None if stop is None or stop >= FARTHEST else stop
        if own:
            found.append(HeadsOfScale(None if every else own, start, end, decay))
    return found
