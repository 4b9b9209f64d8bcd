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
from polyattn.programs.learning.coefficients.least_squares import (
    CONSISTENT,
    Ridge,
    choose_penalty,
    groups_of,
    interpolate,
    largest_miss,
    repair,
)
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
    Cost: N r^2 flops in each token type of rank r, r^3/3 in each group of types that share
    coordinates; memory r^2 numbers for each.
    """
    is_number = isinstance(ridge, Real) and not isinstance(ridge, bool)
    if not (ridge == AUTO if isinstance(ridge, str) else is_number and 0 <= ridge < np.inf):
        raise InvalidInput(f"ridge must be 'auto' or a number >= 0; got {ridge!r}.")
    span = CoefficientSpan.of(traces)
    features, groups = span.features, groups_of(span)
    everything = np.arange(len(features))
    if ridge in (AUTO, 0):
        layer = interpolate(features, groups)
        miss = largest_miss(features, layer)
        if miss <= CONSISTENT:
            outcome = exact_outcome(len(features), features.n_traces, span.rank, miss)
            return LearnedCoefficients(schema, traces, outcome, layer, 0.0, miss, everything, span)
    regression, agreement = Ridge(features, groups), None
    if isinstance(ridge, str):
        (layer, left_out), ridge, agreement = choose_penalty(regression, schema.round)
        found = _believed(schema, traces, regression, left_out)
        if found is not None:
            return found
    else:
        layer, _ = regression.fit(features.targets, ridge, np.ones(len(features), dtype=bool))
    outcome = penalised_outcome(len(features), ridge, agreement)
    miss = largest_miss(features, layer)
    return LearnedCoefficients(schema, traces, outcome, layer, float(ridge), miss, everything, span)


def _believed(
    schema: Schema, traces: Sequence[Trace], regression: Ridge, left_out: NDArray[np.float64]
) -> LearnedCoefficients | None:
    """What the confirmed part of contradicting labels says, if that part is consistent."""
    features = regression.features
    labels, believed = repair(regression, schema.round, left_out)
    # What is left must be most of it, and say more than enough: as many rows as unknowns fit
    # anything.
    if len(believed) <= LEAST_BELIEVED * len(features):
        return None
    clean = CoefficientSpan.of(replace(features.take(believed), targets=labels[believed]))
    if len(believed) <= clean.rank:
        return None
    layer = interpolate(clean.features, groups_of(clean))
    miss = largest_miss(clean.features, layer)
    if miss > CONSISTENT:
        return None
    kept = len(believed) == len(features)
    same = kept and np.array_equal(schema.round(features.targets), schema.round(labels))
    outcome = exact_outcome(
        len(believed), clean.features.n_traces, clean.rank, miss, len(features), not same
    )
    return LearnedCoefficients(schema, traces, outcome, layer, 0.0, miss, believed, clean)
