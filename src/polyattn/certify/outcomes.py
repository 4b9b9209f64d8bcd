"""The outcomes of a certificate, and the sentences that say them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from polyattn.certify.domains.independence import has_functions
from polyattn.certify.domains.tokens import TokenDomain
from polyattn.outcome import Meaning, Outcome, OutcomeSet

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate

Verdict = Literal["identifiable", "not_identifiable", "undecided"]

# Which of them data get is decided in ``decide.py``.
IDENTIFIABLE = "identifiable"
NOT_IDENTIFIABLE = "not_identifiable"
UNDECIDED = "undecided"

CERTIFICATE_OUTCOMES = OutcomeSet[Verdict](
    "Certificate",
    {
        "identifiable": Meaning(
            True, "All layers of least squared error are the same function on the domain."
        ),
        "not_identifiable": Meaning(
            False, "Layers that fit the data equally well differ on some sequence of the domain."
        ),
        "undecided": Meaning(
            False, "Rounding, or a sample of a domain, leaves open whether the data determine it."
        ),
    },
)

# What a verdict on real inputs adds to "identifiable" on a domain.
BEYOND_THE_DOMAIN = {
    IDENTIFIABLE: "",
    NOT_IDENTIFIABLE: " On other real inputs they can differ.",
    UNDECIDED: " Whether they agree on other real inputs is undecided.",
}


def certificate_outcome(certificate: Certificate) -> Outcome[Verdict]:
    """What the verdict means, what it rests on, and what to do."""
    verdict, domain, figures = certificate.verdict, certificate.domain, _figures(certificate)
    plain, advice = str(domain) == "real", ""
    every = "all real inputs" if plain else f"the domain {domain}"
    if verdict == IDENTIFIABLE and has_functions(certificate.form):
        text = (
            "Identifiable: the data determine the coefficients of the layer, given the numbers "
            f"that its maps make of the tokens. {figures} {_basis(certificate)}"
        )
    elif verdict == IDENTIFIABLE:
        text = (
            f"Identifiable: layers of least squared error agree on {every}. {figures} "
            f"{_basis(certificate)}" + BEYOND_THE_DOMAIN[certificate.verdict_on_real_inputs]
        )
        if certificate.lambda_min is None and certificate.lambda_max is not None:
            advice = "A fit in float64 may miss that layer: bring coordinates to similar size."
    elif verdict == NOT_IDENTIFIABLE:
        about = (
            "Not identifiable: layers that fit the data equally well, up to their rounding, "
            if certificate.method in ("triangular", "span")
            else "Not identifiable: layers that fit the data equally well "
        )
        some = "other real inputs" if plain else f"the domain {domain}"
        differ = f"differ on {some}"
        if has_functions(certificate.form):
            differ = "have other coefficients"
        text = f"{about}{differ}. {figures} {_basis(certificate)}"
        if certificate.structure is not None:
            n_features = certificate.dimension or certificate.n_features
            words = certificate.structure.in_words(certificate.layout, n_features)
            advice = f"{words[0].upper()}{words[1:]} "
        advice += "witness() shows two such layers"
        # Sequences are looked for in built-in domains, and none for a context.
        collects = isinstance(domain, TokenDomain) and certificate.n_context_dims is None
        collects = collects and certificate.kind == "certificate"
        advice += ", next_data() says what to collect." if collects else "."
    else:
        text = f"Undecided: it is open whether the data determine the layer on {every}. {figures}"
    return CERTIFICATE_OUTCOMES(
        cast("Verdict", verdict), text, f"{advice} {certificate.note}".strip()
    )


def _figures(certificate: Certificate) -> str:
    of = certificate.n_features if certificate.dimension is None else certificate.dimension
    ends = {"lambda_min": certificate.lambda_min, "lambda_max": certificate.lambda_max}
    spectrum = "".join(f", {name} {end:.3g}" for name, end in ends.items() if end is not None)
    found = certificate.verdict == IDENTIFIABLE
    if found and certificate.lambda_min is None and certificate.lambda_max is not None:
        spectrum = ", lambda_min positive, but below what float64 resolves"
    structure = certificate.structure
    proved = structure is not None and structure.rest == IDENTIFIABLE
    kind = "rank" if found or proved or certificate.method == "exact" else "numerical rank"
    rank = f"{kind} {certificate.rank} of {of}"
    if certificate.rank is None:
        # Counting decides without it, and of many features it is not computed.
        rank = f"rank at most {rank_at_most(certificate)} of {of}"
    return f"{certificate.n_rows} positions have {rank}{spectrum}."


def rank_at_most(certificate: Certificate) -> int:
    """What the rank cannot exceed where it was not computed: positions, and dimensions."""
    of = certificate.n_features if certificate.dimension is None else certificate.dimension
    deficient = certificate.verdict == NOT_IDENTIFIABLE
    return min(certificate.n_rows, of - deficient)


def _basis(certificate: Certificate) -> str:
    found = certificate.verdict == IDENTIFIABLE
    moved = f"On the data they differ by rounding, at most {certificate.rounding:.1e}."
    return {
        # The direction of single tokens is of integers, and the same whatever the data are.
        "count": "Every sequence is a single token."
        if isinstance(certificate.given_direction, tuple)
        else "Fewer positions have weight than there are dimensions.",
        "exact": "Proved modulo a prime." if found else "Proved in integers.",
        "gram": f"Proved beyond a rounding bound of {certificate.rounding:.1e}.",
        "triangular": f"Proved beyond a rounding bound of {certificate.rounding:.1e}."
        if found
        else moved,
        "span": moved,
        "structure": "Such a direction was found exactly.",
    }[certificate.method]
