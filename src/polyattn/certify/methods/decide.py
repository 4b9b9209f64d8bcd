"""decide: the verdict on a space of features, by the first method that reaches one.

    by_count      fewer rows than dimensions, or tokens that never meet another one
    by_exact      integers, floats that were not rounded, or whatever method="exact" is given
    by_floating   all others, with proved rounding bounds (``floating.py``)

Custom domains begin with the verdict on all real inputs and go on with ``by_span``: whether the
span of the data's features holds those of the domain.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.certify.domains import CustomDomain, Sampled
from polyattn.certify.evidence import Evidence
from polyattn.certify.exact.integers import annihilated
from polyattn.certify.exact.numbers import is_integer_data, rounded_coordinates
from polyattn.certify.exact.rank import exact_rank, null_space, null_vector
from polyattn.certify.methods.floating import by_floating, effect_if_unseen, leave_open
from polyattn.certify.verdict import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED, Finding
from polyattn.certify.verified.gram import require_memory
from polyattn.errors import InvalidInput
from polyattn.features.summaries import Tokens, summary_blocks
from polyattn.numerics.arrays import float64_holds, require_float64

# Up to this many features the rank of few rows is worth a singular value decomposition.
RANKED_COLUMNS = 4096


def decide(evidence: Evidence, method: str) -> Finding:
    """The verdict by counting, in exact arithmetic, or in floating point.

    ``method``: as for ``certify``.
    """
    few = by_count(evidence)
    if few is not None:
        return few
    require_memory(evidence.space)
    rows = evidence.rows
    if rows is None:
        return by_floating(evidence)
    if method == "float":
        require_float64(rows.batch.values, "X, for method='float',")
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


def unseen_direction(evidence: Evidence) -> NDArray[np.float64]:
    """A vector (m,) that the features of few rows do not see, up to rounding.

    Any N + 1 features suffice, so wide tokens cost N^3, not p^3.
    """
    size = evidence.space.dimension
    rows = evidence.rows
    if rows is None or size <= RANKED_COLUMNS:
        return evidence.null_basis[:, -1]
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.choice(size, rows.n_rows + 1, replace=False))
    pair, query = np.divmod(evidence.space.columns[chosen], evidence.space.width)
    blocks = [block.pairs[pair] * block.queries[query] for block in rows.blocks()]
    phi = np.concatenate(blocks, axis=1)
    sizes = np.abs(phi).max(axis=1)
    scale = np.ldexp(1.0, -np.frexp(np.where(sizes > 0, sizes, 1.0))[1])
    # The last column of the orthogonal factor is orthogonal to all rows.
    orthogonal = qr(scale[:, None] * phi)[0][:, -1]
    direction = np.zeros(size)
    direction[chosen] = scale * orthogonal
    return direction


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
    rows, basis, triangle = evidence.rows, evidence.null_basis, evidence.triangle
    assert rows is not None and triangle is not None  # noqa: S101, PT018 - by_span refuses sums
    direction, best = np.zeros(0), 0.0
    tokens = Tokens(domain.batch, rows.bias, evidence.token_exponent)
    for block in summary_blocks(tokens, rows.mode):
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
    # A sequence counts as outside the span if it shows at least this share of its features there.
    if best > 1e-6:
        hidden = partial(leave_open, evidence, domain.batch)
        disagreement = effect_if_unseen(evidence, direction, hidden)
        if disagreement is not None:
            return Finding(NOT_IDENTIFIABLE, "span", evidence.rank, disagreement, direction)
        note = (
            "Some features of the domain seem to lie outside the span of the data's, but the "
            "direction in which they do is not beyond doubt without effect on the data."
        )
    return Finding(UNDECIDED, "span", evidence.rank, evidence.tolerance, note=note)
