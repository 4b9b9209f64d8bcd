"""write_report and write_program_report: what is given is described and written to one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from numpy.typing import ArrayLike

from polyattn.auditing import Audit
from polyattn.certify import Certificate, certify
from polyattn.display import Described
from polyattn.errors import InvalidInput, InvalidType
from polyattn.files.atomic import require_writable
from polyattn.fitting.result import FitResult
from polyattn.model import LinearAttention, SoftmaxAttention
from polyattn.programs import Compiled, Learned, Program, ProgramCertificate
from polyattn.report.audits import audit_page, layer_page
from polyattn.report.certificates import certificate_page
from polyattn.report.figures import require_matplotlib
from polyattn.report.fits import fit_page
from polyattn.report.page import Page, Section
from polyattn.report.page_data import PageData
from polyattn.report.sections import lead, statement
from polyattn.report.softmax import learned_page, queries_page
from polyattn.sequences import Sequences
from polyattn.softmax import LearnedSoftmax, QueryResult
from polyattn.stats import Moments, TriangularFactor
from polyattn.targets import Targets


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
        Certificate, ProgramCertificate, Audit, Moments or TriangularFactor
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
    made = program.describe()
    page = Page(made.title, lead(made, None), sections, script)
    page.write(path)
    return page


def make_page(
    thing: Any,
    X: Sequences | None = None,
    Y: Targets | None = None,
    sample_weight: ArrayLike | None = None,
) -> Page:
    """The page of whatever ``write_report`` takes."""
    kind = next((kind for kind in _PAGES if isinstance(thing, kind)), None)
    if kind is None:
        kinds = ", ".join(kind.__name__ for kind in _PAGES)
        hint = ""
        if isinstance(thing, Program | Compiled | Learned):
            hint = " Programs have a page of their own: write_program_report."
        raise InvalidType(f"a page is made of one of {kinds}; got {type(thing).__name__}.{hint}")
    sections, sizes_of = _PAGES[kind]
    sizes = sizes_of(thing)
    data = None if sizes is None else _data(thing, sizes.describe().sizes, X, Y, sample_weight)
    made = thing.describe()
    return Page(made.title, lead(made, data), sections(thing, data))


def _data(
    thing: Any,
    sizes: dict[str, Any],
    X: Sequences | None,
    Y: Targets | None,
    sample_weight: ArrayLike | None,
) -> PageData | None:
    """The data given, checked against the sizes; only what has outputs takes targets."""
    n_outputs = sizes.get("n_outputs")
    for name, given in (("Y", Y), ("sample_weight", sample_weight)):
        if given is not None and n_outputs is None:
            raise InvalidInput(f"{name} says nothing about a {type(thing).__name__}; leave it out.")
    return PageData.of(X, Y, sizes["mode"], sizes["n_dims"], n_outputs, sample_weight)


def _statistics_page(sums: Moments | TriangularFactor, data: PageData | None) -> list[Section]:
    return certificate_page(certify(statistics=sums), data)


def _program_certificate_page(certificate: ProgramCertificate, data: None) -> list[Section]:
    from polyattn.report.programs import program_certificate_page

    return program_certificate_page(certificate, data)


def _itself(thing: Described) -> Described:
    return thing


# For each kind the function that makes its sections, and what says which data fit beside it.
_PAGES: dict[type, tuple[Callable[[Any, Any], list[Section]], Callable[[Any], Any]]] = {
    FitResult: (fit_page, _itself),
    LinearAttention: (layer_page, _itself),
    SoftmaxAttention: (layer_page, _itself),
    LearnedSoftmax: (learned_page, attrgetter("layer")),
    QueryResult: (queries_page, attrgetter("layer")),
    Certificate: (certificate_page, _itself),
    Audit: (audit_page, attrgetter("certificate")),
    ProgramCertificate: (_program_certificate_page, lambda _: None),
    Moments: (_statistics_page, _itself),
    TriangularFactor: (_statistics_page, _itself),
}
