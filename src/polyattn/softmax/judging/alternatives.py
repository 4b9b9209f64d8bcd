"""What else explains the examples: fewer heads, other ones, or a constant beside tokens.

Two heads with equal attn act through the sum of their values alone; a head of zero value does
not act at all.  Tokens that leave out a direction leave out a part of attn: with P the
projector onto the span of the queries and Q onto the span of the differences between keys, A
and P A Q give the same weights.

Error bars see small changes.  Heads that are far away are tried one by one: the opposite ones where
queries see two tokens alike, or heads of equal value that few queries let pair otherwise.
"""

from __future__ import annotations

from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lstsq

from polyattn.softmax.examples import Examples, Matrix
from polyattn.softmax.identifiability.other_layers import (
    Alternative,
    Unexamined,
    mirrored,
    rearranged,
)
from polyattn.softmax.judging.judge import Judge
from polyattn.softmax.judging.uncertainty import Uncertainty
from polyattn.softmax.polish import Projection, enough, polish, project
from polyattn.softmax.polish.projection import normal_equations

# Directions with less than this share of the largest variance are rounding.
DIRECTION_TOLERANCE = 1e-13

# Values are equal, and attn is zero or opposite, up to this or three error bars.
ALIKE = 1e-5

# Alternatives that are tried, and steps of descent for each.
MOST_TRIED, N_STEPS = 16, 12

# A constant that explains less than this of the squared residuals is no reason to try it, nor is
# one whose every unknown explains less than so many times what it would of noise.
LEAST_SHARE, REAL_FALL = 0.1, 5.0


class Visible(NamedTuple):
    """Projectors onto the directions that occur in queries, and between keys; both (d, d).

    complete : whether all of attn can be seen that any inputs show
    """

    queries: Matrix
    keys: Matrix
    complete: bool

    def part(self, attn: Matrix) -> Matrix:
        """The visible part of heads (m, d, d)."""
        return attn if self.complete else self.queries @ attn @ self.keys


def visible(examples: Examples) -> Visible:
    """The directions that the tokens of the examples span."""
    width = examples.width
    of_queries, of_keys = np.zeros((width, width)), np.zeros((width, width))
    for block in examples.blocks():
        queries = block.queries.reshape(-1, width)
        of_queries += queries.T @ queries
        # Differences to the first key, which every query sees.
        apart = (block.keys - block.keys[:, :1]).reshape(-1, width)
        of_keys += apart.T @ apart
    bases = []
    for gram in (of_queries, of_keys):
        sizes, vectors = eigh(gram, check_finite=False)
        bases.append(vectors[:, sizes > DIRECTION_TOLERANCE * sizes[-1]])
    # No two keys differ in the constant of ``bias``.
    complete = [basis.shape[1] for basis in bases] == [width, width - examples.bias]
    return Visible(bases[0] @ bases[0].T, bases[1] @ bases[1].T, complete)


def smaller_heads(here: Projection) -> list[tuple[Matrix, str]]:
    """One head fewer in the ways that may lose nothing: the closest two as one, or one dropped.

    Heads (m - 1, d, d) to descend from, each with the sentence that is true if nothing is lost.
    """
    attn, sizes = here.attn, np.linalg.norm(here.value, axis=(1, 2))
    if len(attn) < 2:
        return []
    pairs = combinations(range(len(attn)), 2)
    i, j = min(pairs, key=lambda pair: float(np.linalg.norm(attn[pair[0]] - attn[pair[1]])))
    share = sizes[i] / max(sizes[i] + sizes[j], np.finfo(np.float64).tiny)
    joined = np.delete(attn, j, axis=0)
    joined[i] = share * attn[i] + (1 - share) * attn[j]
    merged = "Two heads had equal attn and were merged: only the sum of their values counts."
    dropped = "A head that added nothing was dropped."
    without = [(np.delete(attn, head, axis=0), dropped) for head in np.argsort(sizes)]
    return [(joined, merged), *without]


