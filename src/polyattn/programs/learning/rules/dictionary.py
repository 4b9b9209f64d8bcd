"""The rules that could have written what was seen, as columns of a least-squares problem.

For one kind that is written:  y[row, a] = sum over rules of weight * column[row, a],  where

    column[row, a] = sum of G[j, k] x[l] over the products of the row that the rule sends to a.

Problems of different kinds share no unknown, so each is solved alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.learning.rules.candidates import Products, all_products, bodies, heads
from polyattn.programs.learning.rules.facts import Facts
from polyattn.programs.learning.rules.rule import Rule


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Candidate rules for one kind, the plainest first.

    rules : n candidate rules
    columns : sparse array (n_rows * D, n)
    wanted : array (n_rows * D,)
    n_places : D
    n_rules : how many different columns there were before the weakest were dropped
    """

    rules: tuple[Rule, ...]
    columns: sparse.csc_array
    wanted: NDArray[np.float64]
    n_places: int
    n_rules: int


def dictionaries(
    facts: Facts, *, max_offset: int = 3, max_candidates: int = 800
) -> dict[int, Dictionary]:
    """One dictionary for each kind that is written somewhere.

    A rule is a candidate if its column has something in common with what was written; of rules
    with proportional columns the plainest is kept; of too many those with the largest
    correlation.

    Cost: O(sum over rules of the products they admit): a few seconds for a thousand rows.
    """
    written = [kind for kind, wanted in facts.targets.items() if wanted.any()]
    found: dict[int, dict[bytes, _Candidate]] = {kind: {} for kind in written}
    for products in all_products(facts):
        for body, chosen in bodies(products, max_offset):
            for kind in written:
                for rule, used, place in heads(body, products, chosen, kind, max_offset):
                    candidate = _candidate(rule, products, used, place)
                    if candidate is None:
                        continue
                    rival = found[kind].get(candidate.key)
                    if rival is None or candidate.rule.cost < rival.rule.cost:
                        found[kind][candidate.key] = candidate
    return {
        kind: _dictionary(list(each.values()), facts.targets[kind], max_candidates)
        for kind, each in found.items()
    }


@dataclass(frozen=True, eq=False)
class _Candidate:
    rule: Rule
    at: NDArray[np.int64]
    values: NDArray[np.float64]
    score: float
    key: bytes


def _candidate(
    rule: Rule, products: Products, used: NDArray[np.int64], place: NDArray[np.int64]
) -> _Candidate | None:
    targets, values = products.facts.targets[rule.kind], products.values[used]
    wanted = targets.ravel()
    at = products.rows[used] * targets.shape[1] + place
    if not len(at) or not values @ wanted[at]:
        return None
    column: NDArray = np.bincount(at, weights=values)
    at = np.flatnonzero(column)
    if not len(at):  # what was added was taken away again
        return None
    values = column[at]
    score = (values @ wanted[at]) ** 2 / (values @ values)
    key = at.astype(np.int32).tobytes() + (values / values[0]).astype(np.float32).tobytes()
    return _Candidate(rule, at, values, float(score), key)


def _dictionary(
    candidates: list[_Candidate], targets: NDArray[np.float64], most: int
) -> Dictionary:
    kept = sorted(candidates, key=lambda each: -each.score)[:most]
    kept.sort(key=lambda each: each.rule.cost)
    values = np.concatenate([np.zeros(0), *(each.values for each in kept)])
    places = np.concatenate([np.zeros(0, dtype=np.int64), *(each.at for each in kept)])
    ends = np.cumsum([0, *(len(each.at) for each in kept)])
    columns = sparse.csc_array((values, places, ends), shape=(targets.size, len(kept)))
    rules = tuple(each.rule for each in kept)
    return Dictionary(rules, columns, targets.ravel(), targets.shape[1], len(candidates))
