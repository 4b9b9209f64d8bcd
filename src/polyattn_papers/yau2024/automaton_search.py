"""How many traces a learner needs before it is right: a search that tries few numbers."""

from __future__ import annotations

from collections.abc import Callable

# Numbers grow by the first factor, and by the second once most is right.
FAR, NEAR, MOST = 1.5, 1.12, 0.9

#: How good a learner is with so many traces: a share from 0 to 1.
Score = Callable[[int], float]


def fewest(
    score: Score, enough: float, first: int, most: int, resolution: float = 0.0
) -> int | None:
    """The least number n with score(n) >= enough; None if not even ``most`` is.

    Numbers from ``first`` on grow until one is enough; then the gap to the last that was not is
    halved until it is one, or at most ``resolution`` of the number.  ``score`` is asked once for
    each number.

    Guarantee: n is enough, and the number that the gap ended at is not.  It is the least of all if
    a learner that is right stays right with more traces (and resolution = 0).
    """
    below, number = first - 1, first
    while (seen := score(number)) < enough:
        if number == most:
            return None
        below = number
        number = min(most, int(number * (NEAR if seen >= MOST else FAR)) + 1)
    while number - below > max(1.0, resolution * number):
        middle = (below + number) // 2
        below, number = (below, middle) if score(middle) >= enough else (middle, number)
    return number


def first_of(score: Score, enough: float, most: int) -> int | None:
    """The first of 1, 2, ..., ``most`` that is enough: for learners that little is asked of."""
    return next((number for number in range(1, most + 1) if score(number) >= enough), None)
