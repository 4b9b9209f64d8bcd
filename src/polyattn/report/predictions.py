"""Predicted against true: a picture of some outputs, and the error on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.quoting import counted
from polyattn.report.figures import OURS, SOFT, drawing, new_figure
from polyattn.report.page import Section
from polyattn.report.page_data import PageData, rows_of, spread
from polyattn.report.sections import plot, statement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Predicted against true"

# The error is measured on so many predicted positions at most, and so many outputs are drawn.
MOST_ROWS, MOST_POINTS = 20_000, 600

UNWEIGHTED = "Every predicted position counts once here; sample_weight makes these means weighted."


def predictions_section(function: Callable[[Any], Any], data: PageData) -> Section:
    """Outputs beside targets for evenly spaced sequences of the data given."""
    some, _ = data.sample(MOST_ROWS)
    assert some.targets is not None  # noqa: S101 - the caller has looked
    true = np.asarray(some.targets, dtype=np.float64)
    predicted = rows_of(function, some.batch)
    weights = some.row_weights
    error, power = _mean_square(predicted - true, weights), _mean_square(true, weights)
    explained = None
    if power[0] > 0:
        explained = 1.0 - _times_power(error[0] / power[0], error[1] - power[1])
    drawn = spread(true.size, MOST_POINTS)
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
    picture = plot(
        _draw(true.reshape(-1)[drawn], predicted.reshape(-1)[drawn]), "Predicted against true",
        caption,
    )  # fmt: skip
    kind = "mean" if weights is None else "weighted mean"
    facts = {
        f"{kind} ||y − F(X)||²": _times_power(*error),
        f"{kind} ||y||²": _times_power(*power),
        "share of ||y||² explained": None if explained is None else _percent(explained),
    }
    notes = [UNWEIGHTED] if weights is None else []
    return statement(TITLE, pictures=[picture], facts=facts, notes=notes)


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


def _draw(true: NDArray, predicted: NDArray) -> Figure:
    figure = new_figure(4.7, 3.4)
    with drawing():
        axes = figure.add_subplot()
        low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
        axes.plot([low, high], [low, high], color=SOFT, linewidth=1)
        axes.plot(true, predicted, ".", color=OURS, alpha=0.6)
        axes.set(xlabel="true", ylabel="predicted")
    return figure
