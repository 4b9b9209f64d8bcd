"""Pages of learned softmax layers: outcome, heads with their errors, phases, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.report.heads import heads_section
from polyattn.report.page import Section, fill
from polyattn.report.page_data import GivenData
from polyattn.report.predictions import predictions_section
from polyattn.report.statement import count, statement
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.softmax.recorder import Phase


def learned_page(found: LearnedSoftmax, data: GivenData | None) -> list[Section]:
    """What ``learn_softmax`` returned."""
    facts = {
        "heads": found.n_heads,
        "error on held-out examples, relative": found.validation_error,
        "error on training examples, relative": found.training_error,
        "noise of the targets, estimated": found.noise,
        "sequences": f"{found.n_training:,} for training, {found.n_held_out:,} held out",
        "road": found.method,
    }
    errors = [
        f"expected error {_share(attn)} of attn, {_share(value)} of value"
        for attn, value in zip(found.attn_error, found.value_error, strict=True)
    ]
    sections = [
        statement("What was found", str(found.outcome), doubt=not found.recovered, facts=facts),
        heads_section(found.layer, errors=errors),
    ]
    return [*sections, *_predictions(found.layer, data), *_phases(found.phases)]


def queries_page(found: QueryResult, data: GivenData | None) -> list[Section]:
    """What ``learn_from_queries`` returned."""
    facts: dict[str, Any] = {
        "heads": found.n_heads,
        "sequences asked for": found.n_queries,
        "error on held-out sequences, relative": found.validation_error,
        "largest deviation there, beside the effect of attention": found.deviation,
        "error of the heads that residuals suggest, relative": found.doubt,
        "noise of the outputs": found.noise,
    }
    if found.error is not None:
        facts["the oracle ended the run with"] = found.error_text
    sections = [
        statement("What was found", str(found.outcome), doubt=not found.recovered, facts=facts)
    ]
    if found.layer is not None:
        sections.append(heads_section(found.layer))
        sections += _predictions(found.layer, data)
    return [*sections, *_phases(found.phases)]


def _predictions(layer: Any, data: GivenData | None) -> list[Section]:
    if data is not None and data.targets is not None:
        return [predictions_section(layer, data)]
    note = "Predictions beside true outputs: give the page X and Y."
    return [statement("What is not shown", lines=[note])]


def _phases(phases: tuple[Phase, ...]) -> list[Section]:
    if not phases:
        return []
    total = count(len(phases), "phase")
    return [Section("How it was found", fill("phases", phases=phases, total=total))]


def _share(error: float) -> str:
    return f"{error:.1e}" if np.isfinite(error) else "unknown"
