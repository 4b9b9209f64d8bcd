"""The spectrum of Lambda_D with the floor that rounding puts under it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.evidence import Evidence
from polyattn.certify.verified.spectrum import second_moment
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.report.figures import OTHER, OURS, SOFT, drawing, log_ticks, new_figure, whole_numbers
from polyattn.report.page_data import spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# All eigenvalues of a larger matrix would take longer than a page is waited for.
MOST_FEATURES = 2600

# A curve of more points looks the same.
MOST_POINTS = 300

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues, largest first, for tokens divided by 2**token_exponent.

    ``floor``: what rounding in the sums and in the eigenvalues may amount to; below it an
    eigenvalue cannot be told from zero by looking at it.
    """

    values: NDArray[np.float64]
    floor: float
    token_exponent: int

    @property
    def n_above(self) -> int:
        """How many eigenvalues stand above the floor."""
        return int(np.count_nonzero(self.values > self.floor))


# Reducing to tridiagonal form waits for memory: one thread is as fast, and disturbs no other.
@single_threaded_blas()
def spectrum_of(evidence: Evidence) -> Spectrum:
    """All eigenvalues of Lambda_D on the features of a space.

    Cost: 4/3 m^3 flops for m features; 3 s for the 2176 of tokens with 16 coordinates.
    """
    gram, space = evidence.gram, evidence.space
    matrix = second_moment(gram, space)
    values = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
    error = gram.error(np.ones(len(gram.powers))) / gram.total_weight
    if not space.is_whole:
        # The features of the space are counted as often as they stand for others.
        shares = abs(space.expansion.T @ space.expansion)
        error *= float(shares.sum(axis=1).max())
    return Spectrum(values, error + len(values) * EPS * abs(float(values[0])), gram.token_exponent)


def draw_spectrum(spectrum: Spectrum) -> Figure:
    """The eigenvalues over their number, logarithmic, above and below the floor."""
    figure = new_figure(4.7, 3.0)
    chosen = spread(len(spectrum.values), MOST_POINTS)
    # What is zero or negative by rounding has no logarithm: it is drawn at the lower border.
    lowest = spectrum.floor / 30.0
    heights = np.maximum(spectrum.values[chosen], lowest)
    clear = spectrum.values[chosen] > spectrum.floor
    with drawing():
        axes = figure.add_subplot()
        axes.set_yscale("log")
        mark = "o" if len(chosen) <= 60 else ""
        axes.plot(chosen[clear] + 1, heights[clear], color=OURS, marker=mark)
        if not clear.all():
            axes.plot(
                chosen[~clear] + 1, heights[~clear], "o", color=SOFT, markersize=3,
                label="not above rounding",
            )  # fmt: skip
        else:
            axes.plot(
                len(spectrum.values), spectrum.values[-1], "o", color=OURS, markersize=7,
                label=f"smallest: {spectrum.values[-1]:.3g}",
            )  # fmt: skip
        axes.axhline(spectrum.floor, color=OTHER, linestyle="--", label="rounding floor")
        axes.set(xlabel="number of the eigenvalue", ylabel="eigenvalue")
        axes.margins(y=0.12)
        whole_numbers(axes)
        log_ticks(axes.yaxis)
        axes.legend(loc="best")
    return figure
