"""What must hold, in either profile."""

from __future__ import annotations

from polyattn_papers.chen2024.lower_bounds.cells import ARGUMENT, ATTACK, BOUND, REDUCTION
from polyattn_papers.chen2024.lower_bounds.findings import exponent, growths
from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.reproduction.rows import where

# The bound grows like d^s, up to so much of s.
NEAR_POWER = 0.15

# Bits of work that a head costs at least with noise, and at most without.
LEAST_BITS, MOST_BITS = 0.8, 0.1

# Meeting in the middle grows as expected up to this in its power: the rounds are random.
NEAR_EXPECTED = 0.35


def gates(rows: list[Row]) -> list[Gate]:
    """Growth of the bound, its argument, the reduction, and growth of attacks."""
    return [
        _bound_grows(rows),
        _queries_within_bound(where(rows, part=ARGUMENT)),
        _learners_within_bound(where(rows, part=ARGUMENT, method="learner")),
        _all_found(where(rows, part=REDUCTION), "the reduction reads every secret"),
        _all_found(where(rows, part=ATTACK), "every attack ends at the secret"),
        _noisy_growth(rows),
        _expected_growth(rows),
        _clean_growth(rows),
    ]


def _bound_grows(rows: list[Row]) -> Gate:
    heads = {row["n_heads"] for row in where(rows, part=BOUND, beta=None)} - {1}
    found = {s: exponent(rows, s, "row_sign") for s in sorted(heads)}
    return Gate(
        "the bound on statistical queries grows like d^s",
        bool(found) and all(abs(power / s - 1) <= NEAR_POWER for s, power in found.items()),
        ", ".join(f"d^{power:.2f} for s = {s}" for s, power in found.items()) or "no rows",
    )


def _queries_within_bound(rows: list[Row]) -> Gate:
    own = [row for row in rows if row["n_excluded"] is not None]
    over = sum(row["n_excluded"] > row["most_excluded"] for row in own)
    attained = sum(0 < row["n_excluded"] == row["most_excluded"] for row in own)
    return Gate(
        "no query tells more members apart than the bound allows, and one tells as many",
        bool(own) and over == 0 and attained > 0,
        f"{over} of {len(own)} exceed it, {attained} attain it",
    )


def _learners_within_bound(rows: list[Row]) -> Gate:
    over = sum(row["n_learned"] > row["n_learned_most"] for row in rows)
    whole = [row for row in rows if row["n_asked"] == row["n_members"] and row["most_excluded"]]
    failed = sum(row["n_learned"] < row["n_members"] for row in whole)
    fooled = sum(row["n_learned"] < row["n_members"] for row in rows)
    return Gate(
        "an oracle of that tolerance defeats learners with few queries, not those with all",
        over == 0 and failed == 0 and bool(whole) and fooled > 0,
        f"{over} of {len(rows)} learn too much; with all queries {failed} of {len(whole)} fail",
    )


def _all_found(rows: list[Row], claim: str) -> Gate:
    right = sum(bool(row["found"]) for row in rows)
    return Gate(claim, bool(rows) and right == len(rows), f"{right} of {len(rows)}")


def _noisy_growth(rows: list[Row]) -> Gate:
    found = [each for each in growths(rows) if each.noise and each.method != "transform"]
    least = min((each.bits for each in found), default=0.0)
    return Gate(
        "with noise the work of attacks that search for sets grows exponentially with the heads",
        least >= LEAST_BITS,
        f"2^({least:.2f} s) or more in {len(found)} fits",
    )


def _expected_growth(rows: list[Row]) -> Gate:
    found = [each for each in growths(rows) if each.method == "halves"]
    off = max((abs(each.of_halves - each.expected) for each in found), default=1.0)
    return Gate(
        "meeting in the middle grows like the number of halves to the power 1 + log2 1/(1 - noise)",
        off <= NEAR_EXPECTED,
        f"powers are off by {off:.2f} or less in {len(found)} fits",
    )


def _clean_growth(rows: list[Row]) -> Gate:
    found = [each for each in growths(rows) if each.method == "elimination"]
    most = max((abs(each.bits) for each in found), default=1.0)
    return Gate(
        "without noise elimination does not grow with the heads",
        most <= MOST_BITS,
        f"2^({most:.2f} s) or less in {len(found)} fits",
    )
