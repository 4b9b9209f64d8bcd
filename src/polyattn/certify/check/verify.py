"""verify: a certificate recomputed from the data, by code of its own.

Nothing that makes certificates is imported here: features, ranks and directions are computed anew.
Full rank is shown modulo a random prime that the certificate did not use, for floats as well: a
float64 is m 2^e, an exact number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from polyattn.certify.check.claims import Claims
from polyattn.certify.check.domains import (
    CHECKED,
    CheckedDomain,
    CheckedReal,
    CheckedSequences,
)
from polyattn.certify.check.features import (
    LARGEST_PRIME,
    LEAST_PRIME,
    is_prime,
    random_prime,
    rank_modulo,
)
from polyattn.certify.check.form_table import FormTable
from polyattn.certify.check.forms import FormFeatures
from polyattn.certify.check.symbols import SymbolClaims
from polyattn.certify.digest import digest_sequences
from polyattn.errors import InvalidInput, InvalidType
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.quoting import shown
from polyattn.sequences import MODES, SequenceBatch, Sequences, as_batch
from polyattn.sources.opened import opened
from polyattn.sources.source import Source, require_alone

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate
    from polyattn.certify.domains import Domain

# Which methods reach which verdicts from sequences.
METHODS = {
    "identifiable": ("exact", "gram", "triangular"),
    "not_identifiable": ("count", "exact", "triangular", "span", "structure"),
    "undecided": ("exact", "triangular", "span"),
}


@single_threaded_blas()
def verify(
    certificate: Certificate,
    X: Sequences,
    domain: str | Domain | None = None,
    *,
    context: Sequences | None = None,
) -> bool:
    """Whether everything that the certificate claims about the data X holds.

    ``polyattn.certify.check.objections`` takes the same arguments and says why not, in words.

    Parameters
    ----------
    certificate : Certificate
        From ``certify`` or from a file.
    X : the sequences it is about
    domain : Domain | None
        The domain; needed only for a custom one that was read from a file.
    context : sequences | None
        What the sequences attend to, where the certificate is about such data.

    Guarantee: "identifiable" is proved anew, in exact arithmetic.  "not_identifiable" holds
    exactly if the direction is of integers, or if the data are (or floats that were not rounded;
    then the rank is deficient modulo random primes); of rounded floats it holds up to their
    rounding.  An "undecided" certificate claims only sizes, rank and spectrum to be plausible.
    Cost: for N rows and p features about 2 N p^2 flops, and p^3; memory p^2 numbers.
    """
    return not objections(certificate, X, domain, context=context)


def objections(
    certificate: Certificate,
    X: Sequences,
    domain: str | Domain | None = None,
    *,
    context: Sequences | None = None,
) -> list[str]:
    """Every reason why ``verify`` returns False, in words; an empty list where it returns True."""
    if not hasattr(certificate, "verdict"):
        raise InvalidType(f"certificate must be a Certificate; got {shown(certificate)}.")
    if not (domain is None or isinstance(domain, str) or hasattr(domain, "to_dict")):
        raise InvalidType(f"domain must be a name or a Domain; got {shown(domain)}.")
    if hasattr(X, "to_record"):
        kind = type(X).__name__
        return [f"a certificate is checked against sequences, not {kind}: give the data itself."]
    if isinstance(X, Source):
        require_alone(context=context)
        found_in = opened(X, None)
        X, context = found_in.batch, found_in.context
    batch = as_batch(X, keep_integers=True)
    attended = None if context is None else as_batch(context, "context", None, True)
    if certificate.kind == "one_hot_certificate":
        return list(_about_ids(certificate, batch, attended, domain))
    found = [
        *_about_form(certificate),
        *_about_method(certificate),
        *_about_context(certificate, batch, attended),
    ]
    if found:
        return found
    seen = _form_features(certificate)
    found = list(_about_data(certificate, batch, attended, seen))
    try:
        where = _checked_domain(certificate, domain)
    except InvalidInput as error:
        return [*found, str(error)]
    if not found:
        found += _about_domain(certificate, batch, where, attended, seen)
    # What follows would be about something else than the certificate.
    real = None
    if not found and seen is not None and where.batch is not None:
        real = _dimension(CheckedReal(), seen)
    return found or list(Claims(certificate, batch, where, attended, seen, real).objections())


def _about_ids(
    certificate: Certificate,
    batch: SequenceBatch,
    context: SequenceBatch | None,
    domain: str | Domain | None,
) -> Iterator[str]:
    """The objections to a certificate of token ids."""
    if not isinstance(batch.values, OneHotTokens) or context is not None:
        yield "the certificate is about token ids: give SequenceBatch.from_ids(ids, n_symbols)."
        return
    verdict, method = certificate.verdict, certificate.method
    if method not in {"identifiable": ("exact",), "not_identifiable": ("count", "exact")}.get(
        verdict, ("exact",)
    ):
        yield f"no certificate of token ids says {verdict!r} by method {method!r}."
    if certificate.structure is not None and method != "exact":
        yield f"method {method!r} leaves no features out as zero or multiples."
    if certificate.mode not in MODES or certificate.bias or certificate.given_form is not None:
        yield "token ids are certified for the papers' layer without a bias."
    found = [*_about_method(certificate), *_about_data(certificate, batch, None, None)]
    yield from found
    try:
        where = _checked_domain(certificate, domain)
    except InvalidInput as error:
        yield str(error)
        return
    if found or certificate.mode not in MODES:
        return
    if not (where.is_one_hot or isinstance(where, CheckedReal)) or where.batch is not None:
        yield f"token ids are not certified on the domain {certificate.domain}."
        return
    lengths = batch.lengths
    if lengths.min() < where.least or lengths.max() > (where.most or np.inf):
        yield f"the data do not lie in the domain {certificate.domain}."
    yield from _about_dimension(certificate, where, where.dimension(batch.n_dims, False))
    yield from SymbolClaims(certificate, batch, where).objections()


def _about_form(certificate: Certificate) -> Iterator[str]:
    """Claims that contradict each other, whatever the data."""
    verdict, method = certificate.verdict, certificate.method
    if method not in METHODS.get(verdict, ()):
        yield f"no certificate for sequences says {verdict!r} by method {method!r}."
    if certificate.mode not in MODES:
        yield f"there is no mode {certificate.mode!r}."
    if verdict != "not_identifiable" and certificate.direction is not None:
        yield f"a direction that data do not see contradicts the verdict {verdict!r}."
    if certificate.structure is not None and method not in ("structure", "exact"):
        yield f"method {method!r} leaves no features out as zero or multiples."
    if certificate.structure is None and method == "structure":
        yield "it is not said which features are always zero or multiples of others."
    form = certificate.form
    if (form.mode, form.bias) != (certificate.mode, certificate.bias):
        yield "mode and bias are not those of the form."


def _about_method(certificate: Certificate) -> Iterator[str]:
    """A prime and a rounding bound that do not fit the method."""
    method, prime, rounding = certificate.method, certificate.prime, certificate.rounding
    if (prime is not None) != (method == "exact"):
        yield f"a certificate by method {method!r} does not have the prime {prime}."
    elif prime is not None and not (prime >= LEAST_PRIME and is_prime(prime)):
        yield f"{prime} is not a prime between {LEAST_PRIME} and {LARGEST_PRIME}."
    if method in ("exact", "count") and rounding != 0:
        yield f"method {method!r} leaves no rounding; the certificate says {rounding}."
    if not rounding >= 0:
        yield f"a rounding bound is not negative; the certificate says {rounding}."


def _about_context(
    certificate: Certificate, batch: SequenceBatch, context: SequenceBatch | None
) -> Iterator[str]:
    """Whether there is a context where the certificate is about one, and it fits the data."""
    if (context is None) != (certificate.n_context_dims is None):
        wanted = "sequences that attend to themselves" if context is not None else "a context"
        yield f"the certificate is about {wanted}."
    elif context is not None:
        if context.n_dims != certificate.n_context_dims or len(context) != len(batch):
            yield "the context does not fit the data and the certificate."
        elif certificate.mode == "causal" and any(context.lengths != batch.lengths):
            yield "in mode 'causal' a context is as long as the sequences."


def _form_features(certificate: Certificate) -> FormFeatures | None:
    """The features of a form that is not the papers'; None for theirs."""
    if certificate.given_form is None and certificate.n_context_dims is None:
        return None
    return FormFeatures(certificate.form, certificate.n_dims, certificate.n_context_dims)


