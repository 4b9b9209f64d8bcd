"""What came out, in sentences: curves, alignment, theory for finite and for infinite d."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polyattn_papers.letey2025.task_diversity.cells import KAPPA, RHO, TAU
from polyattn_papers.reproduction.experiment import Row
from polyattn_papers.reproduction.rows import mean, where

# What tells two points of the curves apart.
POINT = ("tau", "kappa", "test")


def findings(rows: list[Row]) -> list[str]:
    """The setting, both curves at the largest d, alignment, and distances to both theories."""
    largest = max(row["n_dims"] for row in rows)
    last = where(rows, n_dims=largest)
    setting = (
        f"Inputs N(0, I/d), labels with noise of variance {RHO:g}, l = {rows[0]['alpha']:g} d "
        "examples in a prompt; training tasks have eigenvalues that rise evenly from 0 to 2. The "
        "layer is a pa.Form with the input as query, the label as value, the mean taken and the "
        "question left out, which has d(d + 1) coefficients; pa.fit finds its optimum."
    )
    return [
        setting,
        f"Diversity, at d = {largest} and τ = {TAU:g}: {_curve(last, 'kappa', tau=TAU)}.",
        f"Prompts, at d = {largest} and κ = {KAPPA:g}: {_curve(last, 'tau', kappa=KAPPA)}.",
        _alignment(last),
        _finite(rows),
        _infinite(rows),
    ]


def points(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """The rows of all seeds of each point and test, with a name for them."""
    seen = dict.fromkeys(tuple(row[name] for name in (*POINT, "n_dims")) for row in rows)
    for tau, kappa, test, d in seen:
        group = where(rows, tau=tau, kappa=kappa, test=test, n_dims=d)
        yield f"τ = {tau:g}, κ = {kappa:g}, {test}, d = {d}", group


def curves(rows: list[Row]) -> list[list[Row]]:
    """The rows of each point and test, of all d and seeds."""
    names = dict.fromkeys(tuple(row[name] for name in POINT) for row in rows)
    return [where(rows, **dict(zip(POINT, each, strict=True))) for each in names]


def average(rows: list[Row], column: str) -> tuple[float, float]:
    """The mean of a column over seeds, and its standard error."""
    values = [row[column] for row in rows]
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def excess(rows: list[Row]) -> tuple[float, float]:
    """The mean of error / theory for finite d - 1 over fits, and its standard error."""
    return average([{"excess": row["error"] / row["expected"] - 1} for row in rows], "excess")


def extrapolated(rows: list[Row]) -> tuple[float, float, float] | None:
    """2 e(d) - e(d/2) for the two largest d of a point, its standard error, and the limit.

    It is free of errors of order 1/d; None where there is one d alone.
    """
    sizes = sorted({row["n_dims"] for row in rows})
    if len(sizes) < 2 or sizes[-1] != 2 * sizes[-2]:
        return None
    half, whole = (where(rows, n_dims=d) for d in sizes[-2:])
    (small, small_error), (large, large_error) = (average(one, "error") for one in (half, whole))
    # The limit of the spectrum is reached at some d as well, like 1/d.
    limit = 2 * whole[0]["limit"] - half[0]["limit"]
    return 2 * large - small, float(np.hypot(2 * large_error, small_error)), limit


def _curve(rows: list[Row], over: str, **at: float) -> str:
    some = where(rows, test="aligned", **at)
    places = sorted({row[over] for row in some})
    letter = {"kappa": "κ", "tau": "τ"}[over]
    words = []
    for place in places:
        group = where(some, **{over: place})
        found, error = average(group, "error")
        words.append(
            f"{letter} = {place:g}: {found:.4f} ± {error:.4f} (theory for this d "
            f"{mean(group, 'expected'):.4f}, for infinite d {mean(group, 'limit'):.4f})"
        )
    return "error on new tasks of the training covariance at " + "; ".join(words)


def _alignment(rows: list[Row]) -> str:
    some = where(rows, tau=TAU)
    kappa = max(row["kappa"] for row in some)
    errors = {name: mean(where(some, kappa=kappa, test=name), "error") for name in tests(some)}
    words = ", ".join(f"{name} {error:.4f}" for name, error in errors.items())
    return (
        f"Alignment, at τ = {TAU:g} and κ = {kappa:g}: the error is {words}, though all test tasks "
        "are of the same mean size."
    )


def tests(rows: list[Row]) -> list[str]:
    """The kinds of test tasks."""
    return list(dict.fromkeys(row["test"] for row in rows))


def _finite(rows: list[Row]) -> str:
    agree, worst = _agreement([excess(group) for _, group in points(rows)])
    sizes = sorted({row["n_dims"] for row in rows})
    pooled = (excess(where(rows, n_dims=d, test="aligned")) for d in sizes)
    over_all = ", ".join(
        f"{found:+.2%} ± {error:.2%} at d = {d}"
        for d, (found, error) in zip(sizes, pooled, strict=True)
    )
    formula = max(abs(row["paper_error"] / row["error"] - 1) * row["n_dims"] for row in rows)
    fresh = [(row["fresh_error"] - row["error"], row["fresh_deviation"]) for row in rows]
    return (
        f"Theory for finite d and the tasks that were drawn: {agree:.0%} of the points agree "
        f"within 2 standard errors over seeds, the worst within {worst:.1f}; over all fits errors "
        f"are {over_all} from it. The paper's e(Γ) leaves out terms of order 1/d and is off by at "
        f"most {formula:.2g}/d of the error; with the formula that has them errors on fresh "
        f"prompts agree within 2 standard errors in {_agreement(fresh)[0]:.0%} of the fits."
    )


def _infinite(rows: list[Row]) -> str:
    largest = max(row["n_dims"] for row in rows)
    groups = [group for _, group in points(where(rows, n_dims=largest))]
    limits = [group[0]["limit"] for group in groups]
    means = [average(group, "error") for group in groups]
    away = [(found - limit, error) for limit, (found, error) in zip(limits, means, strict=True)]
    gaps = [gap / limit for limit, (gap, _) in zip(limits, away, strict=True)]
    found = (extrapolated(group) for group in curves(rows))
    beyond = [(each[0] - each[2], each[1]) for each in found if each is not None]
    agree, worst = _agreement(beyond)
    return (
        f"The limit of the paper for d → ∞: at d = {largest} errors are {min(gaps):+.1%} to "
        f"{max(gaps):+.1%} away from it, {1 - _agreement(away)[0]:.0%} of them by more than 2 "
        "standard errors. Extrapolated from the two largest d, where errors of order 1/d cancel, "
        f"{agree:.0%} of the points agree with the limit within 2 standard errors, the worst "
        f"within {worst:.1f}."
    )


def _agreement(away: list[tuple[float, float]]) -> tuple[float, float]:
    """The share of differences within 2 of their standard errors, and the most of these."""
    scores = np.array([abs(difference) / error for difference, error in away])
    return float(np.mean(scores < 2)), float(np.max(scores, initial=0.0))
