"""Floating point with proved rounding bounds: what survives the bounds is claimed, no more.

Full rank is proved from the Gram, or by a triangular factor.  A deficient
rank is claimed only with a direction of coefficients that the data do not see, up to their own
rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.digest import digest_sequences
from polyattn.certify.evidence import Evidence
from polyattn.certify.exact.modular import random_prime
from polyattn.certify.exact.rank import exact_rank
from polyattn.certify.verdict import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED, Finding
from polyattn.certify.verified.rounding import SLACK, UNIT, feature_depth, gamma
from polyattn.certify.verified.triangular import (
    normalised_pieces,
    prove_by_factor,
    prove_independent,
)
from polyattn.features.pairs import pair_position, unfold_coef
from polyattn.sequences import SequenceBatch
from polyattn.stats import TriangularFactor
from polyattn.stats.rows import Rows

# A direction is unseen if the proved bound of its effect stays within so many tolerances ...
PROVED_FACTOR = 8.0

# ... and if inputs within this relative distance of the given ones would not show it at all.
INPUT_ROUNDING = 2.0**-46

# In a few rows the output may hardly depend on the inputs by chance.
UNEXPLAINED_SHARE = 0.1

# Ranks are compared modulo so many random primes: each is misled less often than once in fifty.
PRIMES = 4


def by_floating(evidence: Evidence) -> Finding:
    """First the Gram, one pass; where it leaves doubt, the triangular factor, two passes more."""
    size = evidence.space.dimension
    if evidence.definite is not None:
        return Finding(IDENTIFIABLE, "gram", size, evidence.definite.rounding)
    source, triangle, proof = evidence.source, evidence.triangle, None
    if isinstance(source, Rows) and triangle is not None:
        proof = prove_independent(source, evidence.space, triangle)
    elif isinstance(source, TriangularFactor) and triangle is not None:
        proof = prove_by_factor(source, triangle)
    if proof is not None:
        return Finding(IDENTIFIABLE, "triangular", size, proof.rounding)
    if not isinstance(source, Rows):
        method = "gram" if triangle is None else "triangular"
        error = evidence.gram.error(evidence.gram.scale)
        note = "Rounding leaves doubt; certify(X) can look closer than these sums allow."
        return Finding(UNDECIDED, method, evidence.rank, error, note=note)
    # A random direction of all that seem unseen: a single one may be seen, barely.
    basis = evidence.null_basis
    if basis.shape[1]:
        weights = np.random.default_rng(0).standard_normal(basis.shape[1])
        direction = basis @ (weights / np.linalg.norm(weights))
        disagreement = effect_if_unseen(evidence, direction, partial(leave_open, evidence))
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "triangular", evidence.rank, disagreement, direction)
    note = "Rounding leaves doubt; method='exact' decides about the numbers as they stand."
    return Finding(UNDECIDED, "triangular", evidence.rank, evidence.tolerance, note=note)


def effect_if_unseen(
    evidence: Evidence, direction: NDArray[np.float64], is_hidden: Callable[[], bool]
) -> float | None:
    """A bound of ||Phi direction|| over all rows, if that is nothing but rounding; else None.

    ``direction`` (m,) is D v with ||v|| = 1, rows are normalised.  Two conditions: outputs on the
    data move by no more than rounding (proved, the errors of evaluation included), and inputs
    within a few roundings of the given ones would not move them at all (to first order).
    Without the second, a layer that shows only in the cube of a small deviation would be called
    unseen, and exact arithmetic could prove the opposite.  Only coordinates that look rounded
    may move; where that does not explain the outputs, ``is_hidden()`` decides whether the
    numbers as they are leave something undetermined.
    """
    rows, space = evidence.rows, evidence.space
    if rows is None:
        return None
    bounded, unexplained = 0.0, 0
    forms = unfold_coef(space.embed(direction).reshape(1, -1, space.width))[0]
    per_feature, per_product = (
        gamma(feature_depth(evidence.source.max_length)),
        gamma(len(direction) + 2),
    )
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
    explained = evidence.rounded.any() and unexplained <= UNEXPLAINED_SHARE * rows.n_rows
    return bound if explained or is_hidden() else None


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
