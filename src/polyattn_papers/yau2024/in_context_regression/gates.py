"""What must hold, in either profile."""

from __future__ import annotations

from collections.abc import Callable

from polyattn_papers.reproduction.experiment import Gate, Row
from polyattn_papers.tasks.in_context import ALLOWED, optimum_of
from polyattn_papers.yau2024.in_context_regression.findings import largest, slope, tasks

# Slopes of log distance against log N that count as -1/2.
SLOPES = (-0.6, -0.4)


def gates(rows: list[Row]) -> list[Gate]:
    """The rate, the size and the place of what is left, the risks, and the one head."""
    found = []
    for name, group in tasks(rows):
        for column, what in (
            ("distance", "distance"),
            ("other_coefficients", "other coefficients"),
        ):
            rate = slope(group, column)
            claim = f"{name}: {what} like N^(-1/2), slope in [{SLOPES[0]}, {SLOPES[1]}]"
            found.append(Gate(claim, SLOPES[0] <= rate <= SLOPES[1], f"{rate:.3f}"))
    last = [row for _, group in tasks(rows) for row in largest(group)]
    errors = f"within {ALLOWED:g} standard errors"

    def off_plain(row: Row) -> float:
        return abs(row["plain_fresh"] - optimum_of(row).plain_risk) / row["plain_fresh_error"]

    def off_theory(row: Row) -> float:
        return float(abs(row["theory_fresh"] - row["theory_risk"]) / row["theory_fresh_error"])

    def off_excess(row: Row) -> float:
        above = row["excess"] - row["expected_excess"]
        return float(max(above, -row["excess"]) / row["excess_error"])

    return [
        *found,
        _worst(
            f"at the largest N distances are below mean + {ALLOWED:g} deviations of least squares",
            last, lambda row: row["distance"] / row["largest_distance"], 1.0,
        ),
        _worst(f"error of the theory's layer on fresh data = formula {errors}",
               last, off_theory, ALLOWED),
        _worst(f"error of the plain step on fresh data = formula {errors}",
               last, off_plain, ALLOWED),
        _worst(f"the fit's excess over the theory is between 0 and what is expected {errors}",
               last, off_excess, ALLOWED),
        _worst("the Bayes-optimal predictor has a smaller error than the layer",
               last, lambda row: row["bayes_fresh"] / row["theory_fresh"], 1.0),
        _worst("one head is enough: its gap to the optimum is no more than noise explains",
               last, lambda row: row["one_head_gap"] / row["largest_gap"], 1.0),
    ]  # fmt: skip


def _worst(claim: str, rows: list[Row], measure: Callable[[Row], float], most: float) -> Gate:
    """A gate on the largest of a measure."""
    worst = max(measure(row) for row in rows)
    return Gate(claim, bool(worst <= most), f"at most {worst:.2g} of {most:g}")
