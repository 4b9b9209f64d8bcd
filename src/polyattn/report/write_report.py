"""write_report and write_program_report: what is given is described and written to one file.

The pages of fits and certificates are made in modules of their own, all others here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polyattn.auditing import Audit, HeadAudit, audit
from polyattn.auditing.audit import certify_rows
from polyattn.certify import Certificate, certify
from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.files.atomic import require_writable
from polyattn.fitting.curve_result import LearningCurve
from polyattn.fitting.forecasting.result import Forecast
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.form.layout import Layout
from polyattn.heads.data_scale import SampleScale
from polyattn.linearising.result import Linearised
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.model.layer import AttentionLayer
from polyattn.model.linearised import LinearisedAttention
from polyattn.programs import Compiled, Learned, Program, ProgramCertificate
from polyattn.quoting import counted
from polyattn.report.certificates import (
    certificate_if_possible,
    certificate_page,
    certificate_sections,
    with_its_data,
)
from polyattn.report.figures import require_matplotlib
from polyattn.report.fits import fit_page, found_section, of_classes
from polyattn.report.forecasts import forecast_page
from polyattn.report.head_audits import head_audit_page
from polyattn.report.heads import heads_section
from polyattn.report.learning_curves import curve_page
from polyattn.report.linearised import linearised_layer_page, linearised_page
from polyattn.report.names import SideNames
from polyattn.report.page import Page, Section, described, fill, lead, statement
from polyattn.report.page_data import PageData
from polyattn.report.predictions import bounds_section, predictions_section
from polyattn.report.programs import program_certificate_page, program_sections
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.stats import Moments, TriangularFactor
from polyattn.targets import Targets

AUDIT_TITLE = "How good is the layer?"


def write_report(
    thing: Any,
    path: str | os.PathLike[str],
    X: Sequences | None = None,
    Y: Targets | None = None,
    notes: Sequence[str] = (),
    sample_weight: ArrayLike | None = None,
    context: Sequences | None = None,
    *,
    coordinate_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Page:
    """Write the page of a result, layer, certificate, audit, estimator or statistics.

    Parameters
    ----------
    thing : FitResult, LearningCurve, Forecast, LearnedSoftmax, QueryResult, LinearAttention,
        SoftmaxAttention, Certificate, ProgramCertificate, Audit, HeadAudit, Moments,
        TriangularFactor, an estimator, or a pipeline that ends with one
        For programs see ``write_program_report``.
    path : where to write; the folder must exist
    X, Y : sequences and targets, as for ``fit``; the page says what it cannot show without them
    notes : sentences to end the page with
    sample_weight : array (N,), one weight per sequence; those of the fit, to see its risk again
    context : what the sequences of X attend to, one for each of them, where these are others
    coordinate_names, output_names : what coordinates and outputs are called on the page

    Cost: a few seconds; of tokens with 16 coordinates mostly the spectrum.  Less than 1 MB.
    """
    require_writable(path)
    require_matplotlib()
    page = make_page(
        thing, X, Y, sample_weight, context,
        coordinate_names=coordinate_names, output_names=output_names,
    )  # fmt: skip
    if notes:
        page = replace(page, sections=[*page.sections, statement("Notes", lines=notes)])
    page.write(path)
    return page


def write_program_report(
    program: Program | Compiled | Learned,
    path: str | os.PathLike[str],
    machine: Any = None,
    inputs: Any = None,
) -> Page:
    """Write the page of a program and of a run to click through."""
    require_writable(path)
    sections, script = program_sections(program, machine, inputs)
    made = program.describe()
    page = Page(made.title, lead(made, None), sections, script)
    page.write(path)
    return page


def make_page(
    thing: Any,
    X: Sequences | None = None,
    Y: Targets | None = None,
    sample_weight: ArrayLike | None = None,
    context: Sequences | None = None,
    *,
    coordinate_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Page:
    """The page of whatever ``write_report`` takes."""
    # Loaded when needed: scikit-learn is slow to load, and the command line imports this.
    from polyattn.report.estimators import as_shown

    shown = as_shown(thing)
    thing, (X, context), Y = shown.thing, shown.sequences(X, context), shown.targets(Y)
    sections, sized = _PAGES[_kind(thing)]
    measure = sized(thing)
    if isinstance(thing, LearningCurve | Forecast | HeadAudit | ProgramCertificate):
        _refuse(thing, X=X, Y=Y, sample_weight=sample_weight, context=context)
    sizes = {} if measure is None else measure.describe().sizes
    n_outputs = sizes.get("n_outputs")
    n_names = len(shown.classes) or n_outputs
    known = shown.coordinate_names if coordinate_names is None else coordinate_names
    names = SideNames.of(known, output_names, sizes.get("n_dims"), n_names)
    if shown.classes:
        names = names.with_classes(shown.classes, shown.several)
        n_outputs = n_outputs if shown.several else 1  # class numbers
    data = None
    if measure is not None:
        if n_outputs is None:
            _refuse(thing, Y=Y, sample_weight=sample_weight)
        layout = getattr(measure, "layout", None)
        layout = layout or Layout.plain(*(sizes[name] for name in ("n_dims", "mode", "bias")))
        data = PageData.of(X, Y, layout, n_outputs, sample_weight, context)
    made = shown.words or thing.describe()
    return Page(made.title, lead(made, data), sections(thing, data, names))


def _kind(thing: Any) -> type:
    """The row of ``_PAGES`` that is about a thing; what has none is refused."""
    kind = next((kind for kind in _PAGES if isinstance(thing, kind)), None)
    if kind is None:
        kinds = ", ".join(kind.__name__ for kind in _PAGES)
        hint = " Programs have a page of their own: write_program_report."
        hint = hint if isinstance(thing, Program | Compiled | Learned) else ""
        raise InvalidType(f"a page is made of one of {kinds}; got {type(thing).__name__}.{hint}")
    return kind


def _refuse(thing: Any, **beside: object) -> None:
    """Refuse what a page would not show."""
    for name, given in beside.items():
        if given is not None:
            raise InvalidInput(f"{name} says nothing about a {type(thing).__name__}; leave it out.")


def learned_page(
    found: LearnedSoftmax | QueryResult, data: PageData | None, names: SideNames
) -> list[Section]:
    """What ``learn_softmax`` or ``learn_from_queries`` returned."""
    sections = [described("What was found", found)]
    if found.layer is not None:
        errors = []
        if isinstance(found, LearnedSoftmax):
            known = (
                [f"{error:.1e}" if np.isfinite(error) else "unknown" for error in of_matrix]
                for of_matrix in (found.attn_error, found.value_error)
            )
            errors = [
                f"expected error {attn} of attn, {value} of value"
                for attn, value in zip(*known, strict=True)
            ]
        sections.append(heads_section(found.layer, errors=errors, names=names))
        if data is not None and data.targets is not None:
            sections.append(predictions_section(found.layer, data))
        else:
            note = "Predictions beside true outputs: give the page X and Y."
            sections.append(statement("What is not shown", lines=[note]))
    if found.phases:
        total = counted(len(found.phases), "phase")
        how = fill("phases", phases=found.phases, total=total)
        sections.append(Section("How it was found", how))
    return sections


def one_hot_page(result: OneHotFit, data: PageData | None, names: SideNames) -> list[Section]:
    """What was found, and predictions; heads and certificates of many symbols are not drawn."""
    sections = [found_section(result, names)]
    if data is not None and data.targets is not None and names.classes:
        return sections + of_classes(result, data, names)
    if data is not None and data.targets is not None:
        return [*sections, predictions_section(result.predict, data)]
    note = "Predictions beside true outputs: give the page X and Y."
    return [*sections, statement("What is not shown", lines=[note])]


def layer_page(layer: AttentionLayer, data: PageData | None, names: SideNames) -> list[Section]:
    """Heads; with sequences the certificate, with targets the audit and predictions."""
    if data is None:
        needs = [
            "Whether data determine the layer: the page needs sequences X.",
            "How good the layer is on them: the page needs their targets Y, too.",
        ]
        return [heads_section(layer, names=names), statement("What is not shown", lines=needs)]
    rows = data.rows() if isinstance(layer, LinearAttention) else None
    # The rank of a linear layer is judged in the scale of the data.
    scale = None if rows is None else SampleScale.of(rows)
    heads = heads_section(layer, scale=scale, names=names)
    if data.targets is None:
        needs = ["How good the layer is on these data: the page needs their targets Y."]
        sections = [heads]
        if rows is not None:
            certificate, why_not = certificate_if_possible(lambda: certify_rows(rows))
            needs += [why_not] if why_not else []
            shown = certificate_sections(certificate, names=names) if certificate else []
            sections = [*shown, heads]
        return [*sections, statement("What is not shown", lines=needs)]
    Y: Any = data.targets
    if data.mode != "last":
        Y = SequenceBatch(data.targets, data.batch.offsets)
    try:
        found = audit(layer, data.batch, Y, sample_weight=data.weights, context=data.context)
        audited = audit_page(found, data, names, layer)
    except OutOfRange as reason:
        # The layer can still be shown where float64 cannot hold the figures of an audit.
        audited = [statement(AUDIT_TITLE, str(reason), doubt=True)]
    return [*audited, heads, predictions_section(layer, data)]


def audit_page(
    found: Audit, data: PageData | None, names: SideNames, layer: AttentionLayer | None = None
) -> list[Section]:
    """The figures of an audit, the certificate, and bounds where the optimum is determined."""
    certificate, data = with_its_data(found.certificate, data)
    evidence, implied = certificate.evidence, found.implied
    sections = [described(AUDIT_TITLE, found), *certificate_sections(certificate, names=names)]
    if implied is not None and data is not None and evidence is not None and implied.excess > 0:
        meaning = (
            "So far can two linear attention layers be apart that are as good as the audited one "
            f"(risk at most {implied.excess:.3g} above the least)."
        )
        sections.append(bounds_section(certificate, data, implied.excess, meaning, layer))
    return sections


def _statistics_page(
    sums: Moments | TriangularFactor, data: PageData | None, names: SideNames
) -> list[Section]:
    return certificate_page(certify(statistics=sums), data, names)


# For each kind the function that makes its sections, and what says which data fit beside it.
_PAGES: dict[type, tuple[Callable[[Any, Any, SideNames], list[Section]], Callable[[Any], Any]]] = {
    OneHotFit: (one_hot_page, lambda fit: fit),
    FitResult: (fit_page, lambda fit: fit),
    LinearAttention: (layer_page, lambda layer: layer),
    SoftmaxAttention: (layer_page, lambda layer: layer),
    LinearisedAttention: (linearised_layer_page, lambda layer: layer),
    Linearised: (linearised_page, lambda found: found.layer),
    LearnedSoftmax: (learned_page, lambda found: found.layer),
    QueryResult: (learned_page, lambda found: found.layer),
    Certificate: (certificate_page, lambda certificate: certificate),
    LearningCurve: (curve_page, lambda _: None),
    Forecast: (forecast_page, lambda _: None),
    Audit: (audit_page, lambda found: found.certificate),
    HeadAudit: (head_audit_page, lambda _: None),
    ProgramCertificate: (program_certificate_page, lambda _: None),
    Moments: (_statistics_page, lambda sums: sums),
    TriangularFactor: (_statistics_page, lambda sums: sums),
}
