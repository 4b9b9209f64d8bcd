"""Certificates on a page: the verdict as a sentence, the spectrum, the witness, the bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate, certify
from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import CustomDomain
from polyattn.certify.evidence import Evidence
from polyattn.certify.outcomes import NOT_IDENTIFIABLE
from polyattn.certify.verified.spectrum import second_moment
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.form.in_words import form_in_words
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.quoting import counted
from polyattn.report.figures import OTHER, OURS, SOFT, PlotAxes, finish_ranked
from polyattn.report.names import SideNames
from polyattn.report.page import Section, described, fill, plot, statement
from polyattn.report.page_data import PageData, spread
from polyattn.report.predictions import bounds_section

TITLE = "Do the data determine the layer?"
WITNESS_TITLE = "Two layers that the data cannot tell apart"

METHODS = {
    "count": "counting",
    "exact": "exact arithmetic",
    "gram": "floating point with proved rounding bounds",
    "triangular": "floating point with proved rounding bounds, by a triangular factor",
    "span": "the span of the domain",
    "structure": "features that never occur, or are multiples of others",
}

# All eigenvalues of a larger matrix would take longer than a page is waited for.
MOST_FEATURES = 2600

# A curve of more points looks the same.
MOST_POINTS = 300

EPS = float(np.finfo(np.float64).eps)


def certificate_page(
    certificate: Certificate, data: PageData | None, names: SideNames | None = None
) -> list[Section]:
    """All that a certificate shows by itself; ``data`` are inputs to bound, or its own data."""
    certificate, data = with_its_data(certificate, data)
    sections = certificate_sections(certificate, names=names)
    if certificate.identifiable and data is not None and certificate.evidence is not None:
        meaning = (
            "So far can two layers be apart if the risk of each (the mean squared error on the "
            "data) exceeds the least by at most 1. The bound grows like the square root: for an "
            "excess of 0.0001 it is a hundredth of this."
        )
        sections.append(bounds_section(certificate, data, 1.0, meaning))
    return sections


def certificate_sections(
    certificate: Certificate, about: str = "", names: SideNames | None = None
) -> list[Section]:
    """The verdict with the spectrum, and the witness where there is one.

    ``about`` says which data the certificate is about, where that is not plain.
    """
    verdict = described(
        TITLE, certificate, ("digest", "method", "form"), _in_words(certificate),
        lines=[about] if about else [], **_spectrum(certificate),
    )  # fmt: skip
    if certificate.verdict != NOT_IDENTIFIABLE:
        return [verdict]
    return [verdict, _witness(certificate, names or SideNames())]


def certificate_if_possible(make: Callable[[], Certificate]) -> tuple[Certificate | None, str]:
    """The certificate, or None and the reason why there is none: tokens can be too wide for one."""
    try:
        return make(), ""
    except InvalidInput as error:
        return None, f"There is no certificate: {error}"


def with_its_data(
    certificate: Certificate, data: PageData | None
) -> tuple[Certificate, PageData | None]:
    """A certificate with something to draw, and inputs to bound: ``data``, or else its own.

    One that comes from a file is made anew from ``data``, which must be those it is about.
    """
    if certificate.evidence is None and data is not None:
        if digest_sequences(data.batch, data.context) != certificate.digest:
            raise InvalidInput(
                "X are not the data of this certificate: their digest is another (a certificate of "
                "sums has no sequences that could match it). Give the sequences that were "
                "certified, or leave X out."
            )
        if not isinstance(certificate.domain, CustomDomain):
            method = "exact" if certificate.method == "exact" else "auto"
            certificate = certify(
                data.batch, domain=certificate.domain, form=certificate.form, method=method,
                context=data.context,
            )  # fmt: skip
    evidence = certificate.evidence
    if data is None and evidence is not None and evidence.rows is not None:
        rows = evidence.rows
        data = PageData(rows.batch, certificate.layout, context=rows.context)
    return certificate, data


def _in_words(certificate: Certificate) -> dict[str, str]:
    """The method, the form and the structure of a certificate, in words."""
    words = {"decided by": METHODS[certificate.method]}
    form = form_in_words(certificate.layout)
    return words | ({"form": form} if form else {})


def spectrum_if_possible(certificate: Certificate) -> tuple[Spectrum | None, str]:
    """The spectrum, or None and the reason why there is none to draw."""
    evidence, not_drawn = certificate.evidence, "The spectrum is not drawn:"
    if evidence is None:
        return None, f"{not_drawn} the certificate comes without its data; give them to the page."
    size = evidence.space.dimension
    if size > MOST_FEATURES:
        why = f"{size:,} eigenvalues would take long; up to {MOST_FEATURES:,} are drawn."
        return None, f"{not_drawn} {why}"
    spectrum = spectrum_of(evidence)
    if not spectrum.values[0] > 0:
        return None, f"{not_drawn} all features of the data are zero."
    return spectrum, ""


def _spectrum(certificate: Certificate) -> dict[str, list[Any]]:
    """The picture of the spectrum, or a note why there is none."""
    spectrum, why_not = spectrum_if_possible(certificate)
    if spectrum is None:
        return {"notes": [why_not]}
    size = len(spectrum.values)
    caption = (
        f"The {counted(size, 'eigenvalue')} of Λ, the second moment of the features, largest "
        f"first; {spectrum.n_above:,} stand above what rounding in these sums may amount to. The "
        "verdict rests on its proof, not on this picture."
    )
    if spectrum.token_exponent:
        caption += f" Tokens were divided by 2^{spectrum.token_exponent}."
    draw = partial(draw_spectrum, spectrum)
    return {"pictures": [plot(draw, "Eigenvalues of the second moment", caption)]}


def _witness(certificate: Certificate, names: SideNames) -> Section:
    try:
        witness = certificate.witness()
    except PolyattnError as error:
        return statement(WITNESS_TITLE, f"No witness is shown: {error}", doubt=True)
    outputs = [each.reshape(-1).tolist() for each in (witness.output_a, witness.output_b)]
    every = witness.layer_a.mode != "last"
    places = [f"token {t}" for t in range(len(outputs[0]))] if every else ["output"]
    coordinates = names.coordinates or [f"x{at}" for at in range(witness.input.shape[1])]
    attended = () if witness.context is None else witness.context.tolist()
    of_context = [f"z{at}" for at in range(len(attended[0]))] if attended else []
    body = fill(
        "witness", sentence=witness.sentence, tokens=witness.input.tolist(), outputs=outputs,
        coordinates=coordinates, context=attended, of_context=of_context, places=places,
        disagreement=witness.training_disagreement,
    )  # fmt: skip
    return Section(WITNESS_TITLE, body)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues, largest first, for tokens divided by 2**token_exponent.

    ``floor``: what rounding in the sums and in the eigenvalues may amount to; below it an
    eigenvalue cannot be distinguished from zero by looking at it.
    """

    values: NDArray[np.float64]
    floor: float
    token_exponent: int

    @property
    def n_above(self) -> int:
        """How many eigenvalues stand above the floor."""
        return int(np.count_nonzero(self.values > self.floor))


