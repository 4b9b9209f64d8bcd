"""Whether the span of the data's features holds those of a custom domain."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from polyattn.certify.domains.custom import CustomDomain, Sampled
from polyattn.certify.evidence import Evidence
from polyattn.certify.exact.integers import annihilated
from polyattn.certify.exact.numbers import rounded_coordinates
from polyattn.certify.exact.rank import exact_rank, null_space
from polyattn.certify.methods.floating import effect_if_unseen, is_outside
from polyattn.certify.verdict import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED, Finding
from polyattn.errors import InvalidInput
from polyattn.features.summaries import Tokens, summary_blocks
from polyattn.numerics.arrays import float64_holds, require_float64

# A sequence counts as outside the span if it shows at least this share of its features there.
OUTSIDE_SHARE = 1e-6


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
    inside = Finding(IDENTIFIABLE, "exact", found.rank, 0.0, prime=found.prime)
    return inside if domain.exhaustive else _all_samples(inside, domain)


def _in_floating_point(evidence: Evidence, domain: CustomDomain) -> Finding:
    rows, basis, triangle = evidence.rows, evidence.null_basis, evidence.triangle
    assert rows is not None and triangle is not None  # noqa: S101, PT018 - by_span refuses sums
    direction, best = np.zeros(0), 0.0
    for block in summary_blocks(
        Tokens(domain.batch, rows.bias, evidence.token_exponent), rows.mode
    ):
        phi = evidence.space.features(block.pairs, block.queries)
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
    if best > OUTSIDE_SHARE:
        hidden = partial(is_outside, evidence, domain.batch)
        disagreement = effect_if_unseen(evidence, direction, hidden)
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "span", evidence.rank, disagreement, direction)
        note = (
            "Some features of the domain seem to lie outside the span of the data's, but the "
            "direction in which they do is not beyond doubt without effect on the data."
        )
    return Finding(UNDECIDED, "span", evidence.rank, evidence.tolerance, note=note)


def _all_samples(found: Finding, domain: CustomDomain) -> Finding:
    """What holds for every sample of a sampler is not known of what it did not draw."""
    assert isinstance(domain, Sampled)  # noqa: S101 - the only domain that is not exhaustive
    note = (
        f"All {domain.n_samples} samples are determined by the data: with 99 % confidence at "
        f"least {domain.covered():.2%} of what the sampler draws is."
    )
    return replace(found, verdict=UNDECIDED, note=note)
