"""Structure: features that are always zero, or always a multiple of another one.

In-context prompts whose query has no label, one-hot tokens, a constant beside a bias: such data are
not degenerate by bad luck.  Of each group of features that are multiples of one another one is
enough; zeros need none.  What remains is mostly well conditioned, and solved as fast as any other.

With phi_j = c_j phi_i for the features of a group, the layer sees theta only through <c, theta>.
The theta of smallest norm is  c / ||c|| * tau,  and tau is the coefficient of the one feature
||c|| phi_i: penalty and minimum norm are those of the whole problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import EPS
from polyattn.stats.passes import summed
from polyattn.stats.row_groups import RowBlock
from polyattn.stats.rows import Rows

# Features whose correlation is nearer to one than this are looked at row by row.
NEARLY_ONE = 1e-10

# Numbers that are compared together.
BLOCK_NUMBERS = 1 << 18


@dataclass(frozen=True)
class FeatureGroups:
    """Which features stand for others: theta (p, e) = factors * tau[owner], 0 where owner < 0."""

    owner: NDArray[np.intp]  # (p,): the place in ``kept`` of the feature that stands for it, or -1
    factors: NDArray[np.float64]  # (p,): c_j / ||c||
    kept: NDArray[np.intp]  # (k,): the features that remain
    sizes: NDArray[np.float64]  # (k,): ||c||, by which they are multiplied

    @property
    def n_zero(self) -> int:
        """Features that are zero on all data."""
        return int(np.count_nonzero(self.owner < 0))

    @property
    def n_repeated(self) -> int:
        """Features that are a multiple of another one that is kept."""
        return len(self.owner) - self.n_zero - len(self.kept)

    def reduced(self, matrix: NDArray) -> NDArray[np.float64]:
        """A symmetric matrix (p, p) on the features that are kept, (k, k)."""
        return matrix[np.ix_(self.kept, self.kept)] * self.sizes * self.sizes[:, None]

    def gathered(self, vectors: NDArray) -> NDArray[np.float64]:
        """Products (p, e) of all features with something, as those of the kept ones, (k, e)."""
        return vectors[self.kept] * self.sizes[:, None]

    def expanded(self, tau: NDArray) -> NDArray[np.float64]:
        """theta (p, e) of least norm from the coefficients tau (k, e) of the kept features."""
        theta = tau[np.maximum(self.owner, 0)] * self.factors[:, None]
        theta[self.owner < 0] = 0.0
        return theta


def find_structure(gram: NDArray, rows: Rows | None) -> FeatureGroups | None:
    """The structure of features with these moments (p, p), in the coordinates of the norm.

    Zeros are exact: a sum of squares that is zero.  Multiples are looked for where moments
    are nearly those of parallel features, and then examined row by row, to the rounding that the
    rank of features is judged by; without ``rows`` none are.  None where there is none.
    Cost: p^2 comparisons, and one pass of p products per row if there are candidates.
    """
    powers = gram.diagonal()
    used = np.flatnonzero(powers > 0)
    groups = [] if rows is None else _examined(_parallel(gram, used), gram, rows)
    if len(used) == len(powers) and not groups:
        return None
    owner, factors = np.full(len(powers), -1, dtype=np.intp), np.ones(len(powers))
    stands_for = np.arange(len(powers))
    for first, others in groups:
        stands_for[others] = first
        ratios = gram[first, others] / powers[first]
        norm = float(np.sqrt(1.0 + ratios @ ratios))
        factors[first], factors[others] = 1.0 / norm, ratios / norm
    kept = used[stands_for[used] == used]
    place = np.full(len(powers), -1, dtype=np.intp)
    place[kept] = np.arange(len(kept))
    owner[used] = place[stands_for[used]]
    return FeatureGroups(owner, factors, kept, 1.0 / factors[kept])


def rank_tolerance(n_features: int, n_rows: int) -> float:
    """Below this part of the largest, a singular value of equilibrated columns is rounding."""
    return 4.0 * EPS * max(float(n_features), float(np.sqrt(n_rows)))


# A feature, and others that may be multiples of it.
Group = tuple[int, NDArray[np.intp]]


def _parallel(gram: NDArray, used: NDArray[np.intp]) -> list[Group]:
    """Groups of features whose moments are nearly those of multiples of one another."""
    norms = np.sqrt(gram.diagonal())
    waiting, groups = np.ones(len(norms), dtype=bool), []
    for first in used:
        if not waiting[first]:
            continue
        later = np.arange(first + 1, len(norms))
        alike = np.abs(gram[first, later]) >= (1.0 - NEARLY_ONE) * norms[first] * norms[later]
        others = later[alike & waiting[later] & (norms[later] > 0)]
        if len(others):
            groups.append((int(first), others))
            waiting[others] = False
    return groups


def _examined(groups: list[Group], gram: NDArray, rows: Rows) -> list[Group]:
    """The groups with those members alone that are multiples on every row, to rounding.

    Rows are compared in units of their own size: beside a large sequence, which makes all moments
    look parallel, what the others say is still seen.
    """
    if not groups:
        return []
    layout = rows.layout
    first = np.concatenate([np.full(len(others), one) for one, others in groups])
    other = np.concatenate([others for _, others in groups])
    ratios = gram[first, other] / gram.diagonal()[first]
    kept = np.arange(layout.n_sums * layout.n_queries) if layout.kept is None else layout.kept
    weights = 1.0 / layout.feature_weights
    (sum_a, query_a), (sum_b, query_b) = (divmod(kept[x], layout.n_queries) for x in (first, other))

    of_first = (sum_a, query_a, (ratios * weights[first])[:, None])
    of_other = (sum_b, query_b, weights[other][:, None])
    [power] = summed(rows, _missed, of_first, of_other)
    same = np.sqrt(power[0]) <= rank_tolerance(len(gram), rows.n_rows) * np.sqrt(power[1])
    found = ((one, other[same & (first == one)]) for one, _ in groups)
    return [(one, others) for one, others in found if len(others)]


def _missed(
    rows: Rows, blocks: list[RowBlock], one: tuple[NDArray, ...], two: tuple[NDArray, ...]
) -> tuple[NDArray[np.float64]]:
    """Squares of what is left of the second of each two features, and of itself, (2, f).

    one, two : features: their sums and queries (f,), and what they are multiplied by (f, 1)
    """
    of_sums, of_queries = _sizes(rows)
    (sum_a, query_a, factor_a), (sum_b, query_b, factor_b) = one, two
    total, step = np.zeros((2, len(sum_a))), max(1, BLOCK_NUMBERS // len(sum_a))
    for block in blocks:
        for start in range(0, block.sums.shape[1], step):
            sums, queries = (x[:, start : start + step] for x in (block.sums, block.queries))
            largest = np.abs(sums / of_sums).max(axis=0)
            largest *= np.abs(queries / of_queries).max(axis=0)
            queries = queries / np.where(largest > 0, largest, 1.0)
            whole = sums[sum_b] * queries[query_b] * factor_b
            total[1] += np.einsum("fr,fr->f", whole, whole)
            whole -= sums[sum_a] * queries[query_a] * factor_a
            total[0] += np.einsum("fr,fr->f", whole, whole)
    return (total,)


def _sizes(rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sizes of sums (m, 1) and queries (r, 1) beside one another, from those of the tokens."""
    grid = rows.layout.feature_sizes(rows.coordinate_sizes)
    of_sums, of_queries = grid.max(axis=1), grid.max(axis=0)
    return (
        np.where(of_sums > 0, of_sums, 1.0)[:, None],
        np.where(of_queries > 0, of_queries, 1.0)[:, None],
    )
