"""Real series, honestly: linear attention beside three methods that people use, in one run.

Four data sets that the package aeon carries: JapaneseVowels and BasicMotions (classes),
Covid3Month and CardanoSentiment (numbers).  The first split is the one the data come with, the
others are drawn with the same sizes from all series (by class where there are classes).  Prints
scores and seconds of one thread, and writes them to a JSON file if asked.  `make real-data` makes
the environment and runs this.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np
from aeon import datasets
from methods import METHODS
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

LOADERS = {
    "JapaneseVowels": (datasets.load_japanese_vowels, False),
    "BasicMotions": (datasets.load_basic_motions, False),
    "Covid3Month": (datasets.load_covid_3month, True),
    "CardanoSentiment": (datasets.load_cardano_sentiment, True),
}


def main():
    """Measure every method on every split of every data set."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--splits", type=int, default=5)
    arguments.add_argument("--only", choices=LOADERS, action="append")
    arguments.add_argument("--out", type=Path)
    chosen = arguments.parse_args()
    with threadpool_limits(1):
        rows = compare(chosen.only or LOADERS, chosen.splits)
    if chosen.out is not None:
        packages = ("polyattn", "aeon", "numpy", "scikit-learn", "numba")
        versions = {package: metadata.version(package) for package in packages}
        chosen.out.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


def compare(names, n_splits):
    """All rows: data, split, method, score, seconds."""
    compile_first()
    rows = []
    for name in names:
        loader, is_regression = LOADERS[name]
        for split in range(n_splits):
            data = halves(loader, is_regression, split)
            for method in METHODS:
                row = measure(method, is_regression, *data)
                rows.append({"data": name, "split": split, "method": method} | row)
        show(name, is_regression, [row for row in rows if row["data"] == name])
    return rows


def halves(loader, is_regression, split):
    """Training and test series; split 0 is the published one."""
    (X, y), (X_test, y_test) = loader(split="train"), loader(split="test")
    if split == 0:
        return list(X), y, list(X_test), y_test
    series, labels = [*X, *X_test], np.concatenate([y, y_test])
    X, X_test, y, y_test = train_test_split(
        series, labels, train_size=len(y), random_state=split,
        stratify=None if is_regression else labels,
    )  # fmt: skip
    return X, y, X_test, y_test


def measure(method, is_regression, X, y, X_test, y_test):
    """Score (accuracy, or root mean squared error) and seconds of fitting and predicting."""
    start = time.perf_counter()
    predicted = METHODS[method](is_regression).fit(X, y).predict(X_test)
    seconds = time.perf_counter() - start
    score = root_mean_squared_error if is_regression else accuracy_score
    return {"score": float(score(y_test, predicted)), "seconds": seconds}


def show(name, is_regression, rows):
    """Print the scores of one data set."""
    unit = "root mean squared error" if is_regression else "accuracy, %"
    print(f"\n{name}: {unit}; the published split, mean over splits ± standard error, seconds")
    for method in METHODS:
        own = [row for row in rows if row["method"] == method]
        scores = np.array([row["score"] for row in own]) * (1 if is_regression else 100)
        error = scores.std(ddof=1) / len(scores) ** 0.5 if len(scores) > 1 else 0.0
        seconds = np.median([row["seconds"] for row in own])
        print(
            f"  {method:22} {scores[0]:8.4g}   {scores.mean():8.4g} ± {error:.2g}   {seconds:.2g} s"
        )


def compile_first():
    """Let numba compile before anything is timed."""
    rng = np.random.default_rng(0)
    X = list(rng.standard_normal((8, 2, 20)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba's, about casts inside aeon
        for is_regression, y in ((True, rng.standard_normal(8)), (False, np.tile(["a", "b"], 4))):
            for method in ("1NN-DTW", "MiniRocket"):
                for one in (X, [x[:, : 12 + i] for i, x in enumerate(X)], [x[:1] for x in X]):
                    METHODS[method](is_regression).fit(one, y).predict(one)


if __name__ == "__main__":
    main()
