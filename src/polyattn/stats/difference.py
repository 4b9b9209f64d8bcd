"""difference: moments without some of their chunks, where enough digits are left.

A difference is known as well as the larger sums were: its rounding is relative to what was there
before.  So the squares that were added and taken out again are kept (``subtracted``), and
certificates and solvers measure rounding by them.  Derivation: docs/derivations/rounding.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.stats.stored import ADDED

if TYPE_CHECKING:
    from polyattn.stats.moments import Moments

# A sum of squares that falls below this share of what it was has lost half of its digits.
LEAST_SHARE = 2.0**-26


def difference(whole: Moments, part: Moments) -> Moments:
    """The moments of the chunks of ``whole`` that are not in ``part``; neither changes."""
    whole._require_same_kind(part)
    if whole.down_weighted or part.down_weighted:
        raise InvalidInput(
            "moments whose older data were multiplied by forget have no parts that can be taken "
            "out: nobody knows by which factors. Make them again from the data."
        )
    contents = whole.contents.difference(part.contents)
    counts = {key: getattr(whole, key) - getattr(part, key) for key in ADDED}
    inside = all(np.all(a <= b) for a, b in zip(part._sizes, whole._sizes, strict=True))
    if min(counts.values()) < 0 or not inside or (counts["n_rows"] > 0 and not contents):
        raise InvalidInput(
            "the moments contradict themselves: what is to be taken out is more than there is. "
            "Make them again from the data."
        )
    if counts["n_rows"] == 0:
        nothing = whole.empty()
        nothing.contents = contents
        return nothing
    left, taken = whole.copy(), part.copy()
    taken._take_units(*whole._sizes)
    before = left._known_powers()
    left._subtract(taken)
    left.subtracted = before - left._powers() + taken._known_powers()
    left._magnitudes.absorb(taken._magnitudes)
    left.subtracted_weight += part.subtracted_weight + 2.0 * part.total_weight
    left.more_roundings = max(whole.more_roundings, part.more_roundings) + part.n_rows + 1
    spread, other = left.target_spread, taken.target_spread
    if spread is not None:
        weight_left = counts["total_weight"]
        left.target_spread = None if other is None else spread.without(other, weight_left)
    for key, count in counts.items():
        setattr(left, key, count)
    left.contents = contents
    weight = (left.total_weight, whole.total_weight + whole.subtracted_weight)
    _require_digits(left, before, weight)
    return left


def _require_digits(
    left: Moments, before: NDArray[np.float64], weight: tuple[float, float]
) -> None:
    """Refuse what lost more than half of its digits: features, targets, and the total weight."""
    now, before = np.append(left._powers(), weight[0]), np.append(before, weight[1])
    lost = now < LEAST_SHARE * before
    if not lost.any():
        return
    n_features, at = left.n_features, int(np.argmax(lost))
    what = "the total weight"
    if at < n_features:
        what = f"the sum of squares of feature {at}"
    elif at < n_features + left.n_outputs:
        what = f"the sum of squares of output {at - n_features}"
    share = max(now[at], 0.0) / before[at]
    raise InvalidInput(
        f"of {what} a share of {share:.1e} would be left, and with it less than half of its "
        "digits. Make the moments again from the data that remain."
    )
