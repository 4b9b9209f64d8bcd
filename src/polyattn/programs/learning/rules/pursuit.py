"""Few rules that explain what was written: forward selection with a beam, swaps and snapping.

    minimise ||y - X_S w||^2 over supports S of k columns and weights w

Each step adds the column that leaves the least residual after refitting all weights (orthogonal
least squares), for each of several supports at once; then columns are exchanged while that helps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.learning.rules.candidates import Dictionary

# Residuals below this share of ||y||^2 are rounding errors: all numbers are small integers.
EXACT = 1e-9

# A column whose part outside the chosen ones is below this share of it adds nothing.
DEPENDENT = 1e-9

# Stop when so many more columns have not made a better choice with simple weights.
PATIENCE = 3

# Rounds of setting rows aside: a row contradicts if its rest exceeds so many medians, and so much
# in any case.
MAX_ROUNDS, MEDIANS, LEAST = 8, 9.0, 0.1


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """All that least squares needs of a set of rows: X'X (n, n), X'y (n,) and y'y."""

    gram: NDArray[np.float64]
    cross: NDArray[np.float64]
    power: float

    def __sub__(self, other: ColumnMoments) -> ColumnMoments:
        return ColumnMoments(
            self.gram - other.gram, self.cross - other.cross, self.power - other.power
        )

    def residual(self, support: tuple[int, ...], weights: NDArray[np.float64]) -> float:
        """||y - X_S w||^2."""
        at = list(support)
        within = self.gram[np.ix_(at, at)]
        return float(self.power - 2 * weights @ self.cross[at] + weights @ within @ weights)


@dataclass(frozen=True, eq=False)
class Choice:
    """A support, its weights, and the residual they leave."""

    support: tuple[int, ...]
    weights: NDArray[np.float64]
    residual: float

    @property
    def program(self) -> dict[int, float]:
        """The weight of each column, to compare choices."""
        return dict(zip(self.support, self.weights.round(9).tolist(), strict=True))


def best_choices(
    total: ColumnMoments, dictionary: Dictionary, own: NDArray, max_terms: int, step: float | None
) -> list[Choice]:
    """The best choice for 0, 1, 2, ... rules, from the rows that are ``own``."""
    path = pursue(total, max_terms=max_terms, step=step)
    if step is None or path[-1][0].residual <= EXACT * total.power:
        return [snapped(finalists[0], total, step) for finalists in path]
    settled = [[settle(each, dictionary, own, step) for each in finalists] for finalists in path]
    return [min(finalists, key=lambda each: each.residual) for finalists in settled]


def pursue(
    moments: ColumnMoments, *, max_terms: int = 10, beam: int = 6, step: float | None = None
) -> list[list[Choice]]:
    """The best choices found with 0, 1, 2, ... columns, until nothing is left to explain.

    Supports compete twice: by the residual that their best weights leave, and by the one that
    weights rounded to multiples of ``step`` leave.  Noise makes the first prefer columns that
    happen to fit; the second asks for simple weights, which such columns do not have.

    Cost: O(beam * max_terms * k * n) for n columns.
    """
    path = [[Choice((), np.zeros(0), moments.power)]]
    least, stalled = moments.power, 0
    while len(path) <= max_terms and least > EXACT * moments.power and stalled < PATIENCE:
        children: dict[tuple[int, ...], Choice] = {}
        for choice in path[-1]:
            for column in _best_columns(moments, choice, beam):
                support = tuple(sorted((*choice.support, column)))
                if support not in children:
                    children[support] = _fit(moments, support)
        if not children:
            break
        best = _exchange(moments, children[_ranked(children, moments.power)[0]])
        children[best.support] = best
        simple = {support: snapped(each, moments, step) for support, each in children.items()}
        # The best by their best weights, then the best by simple weights, each once.
        kept = dict.fromkeys(_ranked(children, moments.power)[:beam])
        also = _ranked(simple, moments.power)[:beam]
        kept |= dict.fromkeys(support for support in simple if support in also)
        path.append([children[support] for support in kept])
        left = min(simple[each.support].residual for each in path[-1])
        stalled = 0 if left < least - EXACT * moments.power else stalled + 1
        least = min(least, left)
    return path


def snapped(choice: Choice, moments: ColumnMoments, step: float | None) -> Choice:
    """The choice with weights that are multiples of ``step``; columns of weight 0 are dropped.

    An exact choice stays as it is unless its rounded weights are exact too; without a step, all do.
    """
    if step is None:
        return choice
    exact = choice.residual <= EXACT * moments.power
    weights = np.round(choice.weights / step) * step
    residual = moments.residual(choice.support, weights)
    if exact and residual > EXACT * moments.power:
        return choice
    kept = np.flatnonzero(weights)
    return Choice(tuple(choice.support[at] for at in kept), weights[kept], residual)


