"""How many independent sequences make Lambda_D at least half of its mean, Lambda.

    K = largest eigenvalue of Lambda^-1/2 E[ (psi^T Lambda^-1 psi) psi psi^T ] Lambda^-1/2

bounds what a few sequences can do to Lambda_D from below, and is made of moments up to the
twelfth (docs/derivations/independent_entries.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from polyattn.certify.independent_entries.blocks import (
    PAIRS,
    Block,
    blocks_of,
    inverse,
    pairs_within_classes,
    similar,
    solved,
    values_of,
)
from polyattn.certify.independent_entries.expectations import ProductExpectations

# The exponent of the matrix Chernoff inequality at one half: (1 + log(1/2)) / 2.
CHERNOFF_HALF = (1.0 - math.log(2.0)) / 2.0

# More than the roots of a cubic polynomial are wrong by.
ROUNDING = 1e-9


def leverage_moment(
    blocks: Sequence[Block],
    n_dims: int,
    moments: Sequence[Fraction],
    n_others: Sequence[Fraction],
) -> float:
    """K from the blocks of Lambda, moments m_0 .. m_12 and the ways to choose 0 .. 4 others.

    Cost: the same for every n_dims of six or more.
    """
    # Exact: of many tokens almost all of a feature G[j, j] x[l] is its mean, and cancels.
    weights = values_of({each.name: inverse(each) for each in blocks}, n_dims)
    names, first, second, many = zip(*pairs_within_classes(n_dims), strict=True)
    shown = 1 + max(map(max, first))
    integers, ways, unit = _as_integers(moments, n_others)
    expected = ProductExpectations(integers, ways, 4)
    codes = expected.codes(np.array(first), shown, 0) + expected.codes(np.array(second), shown, 1)
    scale = np.array([weights[name] * each for name, each in zip(names, many, strict=True)])
    values = {}
    for name, pair in PAIRS.items():
        if max(map(max, pair)) < n_dims:
            named = [expected.codes(np.array([f]), shown, 2 + at) for at, f in enumerate(pair)]
            values[name] = (scale @ expected.of(codes + sum(named))) / unit
    return max(map(_largest_ratio, blocks_of(values, n_dims), blocks)) * (1.0 + ROUNDING)


def n_from_leverage_moment(moment: float, n_features: int, chance: float) -> float:
    """8 K log(p / delta)."""
    return 8.0 * moment * math.log(n_features / chance)


def n_from_bound(largest_leverage: float, n_features: int, chance: float) -> float:
    """L log(p / delta) / 0.153.., L a bound of psi^T Lambda^-1 psi: matrix Chernoff."""
    return largest_leverage * math.log(n_features / chance) / CHERNOFF_HALF


def _as_integers(
    moments: Sequence[Fraction], n_others: Sequence[Fraction]
) -> tuple[list[int], list[int], int]:
    """Both as integers, which multiply faster, and what expectations of degree 12 are times.

    In units in which entries are larger by the root of s, moments of degree k are s^(k/2) times
    larger; odd ones are zero.
    """
    s = math.lcm(*(each.denominator for each in moments))
    ways = math.lcm(*(each.denominator for each in n_others))
    scaled = [int(each * s ** (k // 2)) for k, each in enumerate(moments)]
    return scaled, [int(each * ways) for each in n_others], s**6 * ways


def _largest_ratio(weighted: Block, block: Block) -> float:
    """The largest v^T M v / v^T Lambda v: the largest root of det(Lambda^-1 M - x)."""
    ratio = solved(similar(block), similar(weighted))
    # Coefficients from traces of powers (Newton's identities), exactly, then rounded once each.
    size, power, traces = len(ratio), ratio, []
    for _ in range(size):
        traces.append(sum(power[i][i] for i in range(size)))
        power = _product(power, ratio)
    coefficients: list[Any] = [Fraction(1)]
    for k in range(1, size + 1):
        terms = (coefficients[k - i] * traces[i - 1] for i in range(1, k + 1))
        coefficients.append(-sum(terms) / k)
    return float(np.max(np.roots([float(each) for each in coefficients]).real))


def _product(first: list[list[Any]], second: list[list[Any]]) -> list[list[Any]]:
    columns = list(zip(*second, strict=True))
    return [[sum(a * b for a, b in zip(row, c, strict=True)) for c in columns] for row in first]
