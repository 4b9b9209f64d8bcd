"""Heads refined where answers are rounded or noisy, with a standard error of every entry.

Once all heads are known roughly, differences may be orthogonal ones, which magnify no noise, each
with query tokens of its own, of sizes at which noise does least.  Of rough answers the heads of
the first difference are followed to others near it by the same fits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.error_bars import HeadEquations
from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.fitting import N_HALVINGS, SPARE, Refinement
from polyattn.softmax.queries.mixing import other_directions
from polyattn.softmax.queries.pairs import MOST_OF_TOKENS, Pairs, unit_rows
from polyattn.softmax.queries.precision import ROUGH, TINY, in_units, mean_rounding

# Norms of query tokens and of differences that are tried, in calibrated sizes: no tokens are larger
# than those of the held-out check.
POINT_SIZES, DELTA_SIZES = (0.75, 1.5, 3.0), (0.6, 1.2, 2.4, 3.6)

# One-token sequences that give S, for every coordinate, so that its errors matter little.
N_SUMS = 16

# Query tokens for every unknown of a head: at least, and at most where answers are rough.
# Without max_queries all differences together get so many queries, or the least.
FEWEST, MOST, ENOUGH = 1.5, 16.0, 50_000
KEPT_FOR_CHECK = 300

# Differences that are queried together, and how far those near the first one lie from it, in
# calibrated sizes.
BLOCK, NEAR = 8, 0.5

# Query tokens for every unknown there, the ridge of its steps, and their number: unknowns that
# answers hardly show stay near the first ones.
NEARBY, RIDGE, N_NEAR_STEPS = 2.0, 0.05, 10


@dataclass(frozen=True)
class TokenSizes:
    """Norms of query tokens and of differences, in calibrated sizes."""

    point: float = 1.5
    delta: float = 1.2

    def fit(self, pairs: Pairs) -> bool:
        """Whether tokens stay below the largest norm: moves are at an angle of 90 degrees or more.

        See ``Pairs.effect``.
        """
        norms = self.point * pairs.point_size, self.delta * pairs.delta_size
        return float(np.hypot(*norms)) <= MOST_OF_TOKENS * pairs.oracle.token_limit


def sum_again(pairs: Pairs, size: float, unit: float = 0.0) -> None:
    """Measure S and b by least squares over random tokens of norm ``size``, with errors.

    Nothing is measured where tokens were hardly smaller the last time.
    """
    if pairs.total.token_size > size / 1.5:
        return
    n_tokens = N_SUMS * pairs.n_rows + SPARE
    unit = unit or pairs.unit(size * min(1.0, 5 / pairs.n_dims**0.5))
    tokens = in_units(size * unit_rows(pairs.rng, n_tokens, pairs.n_dims), unit)
    rows, answers = pairs.rows(tokens), pairs.oracle(tokens[:, None])
    whole = pairs.oracle.whole(tokens, answers)
    pairs.total = replace(pairs.total, cut=mean_rounding(rows, answers, whole))
    answers = answers - pairs.total.rounding_of(whole)
    found = np.asarray(np.linalg.lstsq(rows, answers, rcond=None)[0], dtype=np.float64)
    left = answers - rows @ found
    variances = (left**2).sum(axis=0) / (n_tokens - pairs.n_rows)
    spread = np.diagonal(np.linalg.inv(rows.T @ rows))
    n_dims = pairs.n_dims
    pairs.total = replace(
        pairs.total,
        value=found[:n_dims],
        bias=found[n_dims:].sum(axis=0),
        variances=variances,
        errors=np.sqrt(spread[:, None] * variances),
        token_size=size,
    )


def follow(pairs: Pairs, findings: QueryFindings, first: HeadsAt) -> bool:
    """Add the heads for d differences near that of ``first``, of rough answers; False if it cannot.

    Cost: at least 1.5 d (D + H) queries, fewer with column spaces.
    """
    directions = np.vstack([np.zeros(pairs.n_dims), other_directions(first.delta, pairs.rng)])
    size = float(first.delta @ first.delta)
    # The least heads that are those of the first difference there, and the same near it.
    attn = first.columns[:, :, None] * first.delta / size
    value = first.delta[None, :, None] * first.values[:, None, :] / size
    work = _begun(
        pairs, TokenSizes(), NEARBY, float(np.abs(first.delta).max()) + NEAR * pairs.delta_size
    )
    work.ridge, work.n_steps = RIDGE, N_NEAR_STEPS
    for begin in range(0, pairs.n_dims, BLOCK):
        block = directions[begin : begin + BLOCK]
        found: dict[int, HeadsAt] = {}
        for halvings in range(N_HALVINGS):
            missing = [j for j in range(len(block)) if j not in found]
            if not missing:
                break
            deltas = first.delta + NEAR * pairs.delta_size * 0.5**halvings * block[missing]
            heads = work.heads(in_units(deltas, work.unit), attn, value) or []
            near = zip(missing, heads, strict=False)
            found |= {
                j: at for j, at in near if isfinite(at.doubt) and at.in_order_of(first.values)
            }
        if len(found) < len(block):
            return False
        findings.heads.extend(found[j] for j in sorted(found))
        work.learn_spaces(findings.heads)
    findings.record(n_differences=len(findings.heads))
    return True


def refine(pairs: Pairs, findings: QueryFindings) -> bool:
    """Replace the heads of ``findings`` by those of orthogonal differences; False if it cannot.

    Sizes of tokens are those at which the heads so far promise the smallest errors; of rough
    answers after a first round with the calibrated ones.

    Cost: at least 1.5 d (D + H) queries, or as many for 2 r + 6 of the differences and 1.5 (r + H)
    for every other; up to ten times as many where answers are very rough and the layer small.
    """
    if pairs.total.noise > ROUGH and not _round(pairs, findings, TokenSizes(), FEWEST):
        return False
    factor = _queries_per_unknown(pairs, len(findings.heads[0].values))
    if factor < FEWEST:
        return False
    attn, value = _roughly(findings)
    return _round(pairs, findings, _best_sizes(pairs, attn, value), factor)


def _roughly(findings: QueryFindings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """attn (H, D, d) and value (H, d, e) of the heads so far."""
    known = np.linalg.pinv(np.stack([at.delta for at in findings.heads]))
    attn = np.einsum("dj,jhr->hrd", known, np.stack([at.columns for at in findings.heads]))
    return attn, np.einsum("dj,jhe->hde", known, np.stack([at.values for at in findings.heads]))


def _round(pairs: Pairs, findings: QueryFindings, sizes: TokenSizes, factor: float) -> bool:
    """Heads of orthogonal differences of these sizes, instead of those of ``findings``."""
    attn, value = _roughly(findings)
    n_dims = pairs.n_dims
    deltas = np.linalg.qr(pairs.rng.standard_normal((n_dims, n_dims)))[0]
    deltas *= sizes.delta * pairs.delta_size
    work = _begun(pairs, sizes, factor, float(np.abs(deltas).max()))
    heads: list[HeadsAt] = []
    for begin in range(0, n_dims, BLOCK):
        block = in_units(deltas[begin : begin + BLOCK], work.unit)
        found = work.heads(block, attn, value)
        if found is None or not all(isfinite(at.doubt) for at in found):
            return False
        heads += found
        work.learn_spaces(heads)
    findings.heads[:] = heads
    absolute, relative = work.noise.by_size
    # Answers to be checked are cut off, too.
    absolute = float(np.hypot(absolute, np.abs(work.total.cut).sum()))
    findings.total = pairs.total = replace(work.total, by_size=(absolute, relative))
    return True


def _best_sizes(pairs: Pairs, attn: NDArray, value: NDArray) -> TokenSizes:
    """The sizes at which noise would leave the smallest relative errors of the worst head.

    No queries: the equations at one random difference tell, with as many tokens as unknowns need.
    """
    rng, n_dims, n_heads = np.random.default_rng(0), pairs.n_dims, len(value)
    directions = unit_rows(rng, int(2 * (pairs.n_rows + n_heads)) + SPARE, n_dims)
    direction = unit_rows(rng, 1, n_dims)[0]
    whole = np.linalg.norm(attn, axis=(1, 2)), np.linalg.norm(value, axis=(1, 2))

    def expected(sizes: TokenSizes) -> float:
        delta = sizes.delta * pairs.delta_size * direction
        tokens = sizes.point * pairs.point_size * directions
        columns, values = attn @ delta, np.tensordot(delta, value, (0, 1))
        near = HeadEquations(pairs.rows(tokens), columns, values, 1.0)
        if not near.determined:
            return inf
        answers = near.sigmoids[:-1] @ values + tokens @ pairs.total.value + pairs.total.bias
        variances = np.mean((pairs.total.noise * answers) ** 2, axis=0)
        every = np.broadcast_to(variances, (len(near.sigmoids), len(variances)))
        errors = near.column_variances(every), near.value_variances(variances)
        lengths = [
            np.sqrt(each.sum(axis=1) * n_dims) / np.linalg.norm(delta) / np.maximum(of, TINY)
            for each, of in zip(errors, whole, strict=True)
        ]
        return float(np.max(lengths))

    tried = [TokenSizes(point, delta) for point in POINT_SIZES for delta in DELTA_SIZES]
    fitting = [sizes for sizes in tried if sizes.fit(pairs)]
    return min(fitting, key=expected, default=TokenSizes())


def _begun(pairs: Pairs, sizes: TokenSizes, factor: float, largest: float) -> Refinement:
    """A refinement whose tokens fit differences with entries up to ``largest``."""
    size = sizes.point * pairs.point_size
    unit = pairs.unit(size * min(1.0, 5 / pairs.n_dims**0.5), largest)
    sum_again(pairs, size, unit)
    return Refinement(pairs, size, unit, factor, pairs.total)


def _queries_per_unknown(pairs: Pairs, n_heads: int) -> float:
    """How many query tokens there are for every unknown of a head, within the budget."""
    n_unknowns = pairs.n_dims * (pairs.n_rows + n_heads + SPARE)
    left = pairs.oracle.max_queries - pairs.oracle.n_queries - KEPT_FOR_CHECK
    left -= N_SUMS * pairs.n_rows + SPARE
    most = left / n_unknowns
    wanted = FEWEST
    if pairs.total.noise > ROUGH:
        many = left if isfinite(left) else ENOUGH
        wanted = float(np.clip(many / n_unknowns, FEWEST, MOST))
    return min(wanted, most)