def _about_data(
    certificate: Certificate,
    batch: SequenceBatch,
    context: SequenceBatch | None,
    seen: FormFeatures | None,
) -> Iterator[str]:
    """The data are those that were certified, and their sizes are as stated."""
    if bool(certificate.note) != (certificate.verdict == "undecided"):
        yield "a note says what is left undecided, and only that."
    digest = digest_sequences(batch, context)
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
        "n_features": width**2 * (width + 1) // 2 if seen is None else seen.n_features,
    }
    lengths = {"min_length": int(batch.lengths.min()), "max_length": int(batch.lengths.max())}
    # Older releases did not state them.
    sizes |= {name: end for name, end in lengths.items() if getattr(certificate, name) is not None}
    for name, found in sizes.items():
        stated = getattr(certificate, name)
        if stated != found:
            yield f"{name} is {found}, not {stated}."


def _about_domain(
    certificate: Certificate,
    batch: SequenceBatch,
    where: CheckedDomain,
    context: SequenceBatch | None,
    seen: FormFeatures | None,
) -> Iterator[str]:
    if seen is None or where.batch is not None:
        dimension = where.dimension(batch.n_dims, certificate.bias)
    else:
        dimension = _dimension(where, seen)
    if not where.holds(batch, context):
        yield f"the data do not lie in the domain {certificate.domain}."
    if where.batch is not None:
        if certificate.dimension != dimension:
            yield f"the dimension of the domain is {dimension}, not {certificate.dimension}."
        if where.batch.n_dims != batch.n_dims:
            yield f"the domain has tokens of {where.batch.n_dims} coordinates, not {batch.n_dims}."
        sampled = not certificate.domain.to_dict()["exhaustive"]
        real = certificate.verdict_on_real_inputs == "identifiable"
        if certificate.verdict == "identifiable" and sampled and not real:
            yield "samples of a domain cannot show that the data determine the layer on it."
        return
    if certificate.method == "span":
        yield "method 'span' is for custom domains."
    yield from _about_dimension(certificate, where, dimension, seen)


