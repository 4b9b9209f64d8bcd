"""How many heads: the fewest that explain what was held out.

Without noise any number that is enough shows the true one: what is exact and has no two equal
heads and no idle one has the heads of the layer.  With noise every number from the true one on
explains the held-out examples; it is the first for which another head gains nothing.  The same
question is asked where the number was given: a residual that another head explains is no noise,
and a head without which as much is explained is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from polyattn.softmax.judging.alternatives import smaller_heads
from polyattn.softmax.judging.residuals import gain_score, residuals
from polyattn.softmax.methods import Found, Search
from polyattn.softmax.polish import polish

# A gain on held-out examples is real when it is this many standard errors.
REAL_GAIN = 3.0

# Or when there is any, and training residuals fall by this much more than by unknowns that fit
# noise: least squares would give 1, a search among heads gives up to 3.5 on pure noise.
REAL_FALL = 5.0

# Heads whose expected relative errors are all below this are needed: what a search fits to noise
# explains a few times more than noise, and is uncertain by a third at least.
SURELY_NEEDED = 0.05

# Heads that may be added without a real gain before counting ends.
PATIENCE = 2

# Effort of growth: while counting, and when the number is known.
COUNTING_EFFORT, FULL_EFFORT = 1, 3


def find_heads(search: Search, n_heads: int | None, n_supported: int, most_heads: int) -> Found:
    """Heads for a given number of them, or for the number that the data show.

    ``n_supported`` is the number of heads for which there are examples enough.
    """
    if n_heads is None:
        return _counted(search, n_supported, most_heads)
    found = with_heads(search, n_heads, FULL_EFFORT)
    if not found.fit.noisy:
        return found
    found = _contested(search, found, n_supported)
    if _as_good_with_fewer(search, found) is not None:
        found = replace(found, fit=replace(found.fit, all_needed=False))
    return found


def with_heads(search: Search, n_heads: int, effort: int) -> Found:
    """The best of the methods for a given number of heads; the first that explains ends it."""
    if search.method == "sculpt":
        return search.by_sculpting(n_heads)
    tried = [search.by_moments(n_heads)]
    if not tried[-1].fit.explained and search.polished:
        tried.append(search.by_growth(n_heads, effort))
    if not tried[-1].fit.explained and search.method == "auto" and effort == FULL_EFFORT:
        tried.append(search.by_sculpting(n_heads))
    return min(tried, key=lambda found: (not found.fit.explained, found.fit.validation_error))


def _counted(search: Search, n_supported: int, most_heads: int) -> Found:
    """The number that the quickest method shows; where it shows none, every method for each."""
    most_heads = min(n_supported, most_heads)
    quickest = search.by_sculpting if search.method == "sculpt" else search.by_moments
    found = fewest(search, most_heads, quickest, at_once=True)
    if not (found.fit.explained and search.determined(found)):
        found = fewest(search, most_heads, partial(with_heads, search, effort=COUNTING_EFFORT))
    elif found.fit.kind != "exact":
        # Fewer heads, if they explain as much: one start may have missed them.
        while found.n_heads > 1:
            fewer = with_heads(search, found.n_heads - 1, COUNTING_EFFORT)
            if not fewer.fit.explained or _gains(search, fewer, found):
                break
            found = fewer
    while found.fit.noisy and found.n_heads < most_heads:
        rival = search.with_one_more(found)
        if not _gains(search, found, rival):
            return _thinned(search, found)
        found = search.settled(rival.projection, rival.method)
    return _thinned(search, _contested(search, found, n_supported)) if found.fit.noisy else found


def fewest(
    search: Search, most_heads: int, find: Callable[[int], Found], at_once: bool = False
) -> Found:
    """One head more as long as that gains something and nothing explains what was held out.

    ``at_once``: heads that explain it end the count, gain or not.
    """
    best, idle = find(1), 0
    for number in range(2, most_heads + 1):
        if best.fit.explained or idle >= PATIENCE:
            break
        found = find(number)
        if (at_once and found.fit.explained) or _gains(search, best, found):
            best, idle = found, 0
        else:
            idle += 1
    return best


def _contested(search: Search, found: Found, n_supported: int) -> Found:
    """Heads whose residuals look like noise, unless one head more explains a part of them."""
    if found.n_heads + 1 > n_supported:
        refused = "few_examples" if found.fit.kind == "noise" else None
    else:
        gains = _gains(search, found, search.with_one_more(found))
        refused = "more_heads" if gains else None
    return replace(found, fit=replace(found.fit, kind="", failed=(refused,))) if refused else found


def _thinned(search: Search, found: Found) -> Found:
    """Fewer heads where these explain as much; the number was not given."""
    while (fewer := _as_good_with_fewer(search, found)) is not None:
        if not fewer.fit.explained:
            return replace(found, fit=replace(found.fit, all_needed=False))
        found = fewer
    return found


def _as_good_with_fewer(search: Search, found: Found) -> Found | None:
    """One head fewer that explains as much as noisy heads that were found; None if all gain."""
    if not found.fit.noisy or found.n_heads == 1:
        return None
    if search.judge.error_bars(found.projection, found.fit).worst <= SURELY_NEEDED:
        return None
    for attn, _ in smaller_heads(found.projection):
        rest = polish(search.training, attn, on_step=search.recorder)
        fewer = search.judged(rest, found.method)
        if not _gains(search, fewer, found):
            return fewer
    return None


def _gains(search: Search, before: Found, after: Found) -> bool:
    """Whether more heads do better on what was held out, beyond chance."""
    if after.fit.kind == "exact":
        return True
    training, held_out = search.judge.training, search.judge.held_out
    score = gain_score(
        residuals(held_out, before.projection), residuals(held_out, after.projection)
    )
    if not 0 < score <= REAL_GAIN:
        return score > REAL_GAIN
    # The F statistic of the fall in training residuals.
    unknowns = training.n_unknowns(after.n_heads)
    freedom = max(training.n_rows * training.n_outputs - unknowns, 1)
    more = max(unknowns - training.n_unknowns(before.n_heads), 1)
    left = max(after.projection.error**2, np.finfo(np.float64).tiny)
    return bool((before.projection.error**2 - left) / more / (left / freedom) > REAL_FALL)
