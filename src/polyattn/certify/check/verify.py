"""verify: a certificate recomputed from the data, by code of its own.

Nothing that makes certificates is imported here: features, ranks and directions are computed anew.
Full rank is shown modulo a random prime that the certificate did not use, for floats as well: a
float64 is m 2^e, an exact number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from polyattn.certify.check.claims import Claims
from polyattn.certify.check.domains import CHECKED, CheckedDomain, CheckedSequences
from polyattn.certify.check.features import LARGEST_PRIME, is_prime
from polyattn.certify.digest import digest_sequences
from polyattn.errors import InvalidInput
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import MODES, SequenceBatch, Sequences, as_batch

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate
    from polyattn.certify.domains import Domain

# Which methods reach which verdicts from sequences.
METHODS = {
    "identifiable": ("exact", "gram", "triangular"),
    "not_identifiable": ("count", "exact", "triangular", "span"),
    "undecided": ("exact", "triangular", "span"),
}


@single_threaded_blas()
def verify(certificate: Certificate, X: Sequences, domain: str | Domain | None = None) -> bool:
    """Whether everything that the certificate claims about the data X holds.

    ``polyattn.certify.check.objections`` takes the same arguments and says why not, in words.

    Parameters
    ----------
    certificate : Certificate
        From ``certify`` or from a file.
    X : the sequences it is about
    domain : Domain | None
        The domain; needed only for a custom one that was read from a file.

    Guarantee: "identifiable" is proved anew, in exact arithmetic.  "not_identifiable" holds
    exactly if the direction is of integers, or if the data are (or floats that were not rounded;
    then the rank is deficient modulo random primes); of rounded floats it holds up to their
    rounding.  An "undecided" certificate claims only sizes, rank and spectrum to be plausible.
    Cost: for N rows and p features about 2 N p^2 flops, and p^3; memory p^2 numbers.
    """
    return not objections(certificate, X, domain)


def objections(
    certificate: Certificate, X: Sequences, domain: str | Domain | None = None
) -> list[str]:
    """Every reason why ``verify`` returns False, in words; an empty list where it returns True."""
    if hasattr(X, "to_record"):
        kind = type(X).__name__
        return [f"a certificate is checked against sequences, not {kind}: give the data itself."]
    batch = as_batch(X, keep_integers=True)
    found = [*_about_form(certificate), *_about_data(certificate, batch)]
    try:
        where = _checked_domain(certificate, domain)
    except InvalidInput as error:
        return [*found, str(error)]
    if not found:
        found += _about_domain(certificate, batch, where)
    # What follows would be about something else than the certificate.
    return found or list(Claims(certificate, batch, where).objections())


def _about_form(certificate: Certificate) -> Iterator[str]:
    """Claims that contradict each other, whatever the data."""
    verdict, method = certificate.verdict, certificate.method
    if method not in METHODS.get(verdict, ()):
        yield f"no certificate for sequences says {verdict!r} by method {method!r}."
    if certificate.mode not in MODES:
        yield f"there is no mode {certificate.mode!r}."
    if (certificate.prime is not None) != (method == "exact"):
        yield f"a certificate by method {method!r} does not have the prime {certificate.prime}."
    elif certificate.prime is not None and not is_prime(certificate.prime):
        yield f"{certificate.prime} is not a prime between 3 and {LARGEST_PRIME}."
    if method in ("exact", "count") and certificate.rounding != 0:
        yield f"method {method!r} leaves no rounding; the certificate says {certificate.rounding}."
    if verdict != "not_identifiable" and certificate.direction is not None:
        yield f"a direction that data do not see contradicts the verdict {verdict!r}."


def _about_data(certificate: Certificate, batch: SequenceBatch) -> Iterator[str]:
    """The data are those that were certified, and their sizes are as stated."""
    if bool(certificate.note) != (certificate.verdict == "undecided"):
        yield "a note says what is left undecided, and only that."
    digest = digest_sequences(batch)
    if digest != certificate.digest:
        yield (
            f"the data are not those that were certified: their digest is {digest[:16]}..., not "
            f"{certificate.digest[:16]}... (sums have a digest of their own)."
        )
    width = batch.n_dims + certificate.bias
    sizes = {
        "n_dims": batch.n_dims,
        "n_sequences": len(batch),
        "n_rows": batch.n_rows(certificate.mode),
        "n_features": width**2 * (width + 1) // 2,
    }
    for name, found in sizes.items():
        stated = getattr(certificate, name)
        if stated != found:
            yield f"{name} is {found}, not {stated}."


def _about_domain(
    certificate: Certificate, batch: SequenceBatch, where: CheckedDomain
) -> Iterator[str]:
    dimension = where.dimension(batch.n_dims, certificate.bias)
    if certificate.dimension != dimension:
        yield f"the dimension of the domain is {dimension}, not {certificate.dimension}."
    if not where.holds(batch):
        yield f"the data do not lie in the domain {certificate.domain}."
    if where.batch is not None:
        if where.batch.n_dims != batch.n_dims:
            yield f"the domain has tokens of {where.batch.n_dims} coordinates, not {batch.n_dims}."
        sampled = not certificate.domain.to_dict()["exhaustive"]
        real = certificate.verdict_on_real_inputs == "identifiable"
        if certificate.verdict == "identifiable" and sampled and not real:
            yield "samples of a domain cannot show that the data determine the layer on it."
        return
    if certificate.method == "span":
        yield "method 'span' is for custom domains."
    whole = dimension == certificate.n_features
    follows = certificate.verdict if whole else "not_identifiable"
    if certificate.verdict_on_real_inputs != follows:
        yield (
            f"on real inputs the verdict must be {follows!r}; the certificate says "
            f"{certificate.verdict_on_real_inputs!r}."
        )


def _checked_domain(certificate: Certificate, domain: str | Domain | None) -> CheckedDomain:
    """The domain of the certificate; refuses one that is missing, or another one."""
    stored = certificate.domain.to_dict()
    given = stored
    if isinstance(domain, str):
        given = {"name": domain, "lengths": [1, None]}
    elif domain is not None:
        given = domain.to_dict()
    if given != stored:
        raise InvalidInput(f"the certificate is about the domain {stored}, not {given}.")
    if "lengths" in stored:
        if stored["name"] not in CHECKED:
            raise InvalidInput(f"the checker knows no domain {stored['name']!r}.")
        return CHECKED[stored["name"]](*stored["lengths"])
    batch = (certificate.domain if domain is None else domain).batch  # type: ignore[union-attr]
    if digest_sequences(batch) != stored["digest"]:
        raise InvalidInput("the sequences of the domain are not those of the certificate.")
    return CheckedSequences(batch=batch)
