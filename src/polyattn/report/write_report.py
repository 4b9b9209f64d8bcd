"""One door for all pages: what is given is looked at, described, and written to one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from polyattn.auditing import Audit
from polyattn.certify import Certificate, certify
from polyattn.errors import InvalidInput, InvalidType
from polyattn.files.atomic import require_writable
from polyattn.fitting.result import FitResult
from polyattn.model.layer import AttentionLayer
from polyattn.programs import Compiled, Learned, Program
from polyattn.report.audits import audit_page, layer_page
from polyattn.report.certificates import certificate_page
from polyattn.report.figures import require_matplotlib
from polyattn.report.fits import fit_page
from polyattn.report.leads import lead, program_lead
from polyattn.report.page import Section, render_page, write_page
from polyattn.report.page_data import GivenData
from polyattn.report.softmax import learned_page, queries_page
from polyattn.report.statement import statement
from polyattn.sequences import Sequences
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.stats import Moments, TriangularFactor
from polyattn.targets import Targets

KINDS = (
    "a FitResult, a layer, a Certificate, an Audit, a LearnedSoftmax, a QueryResult, Moments, a "
    "TriangularFactor"
)


@dataclass(frozen=True)
class Page:
    """A page before it is written: ``script`` is the only JavaScript that it will run."""

    title: str
    lead: str
    sections: list[Section]
    script: str = ""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page: complete, or not at all."""
        write_page(path, render_page(self.title, self.lead, self.sections, self.script))


def write_report(
    thing: Any,
    path: str | os.PathLike[str],
    X: Sequences | None = None,
    Y: Targets | None = None,
    notes: Sequence[str] = (),
    sample_weight: ArrayLike | None = None,
) -> Page:
    """Write the page of a result, layer, certificate, audit or statistics.

    Parameters
    ----------
    thing : FitResult, LearnedSoftmax, QueryResult, LinearAttention, SoftmaxAttention,
        Certificate, Audit, Moments or TriangularFactor
        For programs see ``write_program_report``.
    path : where to write; the folder must exist
    X, Y : sequences and targets, as for ``fit``; the page says what it cannot show without them
    notes : sentences to end the page with
    sample_weight : array (N,), one weight per sequence; those of the fit, to see its risk again

    Cost: a few seconds; of tokens with 16 coordinates mostly the spectrum.  Less than 1 MB.
    """
    require_writable(path)
    require_matplotlib()
    page = make_page(thing, X, Y, sample_weight)
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
    from polyattn.report.programs import program_sections

    require_writable(path)
    sections, script = program_sections(program, machine, inputs)
    page = Page("A program as a layer of attention", program_lead(program), sections, script)
    page.write(path)
    return page


def make_page(
    thing: Any,
    X: Sequences | None = None,
    Y: Targets | None = None,
    sample_weight: ArrayLike | None = None,
) -> Page:
    """The page of whatever ``write_report`` takes."""
    if isinstance(thing, FitResult):
        data = GivenData.of(X, Y, thing.mode, thing.n_dims, len(thing.coef), sample_weight)
        return Page("A fitted attention layer", lead(thing, data), fit_page(thing, data))
    if isinstance(thing, AttentionLayer):
        data = GivenData.of(X, Y, thing.mode, thing.n_dims, thing.n_outputs, sample_weight)
        return Page("An attention layer", lead(thing, data), layer_page(thing, data))
    if isinstance(thing, LearnedSoftmax):
        layer = thing.layer
        data = GivenData.of(X, Y, layer.mode, layer.n_dims, layer.n_outputs, sample_weight)
        return Page("A learned softmax layer", lead(thing, data), learned_page(thing, data))
    if isinstance(thing, QueryResult):
        data = None if thing.layer is None else GivenData.of(
            X, Y, thing.layer.mode, thing.layer.n_dims, thing.layer.n_outputs, sample_weight
        )  # fmt: skip
        return Page("A layer learned by asking", lead(thing, data), queries_page(thing, data))
    for name, given in (("Y", Y), ("sample_weight", sample_weight)):
        if given is not None:
            raise InvalidInput(f"{name} says nothing about a {type(thing).__name__}; leave it out.")
    return _of_inputs(thing, X)


def _of_inputs(thing: Any, X: Sequences | None) -> Page:
    """Pages about inputs alone: certificates, audits, statistics."""
    if isinstance(thing, Certificate):
        data = GivenData.of(X, None, thing.mode, thing.n_dims)
        return Page("A certificate", lead(thing, data), certificate_page(thing, data))
    if isinstance(thing, Audit):
        own = thing.certificate
        data = GivenData.of(X, None, own.mode, own.n_dims)
        return Page("An audited layer", lead(thing, data), audit_page(thing, data))
    if isinstance(thing, Moments | TriangularFactor):
        data = GivenData.of(X, None, thing.mode, thing.n_dims)
        sections = certificate_page(certify(statistics=thing), data)
        return Page("Statistics of a data set", lead(thing, data), sections)
    hint = ""
    if isinstance(thing, Program | Compiled | Learned):
        hint = " Programs have a page of their own: write_program_report."
    raise InvalidType(f"a page is made of {KINDS}; got {type(thing).__name__}.{hint}")
