"""Rows read by findings, gates and figures: a part of them, and means of a column."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from polyattn_papers.reproduction.experiment import Row


def where(rows: Iterable[Row], **values: object) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def median(rows: Iterable[Row], column: str) -> float:
    """The median of a column; not a number where it has no entries."""
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.median(values)) if values else float("nan")


def mean(rows: Iterable[Row], column: str) -> float:
    """The mean of a column."""
    return float(np.mean([row[column] for row in rows]))


def rms(rows: Iterable[Row], column: str) -> float:
    """The root mean square of a column."""
    return float(np.sqrt(np.mean([row[column] ** 2 for row in rows])))
