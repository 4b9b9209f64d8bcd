"""The data behind a fit, when they are asked for again: kept if small, or given again and checked.

A result keeps a reference to small data, so that questions about them need no second argument.
Large data and sources are not kept: a result that is kept for long must not hold gigabytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.fitting.generalisation import Generalisation, generalisation_of
from polyattn.form.layout import Layout
from polyattn.numerics.scaling import as_risk
from polyattn.quoting import readable_bytes
from polyattn.sequences import Sequences
from polyattn.solve.distinct_inputs import with_distinct_inputs
from polyattn.solve.planning import memory_limit
from polyattn.solve.sequence_influence import Influence, influence_of
from polyattn.sources.source import Source
from polyattn.stats.parts import is_read
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

# Tokens and targets of up to so many bytes are kept with a result, by reference where they can be.
KEPT_BYTES = 1 << 26

# Of ``Influence``: squared errors and targets, to which all that have the same inputs add.
SQUARES = ("left_out", "fitted", "own", "power")

# Risks of the same coefficients on the same data agree to so many digits, and beside the targets.
SAME_RISK, SAME_POWER = 1e-6, 1e-12


def kept_rows(source: object) -> Rows | None:
    """The rows that a result keeps, without summaries; None of large data, sources and sums."""
    if not isinstance(source, Rows) or is_read(source.batch):
        return None
    arrays = [source.batch.values, source.targets]
    if source.context is not None:
        arrays.append(source.context.values)
    return replace(source) if sum(each.nbytes for each in arrays) <= KEPT_BYTES else None


def kept_or_given(
    kept: Rows | None,
    X: Sequences | Source | None,
    Y: Targets | None,
    sample_weight: ArrayLike | None,
    context: Sequences | None,
    layout: Layout,
    n_outputs: int,
) -> Rows:
    """The rows that a result kept, or those that are given again; refused without either."""
    others = (("Y", Y), ("sample_weight", sample_weight), ("context", context))
    given = [name for name, value in others if value is not None]
    if X is None and given:
        raise InvalidInput(
            f"{given[0]} was given without X: give all that was given to fit, or none of it."
        )
    if X is not None and Y is None and not isinstance(X, Source):
        raise InvalidInput("X was given without Y: give both as they were given to fit.")
    if X is not None:
        weights = sample_weight
        return Rows.build(X, Y, layout.form, weights, context, layout=layout, n_outputs=n_outputs)
    if kept is None:
        raise InvalidInput(
            "this result does not keep its data (they are large, a source, sums, or it comes "
            "from a file): give them again, result.generalisation(confidence, X, Y)."
        )
    if not np.isfinite(kept.batch.values).all():
        raise InvalidInput(
            "the arrays that were fitted have been changed since: X is no longer finite. Give "
            "X and Y again as they were given to fit."
        )
    return kept


def generalise(
    rows: Rows, coef: NDArray, layout: Layout, risk: float, confidence: float, n_decays: int
) -> Generalisation:
    """How coefficients (e, m, r) that were fitted to these rows do on fresh sequences.

    risk : theirs on these rows, by which data that were not fitted are found out
    n_decays : how many were tried, where the data chose the decay
    """
    merged, within = with_distinct_inputs(rows)
    weights = merged.sequence_weights
    positive = np.ones(len(rows.batch), bool) if weights is None else weights > 0
    n_sequences = int(np.count_nonzero(positive))
    exponent = rows.target_exponent or 0
    found = _influence(merged, coef, layout)
    if found is not None:
        squares = {name: getattr(found, name) + within for name in SQUARES}
        total = rows.total_weight
        _require_same(as_risk(float(squares["own"].sum()) / total, exponent), risk, rows)
        columns = {name: each for name, each in vars(found).items() if np.ndim(each)} | squares
        found = replace(found, **{name: each[positive] for name, each in columns.items()})
    units = (rows.total_weight, exponent)
    return generalisation_of(found, confidence, n_sequences, *units, n_decays)


def _influence(rows: Rows, coef: NDArray, layout: Layout) -> Influence | None:
    """None where sequences are fewer than features, and these too many to look at."""
    needed = 8 * (rows.n_outputs + 4) * rows.n_features**2
    if needed > memory_limit():
        if rows.n_sequences <= rows.n_features:
            return None
        raise OutOfRange(
            f"generalisation takes about {readable_bytes(needed)} for {rows.n_features:,} features "
            f"and {rows.n_outputs} outputs, more than half of the memory; risks on sequences that "
            "were held out say the same."
        )
    token, target = rows.token_exponent or 0, rows.target_exponent or 0
    theta = layout.as_theta(np.ldexp(coef, 3 * token - target))
    return influence_of(rows, theta)


def _require_same(found: float, risk: float, rows: Rows) -> None:
    """Refuse data on which the coefficients have another risk than on those that were fitted."""
    power = float(np.sum(rows.output_sizes**2))
    if abs(found - risk) > SAME_RISK * risk + SAME_POWER * power:
        raise InvalidInput(
            f"generalisation is about the data that were fitted, on which the risk is {risk:.6g}; "
            f"on these it is {found:.6g}. Give X and Y (sample_weight, context) as they were given "
            "to fit, and unchanged since."
        )
