"""Pages of learned softmax layers: outcome, heads with their errors, phases, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.quoting import counted
from polyattn.report.heads import heads_section
from polyattn.report.page import Section, fill
from polyattn.report.page_data import PageData
from polyattn.report.predictions import predictions_section
from polyattn.report.sections import described, statement
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.softmax.recorder import Phase


def learned_page(found: LearnedSoftmax, data: PageData | None) -> list[Section]:
    """What ``learn_softmax`` returned."""
    errors = [
        f"expected error {_share(attn)} of attn, {_share(value)} of value"
        for attn, value in zip(found.attn_error, found.value_error, strict=True)
    ]
    sections = [
        described("What was found", found),
        heads_section(found.layer, errors=errors),
    ]
    return [*sections, *_predictions(found.layer, data), *_phases(found.phases)]


def queries_page(found: QueryResult, data: PageData | None) -> list[Section]:
    """What ``learn_from_queries`` returned."""
    sections = [described("What was found", found)]
    if found.layer is not None:
        sections.append(heads_section(found.layer))
        sections += _predictions(found.layer, data)
    return [*sections, *_phases(found.phases)]


def _predictions(layer: Any, data: PageData | None) -> list[Section]:
    if data is not None and data.targets is not None:
        return [predictions_section(layer, data)]
    note = "Predictions beside true outputs: give the page X and Y."
    return [statement("What is not shown", lines=[note])]


def _phases(phases: tuple[Phase, ...]) -> list[Section]:
    if not phases:
        return []
    total = counted(len(phases), "phase")
    return [Section("How it was found", fill("phases", phases=phases, total=total))]


def _share(error: float) -> str:
    return f"{error:.1e}" if np.isfinite(error) else "unknown"