class Rival(NamedTuple):
    """Another layer that explains the examples: its name as a finding, and what differs.

    heads : those that are replaced
    attn, value : (m, 1, 1) whether the matrix of a head is another one there
    """

    name: str
    heads: tuple[int, ...]
    attn: NDArray[np.bool_]
    value: NDArray[np.bool_]


def rival_layer(
    judge: Judge, found: Projection, bars: Uncertainty
) -> tuple[Rival | None, tuple[int, ...]]:
    """Another layer of as many heads that explains the examples, if one is known.

    Beside it, heads of equal value that can be paired in too many ways to try all.
    Cost: nothing for heads of different values and attn that is neither zero nor opposite;
    otherwise a few steps of descent for each alternative.
    """
    tolerance = max(ALIKE, min(3 * bars.in_determined, 0.1))
    # The last rows of value are shares of a sum, which other heads may share as well.
    value = found.value[:, :-1] if judge.training.bias else found.value
    groups = judge.training.groups
    queries = np.concatenate([group.queries.reshape(group.n_rows, -1) for group in groups])
    unexamined: tuple[int, ...] = ()
    opposite = mirrored(found.attn, value, tolerance)
    paired = rearranged(found.attn, value, queries, tolerance)
    for count, other in enumerate(chain(opposite, paired)):
        if isinstance(other, Unexamined):
            unexamined = other.heads
        elif count >= MOST_TRIED:
            return None, other.heads
        elif (rival := _rival(judge, found, other)) is not None:
            return rival, ()
    return None, unexamined


def _rival(judge: Judge, found: Projection, other: Alternative) -> Rival | None:
    """The alternative brought to rest, if it explains the examples and is still another one."""
    there = polish(judge.training, other.attn, N_STEPS)
    # How far the head that is farthest from all that were found is from them.
    distances = np.linalg.norm(other.attn[:, None] - found.attn[None], axis=(2, 3))
    near = np.linalg.norm(there.attn - other.attn) <= 0.5 * distances.min(axis=1).max()
    if not (near and judge.fit(there).explained):
        return None
    replaced = np.isin(np.arange(found.n_heads), other.heads)[:, None, None]
    changed = []
    for before, after in ((found.attn, there.attn), (found.value, there.value)):
        size = np.linalg.norm(before, axis=(1, 2)).max()
        moved = np.linalg.norm(after - before, axis=(1, 2), keepdims=True)
        changed.append(replaced & (moved > 1e-3 * size))
    return Rival(other.name, other.heads, *changed)


def share_of_constant(examples: Examples, found: Projection) -> float:
    """The part of the squared residuals that ``bias=True`` would explain at once; 0 if little.

    The last rows of value are fitted, those of attn make one Gauss–Newton step, and the rest of
    attn stays: a new search explains more.
    Cost: that of a step of descent on enough examples for the heads.
    """
    few = enough(examples, found.n_heads)
    before = few.power * project(few, found.attn).error ** 2
    wider = few.with_constant()
    here = project(wider, np.pad(found.attn, ((0, 0), (0, 1), (0, 1))))
    equations = normal_equations(wider, here)
    new = np.arange(here.attn.size).reshape(here.attn.shape)[:, -1, :-1].reshape(-1)
    gradient = equations.gradient[new]
    step = lstsq(equations.hessian[np.ix_(new, new)], gradient, cond=1e-12)[0]
    after = few.power * here.error**2 - float(step @ gradient)
    n_unknowns = wider.n_unknowns(found.n_heads)
    freedom = max(few.n_rows * few.n_outputs - n_unknowns, 1)
    n_new = n_unknowns - few.n_unknowns(found.n_heads)
    chance = REAL_FALL * n_new / (freedom + REAL_FALL * n_new)
    share = 1.0 - max(after, 0.0) / before if before > 0.0 else 0.0
    return share if share > max(LEAST_SHARE, chance) else 0.0
