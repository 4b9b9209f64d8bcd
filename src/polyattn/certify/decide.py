"""decide: the verdict on a space of features, by the first method that reaches one.

    1  by_count      fewer rows than dimensions, or only sequences of one token
    2  by_exact      method="exact", integers, numbers that float64 cannot hold: this decides
    3  by_floating   other numbers by the Gram matrix, if it stands clear of its rounding bound
                     (evidence.definite)
    4  by_exact      floats that look unrounded
    5  by_floating   the triangular factor, an unseen direction, else "undecided"

Sums and method="float" skip 2 and 4.  Custom domains begin with the verdict on all real
inputs and go on with ``by_span``: whether the span of the data's features holds those of the
domain.

A deficient rank is claimed only with a direction of coefficients that the data do not see: in
integers, or up to their own rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import CustomDomain, Sampled
from polyattn.certify.domains.spaces import Direction
from polyattn.certify.evidence import RANKED_COLUMNS, Evidence
from polyattn.certify.exact.integers import annihilated
from polyattn.certify.exact.modular import random_prime
from polyattn.certify.exact.numbers import is_integer_data, rounded_coordinates
from polyattn.certify.exact.rank import exact_rank, null_space, null_vector
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED
from polyattn.certify.verified.gram import require_memory
from polyattn.certify.verified.rounding import SLACK, UNIT, feature_depth, gamma
from polyattn.certify.verified.triangular import normalised_pieces, prove_independent
from polyattn.errors import InvalidInput
from polyattn.features.pairs import pair_position, unfold_coef
from polyattn.numerics.arrays import float64_holds, require_float64
from polyattn.sequences import SequenceBatch

# A direction is unseen if the proved bound of its effect stays within so many tolerances ...
PROVED_FACTOR = 8.0

# ... and if inputs within this relative distance of the given ones would not show it at all.
INPUT_ROUNDING = 2.0**-46

# Ranks are compared modulo so many random primes: each is misled less often than once in fifty.
PRIMES = 4


@dataclass(frozen=True, eq=False)
class Finding:
    """The verdict of one method.

    ``method``: "count" (numbers alone decide), "exact" (integers, modulo a prime), "gram"
    or "triangular" (floating point with proved rounding bounds), "span" (a custom domain).
    ``rank`` is a proved lower bound by method "exact", otherwise the number of singular values
    above rounding.  ``rounding`` is the bound that the proof had to overcome, 0 if exact.
    ``direction`` (m,) is a difference of coefficients that the training data do not see.
    """

    verdict: str
    method: str
    rank: int | None
    rounding: float
    direction: Direction | None = field(default=None, repr=False)
    prime: int | None = None
    note: str = ""


def decide(evidence: Evidence, method: str) -> Finding:
    """The verdict by counting, in exact arithmetic, or in floating point; method: see certify."""
    few = by_count(evidence)
    if few is not None:
        return few
    require_memory(evidence.space)
    rows = evidence.rows
    if rows is not None and method == "float":
        require_float64(rows.batch.values, "X, for method='float',")
    if rows is None or method == "float":
        return by_floating(evidence)
    if method == "exact" or not evidence.in_float64 or is_integer_data(rows.batch):
        return by_exact(evidence)
    # Rounding bounds first: they are cheaper, and a proof by them is about the numbers as given.
    if evidence.definite is None and not evidence.rounded.any():
        found = by_exact(evidence)
        if found.verdict != UNDECIDED:
            return found
    return by_floating(evidence)


def by_count(evidence: Evidence) -> Finding | None:
    """The finding where numbers alone decide; None where they do not.

    N equations never fix m > N unknowns.  And where every sequence is a single token,
    G_01 x_0 = G_00 x_1: that difference of features is always zero.
    """
    size = evidence.space.dimension
    n_positive = evidence.source.n_positive
    if n_positive < size:
        rank = evidence.rank if size <= RANKED_COLUMNS else None
        if rank == size:
            raise InvalidInput(
                f"the statistics contradict themselves: their sums have rank {size}, their count "
                f"says that they are of {n_positive} positions. Make them again from the data."
            )
        return Finding(NOT_IDENTIFIABLE, "count", rank, 0.0)
    width = evidence.space.width
    if evidence.source.max_length == 1 and evidence.space.is_whole and width > 1:
        direction = [0] * size
        # Feature (pair, l) stands at pair * width + l; the pairs begin with (0, 0), (0, 1).
        direction[1], direction[width] = -1, 1
        return Finding(NOT_IDENTIFIABLE, "count", evidence.rank, 0.0, tuple(direction))
    return None


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


def by_floating(evidence: Evidence) -> Finding:
    """First the Gram, one pass; where it leaves doubt, the triangular factor, two passes more."""
    size = evidence.space.dimension
    if evidence.definite is not None:
        return Finding(IDENTIFIABLE, "gram", size, evidence.definite.rounding)
    triangle, proof = evidence.triangle, None
    if triangle is not None:
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
    if basis.shape[1]:
        weights = np.random.default_rng(0).standard_normal(basis.shape[1])
        direction = basis @ (weights / np.linalg.norm(weights))
        disagreement = effect_if_unseen(evidence, direction)
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "triangular", evidence.rank, disagreement, direction)
    note = "Rounding leaves doubt; method='exact' decides about the numbers as they stand."
    return Finding(UNDECIDED, "triangular", evidence.rank, evidence.tolerance, note=note)


def effect_if_unseen(
    evidence: Evidence, direction: NDArray[np.float64], sequences: SequenceBatch | None = None
) -> float | None:
    """A bound of ||Phi direction|| over all rows, if that is nothing but rounding; else None.

    ``direction`` (m,) is D v with ||v|| = 1, rows are normalised.  Two conditions: outputs on the
    data move by no more than rounding (proved, the errors of evaluation included), and inputs
    within a few roundings of the given ones would not move them at all (to first order).
    Without the second, a layer that shows only in the cube of a small deviation would be called
    unseen, and exact arithmetic could prove the opposite.  Only coordinates that look rounded
    may move; where that does not explain the outputs, ``leave_open`` decides whether the
    numbers as they are leave something undetermined, of ``sequences`` if given.
    """
    rows, space = evidence.rows, evidence.space
    if rows is None:
        return None
    bounded, unexplained = 0.0, 0
    forms = unfold_coef(space.embed(direction).reshape(1, -1, space.width))[0]
    per_feature, per_product = gamma(feature_depth(rows.max_length)), gamma(len(direction) + 2)
    for pairs, queries in normalised_pieces(rows, space):
        phi = space.features(pairs, queries)
        doubts = per_feature * space.magnitudes(pairs, queries) + per_product * np.abs(phi)
        values = direction @ phi
        bounded += float(np.sum((np.abs(values) + np.abs(direction) @ doubts) ** 2))
        possible = INPUT_ROUNDING * _movements(forms, pairs, queries, evidence.rounded)
        # A value below the noise of its own evaluation, even zero, is as good as that noise.
        noise = UNIT * (np.abs(direction) @ np.abs(phi))
        unexplained += int(np.count_nonzero(np.maximum(np.abs(values), noise) > possible))
    bound = SLACK * float(np.sqrt(bounded))
    if bound > PROVED_FACTOR * evidence.tolerance:
        return None
    # In a few rows the output may hardly depend on the inputs by chance.
    explained = evidence.rounded.any() and unexplained <= 0.1 * rows.n_rows
    return bound if explained or leave_open(evidence, sequences) else None


def leave_open(evidence: Evidence, sequences: SequenceBatch | None = None) -> bool:
    """Whether the numbers as they are leave something undetermined, nearly certainly.

    Modulo random primes their features have a rank below the dimension; or, given sequences,
    below the rank together with the features of those.
    """
    rows, both = evidence.exact_rows, None
    if sequences is not None:
        both = replace(rows, batch=SequenceBatch.from_sequences([*rows.batch, *sequences]))
    # The same data give the same primes, which nobody can choose data for.
    rng = np.random.default_rng(int(digest_sequences(rows.batch)[:16], 16))
    for prime in (random_prime(rng) for _ in range(PRIMES)):
        rank = exact_rank(rows, prime=prime).rank
        if rank >= (rows.n_columns if both is None else exact_rank(both, prime=prime).rank):
            return False
    return True


def _movements(
    forms: NDArray, pairs: NDArray, queries: NDArray, moving: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """How far outputs (rows,) move at most, to first order, per relative change of the inputs.

    ``moving`` (d,): the coordinates that change.

    The output is sum_t y_t M y_t, M = sum_l x_l forms[.., l], and the query x is one of the y_t.
    Its derivative by x is 2 M x + <G, forms[.., l]>; by another token y it is 2 M y, and
    sum_y |y_j| |(M y)_j| <= sqrt(H_jj (M H M)_jj) with H = G - x x^T (Cauchy-Schwarz).  The
    constant coordinate of bias never moves.
    """
    x = queries.T  # (rows, width)
    grams = pairs[pair_position(len(queries))].transpose(2, 0, 1)
    forms_of_rows = np.tensordot(x, forms, axes=(1, 2))  # M, (rows, width, width)
    slopes = 2.0 * np.einsum("rjk,rk->rj", forms_of_rows, x) + np.tensordot(grams, forms, axes=2)
    others = grams - x[:, :, None] * x[:, None, :]
    powers = np.einsum("rjk,rkj->rj", forms_of_rows @ others, forms_of_rows)
    sizes = np.einsum("rjj->rj", others)
    through_others = 2.0 * np.sqrt(np.maximum(powers, 0.0) * np.maximum(sizes, 0.0))
    movements = np.abs(slopes * x) + through_others
    return np.sum(movements[:, : len(moving)][:, moving], axis=1)


def by_span(evidence: Evidence, on_real: Finding, domain: CustomDomain, method: str) -> Finding:
    """The finding on a custom domain, given the finding on all real inputs."""
    if on_real.verdict == IDENTIFIABLE:
        return on_real
    rows = evidence.rows
    if rows is None:
        raise InvalidInput("a custom domain needs the sequences: certify(X, ...), not statistics.")
    in_float64 = evidence.in_float64 and float64_holds(domain.batch.values)
    if method == "float":
        for batch, name in ((rows.batch, "X"), (domain.batch, "the domain")):
            require_float64(batch.values, f"{name}, for method='float',")
    elif (
        method == "exact"
        or not in_float64
        or not (evidence.rounded.any() or rounded_coordinates(domain.batch).any())
    ):
        found = _exactly(evidence, domain)
        if found is not None:
            return found
    if not in_float64:
        note = "The directions that the data do not see could not all be confirmed in integers."
        return Finding(UNDECIDED, "span", on_real.rank, 0.0, note=note)
    return _in_floating_point(evidence, domain)


def _exactly(evidence: Evidence, domain: CustomDomain) -> Finding | None:
    """By all null vectors of the data, each checked in integers; None if they are not found."""
    rows = evidence.exact_rows
    found = exact_rank(rows)
    vectors = null_space(rows, found)
    if vectors is None:
        return None
    everywhere = replace(rows, batch=domain.batch)
    for vector, unseen in zip(vectors, annihilated(everywhere, vectors), strict=True):
        if not unseen:
            return Finding(NOT_IDENTIFIABLE, "exact", found.rank, 0.0, vector, found.prime)
    if domain.exhaustive:
        return Finding(IDENTIFIABLE, "exact", found.rank, 0.0, prime=found.prime)
    # What holds for every sample of a sampler is not known of what it did not draw.
    assert isinstance(domain, Sampled)  # noqa: S101 - the only domain that is not exhaustive
    note = (
        f"All {domain.n_samples} samples are determined by the data: with 99 % confidence at "
        f"least {domain.covered():.2%} of what the sampler draws is."
    )
    return Finding(UNDECIDED, "exact", found.rank, 0.0, prime=found.prime, note=note)


def _in_floating_point(evidence: Evidence, domain: CustomDomain) -> Finding:
    basis, triangle = evidence.null_basis, evidence.triangle
    assert triangle is not None  # noqa: S101 - by_span refuses sums
    direction, best = np.zeros(0), 0.0
    for phi in evidence.features_of(domain.batch):
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
        disagreement = effect_if_unseen(evidence, direction, domain.batch)
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "span", evidence.rank, disagreement, direction)
        note = (
            "Some features of the domain seem to lie outside the span of the data's, but the "
            "direction in which they do is not beyond doubt without effect on the data."
        )
    return Finding(UNDECIDED, "span", evidence.rank, evidence.tolerance, note=note)
