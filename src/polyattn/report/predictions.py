"""Outputs for single inputs: predicted against true, and how far apart good layers can be there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate
from polyattn.quoting import counted
from polyattn.report.figures import OTHER, OURS, SOFT, PlotAxes, log_ticks
from polyattn.report.page import Section, fill, plot, statement
from polyattn.report.page_data import PageData, norms, spread

PREDICTIONS_TITLE = "Predicted against true"
BOUNDS_TITLE = "How far apart can good layers be?"

# The error is measured on so many predicted positions at most, and so many outputs are drawn.
SCORED_ROWS, DRAWN_OUTPUTS = 20_000, 600

# Bounds are computed for so many positions, drawn for fewer, and listed for the largest.
BOUNDED_ROWS, DRAWN_BOUNDS, LISTED_BOUNDS = 600, 300, 5

UNWEIGHTED = "Every predicted position counts once here; sample_weight makes these means weighted."


def predictions_section(function: Callable[..., Any], data: PageData) -> Section:
    """Outputs beside targets for evenly spaced sequences of the data given."""
    some, _ = data.sample(SCORED_ROWS)
    assert some.targets is not None  # noqa: S101 - the caller has looked
    true = np.asarray(some.targets, dtype=np.float64)
    predicted = some.outputs(function)
    weights = some.row_weights
    error, power = _mean_square(predicted - true, weights), _mean_square(true, weights)
    explained = None
    if power[0] > 0:
        explained = _percent(1.0 - _times_power(error[0] / power[0], error[1] - power[1]))
    drawn = spread(true.size, DRAWN_OUTPUTS)

    def draw(axes: PlotAxes) -> None:
        x, y = true.reshape(-1)[drawn], predicted.reshape(-1)[drawn]
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        axes.plot(ends, ends, color=SOFT, linewidth=1)
        axes.plot(x, y, ".", color=OURS, alpha=0.6)
        axes.set(xlabel="true", ylabel="predicted")

    some_of = "all" if len(drawn) == true.size else f"{len(drawn):,} evenly spaced"
    caption = (
        f"{some_of} of the {counted(true.size, 'output')} at "
        f"{counted(some.n_rows, 'predicted position')}; points on the line are right.".capitalize()
    )
    some_weight = "" if weights is None else " of positive weight"
    if some.n_rows < data.n_rows:
        caption += (
            f" These are evenly spaced sequences{some_weight}; the data have {data.n_rows:,} "
            "predicted positions, and the figures below are about the sample, too."
        )
    kind = "mean" if weights is None else "weighted mean"
    facts = {
        f"{kind} ||y − F(X)||²": _times_power(*error),
        f"{kind} ||y||²": _times_power(*power),
        "share of ||y||² explained": explained,
    }
    notes = [UNWEIGHTED] if weights is None else []
    picture = plot(draw, PREDICTIONS_TITLE, caption, 3.4)
    return statement(PREDICTIONS_TITLE, pictures=[picture], facts=facts, notes=notes)


def bounds_section(
    certificate: Certificate,
    data: PageData,
    excess: float,
    meaning: str,
    function: Callable[..., Any] | None = None,
) -> Section:
    """Bounds for (a sample of) the inputs, beside the sizes of predictions where known.

    ``excess``: how much worse than the best layer each of two may be on the training data;
    ``meaning`` says in words why this much.
    """
    if not np.isfinite(excess):
        return statement(BOUNDS_TITLE, "There is no bound: the risk is beyond float64.", doubt=True)
    some, chosen = data.sample(BOUNDED_ROWS)
    bounds = some.outputs(lambda X, context=None: certificate.bound(X, excess, context=context))
    if not np.all(np.isfinite(bounds)):
        return statement(
            BOUNDS_TITLE,
            "There is no bound: rounding leaves no inverse of the data's second moment to trust."
            if certificate.identifiable
            else "There is no bound: layers that fit the data equally well can be as far apart as "
            "you like where the data do not determine them.",
            doubt=True,
        )
    sizes = None if function is None else norms(some.outputs(function))
    order = np.argsort(-bounds, kind="stable")
    places = data.places(chosen)
    listed = [
        (places[i], float(bounds[i]), None if sizes is None else float(sizes[i]))
        for i in order[:LISTED_BOUNDS]
    ]
    whole = len(bounds) == data.n_rows
    of = "all" if whole else f"{len(bounds):,} evenly spaced of"
    about = f"Shown: {of} {counted(data.n_rows, 'predicted position')}."
    inputs = "inputs" if whole else "inputs shown"
    median = f"The bound is at most {np.median(bounds):.3g} for half of the {inputs}, "
    claim = f"{median}and {bounds.max():.3g} for all of them. {meaning}"
    picture = plot(partial(_draw_bounds, bounds, sizes), "Bounds for each input", about)
    table = fill("bounds", listed=listed, with_sizes=sizes is not None)
    return statement(BOUNDS_TITLE, claim, pictures=[picture, table])


def _mean_square(rows: NDArray, weights: NDArray | None) -> tuple[float, int]:
    """The (weighted) mean of ||row||^2 as m and k of m * 2^k: it may be beyond float64."""
    exponent = int(np.frexp(np.abs(rows).max())[1])
    squares = np.sum(np.ldexp(rows, -exponent) ** 2, axis=1)
    return float(np.average(squares, weights=weights)), 2 * exponent


def _times_power(number: float, exponent: int) -> float:
    """number * 2^exponent, infinite where float64 ends."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.ldexp(number, exponent))


def _percent(share: float) -> str:
    """A share with as many nines as it has."""
    missing = 1.0 - share
    if missing < 1e-12:
        return "100 %"
    digits = max(1, int(np.ceil(-np.log10(missing))) - 1) if missing < 0.1 else 1
    return f"{100 * share:.{min(digits, 12)}f} %"


def _draw_bounds(bounds: NDArray, sizes: NDArray | None, axes: PlotAxes) -> None:
    axes.set_ylabel("bound of the difference")
    chosen = spread(len(bounds), DRAWN_BOUNDS)
    if sizes is None or not np.all(sizes > 0) or not np.all(bounds > 0):
        share = 100.0 * chosen / max(1, len(bounds) - 1)
        axes.plot(share, np.sort(bounds)[chosen], color=OURS)
        axes.set(xlabel="percent of the inputs", ylim=(0, None))
        return
    axes.set(xscale="log", yscale="log", xlabel="size of the predicted output")
    axes.plot(sizes[chosen], bounds[chosen], ".", color=OURS, alpha=0.6)
    ends = np.array([sizes.min(), sizes.max()])
    axes.plot(ends, ends, color=OTHER, linestyle="--", label="as large as the output")
    axes.legend(loc="best")
    log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
