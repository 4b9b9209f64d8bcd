"""Exact rank of cubic features of integer tokens: 4000 columns in 10 s, 8000 in 30 s.

Tokens are random integers from -20 to 20, five per sequence, mode last; the columns are the first
4000 of the 4200 features of d = 20, the first 8000 of the 8125 of d = 25.  The judge is the rank
of python-flint's ``nmod_mat`` on the same residues if that is installed, at 4000 columns; else
a plain elimination, row by row, at 500.  Ends with an error if a target is missed.
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec

import numpy as np
from common import THREADS, require, verdict
from threadpoolctl import threadpool_limits

from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.rank import exact_rank
from polyattn.form.layout import Layout
from polyattn.sequences import as_batch

TARGETS = {4000: (20, 10.0), 8000: (25, 30.0)}  # columns: (coordinates, seconds)


def data(n_columns: int, n_dims: int) -> FeatureRows:
    rng = np.random.default_rng(0)
    tokens = rng.integers(-20, 21, (n_columns + 64, 5, n_dims), dtype=np.int8)
    # Rows that repeat others: not every row that is read is independent.
    tokens[500:564] = tokens[:64]
    batch = as_batch(tokens)
    return FeatureRows(batch, np.arange(n_columns), Layout.plain(batch.n_dims))


def timed_rank(rows: FeatureRows) -> tuple[int, int, float]:
    start = time.perf_counter()
    with threadpool_limits(limits=THREADS):
        found = exact_rank(rows)
    return found.rank, found.prime, time.perf_counter() - start


def flint_rank(residues: np.ndarray, prime: int) -> tuple[int, float]:
    from flint import nmod_mat

    matrix = nmod_mat(*residues.shape, residues.astype(np.int64).ravel().tolist(), prime)
    start = time.perf_counter()
    return matrix.rank(), time.perf_counter() - start


def plain_rank(residues: np.ndarray, prime: int) -> tuple[int, float]:
    start = time.perf_counter()
    matrix, rank = residues.astype(np.int64), 0
    for column in range(matrix.shape[1]):
        nonzero = rank + np.flatnonzero(matrix[rank:, column])
        if not len(nonzero):
            continue
        matrix[[rank, nonzero[0]]] = matrix[[nonzero[0], rank]]
        top = matrix[rank] * pow(int(matrix[rank, column]), -1, prime) % prime
        matrix[rank + 1 :] -= matrix[rank + 1 :, column, None] * top % prime
        matrix[rank + 1 :] %= prime
        rank += 1
    return rank, time.perf_counter() - start


def compare(n_columns: int, n_dims: int, name: str, other: object) -> None:
    rows = data(n_columns, n_dims)
    rank, prime, seconds = timed_rank(rows)
    residues = np.concatenate([each.features() for each in rows.summaries(prime, 1024)]) % prime
    other_rank, other_seconds = other(residues, prime)
    print(f"{n_columns} columns: ours {seconds:.2f} s, {name} {other_seconds:.2f} s")
    require(f"rank {rank} by both", rank == other_rank)


def main() -> None:
    if find_spec("flint"):
        compare(4000, 20, "nmod_mat.rank (its matrix ready-made)", flint_rank)
    else:
        compare(500, 10, "a plain elimination (python-flint is not installed)", plain_rank)
    met = True
    for n_columns, (n_dims, target) in TARGETS.items():
        rank, _, seconds = timed_rank(data(n_columns, n_dims))
        print(f"exact rank, {n_columns} columns of d={n_dims}, reading the data included")
        require(f"full rank {rank}", rank == n_columns)
        verdict(f"{seconds:.2f} s (claim: {target:.0f} s)", seconds <= target)
        met &= seconds <= target
    if not met:
        sys.exit(1)


if __name__ == "__main__":
    main()
