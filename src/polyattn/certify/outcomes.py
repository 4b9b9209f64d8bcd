"""The outcomes of a certificate, and the sentences that say them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from polyattn.certify.verdict import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn.outcome import Meaning, Outcome, OutcomeSet

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate

Verdict = Literal["identifiable", "not_identifiable", "undecided"]

CERTIFICATE_OUTCOMES = OutcomeSet[Verdict](
    "Certificate",
    {
        "identifiable": Meaning(
            True, "All layers that fit the data best are the same function on the domain."
        ),
        "not_identifiable": Meaning(
            False, "Layers that fit the data equally well differ on some sequence of the domain."
        ),
        "undecided": Meaning(
            False, "Rounding, or a sample of a domain, leaves open whether the data determine it."
        ),
    },
)


def certificate_outcome(certificate: Certificate) -> Outcome[Verdict]:
    """What the verdict means, what it rests on, and what to do."""
    parts = {IDENTIFIABLE: _identifiable, NOT_IDENTIFIABLE: _not_identifiable}
    text, advice = parts.get(certificate.verdict, _undecided)(certificate)
    name = cast("Verdict", certificate.verdict)
    return CERTIFICATE_OUTCOMES(name, text, f"{advice} {certificate.note}".strip())


def _identifiable(certificate: Certificate) -> tuple[str, str]:
    return (
        "Identifiable: the data determine the layer. All layers that fit them best are the same "
        f"function on {_inputs(certificate)}. {_figures(certificate)} {_basis(certificate)}"
        + _beyond(certificate)
    ), ""


def _not_identifiable(certificate: Certificate) -> tuple[str, str]:
    about = (
        "Not identifiable, up to the rounding of the data: they do not determine the layer. Layers "
        "that fit them equally well, up to rounding, "
        if certificate.method in ("triangular", "span")
        else "Not identifiable: the data do not determine the layer. Layers that fit them equally "
        "well "
    )
    return (
        f"{about}differ on {_some(certificate)}. {_figures(certificate)} {_basis(certificate)}",
        "witness() shows two such layers, next_data() says what to collect.",
    )


def _undecided(certificate: Certificate) -> tuple[str, str]:
    return (
        f"Undecided: it is open whether the data determine the layer on {_inputs(certificate)}. "
        f"{_figures(certificate)}"
    ), ""


def _inputs(certificate: Certificate) -> str:
    plain = str(certificate.domain) == "real"
    return "all real inputs" if plain else f"every sequence of the domain {certificate.domain}"


def _some(certificate: Certificate) -> str:
    plain = str(certificate.domain) == "real"
    return "other real inputs" if plain else f"some sequence of the domain {certificate.domain}"


def _figures(certificate: Certificate) -> str:
    rank = "unknown" if certificate.rank is None else certificate.rank
    of = certificate.n_features if certificate.dimension is None else certificate.dimension
    ends = {"lambda_min": certificate.lambda_min, "lambda_max": certificate.lambda_max}
    spectrum = "".join(f", {name} {end:.3g}" for name, end in ends.items() if end is not None)
    found = certificate.verdict == IDENTIFIABLE
    if found and certificate.lambda_min is None and certificate.lambda_max is not None:
        spectrum += _unresolved(certificate)
    proved = found or certificate.method == "exact"
    kind = "rank" if proved else "numerical rank"
    return (
        f"The features of {certificate.n_rows} predicted positions have {kind} {rank} of {of}"
        f"{spectrum}."
    )


def _unresolved(certificate: Certificate) -> str:
    """What it means that lambda_min is positive and not stated.

    A proof from the Gram matrix resolves the equilibrated features, as fits do; then only the
    units hide it.  Of other proofs it is open whether any scaling helps.
    """
    about = (
        "; lambda_min is positive, but below what float64 resolves beside it in the units of the "
        "data"
    )
    if certificate.method == "gram":
        return (
            f"{about}: after scaling the features stand clear of rounding, and coordinates "
            "brought to similar size can show it"
        )
    return (
        f"{about}: a fit in float64 may miss that layer, unless coordinates brought to similar "
        "size show it"
    )


def _basis(certificate: Certificate) -> str:
    found = certificate.verdict == IDENTIFIABLE
    exact = "full rank" if found else "a direction without effect on the data was checked"
    return {
        "count": "There are fewer predicted positions than dimensions."
        if certificate.n_rows < (certificate.dimension or certificate.n_features)
        else "Every sequence is a single token, and some features of those are always equal; "
        "sequences of two tokens tell more.",
        "exact": f"Proved in exact arithmetic: {exact}"
        + (f" (modulo the prime {certificate.prime})." if found else " in integers."),
        "gram": "Proved in floating point: positive beyond its rounding bound of "
        f"{certificate.rounding:.1e} after scaling.",
        "triangular": "Proved in floating point by a triangular factor: rounding does at most "
        f"{certificate.rounding:.1e}."
        if found
        else "A change of coefficients of size one moves the outputs on all the data by at most "
        f"{certificate.rounding:.1e}: as much as rounding.",
        "span": "A change of coefficients of size one moves the outputs on all the data by at "
        f"most {certificate.rounding:.1e}: as much as rounding.",
    }[certificate.method]


def _beyond(certificate: Certificate) -> str:
    if certificate.verdict_on_real_inputs == IDENTIFIABLE:
        return ""
    if certificate.verdict_on_real_inputs == NOT_IDENTIFIABLE:
        return " Outside the domain, on real inputs, they can differ."
    return " Whether they agree outside the domain is undecided."
