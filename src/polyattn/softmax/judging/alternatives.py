"""What else explains the examples: other heads of the same number, or a constant beside tokens.

Error bars see changes that are small.  Other heads may be far away: the opposite ones where
queries see two tokens alike, or heads of equal value that few queries let pair otherwise.  Each
of these is tried: descent from it must come to rest nearby and explain what was held out.

Where heads explain little, a constant beside each token may: the hint to try ``bias``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq

from polyattn.softmax.examples import Examples
from polyattn.softmax.identifiability.other_layers import (
    Alternative,
    Unexamined,
    mirrored,
    rearranged,
)
from polyattn.softmax.judging.judge import Judge
from polyattn.softmax.judging.uncertainty import Uncertainty
from polyattn.softmax.polish import Projection, enough, polish, project
from polyattn.softmax.polish.normal_equations import normal_equations

Matrix = NDArray[np.float64]

# Values are equal, and attn is zero or opposite, up to this or three error bars.
ALIKE = 1e-5

# Alternatives that are tried, and steps of descent for each.
MOST_TRIED, N_STEPS = 16, 12

# A constant that explains less than this of the squared residuals is no reason to try it.
LEAST_SHARE = 0.1

# Nor is one whose every unknown explains less than so many times what it would of noise.
REAL_FALL = 5.0


@dataclass(frozen=True)
class Rival:
    """Another layer that explains the examples: its name as a finding, and what differs.

    heads : those that are replaced
    attn, value : those whose matrix is another one there
    """

    name: str
    heads: tuple[int, ...]
    attn: tuple[int, ...]
    value: tuple[int, ...]


@dataclass(frozen=True)
class Rivals:
    """A layer that explains the examples as well, if one is known, and what was not tried.

    unexamined : heads of equal value that can be paired in too many ways to try all
    """

    layer: Rival | None = None
    unexamined: tuple[int, ...] = ()

    def opened(self, bars: Uncertainty) -> Uncertainty:
        """Error bars that are infinite for matrices that are other ones in the other layer."""
        if self.layer is None:
            return bars
        attn, value = list(self.layer.attn), list(self.layer.value)
        arrays = [bars.attn, bars.value, bars.attn_error, bars.value_error]
        attn_std, value_std, attn_error, value_error = (array.copy() for array in arrays)
        attn_std[attn], attn_error[attn] = np.inf, np.inf
        value_std[value], value_error[value] = np.inf, np.inf
        return replace(
            bars, attn=attn_std, value=value_std, attn_error=attn_error, value_error=value_error
        )


def rival_layers(judge: Judge, found: Projection, bars: Uncertainty) -> Rivals:
    """Another layer of as many heads that explains the examples, if one is known.

    Cost: nothing for heads of different values and attn that is neither zero nor opposite;
    otherwise a few steps of descent for each alternative.
    """
    tolerance = max(ALIKE, bars.noticeable)
    # The last rows of value are shares of a sum, which other heads may share as well.
    value = found.value[:, :-1] if judge.training.bias else found.value
    unexamined: tuple[int, ...] = ()
    others = chain(
        mirrored(found.attn, value, tolerance),
        rearranged(found.attn, value, judge.training.queries(), tolerance),
    )
    for count, other in enumerate(others):
        if isinstance(other, Unexamined):
            unexamined = other.heads
        elif count >= MOST_TRIED:
            return Rivals(None, other.heads)
        elif (there := _explains(judge, found, other)) is not None:
            return Rivals(_differences(found, there, other))
    return Rivals(None, unexamined)


def share_of_constant(examples: Examples, found: Projection) -> float:
    """The part of the squared residuals that ``bias=True`` would explain at once; 0 if little.

    The last rows of value are fitted; those of attn make one Gauss–Newton step, while the rest of
    attn stays.  What a constant explains after a new search is more.

    Cost: that of a step of descent on enough examples for the heads.
    """
    few = enough(examples, found.n_heads)
    before = few.power * project(few, found.attn).error ** 2
    wider = few.with_constant()
    here = project(wider, np.pad(found.attn, ((0, 0), (0, 1), (0, 1))))
    equations = normal_equations(wider, here)
    entries = np.zeros(here.attn.shape, dtype=bool)
    entries[:, -1, :-1] = True
    new = np.flatnonzero(entries)
    gradient = equations.gradient[new]
    step = lstsq(equations.hessian[np.ix_(new, new)], gradient, cond=1e-12)[0]
    after = few.power * here.error**2 - float(step @ gradient)
    n_unknowns = wider.n_unknowns(found.n_heads)
    freedom = max(few.n_rows * few.n_outputs - n_unknowns, 1)
    n_new = n_unknowns - few.n_unknowns(found.n_heads)
    chance = REAL_FALL * n_new / (freedom + REAL_FALL * n_new)
    share = 1.0 - max(after, 0.0) / before if before > 0.0 else 0.0
    return share if share > max(LEAST_SHARE, chance) else 0.0


def _explains(judge: Judge, found: Projection, other: Alternative) -> Projection | None:
    """The alternative brought to rest, if it explains the examples and is still another one."""
    there = polish(judge.training, other.attn, N_STEPS).projection
    away = np.linalg.norm(there.attn - other.attn) <= 0.5 * _apart(other.attn, found.attn)
    return there if away and judge.fit(there).explained else None


def _apart(one: Matrix, other: Matrix) -> float:
    """How far the head of ``one`` that is farthest from all of ``other`` is from them."""
    distances = np.linalg.norm(one[:, None] - other[None], axis=(2, 3))
    return float(distances.min(axis=1).max())


def _differences(found: Projection, there: Projection, other: Alternative) -> Rival:
    """Which matrices of the heads that change are other ones."""

    def changed(before: Matrix, after: Matrix) -> tuple[int, ...]:
        sizes = np.linalg.norm(before, axis=(1, 2)).max()
        moved = np.linalg.norm(after - before, axis=(1, 2)) > 1e-3 * sizes
        return tuple(head for head in other.heads if moved[head])

    return Rival(
        other.name,
        other.heads,
        changed(found.attn, there.attn),
        changed(found.value, there.value),
    )
