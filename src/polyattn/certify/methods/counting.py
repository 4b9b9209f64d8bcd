"""What counting shows: too few rows, or tokens that never meet another one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from polyattn.certify.evidence import Evidence
from polyattn.certify.finding import NOT_IDENTIFIABLE, Finding
from polyattn.errors import InvalidInput
from polyattn.stats.rows import RowBlock

# Up to this many features the rank of few rows is worth a singular value decomposition.
RANKED_COLUMNS = 4096


def by_count(evidence: Evidence) -> Finding | None:
    """The finding where numbers alone decide; None where they do not.

    N equations never fix m > N unknowns.  And where every sequence is a single token,
    G_01 x_0 = G_00 x_1: that difference of features is always zero.
    """
    size = evidence.space.dimension
    n_positive = evidence.source.n_positive
    if n_positive < size:
        if size <= RANKED_COLUMNS and evidence.null_basis.shape[1] == 0:
            raise InvalidInput(
                f"the statistics contradict themselves: their sums have rank {size}, their count "
                f"says that they are of {n_positive} positions. Make them again from the data."
            )
        rank = size - evidence.null_basis.shape[1] if size <= RANKED_COLUMNS else None
        return Finding(NOT_IDENTIFIABLE, "count", rank, 0.0)
    if evidence.max_length == 1 and evidence.space.is_whole and evidence.space.width > 1:
        return _single_tokens(evidence)
    return None


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
    blocks = [_some_features(evidence, block, chosen) for block in rows.blocks()]
    phi = np.concatenate(blocks, axis=1)
    sizes = np.abs(phi).max(axis=1)
    scale = np.ldexp(1.0, -np.frexp(np.where(sizes > 0, sizes, 1.0))[1])
    # The last column of the orthogonal factor is orthogonal to all rows.
    orthogonal = qr(scale[:, None] * phi)[0][:, -1]
    direction = np.zeros(size)
    direction[chosen] = scale * orthogonal
    return direction


def _some_features(
    evidence: Evidence, block: RowBlock, chosen: NDArray[np.intp]
) -> NDArray[np.float64]:
    pair, query = np.divmod(evidence.space.columns[chosen], evidence.space.width)
    return block.pairs[pair] * block.queries[query]


def _single_tokens(evidence: Evidence) -> Finding:
    width = evidence.space.width
    direction = [0] * evidence.space.dimension
    # Feature (pair, l) stands at pair * width + l; the pairs begin with (0, 0), (0, 1).
    direction[1], direction[width] = -1, 1
    rank = evidence.space.dimension - evidence.null_basis.shape[1]
    return Finding(NOT_IDENTIFIABLE, "count", rank, 0.0, tuple(direction))
