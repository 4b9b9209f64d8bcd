"""What came out, in sentences: the bound, its argument, the reduction, attacks, what is ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, log2

import numpy as np

from polyattn_papers.chen2024.lower_bounds.cells import (
    ARGUMENT,
    ATTACK,
    BOUND,
    NOISE,
    REDUCTION,
    TOLERANCE,
)
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import mean, median, where

# What attacks are called in sentences.
ATTACKS = {
    "all_sets": "trying all sets",
    "transform": "the Walsh-Hadamard transform",
    "halves": "meeting in the middle",
    "elimination": "Gaussian elimination",
}

# Smaller sizes are not yet on the way to d^s.
LEAST_DIMS = 64

OURS = (
    "Ours, since the paper's constructions were not available to us: the family, the proofs "
    "(docs/derivations/softmax_parity.md) and the reduction. The bound on queries is a theorem. It "
    "does not bind whoever looks at single examples: without noise, elimination learns all these "
    "layers. With noise there is no proof, only the assumption that parity with noise is hard, and "
    "the growth of the attacks that we have."
)


@dataclass(frozen=True)
class Growth:
    """Work of an attack over the number of heads, at one d: least squares in logarithms.

    bits : work ~ 2^(bits s)
    power : work ~ C(d - 1, s)^power
    of_halves : work ~ C(d - 1, (s + 1) / 2)^of_halves, for meeting in the middle as ``expected``
    """

    method: str
    n_dims: int
    noise: float
    n_heads: tuple[int, ...]
    bits: float
    power: float
    of_halves: float

    @property
    def expected(self) -> float:
        """1 + log2 1/(1 - noise): the halves, times the rounds until one is without noise."""
        return 1.0 - log2(1.0 - self.noise)


def findings(rows: list[Row]) -> list[str]:
    """The bound, soft layers, the argument, the reduction, attacks, and whose they are."""
    return [
        _bound(rows),
        _soft(rows),
        _argument(where(rows, part=ARGUMENT)),
        _reduction(where(rows, part=REDUCTION)),
        *_attacks(rows),
        OURS,
    ]


def growths(rows: list[Row]) -> list[Growth]:
    """Of every attack, at every d and noise with three numbers of heads or more."""
    attacks = where(rows, part=ATTACK)
    keys = sorted({(row["method"], row["n_dims"], row["noise"]) for row in attacks})
    found = []
    for method, n_dims, noise in keys:
        own = where(attacks, method=method, n_dims=n_dims, noise=noise)
        heads = sorted({row["n_heads"] for row in own})
        if len(heads) < 3:
            continue
        work = [mean_work(where(own, n_heads=s)) for s in heads]
        members, halves = (
            [log2(comb(n_dims - 1, size)) for size in sizes]
            for sizes in (heads, [(s + 1) // 2 for s in heads])
        )
        slopes = (_slope(each, work) for each in (heads, members, halves))
        found.append(Growth(method, n_dims, noise, tuple(heads), *slopes))
    return found


def mean_work(rows: list[Row]) -> float:
    """log2 of the mean: rounds until one is without noise are random, their mean is the cost."""
    return log2(mean(rows, "work"))


def exponent(rows: list[Row], n_heads: int, queries: str) -> float:
    """The power of d by which the bound on queries grows for sharp layers, from LEAST_DIMS on."""
    own = [
        row
        for row in where(rows, part=BOUND, beta=None, n_heads=n_heads, method=queries)
        if row["n_dims"] >= LEAST_DIMS
    ]
    if len(own) < 2:
        return float("nan")
    return _slope([log2(row["n_dims"]) for row in own], [log2(row["n_queries"]) for row in own])


def _bound(rows: list[Row]) -> str:
    sharp = where(rows, part=BOUND, beta=None, method="row_sign")
    d = 64
    needed = ", ".join(
        f"{row['n_queries']:,} for s = {row['n_heads']}" for row in where(sharp, n_dims=d)
    )
    several = [s for s in sorted({row["n_heads"] for row in sharp}) if s > 1]
    powers = ", ".join(f"d^{exponent(rows, s, 'row_sign'):.1f} for s = {s}" for s in several)
    small = min(row["n_dims"] for row in sharp)
    least = max(row["n_queries"] for row in where(sharp, n_dims=small))
    return (
        f"Statistical queries: whoever learns each parity of s of {d - 1} bits with probability "
        f"1/2, from averages of functions of X and the sign of an output that are right to "
        f"{TOLERANCE:g}, needs at least {needed}. Over d this grows like {powers}. Small sizes are "
        f"not bound: at d = {small} it is at most {least:,}."
    )


def _soft(rows: list[Row]) -> str:
    soft = [row for row in where(rows, part=BOUND, n_dims=64, n_heads=5) if row["beta"] is not None]
    parts = ", ".join(f"{row['n_queries']:,} at beta = {row['beta']:g}" for row in soft)
    return (
        "Soft layers show their hidden coordinates in low degrees as well. From averages of g(X) y "
        f"with the exact output y, the bound for s = 5, d = 64 is {parts}: the softer the layer, "
        "the less it says."
    )


def _argument(rows: list[Row]) -> str:
    checked = [row for row in rows if row["n_excluded"] is not None]
    attained = sum(row["n_excluded"] == row["most_excluded"] for row in checked)
    learners = where(rows, method="learner")
    exact = sum(row["n_learned"] == row["n_learned_most"] for row in learners)
    return (
        f"The argument on all sequences of small families: in {len(checked)} cases no query "
        f"excludes more members than the bound allows, and in {attained} one excludes as many. "
        f"Of {len(learners)} learners that ask for correlations of an oracle which hides what it "
        f"may, none learns more members than the bound allows, and {exact} learn as many."
    )


def _reduction(rows: list[Row]) -> str:
    right = sum(row["found"] for row in rows)
    return (
        f"Learning parity with noise ({NOISE:.0%} of the labels flipped): {right} of {len(rows)} "
        "secrets are read out of a layer that was learned from examples made of the samples."
    )


def _attacks(rows: list[Row]) -> list[str]:
    attacks = where(rows, part=ATTACK)
    found = growths(rows)
    fits = "; ".join(
        f"{ATTACKS[each.method]}, d = {each.n_dims}, {each.noise:.0%} noise, s = "
        f"{each.n_heads[0]} to {each.n_heads[-1]}: 2^({each.bits:.2f} s)"
        + (
            f", C(d-1, (s+1)/2)^{each.of_halves:.2f} where {each.expected:.2f} is expected"
            if each.method == "halves"
            else f", C(d-1, s)^{each.power:.2f}"
        )
        for each in found
        if each.method in ("all_sets", "halves")
    )
    work = (
        f"Work of attacks on noisy parity, fitted over the number of heads: {fits}. Over d, at "
        f"{NOISE:.0%} noise, meeting in the middle grows like {_over_dims(attacks)}."
    )
    last = max((row for row in attacks if row["noise"]), key=lambda row: row["n_members"])
    hardest = where(attacks, method="halves", n_dims=last["n_dims"], n_heads=last["n_heads"])
    clean = where(attacks, method="elimination", n_dims=last["n_dims"])
    first = min(row["n_heads"] for row in clean)
    largest = (
        f"The largest family of these, {last['n_members']:,} sets (s = {last['n_heads']}, d = "
        f"{last['n_dims']}), takes {median(hardest, 'seconds'):.2g} s in the middle and "
        f"{last['n_samples']} samples: time grows, samples hardly do. Without noise Gaussian "
        f"elimination forms {median(where(clean, n_heads=first), 'work'):.0f} rows for s = {first} "
        f"and {median(where(clean, n_heads=last['n_heads']), 'work'):.0f} for s = "
        f"{last['n_heads']}."
    )
    return [work, largest]


def _over_dims(attacks: list[Row]) -> str:
    """Powers of d by which meeting in the middle grows, for each s that several d have."""
    own = where(attacks, method="halves", noise=NOISE)
    powers = []
    for s in sorted({row["n_heads"] for row in own}):
        sizes = sorted({row["n_dims"] for row in where(own, n_heads=s)})
        if len(sizes) > 1:
            work = [mean_work(where(own, n_heads=s, n_dims=d)) for d in sizes]
            powers.append(f"d^{_slope([log2(d) for d in sizes], work):.1f} for s = {s}")
    return ", ".join(powers)


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    return float(np.polyfit(x, y, 1)[0])
