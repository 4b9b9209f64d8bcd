"""The road of verified floating point: what survives the rounding bounds is claimed, no more."""

from __future__ import annotations

import numpy as np

from polyattn.certify.evidence import Evidence
from polyattn.certify.finding import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED, Finding
from polyattn.certify.methods.unseen import effect_if_unseen, is_deficient
from polyattn.certify.verified.orthogonal import prove_by_factor, prove_independent
from polyattn.stats import TriangularFactor


def by_floating(evidence: Evidence) -> Finding:
    """First the Gram, one pass; where it leaves doubt, the triangular factor, two passes more."""
    size = evidence.space.dimension
    if evidence.definite is not None:
        return Finding(IDENTIFIABLE, "gram", size, evidence.definite.rounding)
    if evidence.rows is not None:
        return _by_triangle(evidence)
    if isinstance(evidence.source, TriangularFactor):
        assert evidence.triangle is not None  # noqa: S101 - such statistics always have one
        proved = prove_by_factor(evidence.source, evidence.triangle)
        if proved is not None:
            return Finding(IDENTIFIABLE, "triangular", size, proved.rounding)
    method = "gram" if evidence.triangle is None else "triangular"
    rank, error = size - evidence.null_basis.shape[1], evidence.gram.error(evidence.gram.scale)
    note = "Rounding leaves doubt; certify(X) can look closer than these sums allow."
    return Finding(UNDECIDED, method, rank, error, note=note)


def _by_triangle(evidence: Evidence) -> Finding:
    rows, triangle, size = evidence.rows, evidence.triangle, evidence.space.dimension
    assert rows is not None and triangle is not None  # noqa: S101, PT018 - of data there are both
    proof = prove_independent(rows, evidence.space, triangle)
    if proof is not None:
        return Finding(IDENTIFIABLE, "triangular", size, proof.rounding)
    # A random direction of all that seem unseen: a single one may be unseen by a hair.
    basis = evidence.null_basis
    if basis.shape[1]:
        weights = np.random.default_rng(0).standard_normal(basis.shape[1])
        direction = basis @ (weights / np.linalg.norm(weights))
        disagreement = effect_if_unseen(evidence, direction, lambda: is_deficient(evidence))
        if disagreement is not None:
            rank = size - basis.shape[1]
            return Finding(NOT_IDENTIFIABLE, "triangular", rank, disagreement, direction)
    note = "Rounding leaves doubt; method='exact' decides about the numbers as they stand."
    return Finding(UNDECIDED, "triangular", size - basis.shape[1], evidence.tolerance, note=note)
