"""What must hold, in either profile."""

from __future__ import annotations

from itertools import pairwise

from scipy.stats import t as student

from polyattn_papers.letey2025.task_diversity.cells import KAPPA, TAU
from polyattn_papers.letey2025.task_diversity.findings import (
    curves,
    excess,
    extrapolated,
    points,
)
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import mean, where

# What is less likely than this by chance alone is held against a theory.
CHANCE = 1e-4


def gates(rows: list[Row]) -> list[Gate]:
    """Exact errors, both theories, the curve over tasks, the peak, and alignment."""
    fresh = [
        _chance(row["fresh_error"] - row["error"], row["fresh_deviation"], row["n_fresh"])
        for row in rows
    ]
    finite = [_chance(*excess(group), len(group)) for _, group in points(rows)]
    pooled = [
        _chance(*excess(group), len(group))
        for d in {row["n_dims"] for row in rows}
        if (group := where(rows, n_dims=d, test="aligned"))
    ]
    infinite = []
    for group in curves(rows):
        found = extrapolated(group)
        if found is not None:
            fewest = min(len(where(group, n_dims=d)) for d in {row["n_dims"] for row in group})
            infinite.append(_chance(found[0] - found[2], found[1], fewest))
    last = where(rows, n_dims=max((row["n_dims"] for row in rows), default=0))
    return [
        _likely("errors on fresh prompts = exact formula", fresh),
        _likely("mean errors = theory for finite d", finite),
        _likely("errors over all points of one d = theory for finite d", pooled),
        _likely("errors extrapolated in 1/d = the paper's limit", infinite),
        _diversity(last),
        _peak(last),
        _alignment(last),
    ]


def _chance(difference: float, error: float, count: int) -> float:
    """How likely a mean of so many is at least so far from zero by chance (Student)."""
    return float(2 * student.sf(abs(difference) / max(error, 1e-300), count - 1))


def _likely(claim: str, chances: list[float]) -> Gate:
    least = min(chances, default=0.0)
    seen = f"the least likely of {len(chances)} has chance {least:.1g}"
    return Gate(f"{claim}, within errors", least >= CHANCE, seen)


def _diversity(rows: list[Row]) -> Gate:
    some = where(rows, tau=TAU, test="aligned")
    kappas = sorted({row["kappa"] for row in some})
    found = [mean(where(some, kappa=kappa), "error") for kappa in kappas]
    falls = len(found) > 1 and all(one > other for one, other in pairwise(found))
    return Gate(f"at τ = {TAU:g} more tasks lower the error", falls, _listed(found))


def _peak(rows: list[Row]) -> Gate:
    some = where(rows, kappa=KAPPA, test="aligned")
    taus = sorted({row["tau"] for row in some})
    found = [mean(where(some, tau=tau), "error") for tau in taus]
    # The peak itself is at tau = 1, where no limit exists; both sides fall away from it.
    below = [error for tau, error in zip(taus, found, strict=True) if tau < 1]
    above = [error for tau, error in zip(taus, found, strict=True) if tau > 1]
    rises = len(below) > 1 and below == sorted(below)
    falls = len(above) > 1 and above == sorted(above, reverse=True)
    return Gate("errors rise towards τ = 1 and fall beyond it", rises and falls, _listed(found))


def _alignment(rows: list[Row]) -> Gate:
    some = where(rows, tau=TAU)
    names = ("aligned", "isotropic", "reversed")
    found = [mean(group, "error") for name in names if (group := where(some, test=name))]
    ordered = len(found) == len(names) and found == sorted(found)
    return Gate("the better aligned the test tasks, the lower the error", ordered, _listed(found))


def _listed(numbers: list[float]) -> str:
    return ", ".join(f"{number:.3f}" for number in numbers) or "nothing"
