"""The iterative solver: conjugate gradients on the normal equations, matrix-free.

For problems where p x p sums do not fit, or cost more than some dozens of passes: a pass takes
4 e p flops per row.  Summaries are made once and kept while they fit into memory.

In whitened coordinates (``whitening.py``) some dozens of passes suffice, but directions in which
there are no data are then left as they come: of several minimisers, that of least theta^T K theta
is found, the norm in the data's own metric.  So

    the data determine all coefficients      whitened; a random step tells that they do
    or a ridge that is not small             whitened
    long passes, features of very            whitened: the smallest norm would take too many passes,
    different size                           and the note says which one was found
    else                                     from zero in the coordinates of the norm, or those of
                                             ``pivoted_rows.py``, where iterates stay in the row
                                             space: the smallest norm.  Where that stalls, whitened,
                                             and the note says so
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polyattn.numerics.parallel import physical_memory
from polyattn.quoting import counted
from polyattn.solve.conjugate_gradients import squares
from polyattn.solve.normal_equations import (
    MAX_PASSES,
    Approach,
    FeatureEquations,
    largest_ratio,
)
from polyattn.solve.solution import Solution, Stall
from polyattn.solve.whitening import LARGE_RIDGE
from polyattn.stats.rows import Rows

# Summaries are kept in up to this part of the memory; 1 GiB where that cannot be asked.
KEPT_PART = 0.25

# With fewer rows than features, a ridge above this part of the largest square is tried whitened
# first where features are as uneven: it has one minimiser, and the gradient tells whether that was
# found.  Of even features the coordinates of the norm take fewer passes; of uneven ones with long
# passes they are not tried at all.
TRIED_RIDGE, UNEVEN = 1e-10, 30.0

# Coefficients that are certain up to this part need no random test; from the other on it is said.
CERTAIN, UNCERTAIN = 1e-7, 1e-6

# What is proved of the excess is said where it is smaller than this part of what was gained.
USEFUL = 1e-3

# An estimate of the excess is so many times what the smallest Ritz value says.
SAFETY = 10.0

# Beside the power of the targets: outputs to nine digits, and of most fits to many more.
AT_ROUNDING = 1e-18

OTHER_NORM = (
    " The data do not determine all coefficients, and {reason}: of all optima, it is the one whose "
    "norm is smallest in the data's own metric, the mean square of the outputs if sums and queries "
    "were independent."
)
SMALL_RIDGE = (
    " The data do not determine all coefficients, and the ridge, which alone decides the others, "
    "is so small that they may be off by {error:.0e} of the norm of all: {reason}."
)
SOONER = (
    " Passes over so many data take long, so it ended where {part:.0e} of the gradient was left: "
    "coefficients are off by {most} {error:.0e} of their norm."
)
LEAST_NORM = " Of all optima it is the one of smallest norm."
ROUNDED = " Rounding leaves its coefficients uncertain{by}; solver='direct' is more exact."
WEAK = (
    " That leaves out {count} in which the data vary by less than 1e-11 of the largest: "
    "solver='direct' may gain more there."
)
CHANCE = " (That is proved but for one chance in a million, which a random test has to be wrong.)"
GRADED = "their features differ too much in size for the smallest norm"


def solve_iterative(rows: Rows, ridge: float, most_passes: int | None = None) -> Solution:
    """The minimiser, all outputs side by side; the note says how closely it was reached."""
    if rows.kept_numbers is None:
        rows = replace(rows, kept_numbers=kept_numbers())
    system = FeatureEquations.of(rows, ridge, MAX_PASSES if most_passes is None else most_passes)
    whitening, found, least, reason = system.whitening, None, None, GRADED
    is_few = rows.n_positive < whitening.n_seen
    is_last = not is_few or ridge >= LARGE_RIDGE * whitening.largest
    is_uneven = whitening.unevenness > UNEVEN
    is_tried = ridge >= TRIED_RIDGE * whitening.largest and is_uneven
    if is_last or is_tried:
        found = system.solved(in_norm=False)
        if (is_last and not found.reached) or _error_bound(system, found) <= CERTAIN:
            return _solution(system, found)
        is_unseen = is_few
        if not is_few:
            probe, penalty = system.probed(), ridge * whitening.least_penalty
            is_unseen = probe.is_unseen
            found = replace(
                found,
                passes=found.passes + probe.passes,
                smallest=min(found.smallest, probe.smallest + penalty),
                least=probe.least + penalty if probe.least > 0 else 0.0,
            )
        if not is_unseen:
            return _determined(system, found)
    if not whitening.is_graded and not (is_uneven and system.is_long):
        least = system.solved(in_norm=True)
        if least.reached:
            return _solution(system, least, "" if ridge or whitening.n_weak else LEAST_NORM)
        reason = f"the smallest norm was out of reach in {counted(least.passes, 'pass')}"
    found = found or system.solved(in_norm=False)
    if least is not None and system.objective(least) < system.objective(found):
        return _solution(system, least)
    error = _error_bound(system, found)
    if error <= CERTAIN or (ridge and system.is_long):
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
        made = _solution(system, found, " A random test found no other optimum.")
        bound = np.inf if made.objective_bound is None else made.objective_bound
        return replace(made, seems_unique=bound <= AT_ROUNDING * system.target_power)
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
    elif system.pivoted is not None:
        condition *= system.pivoted.condition
    bound = _error_bound(system, found)
    error = min(system.error_estimate(found), bound)
    is_uncertain = found.reached and error > UNCERTAIN
    if is_uncertain and system.is_long:
        error, most = (bound, "at most") if bound < np.inf else (error, "about")
        note += SOONER.format(part=system.reduction, most=most, error=error)
    elif is_uncertain:
        note += ROUNDED.format(by=f" by about {error:.0e} of their norm" if error < 1 else "")
    n_weak = system.whitening.n_weak
    if n_weak:
        note += WEAK.format(count=counted(n_weak, "direction"))
    words, excess = _closeness(system, found)
    stall = None if found.reached else Stall(found.passes, _left(system, found))
    return Solution(
        np.ldexp(found.theta, -system.unit),
        None,
        found.residual_power,
        float(np.sqrt(condition)),
        system.ridge,
        words + note,
        is_reached=found.reached and not is_uncertain and not n_weak,
        objective_bound=excess,
        stall=stall,
        uncertain=_left_to_ridge(system, found),
    )


def _error_bound(system: FeatureEquations, found: Approach) -> float:
    """A bound of the error of the coefficients beside their norm: ||g|| / ridge."""
    if system.ridge == 0:
        return np.inf if found.passes else 0.0
    lengths = system.ridge**2 * squares(found.theta)
    return float(np.sqrt(largest_ratio(squares(found.gradient), lengths)))


def _left_to_ridge(system: FeatureEquations, found: Approach) -> float:
    """How far coefficients are off where descents left the ridge alone to decide: ||g|| / ridge.

    Whitening left such directions out.  In the coordinates of the norm they are those whose
    features are too small for a descent to see, beside the largest.
    """
    if system.ridge == 0 or not np.any(found.theta):
        return 0.0
    if not found.in_norm:
        lengths = system.ridge**2 * squares(found.theta)
        left = system.whitening.left_out(found.gradient)
        return float(np.sqrt(largest_ratio(left, lengths)))
    features = system.reduction * np.sqrt(system.whitening.largest)
    length = system.ridge * float(np.linalg.norm(np.ldexp(found.theta, -system.unit)))
    return min(_error_bound(system, found), features * found.residual_power**0.5 / length)


def _closeness(system: FeatureEquations, found: Approach) -> tuple[str, float]:
    """How closely the minimum was reached, in words, and a bound of the excess of the objective.

    Beside the bound stands the fall of the objective from no layer, theta^T (b + g).  Where
    nothing useful is proved, the excess is estimated by the smallest Ritz value.
    """
    passes = counted(found.passes, "pass")
    if found.reached:
        words = f" It took {passes} over the data."
    else:
        words = (
            f" The iteration stopped after {passes} with the gradient reduced to "
            f"{_left(system, found):.1e} of its start: this is an approximation. A larger ridge, "
            "or more data, would speed it up."
        )
    gain = np.einsum("pe,pe->e", found.theta, system.cross + found.gradient)
    excess, left = system.excess(found)
    objective = system.largest_objective(found)
    bound = min(objective, float(np.sum(np.ldexp(excess.least, -2 * system.unit))))
    if not found.passes:
        return words, bound
    total = float(np.sum(np.ldexp(gain, -2 * system.unit)))
    by_size = objective / total if total > 0 else np.inf
    by_gradient = largest_ratio(excess.least, gain)
    estimate = np.inf
    if 0 < found.smallest < np.inf:
        estimate = SAFETY * largest_ratio(left, found.smallest * gain)
    what = "objective" if system.ridge else "squared error"
    how, chance = f"an estimated {estimate:.0e}", ""
    if (proved := min(by_size, by_gradient)) < min(max(USEFUL, estimate), 1.0):
        how = f"at most {_rounded_up(proved)}"
        chance = CHANCE if excess.is_random and by_gradient < by_size else ""
    elif not estimate < 1:
        return f"{words} How much of the {what} is left to gain is not known.", bound
    words += f" It brings all but {how} of the possible reduction of the {what}.{chance}"
    return words, bound


def _left(system: FeatureEquations, found: Approach) -> float:
    """What is left of the whitened gradient beside its start, of the worst output."""
    powers = (system.whitening.power(each) for each in (found.gradient, system.cross))
    return float(np.sqrt(largest_ratio(*powers)))


def _rounded_up(number: float) -> str:
    """A number with one digit that is not smaller."""
    digit, exponent = f"{number:.0e}".split("e")
    if float(f"{digit}e{exponent}") < number:
        return f"{float(f'{int(digit) + 1}e{exponent}'):.0e}"
    return f"{digit}e{exponent}"