# Reducing to tridiagonal form waits for memory: one thread is as fast, and disturbs no other.
@single_threaded_blas()
def spectrum_of(evidence: Evidence) -> Spectrum:
    """All eigenvalues of Lambda_D on the features of a space.

    Cost: 4/3 m^3 flops for m features; 3 s for the 2176 of tokens with 16 coordinates.
    """
    gram, space = evidence.gram, evidence.space
    matrix = second_moment(gram, space)
    values = np.asarray(np.linalg.eigvalsh(matrix)[::-1], dtype=np.float64)
    error = gram.error(np.ones(len(gram.powers))) / gram.total_weight
    if not space.is_whole:
        # The features of the space are counted as often as they stand for others.
        shares = abs(space.expansion.T @ space.expansion)
        error *= float(shares.sum(axis=1).max())
    error += len(values) * EPS * abs(float(values[0]))
    return Spectrum(values, error, evidence.token_exponent)


def draw_spectrum(spectrum: Spectrum, axes: PlotAxes) -> None:
    """The eigenvalues over their number, logarithmic, above and below the floor."""
    chosen = spread(len(spectrum.values), MOST_POINTS)
    # What is zero or negative by rounding has no logarithm: it is drawn at the lower border.
    heights = np.maximum(spectrum.values[chosen], spectrum.floor / 30.0)
    clear = spectrum.values[chosen] > spectrum.floor
    axes.set_yscale("log")
    mark = "o" if len(chosen) <= 60 else ""
    axes.plot(chosen[clear] + 1, heights[clear], color=OURS, marker=mark)
    last, least = len(spectrum.values), spectrum.values[-1]
    if clear.all():
        axes.plot(last, least, "o", color=OURS, markersize=7, label=f"smallest: {least:.3g}")
    else:
        x, y = chosen[~clear] + 1, heights[~clear]
        axes.plot(x, y, "o", color=SOFT, markersize=3, label="not above rounding")
    axes.axhline(spectrum.floor, color=OTHER, linestyle="--", label="rounding floor")
    axes.set(xlabel="number of the eigenvalue", ylabel="eigenvalue")
    axes.margins(y=0.12)
    finish_ranked(axes)
