"""Real series, honestly: linear attention, as a recipe and by default, beside other methods.

Thirteen sets of series (series.py), five splits of each, every method once on each split.  Prints
scores and seconds of one thread, and writes one row for each to a JSON file, from which tables.py
makes the tables of docs/real_data.md.  `make real-data` makes the environment and runs this.  With
``--method`` only its rows are measured, and those of others stay as they are.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np
from methods import METHODS
from series import SETS, is_regression, split_of
from sklearn.metrics import accuracy_score, root_mean_squared_error
from threadpoolctl import threadpool_limits

PACKAGES = ("aeon", "sktime", "numpy", "scikit-learn", "numba")


def main():
    """Measure the chosen methods on the chosen sets; rows of others are kept in the file."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--splits", type=int, default=5)
    arguments.add_argument("--only", choices=SETS, action="append")
    arguments.add_argument("--method", choices=METHODS, action="append")
    arguments.add_argument("--out", type=Path)
    chosen = arguments.parse_args()
    rows = {}
    if chosen.out is not None and chosen.out.exists():
        rows = {_key(row): row for row in json.loads(chosen.out.read_text())["rows"]}
    with threadpool_limits(1):
        for row in compare(chosen.only or SETS, chosen.method or METHODS, chosen.splits):
            rows[_key(row)] = row
            if chosen.out is not None:
                chosen.out.write_text(_document(rows.values()))


def compare(names, methods, n_splits):
    """One row for each set, split and method: score and seconds."""
    compile_first(methods)
    for name in names:
        for number in range(n_splits):
            data = split_of(name, number)
            for method in methods:
                row = {"data": name, "split": number, "method": method}
                row |= measure(method, is_regression(name), data)
                print(" ".join(str(value) for value in row.values()), flush=True)
                yield row


def measure(method, numbers, data):
    """Score (accuracy, or root mean squared error), processor seconds to fit and to predict.

    Processor time, since one thread is used and other work on the machine shall not count.
    """
    start = time.process_time()
    model = METHODS[method](numbers).fit(data.X, data.y)
    fitted = time.process_time()
    predicted = model.predict(data.X_test)
    done = time.process_time()
    score = root_mean_squared_error if numbers else accuracy_score
    row = {"measure": "rmse" if numbers else "accuracy"}
    row |= {"score": float(score(data.y_test, predicted))}
    row |= {"fit_seconds": round(fitted - start, 4), "predict_seconds": round(done - fitted, 4)}
    row |= {"polyattn": metadata.version("polyattn")}
    return row | getattr(model, "chosen", {})


def compile_first(methods):
    """Let numba compile before anything is timed."""
    rng = np.random.default_rng(0)
    X = list(rng.standard_normal((8, 2, 20)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba's, about casts inside aeon
        for numbers, y in ((True, rng.standard_normal(8)), (False, np.tile(["a", "b"], 4))):
            for method in {"1NN-DTW", "MiniRocket"} & set(methods):
                for one in (X, [x[:, : 12 + i] for i, x in enumerate(X)], [x[:1] for x in X]):
                    METHODS[method](numbers).fit(one, y).predict(one)


def _key(row):
    return row["data"], row["split"], row["method"]


def _document(rows):
    """The file: versions, and one line for each row, in the order of the sets and methods."""
    places = [list(SETS), list(METHODS)]
    ordered = sorted(
        rows, key=lambda r: (places[0].index(r["data"]), r["split"], places[1].index(r["method"]))
    )
    versions = json.dumps({package: metadata.version(package) for package in PACKAGES})
    lines = ",\n".join(json.dumps(row) for row in ordered)
    return f'{{"versions": {versions},\n"rows": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    main()
