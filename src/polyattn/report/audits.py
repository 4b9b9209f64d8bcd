"""Pages of layers from anywhere: by themselves, beside data, and audited."""

from __future__ import annotations

from typing import Any

from polyattn.auditing import Audit, audit
from polyattn.auditing.audit import certify_rows
from polyattn.errors import OutOfRange
from polyattn.heads.data_scale import SampleScale
from polyattn.model import LinearAttention
from polyattn.model.layer import AttentionLayer
from polyattn.report.bounds import bounds_section
from polyattn.report.certificates import (
    certificate_if_possible,
    certificate_sections,
    certified_again,
)
from polyattn.report.heads import heads_section
from polyattn.report.page import Section
from polyattn.report.page_data import PageData
from polyattn.report.predictions import predictions_section
from polyattn.report.sections import described, statement
from polyattn.sequences import SequenceBatch

TITLE = "How good is the layer?"


def layer_page(layer: AttentionLayer, data: PageData | None) -> list[Section]:
    """Heads; with sequences the certificate, with targets the audit and predictions."""
    if data is None:
        needs = [
            "Whether data determine the layer: the page needs sequences X.",
            "How good the layer is on them: the page needs their targets Y, too.",
        ]
        return [heads_section(layer), statement("What is not shown", lines=needs)]
    if data.targets is None:
        needs = ["How good the layer is on these data: the page needs their targets Y."]
        sections = [heads_section(layer, scale=_scale(layer, data))]
        if isinstance(layer, LinearAttention):
            certificate, why_not = certificate_if_possible(
                lambda: certify_rows(data.rows(layer.bias))
            )
            needs += [why_not] if why_not else []
            sections = [*(certificate_sections(certificate) if certificate else []), *sections]
        return [*sections, statement("What is not shown", lines=needs)]
    try:
        found = audit(layer, data.batch, _as_given(data), sample_weight=data.weights)
        audited = audit_page(found, data, layer)
    except OutOfRange as reason:
        # The layer can still be shown where float64 cannot hold the figures of an audit.
        audited = [statement(TITLE, str(reason), doubt=True)]
    heads = heads_section(layer, scale=_scale(layer, data))
    return [*audited, heads, predictions_section(layer, data)]


def audit_page(
    found: Audit, data: PageData | None = None, layer: AttentionLayer | None = None
) -> list[Section]:
    """The figures of an audit, the certificate, and bounds where the optimum is determined."""
    certificate = found.certificate
    if certificate.evidence is None and data is not None:
        certificate = certified_again(certificate, data)
    evidence, implied = certificate.evidence, found.implied
    if data is None and evidence is not None and evidence.rows is not None:
        data = PageData(evidence.rows.batch, certificate.mode)
    sections = [described(TITLE, found), *certificate_sections(certificate)]
    if implied is not None and data is not None and evidence is not None and implied.excess > 0:
        meaning = (
            "So far can two linear attention layers be apart that are as good as the audited one "
            f"(risk at most {implied.excess:.3g} above the least)."
        )
        sections.append(bounds_section(certificate, data, implied.excess, meaning, layer))
    return sections


def _scale(layer: AttentionLayer, data: PageData) -> SampleScale | None:
    """The scale of the data, in which the rank of a linear layer is judged."""
    if not isinstance(layer, LinearAttention):
        return None
    return SampleScale.of(data.rows(layer.bias))


def _as_given(data: PageData) -> Any:
    """Targets in the form that ``audit`` takes."""
    if data.mode == "last":
        return data.targets
    assert data.targets is not None  # noqa: S101 - the caller has looked
    return SequenceBatch(data.targets, data.batch.offsets)
