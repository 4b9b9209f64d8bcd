"""Choosing how many rules on held-out traces, and predicting each trace without having seen it.

Traces are dealt to folds.  For each fold rules are pursued on the others, with 0, 1, 2, ... rules;
the number that leaves the least held-out error is taken for all, and the fold's own traces are
predicted with it.  Rows of one trace are never split: they share a machine.

The candidates themselves come from all traces: of rules that admit the same products everywhere
one is kept, and those that have least to do with what was written are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.learning.rules.dictionary import Dictionary
from polyattn.programs.learning.rules.facts import strides_of
from polyattn.programs.learning.rules.layout import Layout
from polyattn.programs.learning.rules.outcomes import Mismatch
from polyattn.programs.learning.rules.pursuit import (
    EXACT,
    Choice,
    ColumnMoments,
    pursue,
    settle,
    snapped,
)
from polyattn.programs.traces import Trace

# What one more rule gains on held-out traces must exceed so many standard errors of it.
STANDARD_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class Selection:
    """The rules chosen for one kind.

    choice : support, weights and residual on all traces
    held_out : array (n_rows * D,), each row predicted by rules pursued without its fold
    held_out_error : for 0, 1, 2, ... rules, the share of ||y||^2 left on held-out traces
    fold_choices : the choice of each fold
    """

    dictionary: Dictionary
    choice: Choice
    held_out: NDArray[np.float64]
    held_out_error: tuple[float, ...]
    fold_choices: tuple[Choice, ...]


def select(
    dictionary: Dictionary,
    fold_of: NDArray[np.int64],
    *,
    max_terms: int = 10,
    beam: int = 6,
    step: float | None = 0.5,
) -> Selection:
    """Pursue rules on all folds but one, for each; then on all with the number that did best.

    Parameters
    ----------
    dictionary : candidate rules for one kind
    fold_of : array (n_rows,), the fold of each row
    step : weights are rounded to its multiples (None: not)

    Cost: one product X'X per fold, then O(folds * beam * max_terms^2 * n).
    """
    folds = np.unique(fold_of)
    of_equation = np.repeat(fold_of, dictionary.n_places)
    parts = [_moments(dictionary, of_equation == fold) for fold in folds]
    total = _total(parts)
    options = {"max_terms": max_terms, "beam": beam, "step": step}
    paths = [
        _path(total - part, dictionary, fold_of != fold, options)
        for fold, part in zip(folds, parts, strict=True)
    ]
    full = _path(total, dictionary, np.ones(len(fold_of), dtype=bool), options)
    length = max(len(path) for path in (full, *paths))
    errors = np.array(
        [
            [
                part.residual(choice.support, choice.weights)
                for choice in (path[min(number, len(path) - 1)] for number in range(length))
            ]
            for part, path in zip(parts, paths, strict=True)
        ]
    )
    number = _fewest(errors, total.power)
    chosen = tuple(path[min(number, len(path) - 1)] for path in paths)
    held_out = np.zeros(len(dictionary.wanted))
    for fold, choice in zip(folds, chosen, strict=True):
        own = of_equation == fold
        held_out[own] = _predict(dictionary, choice)[own]
    return Selection(
        dictionary,
        full[min(number, len(full) - 1)],
        held_out,
        tuple((errors.sum(axis=0) / (total.power or 1.0)).tolist()),
        chosen,
    )


def deal(counts: Sequence[int], n_folds: int) -> NDArray[np.int64]:
    """The fold of each row, for traces with ``counts`` rows dealt out in turn."""
    return np.repeat(np.arange(len(counts)) % n_folds, counts)


def mismatches_of(
    traces: Sequence[Trace],
    layout: Layout,
    selections: dict[int, Selection],
) -> tuple[Mismatch, ...]:
    """Where rounded held-out predictions differ from the wanted tokens."""
    found, start = [], 0
    for number, trace in enumerate(traces):
        outputs = _outputs(trace, layout, selections, start)
        wanted = np.asarray(trace.targets, dtype=float)
        wrong = trace.schema.round(outputs) != trace.schema.round(wanted)
        for name, block in trace.schema.blocks.items():
            at = np.flatnonzero(wrong[:, block].any(axis=1)).tolist()
            found += [Mismatch(number, token, name) for token in at]
        start += trace.n_rows
    return tuple(sorted(found, key=lambda each: (each.trace, each.token)))


def _path(
    total: ColumnMoments, dictionary: Dictionary, own: NDArray[np.bool_], options: dict[str, Any]
) -> list[Choice]:
    path, step = pursue(total, **options), options["step"]
    if step is None:
        return [finalists[0] for finalists in path]
    if path[-1][0].residual <= EXACT * total.power:
        return [snapped(finalists[0], total, step) for finalists in path]
    settled = [[settle(each, dictionary, own, step) for each in finalists] for finalists in path]
    return [min(finalists, key=lambda each: each.residual) for finalists in settled]


def _fewest(errors: NDArray[np.float64], power: float) -> int:
    """The smallest number of rules whose held-out error (folds, numbers) is as good as the least.

    With exact data that is the least, up to rounding.  With noise it is within two standard errors
    of it, fold by fold: what one more rule gains must not be an accident of one fold.
    """
    total = errors.sum(axis=0)
    best = int(np.argmin(total))
    allowed = np.full(len(total), EXACT * power)
    if total[best] > EXACT * power and len(errors) > 1:
        behind = errors - errors[:, best : best + 1]
        allowed += STANDARD_ERRORS * np.sqrt(len(errors)) * behind.std(axis=0, ddof=1)
    return int(np.flatnonzero(total - total[best] <= allowed)[0])


def _moments(dictionary: Dictionary, own: NDArray[np.bool_]) -> ColumnMoments:
    columns, wanted = dictionary.columns[np.flatnonzero(own)], dictionary.wanted[own]
    return ColumnMoments(
        (columns.T @ columns).toarray(), columns.T @ wanted, float(wanted @ wanted)
    )


def _total(parts: Sequence[ColumnMoments]) -> ColumnMoments:
    return ColumnMoments(
        np.sum([part.gram for part in parts], axis=0),
        np.sum([part.cross for part in parts], axis=0),
        sum(part.power for part in parts),
    )


def _predict(dictionary: Dictionary, choice: Choice) -> NDArray[np.float64]:
    return dictionary.columns[:, list(choice.support)] @ choice.weights


def _outputs(
    trace: Trace, layout: Layout, selections: dict[int, Selection], start: int
) -> NDArray[np.float64]:
    """The held-out predictions of one trace, in its own coordinates (m, d)."""
    coordinates = layout.coordinates(trace.schema)
    outputs = np.zeros(trace.completion.shape)
    for kind, selection in selections.items():
        at = np.flatnonzero(coordinates.kinds == kind)
        steps = np.array(strides_of(layout, kind), dtype=np.int64)
        places = coordinates.parts[at, : len(steps)] @ steps
        held_out = selection.held_out.reshape(-1, selection.dictionary.n_places)
        outputs[:, at] = held_out[start : start + trace.n_rows][:, places]
    return outputs
