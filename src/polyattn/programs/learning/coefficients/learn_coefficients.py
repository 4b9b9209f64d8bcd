"""learn_coefficients: a layer from traces alone, every coefficient on its own.

Features, span, least norm; if the labels contradict each other, a penalty chosen on left-out
rows and a search for the labels to believe.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.coefficients.groups import (
    CONSISTENT,
    Group,
    groups_of,
    interpolate,
    largest_miss,
)
from polyattn.programs.learning.coefficients.layer import ActiveLayer
from polyattn.programs.learning.coefficients.learned import LearnedCoefficients
from polyattn.programs.learning.coefficients.outcomes import exact_outcome, penalised_outcome
from polyattn.programs.learning.coefficients.ridge import Ridge, choose_penalty, repair
from polyattn.programs.learning.coefficients.span import CoefficientSpan
from polyattn.programs.traces import Trace

AUTO = "auto"

# Where no more than this share of the labels confirm each other, they do so by accident.
LEAST_BELIEVED = 0.5


def learn_coefficients(
    schema: Schema, traces: Sequence[Trace], *, ridge: float | str = AUTO
) -> LearnedCoefficients:
    """The layer of least ||T|| that is right on all rows of the traces [yau2024: Algorithm 1].

        y_a = sum over (jk), l of P[a, (jk), l] G[j,k] x[l]

    Parameters
    ----------
    schema : Schema
        How outputs are rounded to tokens.
    traces : sequence of Trace
        Their labels may be noisy.
    ridge : "auto" or float >= 0
        "auto" interpolates consistent labels; of labels that contradict each other it believes
        those which the others confirm, and fits these exactly if they are consistent, else with
        the penalty that predicts left-out rows best.  A number is a penalty on all rows, in
        units of the mean square of their features.

    Guarantee: on consistent labels every layer that is right on the training rows agrees with
    this one on every row inside ``span``.
    Cost: N r^2 flops in each token type of rank r, r^3/3 in each group of types that share
    coordinates; memory r^2 numbers for each.
    """
    if ridge != AUTO and (isinstance(ridge, str) or not 0 <= ridge < np.inf):
        raise InvalidInput(f"ridge must be 'auto' or a number >= 0; got {ridge!r}.")
    span = CoefficientSpan.of(traces)
    groups = groups_of(span)
    if ridge in (AUTO, 0):
        layer = _interpolated(span, groups)
        if layer is not None:
            return _exact(schema, traces, span, layer)
    regression = Ridge(span.features, groups)
    if isinstance(ridge, str):
        return _from_contradictions(schema, traces, span, regression)
    everything = np.ones(len(span.features), dtype=bool)
    fit = regression.fit(span.features.targets, ridge, everything)
    return _penalised(schema, traces, span, fit.layer, ridge)


def _interpolated(span: CoefficientSpan, groups: list[Group]) -> ActiveLayer | None:
    """The layer of least norm, or None if the labels contradict each other."""
    layer = interpolate(span.features, groups)
    return None if largest_miss(span.features, layer) > CONSISTENT else layer


def _from_contradictions(
    schema: Schema, traces: Sequence[Trace], span: CoefficientSpan, ridge: Ridge
) -> LearnedCoefficients:
    """What labels that contradict each other say: the part that is confirmed, or a penalty."""
    features = span.features
    start = choose_penalty(ridge, schema.round)
    found = repair(ridge, schema.round, start)
    believed = np.flatnonzero(found.believed)
    # What is left must be most of it, and say more than enough: as many rows as unknowns fit
    # anything.
    if len(believed) > LEAST_BELIEVED * len(features):
        labels = found.labels[believed]
        clean = CoefficientSpan.of(features.take(believed).labelled(labels))
        layer = _interpolated(clean, groups_of(clean)) if len(believed) > clean.rank else None
        if layer is not None:
            kept = len(believed) == len(features)
            same = kept and np.array_equal(schema.round(features.targets), schema.round(labels))
            return _exact(schema, traces, clean, layer, believed, len(features), not same)
    return _penalised(schema, traces, span, start.fit.layer, start.penalty, start.agreement)


def _exact(
    schema: Schema,
    traces: Sequence[Trace],
    span: CoefficientSpan,
    layer: ActiveLayer,
    fitted: NDArray[np.int64] | None = None,
    n_given: int | None = None,
    repaired: bool = False,
) -> LearnedCoefficients:
    features = span.features
    miss = largest_miss(features, layer)
    outcome = exact_outcome(len(features), features.n_traces, span.rank, miss, n_given, repaired)
    fitted = np.arange(len(features)) if fitted is None else fitted
    return LearnedCoefficients(schema, traces, outcome, layer, 0.0, miss, fitted, span)


def _penalised(
    schema: Schema,
    traces: Sequence[Trace],
    span: CoefficientSpan,
    layer: ActiveLayer,
    penalty: float,
    agreement: float | None = None,
) -> LearnedCoefficients:
    n_rows = len(span.features)
    outcome = penalised_outcome(n_rows, penalty, agreement)
    miss = largest_miss(span.features, layer)
    return LearnedCoefficients(
        schema, traces, outcome, layer, float(penalty), miss, np.arange(n_rows), span
    )