def _about_dimension(
    certificate: Certificate,
    where: CheckedDomain,
    dimension: int | None,
    seen: FormFeatures | None = None,
) -> Iterator[str]:
    """The dimension of a built-in domain, and what the verdict says of all real inputs."""
    if certificate.dimension != dimension:
        yield f"the dimension of the domain is {dimension}, not {certificate.dimension}."
    whole = dimension == certificate.n_features or where.is_everything
    if seen is not None and not whole:
        whole = dimension == _dimension(CheckedReal(), seen)
    follows = certificate.verdict if whole else "not_identifiable"
    if certificate.verdict_on_real_inputs != follows:
        yield (
            f"on real inputs the verdict must be {follows!r}; the certificate says "
            f"{certificate.verdict_on_real_inputs!r}."
        )


def _dimension(where: CheckedDomain, seen: FormFeatures) -> int:
    """What the features of a form span on a domain, by trying; functions count as independent."""
    form, rng = seen.form, np.random.default_rng()
    if any(map(callable, (form.query, form.key, form.value))):
        return seen.n_features
    batch, context = where.sequences_for(seen, rng)
    table = FormTable(batch, form.mode, form.bias, seen=seen, context=context)
    return rank_modulo([table], random_prime(rng), seen.n_features, rng)


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
    context = (certificate.domain if domain is None else domain).attended  # type: ignore[union-attr]
    if digest_sequences(batch, context) != stored["digest"]:
        raise InvalidInput("the sequences of the domain are not those of the certificate.")
    return CheckedSequences(batch=batch, context=context)
