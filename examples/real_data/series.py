"""The series: all labelled sets that aeon and sktime carry within their packages, and their splits.

A series is an array (channels, time), as aeon holds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import aeon.datasets
import numpy as np
import sktime.datasets
from aeon.datasets import load_from_ts_file
from sklearn.model_selection import train_test_split


class Split(NamedTuple):
    """Training and test series (lists) with their labels or numbers (arrays)."""

    X: list
    y: np.ndarray
    X_test: list
    y_test: np.ndarray


#: Where each set lies, and whether numbers are predicted (else classes).  Covid3Month_disc is left
#: out: the series of Covid3Month again, its numbers cut into three classes.
SETS = {
    "JapaneseVowels": (aeon, False),
    "BasicMotions": (aeon, False),
    "ItalyPowerDemand": (aeon, False),
    "GunPoint": (aeon, False),
    "ArrowHead": (aeon, False),
    "OSULeaf": (aeon, False),
    "ACSF1": (aeon, False),
    "PickupGestureWiimoteZ": (aeon, False),
    "UnitTest": (aeon, False),
    "PLAID": (sktime, False),
    "Covid3Month": (aeon, True),
    "CardanoSentiment": (aeon, True),
    "Tecator": (sktime, True),
}


def is_regression(name):
    """Whether the set has numbers to predict, and no classes."""
    return SETS[name][1]


def load(name):
    """The published split of a set."""
    folder = Path(SETS[name][0].datasets.__file__).parent / "data" / name
    X, y = load_from_ts_file(str(folder / f"{name}_TRAIN.ts"))
    X_test, y_test = load_from_ts_file(str(folder / f"{name}_TEST.ts"))
    return Split(list(X), y, list(X_test), y_test)


def split_of(name, number):
    """Split 0 is the published one; others have its sizes, drawn from all series by class."""
    published = load(name)
    if number == 0:
        return published
    series = [*published.X, *published.X_test]
    labels = np.concatenate([published.y, published.y_test])
    X, X_test, y, y_test = train_test_split(
        series, labels, train_size=len(published.y), random_state=number,
        stratify=None if is_regression(name) else labels,
    )  # fmt: skip
    return Split(X, y, X_test, y_test)
