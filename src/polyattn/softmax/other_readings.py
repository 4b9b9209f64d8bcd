"""Examples that no layer explains, read otherwise: what a user may have forgotten to say.

Outputs of transformers contain their tokens (a residual connection), layers have biases, and some
are causal.  Each reading of the same examples is tried by a short search, and counts only if that
explains what was held out, by the rule by which all heads are judged: a hint is never a guess.
Searches are made where regressions show that they are worth it:

    mode      the first token of a causal layer attends to itself alone: y_1 is linear in x_1, and
              of others it depends on the mean of all tokens beside it
    residual  a linear map of the query explains a part of what the heads leave, or some head sees
              little but its own token, as sharp attention imitates it
    bias      a constant does (``share_of_constant``)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from time import monotonic

import numpy as np

from polyattn.quoting import counted
from polyattn.softmax.arguments import LEAST_EQUATIONS
from polyattn.softmax.examples import Examples, ExampleUnits, Matrix
from polyattn.softmax.find_heads import fewest
from polyattn.softmax.judging.alternatives import REAL_FALL, share_of_constant
from polyattn.softmax.judging.judge import Judge
from polyattn.softmax.methods import Found, Search
from polyattn.softmax.polish.projection import patterns, seen
from polyattn.softmax.recorder import OutOfTime, Recorder, seconds_left, until

# All searches together take at most so many seconds.
MOST_SECONDS = 10.0

# Heads that are counted at most, where their number was not given.
MOST_HEADS = 4

# A reading explains if it leaves at most this part of the squares that the heads left.
LEFT = 0.25

# A head whose mean token is so near to the token that asks may stand for that token.
NEARLY = 0.3

# Rows that regressions look at.
MOST_ROWS = 20_000

REASONS = {
    "causal": "the examples look causal",
    "full": "the first tokens attend to those behind them",
    "residual": "the outputs contain their tokens",
    "bias": "there is a constant beside the tokens",
}


@dataclass(frozen=True)
class Reading:
    """The same examples with changes: names of ``REASONS``, in their order."""

    changes: tuple[str, ...]
    judge: Judge

    def sentence(self, found: Found, is_last: bool) -> str:
        """What explains the examples, and how to call it."""
        calls = {
            "causal": "mode='causal'", "full": "mode='full'", "bias": "bias=True",
            "residual": f"Y - X{'[:, -1]' * is_last} in place of Y",
        }  # fmt: skip
        why = " and ".join(REASONS[name] for name in self.changes)
        how = " and ".join(calls[name] for name in self.changes)
        return (
            f"{why[0].upper()}{why[1:]}: with {how} a layer of {counted(found.n_heads, 'head')} "
            "explains the held-out examples, up to a relative error of "
            f"{found.fit.validation_error:.1e}."
        )


def hint_of(
    search: Search, found: Found, units: ExampleUnits, mode: str, n_heads: int | None
) -> str:
    """What would explain the examples that ``found`` does not, or not for certain; "" for nothing.

    n_heads : as it was given, or None
    Guarantee: a call as the hint says it finds a layer that passes the held-out check, or the
    outputs are linear in their own tokens.
    Cost: some regressions; where these say so, up to four searches of at most MOST_SECONDS in all.
    """
    end = until(monotonic() + min(MOST_SECONDS, seconds_left()))
    try:
        with end, search.recorder.phase("other readings") as note:
            hint = _by_own_tokens(search.judge, found, mode)
            hint = hint or _by_search(search, found, units, mode, n_heads)
            note.say(hint or "No other reading of the examples explains them.")
    except (KeyboardInterrupt, OutOfTime):
        return ""
    return hint


def _by_own_tokens(judge: Judge, found: Found, mode: str) -> str:
    """The hint that outputs are linear in their own tokens, so that nothing attends."""
    columns = [_queries(part) for part in (judge.training, judge.held_out)]
    targets = [_targets(part) for part in (judge.training, judge.held_out)]
    if len(columns[0]) <= 2 * columns[0].shape[1]:
        return ""
    weights = np.linalg.lstsq(columns[0], targets[0], rcond=None)[0]
    error = _relative(targets[1] - columns[1] @ weights, targets[1])
    if error > max(judge.tolerance, np.sqrt(LEFT) * found.fit.validation_error):
        return ""
    own = "the last token" if mode == "last" else "its own token"
    return (
        f"No attention is needed: a linear map of {own} explains each held-out output up to a "
        f"relative error of {error:.1e}. Subtract it, or look at what Y is."
    )


def _by_search(
    search: Search, found: Found, units: ExampleUnits, mode: str, n_heads: int | None
) -> str:
    """The hint of the first reading that explains and determines heads, else that explains."""
    second = ""
    for reading in _readings(search.judge, found, units, mode):
        other = Search(reading.judge, Recorder(), search.rng, "moments")
        most = _supported(reading.judge.training, n_heads or MOST_HEADS)
        if most < (n_heads or 1):
            continue
        if n_heads is None:
            there = fewest(other, most, other.by_moments, at_once=True)
        else:
            there = other.by_moments(n_heads)
        if not (there.fit.explained and _is_better(search, found, other, there)):
            continue
        if other.determined(there):
            return reading.sentence(there, mode == "last")
        second = second or reading.sentence(there, mode == "last")
    return "" if found.fit.explained else second


def _is_better(search: Search, found: Found, other: Search, there: Found) -> bool:
    """Whether another reading leaves much less; or explains as well with fewer heads."""
    if found.fit.explained:
        return there.n_heads < found.n_heads
    before, after = (
        one.fit.validation_error**2 * at.judge.held_out.power
        for one, at in ((found, search), (there, other))
    )
    return after <= LEFT * before


def _readings(judge: Judge, found: Found, units: ExampleUnits, mode: str) -> Iterator[Reading]:
    """Readings that regressions do not exclude, those with fewer changes first."""
    swapped = _other_mode(judge, found, mode)
    base = judge if swapped is None else _with(judge, *map(_swapped, _parts(judge)))
    training = judge.training
    # Heads of the wrong mode do not show what else is missing.
    added = training.n_outputs == training.width - training.bias and (
        swapped is not None
        or _sees_itself(training, found)
        or _share_of_queries(training, found) > 0.0
    )
    constant = not training.bias and (
        swapped is not None or share_of_constant(training, found.projection) > 0.0
    )
    first = () if swapped is None else (swapped,)
    possible = ("residual",) * added + ("bias",) * constant
    for count in range(len(possible) + 1):
        for more in combinations(possible, count):
            if first or more:
                yield Reading((*first, *more), _changed(base, more, units))


def _changed(judge: Judge, changes: tuple[str, ...], units: ExampleUnits) -> Judge:
    """The examples without their tokens in the outputs, or with a constant beside them."""
    parts = _parts(judge)
    if "residual" in changes:
        n_dims = judge.training.n_outputs
        factors = np.ldexp(1.0, units.of_tokens[:n_dims] - units.of_targets)
        parts = tuple(_without_tokens(part, factors) for part in parts)
    # Rounding is that of the targets as they were given.
    smaller = np.sqrt(judge.training.power / max(parts[0].power, np.finfo(np.float64).tiny))
    if "bias" in changes:
        parts = tuple(part.with_constant() for part in parts)
    return replace(_with(judge, *parts), rounding=judge.rounding * max(1.0, float(smaller)))


def _other_mode(judge: Judge, found: Found, mode: str) -> str | None:
    """The mode that the first tokens show, if it is another one: "causal", "full" or None."""
    groups = [group for group in judge.training.groups if group.keys.shape[1] > 1]
    if mode == "last" or not groups:
        return None
    own = np.concatenate([group.keys[:, 0] for group in groups])
    means = np.concatenate([group.keys.mean(axis=1) for group in groups])
    targets = np.concatenate([group.targets[:, 0] for group in groups])
    alone = np.column_stack([own, np.ones(len(own))])
    both = np.column_stack([alone, means])
    freedom = len(own) - both.shape[1]
    if freedom < both.shape[1]:
        return None
    left = [_left(columns, targets) for columns in (alone, both)]
    if mode == "causal":
        gain = (left[0] - left[1]) / means.shape[1]
        return "full" if gain > REAL_FALL * left[1] / freedom else None
    share = left[0] / (len(own) - alone.shape[1]) * len(own)
    limit = max(judge.tolerance**2, LEFT * found.fit.validation_error**2)
    return "causal" if share <= limit * float(np.vdot(targets, targets)) else None


def _sees_itself(examples: Examples, found: Found) -> bool:
    """Whether some head sees nearly the token that asks, alone or in copies."""
    some = next(examples.blocks(MOST_ROWS))
    size = float(np.linalg.norm(some.queries))
    return any(
        np.linalg.norm(patterns(some, attn) @ some.keys - some.queries) <= NEARLY * size
        for attn in found.projection.attn
    )


def _share_of_queries(examples: Examples, found: Found) -> float:
    """The part of the squares left that a linear map of the query explains; 0 if by chance."""
    few = examples.first(max(1, MOST_ROWS * len(examples) // max(examples.n_rows, 1)))
    mixed = np.concatenate([seen(block, found.projection.attn) for block in few.blocks()])
    queries, targets = _queries(few)[:, : few.width], _targets(few)
    both = np.column_stack([mixed, queries])
    freedom = len(both) - both.shape[1]
    if freedom < both.shape[1]:
        return 0.0
    before, after = (_left(columns, targets) for columns in (mixed, both))
    gain = (before - after) / queries.shape[1]
    return 1.0 - after / before if gain > REAL_FALL * after / freedom else 0.0


def _left(columns: Matrix, targets: Matrix) -> float:
    """The squares that a regression of targets on columns leaves."""
    rest = targets - columns @ np.linalg.lstsq(columns, targets, rcond=None)[0]
    return float(np.vdot(rest, rest))


def _relative(rest: Matrix, targets: Matrix) -> float:
    size = float(np.linalg.norm(targets))
    return float(np.linalg.norm(rest)) / size if size else 0.0


def _queries(examples: Examples) -> Matrix:
    """The tokens at the predicted positions (rows, d), with the constant of ``bias``."""
    return np.concatenate([each.queries.reshape(-1, examples.width) for each in examples.groups])


def _targets(examples: Examples) -> Matrix:
    return np.concatenate([each.targets.reshape(each.n_rows, -1) for each in examples.groups])


def _swapped(examples: Examples) -> Examples:
    """The same examples in the other of the modes full and causal."""
    groups = []
    for group in examples.groups:
        hidden = ~np.tri(group.keys.shape[1], dtype=bool) if group.hidden is None else None
        groups.append(replace(group, hidden=hidden))
    return Examples(tuple(groups))


def _without_tokens(examples: Examples, factors: Matrix) -> Examples:
    """Targets without the tokens, whose coordinates have these sizes beside the targets."""
    groups = []
    for group in examples.groups:
        tokens = group.queries[:, :, : len(factors)] * factors
        groups.append(replace(group, targets=group.targets - tokens))
    return Examples(tuple(groups))


def _parts(judge: Judge) -> tuple[Examples, ...]:
    return judge.training, judge.held_out


def _with(judge: Judge, training: Examples, held_out: Examples) -> Judge:
    return replace(judge, training=training, held_out=held_out)


def _supported(examples: Examples, most: int) -> int:
    """For how many heads, up to ``most``, there are equations enough."""
    n_equations = examples.n_rows * examples.n_outputs
    enough = (m for m in range(1, most + 1) if _needs(examples, m) <= n_equations)
    return max(enough, default=0)


def _needs(examples: Examples, n_heads: int) -> float:
    return LEAST_EQUATIONS * examples.n_unknowns(n_heads)
