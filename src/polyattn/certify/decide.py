"""decide: the verdict on a space of features, by the first method that reaches one.

    0  by_structure  features that never occur are left out; the others are decided on as follows
    1  by_count      fewer rows than dimensions, or only sequences of one token
    2  by_exact      method="exact", integers, numbers that float64 cannot hold: this decides
    3  by_floating   other numbers by the Gram matrix, if it stands clear of its rounding bound
                     (evidence.definite)
    4  by_exact      floats that look unrounded
    5  by_structure  features that are always multiples of others are left out, then from 3 on
    6  by_floating   the triangular factor, an unseen direction, else "undecided"

Sums and method="float" skip 2 and 4, sums also 5.  Custom domains begin with the verdict on all
real inputs and go on with ``by_span``: whether the span of the data's features holds those of the
domain.

A deficient rank is claimed only with a direction of coefficients that the data do not see: in
integers, or up to their own rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from polyattn.certify.domains import CustomDomain, Sampled
from polyattn.certify.domains.spaces import Direction
from polyattn.certify.evidence import RANKED_COLUMNS, Evidence
from polyattn.certify.exact.integers import annihilated
from polyattn.certify.exact.modular import primes
from polyattn.certify.exact.numbers import rounded_coordinates
from polyattn.certify.exact.rank import exact_rank, null_space, null_vector
from polyattn.certify.exact.structure import confirmed, occurring
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED
from polyattn.certify.structure import (
    FeatureRelations,
    RemainingEvidence,
    Structure,
    equal_features,
    zero_columns,
    zero_features,
)
from polyattn.certify.unseen import effect_if_unseen
from polyattn.certify.verified.gram import require_memory
from polyattn.certify.verified.rounding import UNIT
from polyattn.certify.verified.triangular import prove_independent
from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import float64_holds, require_float64
from polyattn.sequences import SequenceBatch
from polyattn.stats import TriangularFactor

# Features that never occur in the data and do on a domain, of which it is checked exactly.
MOST_CHECKED = 64


@dataclass(frozen=True, eq=False)
class Finding:
    """The verdict of one method.

    ``method``: "count" (numbers alone decide), "exact" (integers, modulo a prime), "gram"
    or "triangular" (floating point with proved rounding bounds), "span" (a custom domain),
    "structure" (features that are always zero or multiples of others, found exactly).
    ``rank`` is a proved lower bound by method "exact", and of exact numbers by "count"; otherwise
    the number of singular values above rounding.  ``rounding`` is the bound that the proof had to
    overcome, 0 if exact.
    ``direction`` (m,) is a difference of coefficients that the training data do not see.
    """

    verdict: str
    method: str
    rank: int | None
    rounding: float
    direction: Direction | None = field(default=None, repr=False)
    prime: int | None = None
    note: str = ""
    structure: Structure | None = None
    relations: FeatureRelations | None = field(default=None, repr=False)  # behind ``structure``
    rest: Finding | None = field(default=None, repr=False)  # the finding on what they leave


def decide(evidence: Evidence, method: str) -> Finding:
    """The verdict by counting, in exact arithmetic, or in floating point; method: see certify."""
    zero, asked = zero_features(evidence)
    if len(zero) and evidence.source.n_positive >= evidence.space.dimension - len(zero):
        return by_structure(evidence, FeatureRelations(zero), method, asked)
    return by_count(evidence) or _by_numbers(evidence, method)


def by_structure(
    evidence: Evidence, relations: FeatureRelations, method: str, queries: tuple[int, ...] = ()
) -> Finding:
    """The finding where some features are always zero or multiples, by that on the others."""
    size = evidence.space.dimension
    places = relations.kept(size)
    # Of no features at all the rank is full, modulo any prime.
    rest = Finding(IDENTIFIABLE, "exact", 0, 0.0, prime=next(primes()))
    if len(places):
        remaining = RemainingEvidence.of(evidence, places)
        rest = by_count(remaining) or _by_numbers(remaining, method)
    inner = rest.relations
    if inner is not None and rest.rest is not None:
        relations = FeatureRelations(
            relations.zero, [*relations.equal, *inner.within(places).equal]
        )
        rest = rest.rest
    structure = Structure(
        len(relations.zero), len(relations.equal), rest.verdict, queries,
        zero_columns(evidence) if len(relations.zero) else (),
    )  # fmt: skip
    exact = rest.method == "exact"
    return Finding(
        NOT_IDENTIFIABLE, "exact" if exact else "structure", rest.rank, rest.rounding,
        relations.direction(size), rest.prime if exact else None,
        structure=structure, relations=relations, rest=rest,
    )  # fmt: skip


def _by_numbers(evidence: Evidence, method: str) -> Finding:
    require_memory(evidence.space)
    rows = evidence.rows
    if rows is not None and method == "float":
        for batch, name in zip(evidence.batches, ("X", "context"), strict=False):
            require_float64(batch.values, f"{name}, for method='float',")
    if rows is None or method == "float":
        return by_floating(evidence, method)
    if method == "exact" or not evidence.in_float64 or evidence.is_integer_data:
        return by_exact(evidence)
    # Rounding bounds first: they are cheaper, and a proof by them is about the numbers as given.
    if evidence.definite is None and not evidence.rounded.any():
        found = by_exact(evidence)
        if found.verdict != UNDECIDED:
            return found
    return by_floating(evidence, method)


def by_count(evidence: Evidence) -> Finding | None:
    """The finding where numbers alone decide; None where they do not.

    N equations never fix m > N unknowns.  And where every sequence is a single token,
    G_01 x_0 = G_00 x_1: that difference of features is always zero.
    """
    size = evidence.space.dimension
    n_positive = evidence.source.n_positive
    if n_positive < size:
        rank = _rank(evidence) if size <= RANKED_COLUMNS else None
        if rank == size:
            raise InvalidInput(
                f"the statistics contradict themselves: their sums have rank {size}, their count "
                f"says that they are of {n_positive} positions. Make them again from the data."
            )
        return Finding(NOT_IDENTIFIABLE, "count", rank, 0.0)
    layout, width = evidence.space.layout, evidence.space.layout.n_queries
    if (
        layout.is_plain
        and evidence.source.max_length == 1
        and evidence.space.is_whole
        and width > 1
    ):
        direction = [0] * size
        # Feature (pair, l) stands at pair * width + l; the pairs begin with (0, 0), (0, 1).
        direction[1], direction[width] = -1, 1
        return Finding(NOT_IDENTIFIABLE, "count", _rank(evidence), 0.0, tuple(direction))
    return None


def _rank(evidence: Evidence) -> int:
    """The rank of numbers that are exact, modulo a prime; of others the numerical one."""
    return evidence.rank if evidence.rounded.any() else exact_rank(evidence.exact_rows).rank


def by_exact(evidence: Evidence) -> Finding:
    """The finding in exact arithmetic: full rank modulo a prime, or an integer null vector."""
    rows = evidence.exact_rows
    found = exact_rank(rows)
    if found.rank == evidence.space.dimension:
        return Finding(IDENTIFIABLE, "exact", found.rank, 0.0, prime=found.prime)
    vector = null_vector(rows, found)
    if vector is not None:
        return Finding(NOT_IDENTIFIABLE, "exact", found.rank, 0.0, vector, found.prime)
    note = f"The rank is at least {found.rank}; no direction could be confirmed in integers."
    return Finding(UNDECIDED, "exact", found.rank, 0.0, prime=found.prime, note=note)


def by_floating(evidence: Evidence, method: str) -> Finding:
    """First the Gram, one pass; where it leaves doubt, the triangular factor, two passes more."""
    size = evidence.space.dimension
    # A triangular factor sees smaller eigenvalues than the Gram made of it.
    factored = isinstance(evidence.source, TriangularFactor)
    if not factored and evidence.definite is not None:
        return Finding(IDENTIFIABLE, "gram", size, evidence.definite.rounding)
    equal = equal_features(evidence)
    if equal:
        return by_structure(evidence, FeatureRelations(np.empty(0, dtype=np.intp), equal), method)
    triangle, proof = evidence.triangle, None
    if triangle is not None and evidence.in_float64:
        proof = prove_independent(evidence.source, evidence.space, triangle)
    if proof is not None:
        return Finding(IDENTIFIABLE, "triangular", size, proof.rounding)
    if evidence.rows is None:
        method = "gram" if triangle is None else "triangular"
        error = evidence.gram.error(evidence.gram.scale)
        note = "Rounding leaves doubt; certify(X) can look closer than these sums allow."
        return Finding(UNDECIDED, method, evidence.rank, error, note=note)
    # A random direction of all that seem unseen: a single one may be seen, barely.
    basis = evidence.null_basis
    if basis.shape[1] and triangle is not None and evidence.in_float64:
        weights = np.random.default_rng(0).standard_normal(basis.shape[1])
        direction = basis @ (weights / np.linalg.norm(weights))
        # Entries that are rounding of others would show where only their own features do.
        direction[np.abs(direction) <= UNIT * triangle.scale] = 0.0
        disagreement = effect_if_unseen(evidence, direction)
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "triangular", evidence.rank, disagreement, direction)
    note = "Rounding leaves doubt; method='exact' decides about the numbers as they stand."
    return Finding(UNDECIDED, "triangular", evidence.rank, evidence.tolerance, note=note)


def by_span(evidence: Evidence, on_real: Finding, domain: CustomDomain, method: str) -> Finding:
    """The finding on a custom domain, given the finding on all real inputs."""
    if on_real.verdict == IDENTIFIABLE:
        return on_real
    rows = evidence.rows
    if rows is None:
        raise InvalidInput("a custom domain needs the sequences: certify(X, ...), not statistics.")
    if on_real.rest is not None and on_real.rest.verdict == IDENTIFIABLE:
        return _by_relations(evidence, on_real, domain)
    batches = [each for each in (domain.batch, domain.attended) if each is not None]
    in_float64 = evidence.in_float64 and all(float64_holds(each.values) for each in batches)
    looks_rounded = evidence.rounded.any() or any(map(_is_rounded, batches))
    if method == "float":
        require_float64(rows.batch.values, "X, for method='float',")
        for batch in batches:
            require_float64(batch.values, "the domain, for method='float',")
    elif method == "exact" or not in_float64 or not looks_rounded:
        found = _exactly(evidence, domain)
        if found is not None:
            return found
    if not in_float64:
        note = "The directions that the data do not see could not all be confirmed in integers."
        return Finding(UNDECIDED, "span", on_real.rank, 0.0, note=note)
    return _in_floating_point(evidence, domain)


def _is_rounded(batch: SequenceBatch) -> bool:
    return bool(rounded_coordinates(batch).any())


def _by_relations(evidence: Evidence, on_real: Finding, domain: CustomDomain) -> Finding:
    """Where the data determine all but what is always zero or a multiple in them.

    A sequence of the domain is in the span of the data iff the same relations hold for it.
    """
    relations, rest, size = on_real.relations, on_real.rest, evidence.space.dimension
    assert relations is not None  # noqa: S101 - the caller has asked
    assert rest is not None  # noqa: S101
    everywhere = replace(evidence.exact_rows, batch=domain.batch, context=domain.attended)
    broken = [
        each for each in relations.equal if each not in confirmed(everywhere, relations.equal)
    ]
    vectors = [relations.vector_of(each, size) for each in broken[:1]]
    shown = occurring(everywhere)[0][relations.zero]
    # Terms may cancel in every row; a few features say whether any does not.
    for place in relations.zero[shown][:MOST_CHECKED]:
        vector = FeatureRelations(np.array([place])).direction(size)
        if not annihilated(everywhere, [vector])[0]:
            vectors.append(vector)
            break
    if vectors:
        return replace(on_real, direction=vectors[0])
    if np.count_nonzero(shown) > MOST_CHECKED:
        note = "Features that never occur in the data seem to cancel on the domain."
        return Finding(UNDECIDED, "span", rest.rank, 0.0, note=note)
    determined = replace(rest, structure=None)
    return determined if domain.exhaustive else _of_samples(rest, domain)


def _of_samples(found: Finding, domain: CustomDomain) -> Finding:
    """What holds for every sample of a sampler is not known of what it did not draw."""
    assert isinstance(domain, Sampled)  # noqa: S101 - the only domain that is not exhaustive
    note = (
        f"All {domain.n_samples} samples are determined by the data: with 99 % confidence at "
        f"least {domain.covered():.2%} of what the sampler draws is."
    )
    method = found.method if found.method == "exact" else "span"
    return Finding(UNDECIDED, method, found.rank, 0.0, prime=found.prime, note=note)


def _exactly(evidence: Evidence, domain: CustomDomain) -> Finding | None:
    """By all null vectors of the data, each checked in integers; None if they are not found."""
    rows = evidence.exact_rows
    found = exact_rank(rows)
    vectors = null_space(rows, found)
    if vectors is None:
        return None
    everywhere = replace(rows, batch=domain.batch, context=domain.attended)
    for vector, unseen in zip(vectors, annihilated(everywhere, vectors), strict=True):
        if not unseen:
            return Finding(NOT_IDENTIFIABLE, "exact", found.rank, 0.0, vector, found.prime)
    if domain.exhaustive:
        return Finding(IDENTIFIABLE, "exact", found.rank, 0.0, prime=found.prime)
    return _of_samples(Finding(UNDECIDED, "exact", found.rank, 0.0, prime=found.prime), domain)


def _in_floating_point(evidence: Evidence, domain: CustomDomain) -> Finding:
    basis, triangle = evidence.null_basis, evidence.triangle
    assert triangle is not None  # noqa: S101 - by_span refuses sums
    direction, best = np.zeros(0), 0.0
    for phi in evidence.features_of(domain.batch, domain.attended):
        shown = basis.T @ phi
        sizes = np.linalg.norm(triangle.scale[:, None] * phi, axis=0)
        shares = np.linalg.norm(shown, axis=0) / np.where(sizes > 0, sizes, 1.0)
        at = int(np.argmax(shares))
        if shares[at] > best:
            best = float(shares[at])
            direction = basis @ (shown[:, at] / np.linalg.norm(shown[:, at]))
    note = (
        f"All features of the domain that were looked at are within {best:.1e} of the span of the "
        "data's, but floating point cannot prove that they lie in it."
    )
    # A sequence counts as outside the span if it shows at least this share of its features there.
    if best > 1e-6:
        disagreement = effect_if_unseen(evidence, direction, domain.batch, domain.attended)
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "span", evidence.rank, disagreement, direction)
        note = (
            "Some features of the domain seem to lie outside the span of the data's, but the "
            "direction in which they do is not beyond doubt without effect on the data."
        )
    return Finding(UNDECIDED, "span", evidence.rank, evidence.tolerance, note=note)
