"""fit_symbols: ids -> counts -> least squares for each symbol that asks -> OneHotFit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput
from polyattn.features.symbol_counts import QueryGroup, query_groups, refusal
from polyattn.fitting.one_hot.outcomes import describe_symbols
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.proportion import BestConstant, DataSizes, Proportion
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.model.symbol_table import SymbolTable
from polyattn.numerics import scaling
from polyattn.numerics.parallel import map_pieces, single_threaded_blas
from polyattn.sequences import SequenceBatch
from polyattn.solve.symbol_groups import GroupSolution, solve_group
from polyattn.stats.target_spread import TargetSpread
from polyattn.targets import Targets, as_targets, as_weights

# Weights and a ridge beside the largest weight of a group: squares of their roots are in range.
LEAST_WEIGHT, MOST_PENALTY = 2.0**-1000, 2.0**1000


@single_threaded_blas()
def fit_symbols(
    batch: SequenceBatch,
    Y: Targets,
    form: Form,
    ridge: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> OneHotFit:
    """The minimiser of  sum_i w_i ||y_i - F(X_i)||^2 + ridge ||T||^2  for one-hot tokens.

    batch : made by ``SequenceBatch.from_ids``
    The same optimum as by any other solver (docs/derivations/one_hot.md).

    Cost: O(log n) per token and position that attends to it, and for each of the symbols that ask
    s^2 max(rows, k) flops, s = min(rows, k), with k symbols seen at the positions where it does.
    Memory: the coefficients of pairs of symbols that occur, and one group (or some small ones).
    """
    why = refusal(form)
    if why is not None:
        raise InvalidInput(f"{why} Other forms take dense tokens: numpy.eye(n_symbols)[ids].")
    batch, targets, weights = _of_positive_weight(batch, Y, form.mode, sample_weight)
    total = float(len(targets)) if weights is None else float(weights.sum())
    # Powers of two that keep squares inside float64, as for other tokens.
    outputs = scaling.column_magnitudes((targets,), targets.shape[1])
    scaling.require_comparable(np.ones(1), outputs)
    of_targets = scaling.exponent_for(float(outputs.max(initial=0.0))) or 0
    of_weights = 0
    if weights is not None:
        scaling.require_weighable(float(weights.max()), np.ones(1), outputs)
        of_weights = int(np.frexp(weights.max())[1])

    def solved(group: QueryGroup) -> GroupSolution:
        own = np.ldexp(targets[group.rows].astype(np.float64), -of_targets)
        if weights is None:
            return solve_group(group.counts, own, None, ridge)
        # Groups share nothing but the ridge: beside the weights of another, these could vanish.
        found, exponent = _solved_weighted(group, own, weights[group.rows], ridge)
        power = float(np.ldexp(found.residual_power, exponent - of_weights))
        return replace(found, residual_power=power)

    queries: list[int] = []
    symbols: list[NDArray[np.int64]] = []
    solutions: list[GroupSolution] = []
    n_seen = 0
    for groups in query_groups(batch, form):
        for group, solution in zip(groups, map_pieces(solved, groups), strict=True):
            queries.append(group.query)
            symbols.append(group.symbols)
            solutions.append(solution)
            n_seen += len(group.symbols)
    values = [
        scaling.restored(each.theta, of_targets, "the coefficients", np.ones(1))
        for each in solutions
    ]
    table = SymbolTable.of(batch.n_dims, queries, symbols, values)
    power = float(np.sum([each.residual_power for each in solutions]))
    risk = scaling.as_risk(power / float(np.ldexp(total, -of_weights)), of_targets)
    ranks = [each.rank for each in solutions]
    rank = None if None in ranks else sum(each for each in ranks if each is not None)
    conditions = [each.condition for each in solutions]
    condition = float(np.max(conditions))
    layout = Layout.of(form, batch.n_dims)
    outcome = describe_symbols(solutions, table, layout, ridge, rank, condition)
    beside = _beside_mean(batch, targets, weights, of_targets)
    outcome = beside.judged(outcome, risk, form, targets.shape[1], ridge=ridge)
    return OneHotFit(
        table, layout, outcome, risk=risk, ridge=ridge, rank=rank,
        condition=condition if np.isfinite(condition) else None, **beside.figures,
    )  # fmt: skip


def _beside_mean(
    batch: SequenceBatch, targets: NDArray, weights: NDArray | None, exponent: int
) -> Proportion:
    """What the fit is held against: targets (n_rows, e) are read in parts."""

    def read(first: int, stop: int) -> NDArray[np.float64]:
        return np.ldexp(targets[first:stop].T.astype(np.float64), -exponent)

    spread = TargetSpread.of_parts(read, len(targets), targets.shape[1], weights)
    ends = int(batch.lengths.min()), int(batch.lengths.max())
    sizes = DataSizes(len(batch), batch.n_dims, *ends, are_ids=True)
    return Proportion(BestConstant.of(spread, exponent), sizes, len(targets))


def _solved_weighted(
    group: QueryGroup, targets: NDArray, weights: NDArray, ridge: float
) -> tuple[GroupSolution, int]:
    """The solution of a group with weights over a power of two, and its exponent."""
    exponent = int(np.frexp(weights.max())[1])
    # None becomes zero: its position still counts where the others leave a choice.
    scaled = np.maximum(np.ldexp(weights, -exponent), LEAST_WEIGHT)
    with np.errstate(over="ignore"):
        penalty = min(float(np.ldexp(ridge, -exponent)), MOST_PENALTY)
    return solve_group(group.counts, targets, scaled, penalty), exponent


def _of_positive_weight(
    batch: SequenceBatch, Y: Targets, mode: str, sample_weight: ArrayLike | None
) -> tuple[SequenceBatch, NDArray, NDArray[np.float64] | None]:
    """Sequences, targets (n_rows, e) and weights (n_rows,); those of weight zero say nothing."""
    targets, weights = as_targets(Y, batch, mode), as_weights(sample_weight, batch)
    if weights is None:
        return batch, targets, None
    counted = np.flatnonzero(weights)
    if not len(counted):
        raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
    of_rows = weights if mode == "last" else np.repeat(weights, batch.lengths)
    if len(counted) < len(weights):
        batch, targets = batch.chosen(counted), targets[of_rows > 0]
    return batch, targets, of_rows[of_rows > 0]
