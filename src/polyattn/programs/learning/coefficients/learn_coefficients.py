"""learn_coefficients: a layer from traces alone, every coefficient on its own.

Features, span, least norm; if the labels contradict each other, a penalty chosen on left-out
rows and a search for the labels to believe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.coefficients.coefficient_span import CoefficientSpan
from polyattn.programs.learning.coefficients.learned_coefficients import LearnedCoefficients
from polyattn.programs.learning.coefficients.least_squares import CONSISTENT, Ridge, interpolate
from polyattn.programs.learning.coefficients.outcomes import exact_outcome, penalised_outcome
from polyattn.programs.traces import Trace

AUTO = "auto"

# Where no more than this share of the labels confirm each other, they do so by accident.
LEAST_BELIEVED = 0.5


def learn_coefficients(
    schema: Schema, traces: Sequence[Trace], *, ridge: float | str = AUTO
) -> LearnedCoefficients:
    """The layer of least ||T|| that is right on all rows of the traces [yau2024: Algorithm 1].

        y_a = sum over (jk), l of P[a, (jk), l] G[j,k] x[l]

    ridge : "auto" interpolates consistent labels; of labels that contradict each other it believes
        those which the others confirm, and fits these exactly if they are consistent, else with
        the penalty that predicts left-out rows best.  A number is a penalty on all rows, in
        units of the mean square of their features.

    Guarantee: on consistent labels every layer that is right on the training rows agrees with
    this one on every row inside ``span``.
    Cost: 3 N r^2 flops in each token type of rank r, r^3/3 in each group of types that share
    coordinates; memory r^2 numbers for each.
    """
    is_number = isinstance(ridge, Real) and not isinstance(ridge, bool)
    if not (ridge == AUTO if isinstance(ridge, str) else is_number and 0 <= ridge < np.inf):
        raise InvalidInput(f"ridge must be 'auto' or a number >= 0; got {ridge!r}.")
    span = CoefficientSpan.of(traces)
    features, everything = span.features, np.arange(span.n_rows)
    if ridge in (AUTO, 0):
        found = _interpolated(schema, traces, span, everything)
        if found is not None:
            return found
    regression, agreement = Ridge(span), None
    if isinstance(ridge, str):
        (layer, left_out), ridge, agreement = regression.choose_penalty(schema.round)
        found = _believed(schema, traces, regression, left_out)
        if found is not None:
            return found
    else:
        layer, _ = regression.fit(features.targets, ridge, np.ones(len(features), dtype=bool))
    outcome = penalised_outcome(len(features), ridge, agreement)
    miss = layer.largest_miss(features)
    return LearnedCoefficients(schema, traces, outcome, layer, float(ridge), miss, everything, span)


def _interpolated(
    schema: Schema,
    traces: Sequence[Trace],
    span: CoefficientSpan,
    fitted: NDArray[np.int64],
    n_given: int | None = None,
    repaired: bool = False,
) -> LearnedCoefficients | None:
    """The layer that fits all rows of a span, which have these numbers, if their labels agree."""
    layer = interpolate(span)
    miss = layer.largest_miss(span.features)
    if not miss <= CONSISTENT:
        return None
    outcome = exact_outcome(span, miss, n_given, repaired)
    return LearnedCoefficients(schema, traces, outcome, layer, 0.0, miss, fitted, span)


def _believed(
    schema: Schema, traces: Sequence[Trace], regression: Ridge, left_out: NDArray[np.float64]
) -> LearnedCoefficients | None:
    """What the confirmed part of contradicting labels says, if that part is consistent."""
    features = regression.features
    labels, believed = regression.repair(schema.round, left_out)
    # What is left must be most of it, and say more than enough: as many rows as unknowns fit
    # anything.
    if len(believed) <= LEAST_BELIEVED * len(features):
        return None
    clean = CoefficientSpan.of(replace(features.take(believed), targets=labels[believed]))
    if len(believed) <= clean.rank:
        return None
    kept = len(believed) == len(features)
    same = kept and np.array_equal(schema.round(features.targets), schema.round(labels))
    return _interpolated(schema, traces, clean, believed, len(features), not same)
