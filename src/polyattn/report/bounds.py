"""Bounds per input: how far layers that explain the data as well can be apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate
from polyattn.quoting import counted
from polyattn.report.figures import OTHER, OURS, drawing, log_ticks, new_figure
from polyattn.report.page import Section, fill
from polyattn.report.page_data import PageData, norms, rows_of, spread
from polyattn.report.sections import plot, statement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "How far apart can good layers be?"

MOST_ROWS, MOST_POINTS, MOST_LISTED = 600, 300, 5


def bounds_section(
    certificate: Certificate,
    data: PageData,
    excess: float,
    meaning: str,
    function: Callable[[Any], Any] | None = None,
) -> Section:
    """Bounds for (a sample of) the inputs, beside the sizes of predictions where known.

    ``excess``: how much worse than the best layer each of two may be on the training data;
    ``meaning`` says in words why this much.
    """
    if not np.isfinite(excess):
        return statement(TITLE, "There is no bound: the risk is beyond float64.", doubt=True)
    some, chosen = data.sample(MOST_ROWS)
    found = certificate.bound(some.batch, excess)
    bounds = np.concatenate(found) if isinstance(found, list) else np.asarray(found)
    if not np.all(np.isfinite(bounds)):
        return statement(
            TITLE,
            "There is no bound: rounding leaves no inverse of the data's second moment to trust."
            if certificate.identifiable
            else "There is no bound: layers that fit the data equally well can be as far apart as "
            "you like where the data do not determine them.",
            doubt=True,
        )
    sizes = None if function is None else norms(rows_of(function, some.batch))
    order = np.argsort(-bounds, kind="stable")
    places = data.places(chosen)
    listed = [
        (places[i], float(bounds[i]), None if sizes is None else float(sizes[i]))
        for i in order[:MOST_LISTED]
    ]
    whole = len(bounds) == data.n_rows
    of = "all" if whole else f"{len(bounds):,} evenly spaced of"
    about = f"Shown: {of} {counted(data.n_rows, 'predicted position')}."
    inputs = "inputs" if whole else "inputs shown"
    median = f"The bound is at most {np.median(bounds):.3g} for half of the {inputs}, "
    claim = f"{median}and {bounds.max():.3g} for all of them. {meaning}"
    picture = plot(_draw(bounds, sizes), "Bounds for each input", about)
    table = fill("bounds", listed=listed, with_sizes=sizes is not None)
    return statement(TITLE, claim, pictures=[picture, table])


def _draw(bounds: NDArray, sizes: NDArray | None) -> Figure:
    figure = new_figure(4.7, 3.0)
    with drawing():
        axes = figure.add_subplot()
        if sizes is not None and np.all(sizes > 0) and np.all(bounds > 0):
            chosen = spread(len(bounds), MOST_POINTS)
            axes.set(xscale="log", yscale="log")
            axes.plot(sizes[chosen], bounds[chosen], ".", color=OURS, alpha=0.6)
            ends = np.array([sizes.min(), sizes.max()])
            axes.plot(ends, ends, color=OTHER, linestyle="--", label="as large as the output")
            axes.set(xlabel="size of the predicted output", ylabel="bound of the difference")
            axes.legend(loc="best")
            log_ticks(axes.xaxis)
            log_ticks(axes.yaxis)
        else:
            chosen = spread(len(bounds), MOST_POINTS)
            share = 100.0 * chosen / max(1, len(bounds) - 1)
            axes.plot(share, np.sort(bounds)[chosen], color=OURS)
            axes.set(
                xlabel="percent of the inputs", ylabel="bound of the difference", ylim=(0, None)
            )
    return figure
