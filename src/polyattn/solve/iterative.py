"""The iterative solver: conjugate gradients on the normal equations, matrix-free.

For problems where p x p sums do not fit, or cost more than some dozens of passes: a pass takes
4 e p flops per row.  Summaries are made once and kept while they fit into memory.

In whitened coordinates (``whitening.py``) some dozens of passes suffice, but directions in which
there are no data are then left as they come: of several minimisers, that of least theta^T K theta
is found, the norm in the data's own metric.  So

    the data determine all coefficients      whitened; a random step tells that they do
    or a ridge that is not small             whitened
    else                                     from zero in the coordinates of the norm, where
                                             iterates stay in the row space: the smallest norm.
                                             Where that stalls, whitened, and the note says so
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import counted
from polyattn.solve.normal_equations import (
    MAX_PASSES,
    Approach,
    FeatureEquations,
    largest_ratio,
    squares,
)
from polyattn.solve.solution import Solution
from polyattn.solve.whitening import LARGE_RIDGE
from polyattn.stats.rows import Rows

# Summaries are kept in up to this part of the memory; 1 GiB where that cannot be asked.
KEPT_PART = 0.25

# Coefficients that are certain up to this part need no random test; from the other on it is said.
CERTAIN, UNCERTAIN = 1e-7, 1e-6

OTHER_NORM = (
    " The data do not determine all coefficients, and {reason}: of all optima, it is the one whose "
    "norm is smallest in the data's own metric, the mean square of the outputs if sums and queries "
    "were independent."
)
SMALL_RIDGE = (
    " The data do not determine all coefficients, and the ridge, which alone decides the others, "
    "is so small that they may be off by {error:.0e} of the norm of all: {reason}."
)
LEAST_NORM = " Of all optima it is the one of smallest norm."
ROUNDED = " Rounding leaves its coefficients uncertain{by}; solver='direct' is more exact."
WEAK = (
    " That leaves out {count} in which the data vary by less than 1e-11 of the largest: "
    "solver='direct' may gain more there."
)
GRADED = "their features differ too much in size for the smallest norm"


def solve_iterative(rows: Rows, ridge: float, most_passes: int | None = None) -> Solution:
    """The minimiser, all outputs side by side; the note says how closely it was reached."""
    rows = replace(rows, kept_numbers=kept_numbers())
    system = FeatureEquations.of(rows, ridge, MAX_PASSES if most_passes is None else most_passes)
    whitening, found, least, reason = system.whitening, None, None, GRADED
    is_few = rows.n_positive < whitening.n_seen
    if not is_few or ridge >= LARGE_RIDGE * whitening.largest:
        found = system.solved(in_norm=False)
        if not found.reached or _error_bound(system, found) <= CERTAIN:
            return _solution(system, found)
        is_unseen = is_few
        if not is_few:
            is_unseen, smallest, passes = system.probed()
            smallest = min(found.smallest, smallest + ridge * whitening.least_penalty)
            found = replace(found, passes=found.passes + passes, smallest=smallest)
        if not is_unseen:
            return _determined(system, found)
    if not whitening.is_graded:
        least = system.solved(in_norm=True)
        if least.reached:
            return _solution(system, least, "" if ridge or whitening.n_weak else LEAST_NORM)
        reason = f"the smallest norm was out of reach in {_passes(least.passes)}"
    found = found or system.solved(in_norm=False)
    if least is not None and system.objective(least) < system.objective(found):
        return _solution(system, least)
    error = _error_bound(system, found)
    if error <= CERTAIN:
        return _solution(system, found)
    words = SMALL_RIDGE if ridge else OTHER_NORM
    return _other(system, found, words.format(error=error, reason=reason))


def kept_numbers() -> int:
    """How many numbers of summaries are kept in memory."""
    return int(KEPT_PART * (physical_memory() or (4 << 30))) // 8


def _determined(system: FeatureEquations, found: Approach) -> Solution:
    """The solution where a random step found no direction without data, but those of K."""
    whitening, n_features = system.whitening, len(found.theta)
    if system.ridge > 0:
        return _solution(system, found)
    if not whitening.is_full and whitening.is_graded:
        return _other(system, found, OTHER_NORM.format(reason=GRADED))
    if whitening.n_weak:
        return _solution(system, found)
    if whitening.n_seen == n_features:
        return _solution(system, found, " A random test found no other optimum.")
    found = replace(found, theta=whitening.in_row_space(found.theta))
    note = (
        f" In {n_features - whitening.n_seen} of {n_features} directions there are no data, and it "
        "is zero there; a random test found no others."
    )
    return _solution(system, found, note)


def _other(system: FeatureEquations, found: Approach, note: str) -> Solution:
    """A solution that is not the one of smallest norm, or of the penalty."""
    return replace(_solution(system, found, note), is_reached=False)


def _solution(system: FeatureEquations, found: Approach, note: str = "") -> Solution:
    """What was found in true units; the note begins with how closely it was reached."""
    condition = max(found.largest / found.smallest, 1.0) if found.smallest > 0 else np.inf
    if not found.in_norm:
        condition *= system.whitening.condition
    error = min(system.error_estimate(found), _error_bound(system, found))
    is_rounded = found.reached and error > UNCERTAIN
    if is_rounded:
        note += ROUNDED.format(by=f" by about {error:.0e} of their norm" if error < 1 else "")
    n_weak = system.whitening.n_weak
    if n_weak:
        note += WEAK.format(count=counted(n_weak, "direction"))
    return Solution(
        np.ldexp(found.theta, -system.unit),
        None,
        found.residual_power,
        float(np.sqrt(condition)),
        system.ridge,
        _closeness(system, found) + note,
        is_reached=found.reached and not is_rounded and not n_weak,
    )


def _error_bound(system: FeatureEquations, found: Approach) -> float:
    """A bound of the error of the coefficients beside their norm: ||g|| / ridge."""
    if system.ridge == 0:
        return np.inf if found.passes else 0.0
    lengths = system.ridge**2 * squares(found.theta)
    return float(np.sqrt(largest_ratio(squares(found.gradient), lengths)))


def _closeness(system: FeatureEquations, found: Approach) -> str:
    """How closely the minimum was reached, in words.

    The objective exceeds its minimum by g^T H^-1 g <= ||g||^2 / lambda_min, and lambda_min is at
    least the ridge.  Without one it is estimated by the smallest Ritz value.  Beside it stands the
    fall of the objective from no layer, theta^T (b + g).
    """
    if found.reached:
        words = f" It took {_passes(found.passes)} over the data."
    else:
        powers = (system.whitening.power(each) for each in (found.gradient, system.cross))
        words = (
            f" The iteration stopped after {_passes(found.passes)} with the gradient reduced to "
            f"{np.sqrt(largest_ratio(*powers)):.1e} of its start: this is an approximation. A "
            "larger ridge, or more data, would speed it up."
        )
    if not found.passes:
        return words
    gain = np.einsum("pe,pe->e", found.theta, system.cross + found.gradient)
    seen = squares(system.whitened(found))
    estimate = largest_ratio(seen, found.smallest * gain) if found.smallest > 0 else np.inf
    bound = largest_ratio(squares(found.gradient), system.ridge * gain) if system.ridge else np.inf
    how = f"at most {bound:.0e}" if bound < 1e-6 else f"an estimated {estimate:.0e}"
    what = "objective" if system.ridge else "squared error"
    if not min(bound, estimate) < 1:
        return f"{words} How much of the {what} is left to gain is not known."
    return f"{words} It brings all but {how} of the possible reduction of the {what}."


def _passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"
