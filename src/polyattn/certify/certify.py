"""certify: sequences -> features of the domain -> the verdict (``decide``) -> Certificate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyattn.certify.certificate import Certificate
from polyattn.certify.digest import digest_sequences, digest_statistics
from polyattn.certify.domains import Domain, as_domain
from polyattn.certify.domains.custom import CustomDomain
from polyattn.certify.evidence import Evidence, require_inside
from polyattn.certify.methods.decide import RANKED_COLUMNS, decide
from polyattn.certify.methods.span import by_span
from polyattn.certify.verdict import (
    IDENTIFIABLE,
    NOT_IDENTIFIABLE,
    Finding,
)
from polyattn.certify.verified.rounding import UNIT
from polyattn.certify.verified.spectrum import extremes, largest, second_moment
from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.sequences import MODES, Sequences
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

METHODS = ("auto", "exact", "float")


@single_threaded_blas()
def certify(
    X: Sequences | None = None,
    mode: str = "last",
    domain: str | Domain = "real",
    *,
    bias: bool = False,
    method: str = "auto",
    statistics: Moments | TriangularFactor | None = None,
) -> Certificate:
    """Whether the data determine the layer: a verdict that can be relied on.

    Parameters
    ----------
    X : array (N, n, d), list of arrays (n_i, d), or SequenceBatch
    mode : "last" | "causal" | "full"
        Which positions are predicted, and what they attend to.
    domain : "real" | "boolean" | "one_hot" | Domain
        Where layers have to agree: ``domains.Real(lengths=...)``, ``Boolean``, ``OneHot``,
        ``Finite(sequences)`` or ``Sampled(draw)``.  Data must lie in a built-in domain.
    bias : bool
        Append a coordinate that is always 1 to every token.
    method : "auto" | "exact" | "float"
        "auto" decides integers of any size (up to 64 bits), and floats that were not rounded,
        in exact arithmetic where floating point with proved rounding bounds does not; "exact"
        takes any numbers as the exact rationals they are.
    statistics : Moments or TriangularFactor
        Instead of X: certify from accumulated sums (their mode and bias are used).

    Returns
    -------
    Certificate
        ``verdict`` is "identifiable", "not_identifiable" or "undecided".

    Guarantee: "identifiable" is a theorem about the numbers given: every minimiser of the
    empirical risk (over layers with enough heads; with fewer if the data come from such a
    layer) is the same function on the domain [yau2024: Lemmas 2.3, A.3-A.8].
    "not_identifiable" comes with a direction that the data do not see: exactly for integers and
    for floats that were not rounded; of rounded floats up to their rounding (of too few rows it
    is certain that there is one).  Floats look rounded if some have the last bit of their dtype
    set, and not all numbers of the coordinate are multiples of one power of two, of at most one
    bit more than the dtype has.
    Whatever rounding leaves open, or a sampler did not draw, is "undecided".

    Cost: by floating point one pass of ``Moments`` and 2/3 p^3 flops, two passes more where that
    leaves doubt; exact about 2 p^3 flops.  Memory p^2 numbers, whatever the number of sequences.
    """
    require_choice("method", method, METHODS)
    where = as_domain(domain)
    source = _source(X, mode, bias, statistics, method)
    evidence = Evidence(source, where.space(source.n_dims, source.bias))
    premise = require_inside(evidence, where)
    found = decide(evidence, method)
    on_real = found.verdict if evidence.space.is_whole else NOT_IDENTIFIABLE
    if isinstance(where, CustomDomain):
        found = by_span(evidence, found, where, method)
    found = replace(found, note=f"{found.note} {premise}".strip())
    return _certificate(evidence, where, found, on_real)


def _certificate(evidence: Evidence, domain: Domain, found: Finding, on_real: str) -> Certificate:
    source = evidence.source
    smallest, largest = _spectrum(evidence, found)
    digest = (
        digest_sequences(source.batch) if isinstance(source, Rows) else digest_statistics(source)
    )
    n_sequences = len(source.batch) if isinstance(source, Rows) else source.n_sequences
    dimension = None if isinstance(domain, CustomDomain) else evidence.space.dimension
    direction = None if found.direction is None else evidence.space.embed(found.direction)
    return Certificate(
        verdict=found.verdict, verdict_on_real_inputs=on_real, domain=domain, mode=source.mode,
        bias=source.bias, n_dims=source.n_dims, n_sequences=n_sequences, n_rows=source.n_rows,
        n_features=evidence.space.n_features, dimension=dimension, rank=found.rank,
        lambda_min=smallest, lambda_max=largest, method=found.method, note=found.note,
        rounding=float(found.rounding), digest=digest, prime=found.prime,
        given_direction=direction, evidence=evidence,
    )  # fmt: skip


def _spectrum(evidence: Evidence, found: Finding) -> tuple[float | None, float | None]:
    """(lambda_min, lambda_max) in the units of the data; None where they are unknown."""
    gram_is_made = found.method != "count" or evidence.space.dimension <= RANKED_COLUMNS
    if found.verdict == NOT_IDENTIFIABLE:
        if not gram_is_made:
            return 0.0, None
        top = largest(second_moment(evidence.gram, evidence.space))
        return 0.0, _in_units(evidence, top)
    if found.method == "gram" and evidence.space.is_whole and evidence.definite is not None:
        ends = extremes(evidence.gram.matrix, evidence.definite)
        smallest, top = (end / evidence.gram.total_weight for end in ends)
    else:
        smallest, top = extremes(second_moment(evidence.gram, evidence.space))
    if found.verdict == IDENTIFIABLE and smallest <= evidence.space.dimension * UNIT * top:
        return None, _in_units(evidence, top)  # it is positive, and below rounding
    # Lambda_D has no negative eigenvalues; rounding may show one.
    return _in_units(evidence, max(smallest, 0.0)), _in_units(evidence, top)


def _in_units(evidence: Evidence, eigenvalue: float) -> float | None:
    """An eigenvalue of scaled tokens in the units of the data; None if float64 cannot hold it."""
    with np.errstate(over="ignore", under="ignore"):
        restored = float(np.ldexp(eigenvalue, 6 * evidence.token_exponent))
    return restored if np.isfinite(restored) and (restored > 0 or eigenvalue == 0) else None


def _source(
    X: Sequences | None, mode: str, bias: bool, statistics: object, method: str
) -> Rows | Moments | TriangularFactor:
    if statistics is None:
        if X is None:
            raise InvalidInput("certify needs sequences X, or statistics=...")
        mode = require_choice("mode", mode, MODES)
        return Rows.build(X, None, mode, bias, keep_integers=True)
    if X is not None:
        raise InvalidInput("give either X or statistics, not both.")
    if not isinstance(statistics, Moments | TriangularFactor):
        raise InvalidType(
            f"statistics must be Moments or a TriangularFactor; got {type(statistics).__name__}."
        )
    if statistics.n_rows == 0:
        raise InvalidInput("the statistics are empty; call their update(X) first.")
    if method == "exact":
        raise InvalidInput("method='exact' needs the sequences X; sums are rounded already.")
    return statistics
