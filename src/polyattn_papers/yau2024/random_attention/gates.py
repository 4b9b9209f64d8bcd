"""What must hold, in either profile."""

from __future__ import annotations

from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.yau2024.random_attention.cells import TRAINED
from polyattn_papers.yau2024.random_attention.findings import closed_form, trained

LARGEST_ERROR = 1e-25

# A distance of coefficients of order one; rounding leaves some 1e-14.
LARGEST_DISTANCE = 1e-10

# What a model must reach of the mean target power before it may be called trained.
LEARNED = 0.5


def gates(rows: list[Row]) -> list[Gate]:
    """The closed form is exact, no trained model is, and the trained models did learn."""
    return [_exact(rows), _recovered(rows), _nobody_below(rows), _all_learned(rows)]


def _exact(rows: list[Row]) -> Gate:
    errors = [row["validation_error"] for row in closed_form(rows)]
    worst = max(errors, default=float("inf"))
    return Gate(
        f"the closed form has a validation error of at most {LARGEST_ERROR:.0e} on every cell",
        worst <= LARGEST_ERROR,
        f"largest of {len(errors)}: {worst:.1e}",
    )


def _recovered(rows: list[Row]) -> Gate:
    found = closed_form(rows)
    worst = max((row["distance"] for row in found), default=float("inf"))
    n_certified = sum(row["verdict"] == "identifiable" for row in found)
    n_single = sum(row["heads_found"] == 1 for row in found)
    return Gate(
        "the closed form finds the planted head, and the data are certified to determine it",
        worst <= LARGEST_DISTANCE and n_certified == n_single == len(found),
        f"one head in {n_single} of {len(found)}, certified {n_certified}, "
        f"largest distance {worst:.1e}",
    )


def _nobody_below(rows: list[Row]) -> Gate:
    """Below the bound, or below the closed form on the same data."""
    exact = {_data(row): row["validation_error"] for row in closed_form(rows)}
    runs = trained(rows)
    below = [
        row for row in runs
        if row["validation_error"] <= max(LARGEST_ERROR, exact.get(_data(row), float("inf")))
    ]  # fmt: skip
    smallest = min((row["validation_error"] for row in runs), default=float("nan"))
    return Gate(
        "no trained model gets below that, or below the closed form on the same data",
        bool(runs) and not below,
        f"{len(below)} of {len(runs)} do; smallest error {smallest:.1e}",
    )


def _all_learned(rows: list[Row]) -> Gate:
    """A baseline that did not train would be no comparison."""
    shares = {
        kind: min(
            (r["validation_error"] / r["target_power"] for r in rows if r["method"] == kind),
            default=float("inf"),
        )
        for kind in TRAINED
    }
    return Gate(
        f"every kind of trained model comes below {LEARNED:g} of the mean target power",
        max(shares.values()) < LEARNED,
        ", ".join(f"{kind} {share:.1e}" for kind, share in shares.items()),
    )


def _data(row: Row) -> tuple:
    return row["n_dims"], row["n_sequences"], row["seed"]
