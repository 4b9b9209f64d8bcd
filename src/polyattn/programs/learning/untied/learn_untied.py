"""learn_untied: a layer from traces alone, every coefficient on its own.

Features, span, least norm; if the labels contradict each other, a penalty chosen on left-out
rows and a search for the labels to believe.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.programs.language.schema import Schema
from polyattn.programs.learning.untied.features import Features, Source
from polyattn.programs.learning.untied.groups import Group, groups_of
from polyattn.programs.learning.untied.interpolation import (
    CONSISTENT,
    interpolate,
    largest_miss,
)
from polyattn.programs.learning.untied.program import UntiedProgram
from polyattn.programs.learning.untied.repair import Chosen, Rounding, choose_penalty, repair
from polyattn.programs.learning.untied.ridge import Ridge
from polyattn.programs.learning.untied.span import Span

AUTO = "auto"

# Where no more than this share of the labels confirm each other, they do so by accident.
LEAST_BELIEVED = 0.5


def learn_untied(
    traces: Iterable[Source], ridge: float | str = AUTO, schema: Schema | None = None
) -> UntiedProgram:
    """The layer of least ||T|| that is right on all rows of the traces [yau2024: Algorithm 1].

        y_a = sum over (jk), l of P[a, (jk), l] G[j,k] x[l]

    Parameters
    ----------
    traces : Traces, or Rows whose targets may be noisy
    ridge : "auto" or float >= 0
        "auto" interpolates consistent labels; of labels that contradict each other it believes
        those which the others confirm, and fits these exactly if they are consistent, else with
        the penalty that predicts left-out rows best.  A number is a penalty on all rows, in
        units of the mean square of their features.
    schema : Schema, optional
        How outputs are rounded to tokens; that of the first trace unless given.  Without any,
        to the nearest integers.

    Guarantee: on consistent labels every layer that is right on the training rows agrees with
    this one on every row inside ``span``.
    Cost: N r^2 flops in each token type of rank r, r^3/3 in each group of types that share
    coordinates; memory r^2 numbers for each.
    """
    listed = list(traces)
    if ridge != AUTO and (isinstance(ridge, str) or not 0 <= ridge < np.inf):
        raise InvalidInput(f"ridge must be 'auto' or a number >= 0; got {ridge!r}.")
    features = Features.of(listed)
    span = Span.of(features)
    groups = groups_of(span)
    if ridge in (AUTO, 0):
        exact = _interpolated(span, groups)
        if exact is not None:
            return exact
    if isinstance(ridge, str):
        return _from_contradictions(span, groups, _rounding(listed, schema))
    everything = np.ones(len(features), dtype=bool)
    fit = Ridge(features, groups).fit(features.targets, ridge, everything)
    return UntiedProgram(
        fit.layer, span, ridge, largest_miss(features, fit.layer), len(features),
        f"Ridge regression on {len(features)} rows with penalty {ridge:g}.",
    )  # fmt: skip


def _interpolated(span: Span, groups: list[Group], note: str = "") -> UntiedProgram | None:
    """The program of least norm, or None if the labels contradict each other."""
    features = span.features
    layer = interpolate(features, groups)
    miss = largest_miss(features, layer)
    if miss > CONSISTENT:
        return None
    sentence = (
        f"{note}All {len(features)} rows of {features.n_traces} traces are fitted exactly "
        f"(rank {span.rank}, largest error {miss:.1e})."
    )
    return UntiedProgram(layer, span, 0.0, miss, len(features), sentence)


def _from_contradictions(span: Span, groups: list[Group], rounding: Rounding) -> UntiedProgram:
    """The program of labels that contradict each other."""
    features = span.features
    ridge = Ridge(features, groups)
    start = choose_penalty(ridge, rounding)
    repaired = repair(ridge, rounding, start)
    believed = features.take(repaired.believed)
    # What is left must be most of it, and say more than enough: as many rows as unknowns fit
    # anything.
    if len(believed) > LEAST_BELIEVED * len(features):
        clean = Span.of(believed.labelled(repaired.labels[repaired.believed]))
        note = f"Labels contradict each other; {len(believed)} of {len(features)} are believed. "
        if len(believed) > clean.rank:
            program = _interpolated(clean, groups_of(clean), note)
            if program is not None:
                return program
    return _penalised(span, start)


def _penalised(span: Span, chosen: Chosen) -> UntiedProgram:
    n_rows = len(span.features)
    sentence = (
        f"The labels of {n_rows} rows contradict each other, and no consistent part of them was "
        f"found: ridge regression with penalty {chosen.penalty:g}, which predicts "
        f"{chosen.agreement:.1%} of the labels without seeing them. More traces would help."
    )
    miss = largest_miss(span.features, chosen.fit.layer)
    return UntiedProgram(chosen.fit.layer, span, chosen.penalty, miss, n_rows, sentence)


def _rounding(listed: list[Source], schema: Schema | None) -> Rounding:
    known = schema or next((each.schema for each in listed if hasattr(each, "schema")), None)
    return _to_integers if known is None else known.round


def _to_integers(outputs: NDArray) -> NDArray[np.int64]:
    return np.rint(outputs).astype(np.int64)
