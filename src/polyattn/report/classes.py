"""Classes on a page: predicted against true, and probabilities beside how often they held."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.quoting import counted
from polyattn.report.figures import OURS, SOFT, PlotAxes
from polyattn.report.page import Section, fill, plot, statement
from polyattn.report.page_data import PageData
from polyattn.report.predictions import PREDICTIONS_TITLE, SCORED_ROWS, UNWEIGHTED
from polyattn.solve.log_loss import LogLoss, probabilities

TABLE_TITLE = "Which class was taken for which"

# A table of more classes is not read.
MOST_CLASSES = 12

# Probabilities are drawn in so many bins of equal width.
N_BINS = 10


def classes_sections(result: FitResult, data: PageData) -> list[Section]:
    """Classes beside true ones for evenly spaced sequences of the data given."""
    n_classes = max(2, len(result.coef))
    _codes(data, n_classes)
    some, _ = data.sample(SCORED_ROWS)
    outputs, codes = some.outputs(result.predict), _codes(some, n_classes)
    weights = np.ones(len(codes)) if some.row_weights is None else some.row_weights
    weights = weights / weights.max()
    shares = weights / weights.sum()
    chances = probabilities(outputs)
    predicted = np.argmax(chances, axis=1)
    of_classes = np.bincount(codes, shares, n_classes)
    present = of_classes[of_classes > 0]
    facts = {
        "share of classes that are right": f"{100 * shares[predicted == codes].sum():.1f} %",
        "mean log-loss": LogLoss(codes, shares, n_classes).at(outputs.T).value,
        "the same, knowing only how frequent classes are": float(-present @ np.log(present)),
    }
    seen = counted(some.n_rows, "predicted position")
    if some.n_rows < data.n_rows:
        seen += f" of {data.n_rows:,}, in evenly spaced sequences"
    caption = (
        f"Probabilities at {seen}, in bins, and how often the class was the true one: points on "
        "the line are right."
    )
    points = _binned(chances, codes, shares)
    picture = plot(lambda axes: _draw(points, axes), "Probabilities and shares", caption, 3.4)
    notes = [UNWEIGHTED] if some.row_weights is None else []
    section = statement(PREDICTIONS_TITLE, pictures=[picture], facts=facts, notes=notes)
    if n_classes > MOST_CLASSES:
        return [section]
    counts = np.zeros((n_classes, n_classes), dtype=np.intp)
    np.add.at(counts, (codes, predicted), 1)
    return [section, Section(TABLE_TITLE, fill("classes", counts=counts.tolist()))]


def _codes(data: PageData, n_classes: int) -> NDArray[np.intp]:
    """The class numbers (rows,), checked."""
    assert data.targets is not None  # noqa: S101 - the caller has looked
    values = data.targets[:, 0]
    wrong = values[(values != np.round(values)) | (values < 0) | (values >= n_classes)]
    if wrong.size:
        raise InvalidInput(
            f"Y must hold class numbers from 0 to {n_classes - 1}, as in training; got "
            f"{wrong[0]:g}."
        )
    return np.asarray(values, dtype=np.intp)


def _binned(
    chances: NDArray, codes: NDArray, shares: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean probability and share of true ones in each bin that holds some; of two classes one."""
    true = np.arange(chances.shape[1]) == codes[:, None]
    counted_classes = slice(1, 2) if chances.shape[1] == 2 else slice(None)
    chances, true = chances[:, counted_classes], true[:, counted_classes]
    weights = np.broadcast_to(shares[:, None], chances.shape).ravel()
    bins = np.minimum((chances * N_BINS).astype(np.intp), N_BINS - 1).ravel()
    total, mean, share = (
        np.bincount(bins, weights * each, N_BINS) for each in (1.0, chances.ravel(), true.ravel())
    )
    some = total > 0
    return mean[some] / total[some], share[some] / total[some]


def _draw(points: tuple[NDArray, NDArray], axes: PlotAxes) -> None:
    axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1)
    axes.plot(*points, "o-", color=OURS)
    axes.set(xlabel="probability", ylabel="share of true ones")