def _ranked(choices: dict[tuple[int, ...], Choice], power: float) -> list[tuple[int, ...]]:
    """The keys of choices, those with the least residual first."""

    # Columns stand in order of plainness, so it decides between equally good supports.
    def rank(key: tuple[int, ...]) -> tuple[float, int, int]:
        choice = choices[key]
        share = round(choice.residual / (power or 1.0), 9)
        return share, len(choice.support), sum(choice.support)

    return sorted(choices, key=rank)


def _fit(moments: ColumnMoments, support: tuple[int, ...]) -> Choice:
    at = list(support)
    scale = np.sqrt(np.diag(moments.gram)[at])
    gram = moments.gram[np.ix_(at, at)] / np.outer(scale, scale)
    weights = np.linalg.lstsq(gram, moments.cross[at] / scale, rcond=1e-11)[0] / scale
    return Choice(support, weights, moments.residual(support, weights))


def _best_columns(moments: ColumnMoments, choice: Choice, most: int) -> list[int]:
    """The columns that would lower the residual most, after refitting."""
    at, norms = list(choice.support), np.diag(moments.gram)
    scale = np.sqrt(norms[at])
    gram = moments.gram[np.ix_(at, at)] / np.outer(scale, scale)
    rows = moments.gram[at] / scale[:, None]
    inside = np.linalg.lstsq(gram, rows, rcond=1e-11)[0]
    left = moments.cross - moments.gram[:, at] @ choice.weights
    free = norms - np.einsum("sn,sn->n", rows, inside)
    usable = free > DEPENDENT * np.maximum(norms, 1.0)
    gains = np.where(usable, left**2 / np.where(usable, free, 1.0), 0.0)
    gains = np.round(gains / (moments.power or 1.0), 9)
    order = np.argsort(-gains, kind="stable")[:most]
    return [int(column) for column in order if gains[column] > 0]


def _exchange(moments: ColumnMoments, choice: Choice) -> Choice:
    """The choice after exchanging single columns while that lowers the residual."""
    improved = len(choice.support) > 1
    while improved:
        improved = False
        for column in choice.support:
            rest = tuple(each for each in choice.support if each != column)
            for better in _best_columns(moments, _fit(moments, rest), 1):
                rival = _fit(moments, tuple(sorted((*rest, better))))
                if rival.residual < choice.residual - EXACT * moments.power:
                    choice, improved = rival, True
            if improved:
                break
    return choice


def settle(choice: Choice, dictionary: Dictionary, own: NDArray[np.bool_], step: float) -> Choice:
    """The choice with weights from the rows that do not contradict it, multiples of ``step``.

    A wrong label pulls all weights of the rules of its row towards zero, so that with a fifth of
    the labels wrong a weight of 1 looks like 0.8.  Rows that are right are explained without any
    rest, so the rows with a rest are set aside and the weights are fitted to the others, until
    nothing changes.

    own : array (n_rows,), the rows to look at

    Cost: O(rounds * equations * k^2) for k columns.
    """
    if not choice.support:
        return choice
    of_equation = np.repeat(own, dictionary.n_places)
    columns = dictionary.columns[:, list(choice.support)].toarray()[of_equation]
    wanted = dictionary.wanted[of_equation]
    weights, seen = choice.weights, {choice.weights.tobytes()}
    for _ in range(MAX_ROUNDS):
        # The rows that are explained as well as most of those of which something is said.
        predicted = columns @ weights
        rests = ((wanted - predicted) ** 2).reshape(-1, dictionary.n_places).sum(axis=1)
        said = (np.abs(wanted) + np.abs(predicted)).reshape(-1, dictionary.n_places).any(axis=1)
        usual = float(np.median(rests[said])) if said.any() else 0.0
        agree = np.repeat(rests <= max(MEDIANS * usual, LEAST), dictionary.n_places)
        kept = columns[agree]
        fitted = np.linalg.lstsq(kept.T @ kept, kept.T @ wanted[agree], rcond=1e-11)[0]
        weights = np.round(fitted / step) * step
        if weights.tobytes() in seen:
            break
        seen.add(weights.tobytes())
    chosen = np.flatnonzero(weights)
    rest = wanted - columns @ weights
    return Choice(tuple(choice.support[at] for at in chosen), weights[chosen], float(rest @ rest))
