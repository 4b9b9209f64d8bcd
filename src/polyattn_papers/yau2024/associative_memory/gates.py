"""What must hold, in either profile."""

from __future__ import annotations

import numpy as np

from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import median, rms, where
from polyattn_papers.yau2024.associative_memory.cells import EXACT, N_KEYS, NOISY, PRINTED
from polyattn_papers.yau2024.associative_memory.findings import (
    FIRST,
    by_share,
    correlation,
    determined,
    families,
    in_paper_range,
    of_size,
    verdicts,
)
from polyattn_papers.yau2024.associative_memory.without_own_token import best_layer

# The paper's smallest eigenvalue at 95 %, and how far ours may be from it.
PAPER, TOLERANCE = 0.06, 0.1

# Of 288 features, orthogonal keys and values show so many.
UNITARY_RANK = 248

# How often chance alone may make eigenvalue and distance as correlated as that.
CHANCE = 0.01

# Standard deviations by which a mean may be off.
ALLOWED = 4.0

# A bound may be missed by rounding: relatively, and where distance and risk are rounding alone.
ROUNDING, TINY = 1e-6, 1e-9

# The largest distance on the axis of the paper's panel (a).
PAPER_DISTANCE = 4.0


def gates(rows: list[Row]) -> list[Gate]:
    """The paper's eigenvalue, the verdicts, and distances that fall as it grows."""
    closed, trained = where(rows, learner="closed form"), where(rows, learner="Adam")
    exact, noisy = where(closed, target=EXACT), determined(where(closed, target=NOISY))
    first = [row["lambda_min"] for row in of_size(exact) if row["unitary"] == FIRST]
    off = abs(np.mean(first) / PAPER - 1)
    worst = max(row["distance"] for row in exact)
    size = [rms(group, "distance") for _, group in by_share(noisy)]
    deviation = max(_deviation(group) for _, group in by_share(noisy))
    ratio = max(row["distance"] / bound(row) for row in determined(rows) if row["risk"] > TINY**2)
    found = [
        Gate(f"λ_min at 95 % is the paper's {PAPER} within {TOLERANCE:.0%}",
             bool(off <= TOLERANCE), f"{np.mean(first):.4f}, off by {off:.1%}"),
        Gate(f"identifiable below 100 %; at 100 % not, with rank {UNITARY_RANK} of 288",
             all(map(_rightly, rows)), verdicts(rows)),
        Gate("the closed form on exact targets is the true layer",
             worst <= TINY, f"distance at most {worst:.1g}"),
        Gate("closed form, noisy targets: the distance falls at every step to a larger λ_min",
             bool(np.all(np.diff(size) > 0)), ", ".join(f"{one:.3g}" for one in size)),
        Gate(f"and is what least squares expects, within {ALLOWED:g} standard errors",
             deviation <= ALLOWED, f"at most {deviation:.2g}"),
        Gate("no learner is farther from the truth than √(risk/λ_min)",
             ratio <= 1 + ROUNDING, f"at most {ratio:.2f} of it"),
        *_printed_gates(where(closed, target=PRINTED)),
    ]  # fmt: skip
    for name, group in families(trained):
        if group[0]["n_heads"] > 1:
            value, chance = correlation(determined(group))
            claim = (
                f"{name}: distance and λ_min are ranked inversely, by chance at most {CHANCE:.0%}"
            )
            found.append(Gate(claim, chance <= CHANCE, f"correlation {value:.2f}, {chance:.1g}"))
    return [*found, _open_gate(trained)]


def _printed_gates(rows: list[Row]) -> list[Gate]:
    """Targets of equation 14: the range of the paper's panel, its order, and where it tends to."""
    known = determined(of_size(rows))
    size = [median(group, "distance") for _, group in by_share(known)]
    ranged = [row["distance"] for row in in_paper_range(known)]
    limit = best_layer(N_KEYS, FIRST).distance
    same = where(determined(rows), unitary=FIRST)
    counts = sorted({row["n_sequences"] for row in same})
    nearing = [median(where(same, n_sequences=count), "distance") for count in counts]
    return [
        Gate("targets of equation (14): the distance falls at every step to a larger λ_min",
             bool(np.all(np.diff(size) > 0)), ", ".join(f"{one:.3g}" for one in size)),
        Gate(f"and is between {limit:.2f} and the paper's {PAPER_DISTANCE:g} for λ_min from 2^-13 "
             "to 2^-7",
             bool(ranged) and limit <= min(ranged) and max(ranged) <= PAPER_DISTANCE,
             f"{min(ranged, default=np.nan):.3g} to {max(ranged, default=np.nan):.3g}"),
        Gate(f"at {FIRST:.0%}, more sequences bring it towards {limit:.3g}, that of the population",
             len(counts) > 1 and bool(np.all(np.diff(nearing) < 0))
             and _tends_to(limit, counts, nearing),
             ", ".join(f"{one:.3g} with {n:,}" for n, one in zip(counts, nearing, strict=True))),
    ]  # fmt: skip


def _tends_to(limit: float, counts: list[int], distances: list[float]) -> bool:
    """Whether what is beyond the limit falls like 1/N in the square, by a factor of two or so."""
    beyond = [distance**2 - limit**2 for distance in distances]
    if min(beyond) <= 0:
        return False
    slope = np.log(beyond[-1] / beyond[0]) / np.log(counts[-1] / counts[0])
    return bool(abs(slope + 1) <= np.log(2) / np.log(counts[-1] / counts[0]))


def bound(row: Row) -> float:
    """sqrt(risk / lambda_min): the farthest that a layer of that risk can be from the truth."""
    return float(np.sqrt(row["risk"] / row["lambda_min"]))


def _open_gate(trained: list[Row]) -> Gate:
    """Where data leave the layer open, low risk and great distance go together."""
    seen = []
    for name, group in families(trained):
        shares = dict(by_share(group))
        low, far = median(shares[0.95], "risk"), max(row["distance"] for row in shares[0.95])
        lost = [row for row in shares[1.0] if row["risk"] <= low and row["distance"] > far]
        if group[0]["n_heads"] > 1 and not group[0]["small_start"]:
            seen.append((name, len(lost), len(shares[1.0])))
    claim = (
        "at 100 % starts end farther than any at 95 %, with risk no larger than the median there"
    )
    return Gate(
        claim, all(count > 0 for _, count, _ in seen),
        "; ".join(f"{name}: {count} of {total}" for name, count, total in seen),
    )  # fmt: skip


def _rightly(row: Row) -> bool:
    if row["unitary"] < 1.0:
        return bool(row["verdict"] == IDENTIFIABLE and row["rank"] == row["n_features"])
    return bool(row["verdict"] == NOT_IDENTIFIABLE and row["rank"] == UNITARY_RANK)


def _deviation(rows: list[Row]) -> float:
    """The mean of squared distances against its expectation, in standard errors."""
    squares = np.array([row["distance"] ** 2 for row in rows])
    means = np.array([row["expected_distance"] ** 2 for row in rows])
    spreads = np.array([row["expected_spread"] for row in rows])
    return float(abs(np.sum(squares - means)) / np.sqrt(np.sum(spreads**2)))
