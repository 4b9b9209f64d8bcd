"""Certificates on a page: the verdict as a sentence, the spectrum, the witness, the bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from polyattn.certify import Certificate, Witness, certify
from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains.custom import CustomDomain
from polyattn.certify.verdict import NOT_IDENTIFIABLE
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.report.bounds import bounds_section
from polyattn.report.page import Section, fill
from polyattn.report.page_data import GivenData
from polyattn.report.spectra import MOST_FEATURES, draw_spectrum, spectrum_of
from polyattn.report.statement import count, plot, statement

TITLE = "Do the data determine the layer?"
WITNESS_TITLE = "Two layers that the data cannot tell apart"

METHODS = {
    "count": "counting",
    "exact": "exact arithmetic",
    "gram": "floating point with proved rounding bounds",
    "triangular": "floating point with proved rounding bounds, by a triangular factor",
    "span": "the span of the domain",
}


def certificate_page(certificate: Certificate, data: GivenData | None) -> list[Section]:
    """All that a certificate shows by itself; ``data`` are inputs to bound, or its own data."""
    if certificate.evidence is None and data is not None:
        certificate = certified_again(certificate, data)
    evidence = certificate.evidence
    if data is None and evidence is not None and evidence.rows is not None:
        data = GivenData(evidence.rows.batch, certificate.mode)
    sections = certificate_sections(certificate)
    if certificate.identifiable and data is not None and evidence is not None:
        meaning = (
            "So far can two layers be apart if the risk of each (the mean squared error on the "
            "data) exceeds the least by at most 1. The bound grows like the square root: for an "
            "excess of 0.0001 it is a hundredth of this."
        )
        sections.append(bounds_section(certificate, data, 1.0, meaning))
    return sections


def certificate_sections(certificate: Certificate, about: str = "") -> list[Section]:
    """The verdict with the spectrum, and the witness where there is one.

    ``about`` says which data the certificate is about, where that is not plain.
    """
    pictures, notes = _spectrum(certificate)
    verdict = statement(
        TITLE, certificate.sentence, doubt=not certificate.identifiable,
        lines=[about] if about else [], pictures=pictures, facts=_facts(certificate), notes=notes,
    )  # fmt: skip
    if certificate.verdict != NOT_IDENTIFIABLE:
        return [verdict]
    return [verdict, _witness(certificate)]


def certificate_if_possible(make: Callable[[], Certificate]) -> tuple[Certificate | None, str]:
    """The certificate, or None and the reason why there is none: tokens can be too wide for one."""
    try:
        return make(), ""
    except InvalidInput as error:
        return None, f"There is no certificate: {error}"


def certified_again(certificate: Certificate, data: GivenData) -> Certificate:
    """A certificate from a file, made anew from its data, so that there is something to draw."""
    if digest_sequences(data.batch) != certificate.digest:
        raise InvalidInput(
            "X are not the data of this certificate: their digest is another (a certificate of "
            "sums has no sequences that could match it). Give the sequences that were certified, "
            "or leave X out."
        )
    if isinstance(certificate.domain, CustomDomain):
        return certificate
    method = "exact" if certificate.method == "exact" else "auto"
    return certify(
        data.batch, certificate.mode, certificate.domain, bias=certificate.bias, method=method
    )


def _facts(certificate: Certificate) -> dict[str, Any]:
    of = certificate.n_features if certificate.dimension is None else certificate.dimension
    rank = "unknown" if certificate.rank is None else f"{certificate.rank:,}"
    return {
        "domain": str(certificate.domain),
        "on all real inputs": certificate.verdict_on_real_inputs.replace("_", " "),
        "data": f"{count(certificate.n_sequences, 'sequence')}, "
        f"{count(certificate.n_rows, 'predicted position')}",
        "rank": f"{rank} of {of:,}",
        "smallest eigenvalue of Λ": certificate.lambda_min,
        "largest eigenvalue of Λ": certificate.lambda_max,
        "decided by": METHODS[certificate.method],
        "rounding that the proof allows for, after scaling": certificate.rounding,
    }


def _spectrum(certificate: Certificate) -> tuple[list[Markup], list[str]]:
    """The picture of the spectrum, or the reason why there is none."""
    evidence = certificate.evidence
    if evidence is None:
        why = "the certificate comes without its data; give them to this page and it is."
        return [], [f"The spectrum is not drawn: {why}"]
    size = evidence.space.dimension
    if size > MOST_FEATURES:
        why = f"{size:,} eigenvalues would take long; up to {MOST_FEATURES:,} are drawn."
        return [], [f"The spectrum is not drawn: {why}"]
    spectrum = spectrum_of(evidence)
    if not spectrum.values[0] > 0:
        return [], ["The spectrum is not drawn: all features of the data are zero."]
    caption = (
        f"The {count(size, 'eigenvalue')} of Λ, the second moment of the features, largest first; "
        f"{spectrum.n_above:,} stand above what rounding in these sums may amount to. The verdict "
        "rests on its proof, not on this picture."
    )
    if spectrum.token_exponent:
        caption += f" Tokens were divided by 2^{spectrum.token_exponent}."
    return [plot(draw_spectrum(spectrum), "Eigenvalues of the second moment", caption)], []


def _witness(certificate: Certificate) -> Section:
    try:
        witness = certificate.witness()
    except PolyattnError as error:
        return statement(WITNESS_TITLE, f"No witness is shown: {error}", doubt=True)
    return Section(WITNESS_TITLE, fill("witness", **_shown(witness)))


def _shown(witness: Witness) -> dict[str, Any]:
    """The witness in plain types."""
    outputs = [witness.output_a.reshape(-1), witness.output_b.reshape(-1)]
    every = witness.layer_a.mode != "last"
    return {
        "sentence": witness.sentence,
        "tokens": witness.input.tolist(),
        "outputs": [output.tolist() for output in outputs],
        "places": [f"token {t + 1}" for t in range(len(outputs[0]))] if every else ["output"],
        "disagreement": witness.training_disagreement,
    }
