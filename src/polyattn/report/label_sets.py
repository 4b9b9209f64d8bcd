"""Several labels at once on a page: how many sequences have all of them right, and each label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.fitting.result import FitResult
from polyattn.quoting import counted, shortened
from polyattn.report.class_counts import ClassCounts
from polyattn.report.classes import EACH_TITLE, LONGEST_LABEL, percent
from polyattn.report.names import SideNames
from polyattn.report.page import Section, fill, statement
from polyattn.report.page_data import PageData
from polyattn.report.predictions import PREDICTIONS_TITLE, SCORED_ROWS, UNWEIGHTED

# So many labels are listed: those that are found least.
MOST_LABELS = 40


def label_sets_sections(result: FitResult, data: PageData, names: SideNames) -> list[Section]:
    """Labels beside true ones, given as columns of 0 and 1, for evenly spaced sequences."""
    _require_sets(data)
    some, _ = data.sample(SCORED_ROWS)
    assert some.targets is not None  # noqa: S101 - the caller has looked
    true, given = some.targets > 0, some.outputs(result.predict) > 0
    weights = np.ones(len(true)) if some.row_weights is None else some.row_weights
    both = zip(true.T.astype(np.intp), given.T.astype(np.intp), strict=True)
    each = [ClassCounts.of(("without", "with"), have, said, weights) for have, said in both]
    all_right = _share(np.all(true == given, axis=1), weights)
    # What is said without looking at any sequence: of each label what is more frequent.
    frequent = np.array([found.frequent == 1 for found in each])
    by_default = _share(np.all(true == frequent, axis=1), weights)
    seen = counted(some.n_rows, "sequence")
    claim = (
        f"{percent(all_right)} of {seen} are given exactly the right labels; saying the same of "
        f"all of them is right for {percent(by_default)}."
    )
    better = all_right > by_default + 1e-12
    section = statement(
        PREDICTIONS_TITLE, claim if better else f"{claim} The layer does no better than that.",
        doubt=not better, notes=[UNWEIGHTED] if some.row_weights is None else [],
    )  # fmt: skip
    return [section, _each_label(each, names)]


def _each_label(found: list[ClassCounts], names: SideNames) -> Section:
    """How often each label is right, beside what its frequency alone gives; the worst of many."""
    order = list(range(len(found)))
    if len(order) > MOST_LABELS:
        gained = [each.accuracy - each.majority for each in found]
        order.sort(key=gained.__getitem__)
    rows: list[tuple[Any, ...]] = [
        (
            shortened(names.classes[k], LONGEST_LABEL), int(found[k].counts[1].sum()),
            percent(found[k].accuracy), percent(found[k].majority),
            percent(found[k].recall[1]), percent(found[k].precision[1]),
        )
        for k in order[:MOST_LABELS]
    ]  # fmt: skip
    return Section(EACH_TITLE, fill("each_label", rows=rows, left_out=len(order) - len(rows)))


def _require_sets(data: PageData) -> None:
    assert data.targets is not None  # noqa: S101 - the caller has looked
    wrong = data.targets[(data.targets != 0) & (data.targets != 1)]
    if wrong.size:
        raise InvalidInput(
            f"Y must say by 0 and 1 which labels a sequence has, as in training; got {wrong[0]:g}."
        )


def _share(which: NDArray, weights: NDArray) -> float:
    weights = weights / weights.max()
    return float(weights[which].sum() / weights.sum())
