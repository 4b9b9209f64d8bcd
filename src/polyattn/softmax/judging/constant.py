"""Whether a constant beside each token would explain what is left: the hint to try ``bias``."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lstsq

from polyattn.softmax.examples import Examples
from polyattn.softmax.polish import Projection, enough, project
from polyattn.softmax.polish.normal import normal_equations

# A constant that explains less than this of the squared residuals is no reason to try it.
LEAST_SHARE = 0.1

# Nor is one whose every unknown explains less than so many times what it would of noise.
REAL_FALL = 5.0


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
