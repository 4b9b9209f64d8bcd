"""What must hold, in either profile."""

from __future__ import annotations

import numpy as np

from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.yau2024.random_attention.cells import HEADS, TRAINED
from polyattn_papers.yau2024.random_attention.curves import (
    FOLLOWED,
    closed_form,
    epochs_by_heads,
    summaries,
    trained,
)

LARGEST_ERROR = 1e-25

# A distance of coefficients of order one; rounding leaves some 1e-14.
LARGEST_DISTANCE = 1e-10

# What a model must reach of the mean target power before it may be called trained.
LEARNED = 0.5

# Heads that are enough for any layer, at d = 2 and 4, and too few for the claim that more help.
MANY, FEW = 16, (1, 2)


def gates(rows: list[Row]) -> list[Gate]:
    """The closed form is exact, no trained model is, all did learn; what heads and layers do."""
    return [
        _exact(rows), _recovered(rows), _nobody_below(rows), _all_learned(rows),
        _more_heads_help(rows), _layers_do_not(rows),
    ]  # fmt: skip


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
        if _error(row) <= max(LARGEST_ERROR, exact.get(_data(row), float("inf")))
    ]  # fmt: skip
    smallest = min(map(_error, runs), default=float("nan"))
    return Gate(
        "no trained model gets below that, or below the closed form on the same data",
        bool(runs) and not below,
        f"{len(below)} of {len(runs)} do; smallest error {smallest:.1e}",
    )


def _all_learned(rows: list[Row]) -> Gate:
    """A baseline that did not train would be no comparison."""
    shares = {
        kind: min(
            (_error(r) / r["target_power"] for r in rows if r["method"] == kind),
            default=float("inf"),
        )
        for kind in TRAINED
    }
    return Gate(
        f"every kind of trained model comes below {LEARNED:g} of the mean target power",
        max(shares.values()) < LEARNED,
        ", ".join(f"{kind} {share:.1e}" for kind, share in shares.items()),
    )


def _more_heads_help(rows: list[Row]) -> Gate:
    """At each size and point of the grid, steps being equal."""
    sizes = sorted({_size(row) for row in trained(rows) if row["method"] == HEADS})
    seen, holds = [], bool(sizes)
    for size in sizes:
        for (rate, batch), epochs in epochs_by_heads(rows, *size).items():
            holds &= all(epochs[MANY] < epochs[few] for few in FEW)
            listed = ", ".join(_rounded(each) for each in epochs.values())
            seen.append(f"d = {size[0]}, N = {size[1]}, {rate:g}, {batch}: {listed}")
    return Gate(
        f"after equal steps more heads help: with {MANY} the error falls to {FOLLOWED:g} of the "
        f"target power after fewer epochs than with {' or '.join(map(str, FEW))}, everywhere",
        holds,
        "; ".join(seen),
    )


def _layers_do_not(rows: list[Row]) -> Gate:
    """By the smallest errors of whole trainings; what equal epochs give, the findings say."""
    found = [one for one in summaries(trained(rows)) if not one.weight_decay]
    singles = [one for one in found if one.method == HEADS]
    others = [one for one in found if one.method != HEADS]
    ratios = [
        one.log_error - min(same.log_error for same in singles if same.size == one.size)
        for one in others
        if singles
    ]
    return Gate(
        "no stack of layers and no Transformer, in the epochs they had, comes below the best "
        "single layer of the same data",
        bool(ratios) and min(ratios) > 0,
        f"at least {10 ** min(ratios, default=float('nan')):.1e} times its error",
    )


def _rounded(epochs: float) -> str:
    return f"{epochs:.3g}" if np.isfinite(epochs) else "never"


def _error(row: Row) -> float:
    """The smallest error of a run; infinity where it ran away at once."""
    return float("inf") if row["validation_error"] is None else float(row["validation_error"])


def _size(row: Row) -> tuple[int, int]:
    return row["n_dims"], row["n_sequences"]


def _data(row: Row) -> tuple:
    return row["n_dims"], row["n_sequences"], row["seed"]
