"""Classes on a page: how many are right, which is taken for which, and how sure one may be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.quoting import counted, shortened
from polyattn.report.class_counts import ClassCounts
from polyattn.report.figures import OURS, SOFT, PlotAxes
from polyattn.report.map_pictures import map_picture
from polyattn.report.maps import Map, cell_size
from polyattn.report.names import Side, SideNames
from polyattn.report.page import Section, fill, plot, statement
from polyattn.report.page_data import PageData
from polyattn.report.predictions import PREDICTIONS_TITLE, SCORED_ROWS, UNWEIGHTED
from polyattn.solve.log_loss import LogLoss, probabilities

TABLE_TITLE = "Which class was taken for which"
EACH_TITLE = "Each class"

# A table of more classes is not read; then the worst of them are listed.
MOST_CLASSES = 12

# Probabilities are drawn in so many bins of equal width.
N_BINS = 10

# A class is called no longer than this.
LONGEST_LABEL = 60


def classes_sections(result: FitResult, data: PageData, names: SideNames) -> list[Section]:
    """Classes beside true ones for evenly spaced sequences of the data given."""
    labels = tuple(shortened(label, LONGEST_LABEL) for label in names.classes)
    _codes(data, len(labels))
    some, _ = data.sample(SCORED_ROWS)
    outputs, codes = some.outputs(result.predict), _codes(some, len(labels))
    weights = np.ones(len(codes)) if some.row_weights is None else some.row_weights
    found = ClassCounts.of(labels, codes, _winners(outputs), weights)
    noun = "sequence" if data.mode == "last" else "token"
    seen = counted(some.n_rows, noun)
    if some.n_rows < data.n_rows:
        seen += f" of {data.n_rows:,}, in evenly spaced sequences"
    more = _of_probabilities(outputs, codes, weights, seen) if result.loss == "logistic" else {}
    section = statement(
        PREDICTIONS_TITLE, _claim(found, seen, weighted=some.row_weights is not None),
        doubt=not found.beats_majority,
        notes=[UNWEIGHTED] if some.row_weights is None else [], **more,
    )  # fmt: skip
    return [section, _confusion(found), _each_class(found, noun)]


def _claim(found: ClassCounts, seen: str, weighted: bool) -> str:
    """How many are right, beside what the most frequent class alone would give."""
    kind = " (by weight)" if weighted else ""
    frequent = found.labels[found.frequent]
    text = (
        f"{percent(found.accuracy)} of {seen} are given the right class{kind}; always saying "
        f"“{frequent}”, the most frequent one, is right for {percent(found.majority)}."
    )
    return text if found.beats_majority else f"{text} The layer does no better than that."


def _of_probabilities(
    outputs: NDArray, codes: NDArray, weights: NDArray, seen: str
) -> dict[str, Any]:
    """The log-loss, and the picture of probabilities beside how often they held."""
    weights = weights / weights.max()
    shares = weights / weights.sum()
    chances = probabilities(outputs)
    n_classes = chances.shape[1]
    of_classes = np.bincount(codes, shares, n_classes)
    present = of_classes[of_classes > 0]
    facts = {
        "mean log-loss": LogLoss(codes, shares, n_classes).at(outputs.T).value,
        "the same, knowing only how frequent classes are": float(-present @ np.log(present)),
    }
    caption = (
        f"Probabilities for {seen}, in bins, and how often the class was the true one: points on "
        "the line are right."
    )
    points = _binned(chances, codes, shares)
    picture = plot(lambda axes: _draw(points, axes), "Probabilities and shares", caption, 3.4)
    return {"pictures": [picture], "facts": facts}


def _confusion(found: ClassCounts) -> Section:
    """The counts as a table, or of many classes as a map with the most frequent mistakes."""
    labels = found.labels
    if len(labels) <= MOST_CLASSES:
        rows = zip(labels, found.counts.tolist(), found.row_shares.tolist(), strict=True)
        cells = [(name, list(zip(counts, of, strict=True))) for name, counts, of in rows]
        return Section(TABLE_TITLE, fill("classes", labels=labels, rows=cells))
    matrix = found.row_shares
    along = (Side("true class", labels), Side("predicted class", labels))
    drawn = Map("", matrix, 1.0, *along, cell_size(matrix.shape))
    caption = (
        "Each row shows how a true class is spread over predicted ones; full colour is all of it, "
        "and what is right lies on the diagonal."
    )
    picture = map_picture([drawn], TABLE_TITLE, caption)
    listed = found.mistakes(MOST_CLASSES)
    return Section(TABLE_TITLE, fill("many_classes", picture=picture, mistakes=listed))


def _each_class(found: ClassCounts, noun: str) -> Section:
    """Recall and precision of each class, or of those that are found least."""
    recall, precision = found.recall, found.precision
    sizes = found.counts.sum(axis=1).tolist()
    order = list(range(len(found.labels)))
    if len(order) > MOST_CLASSES:
        # Classes that are not among the data have no recall.
        found_least = [2.0 if share is None else share for share in recall]
        order.sort(key=found_least.__getitem__)
    rows = [
        (found.labels[k], sizes[k], percent(recall[k]), percent(precision[k]))
        for k in order[:MOST_CLASSES]
    ]
    left_out = len(order) - len(rows)
    return Section(EACH_TITLE, fill("each_class", rows=rows, noun=noun, left_out=left_out))


def _winners(outputs: NDArray) -> NDArray[np.intp]:
    """The class of the largest output; of two classes the second where the output is positive."""
    if outputs.shape[1] == 1:
        return (outputs[:, 0] > 0).astype(np.intp)
    return np.argmax(outputs, axis=1)


def percent(share: float | None) -> str:
    """A share for people; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


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
