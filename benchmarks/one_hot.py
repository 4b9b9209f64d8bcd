"""Token ids: fit and certificate of 1,000 symbols and a million tokens, against sparse solvers.

The others get the explicit sparse features  count_a [the query is b],  a column for each of the
d^2 pairs, ready-made; ours starts from ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from common import peak_memory, require, verdict
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.linalg import lsqr
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

import polyattn as pa

N_SYMBOLS, N_TOKENS = 1000, 20
SIZES = (12_500, 50_000)
RIDGE = 1.0


@cache
def data(n_sequences: int) -> tuple[pa.SequenceBatch, np.ndarray]:
    """Ids, uniform, and targets of a random table with noise."""
    rng = np.random.default_rng(0)
    ids = rng.integers(N_SYMBOLS, size=(n_sequences, N_TOKENS))
    table = rng.standard_normal((N_SYMBOLS, N_SYMBOLS))
    clean = table[ids[:, -1:], ids].sum(axis=1)
    batch = pa.SequenceBatch.from_ids(ids, N_SYMBOLS)
    return batch, clean + rng.standard_normal(n_sequences)


def explicit_features(batch: pa.SequenceBatch) -> csr_array:
    """One column for each pair of symbols, made without polyattn."""
    ids = batch.values.ids.reshape(-1, N_TOKENS).astype(np.int64)
    columns = ids[:, -1:] * N_SYMBOLS + ids
    pointers = np.arange(len(ids) + 1) * N_TOKENS
    features = csr_array(
        (np.ones(columns.size), columns.ravel(), pointers), shape=(len(ids), N_SYMBOLS**2)
    )
    features.sum_duplicates()
    return features


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    with threadpool_limits(limits=1):
        return work(), time.perf_counter() - start


def dense_table(result: pa.OneHotFit) -> np.ndarray:
    return result.table.matrices()[0].toarray().ravel()


def compare(name: str, ours: pa.OneHotFit, others: np.ndarray, tolerance: float) -> None:
    own = dense_table(ours)
    apart = float(np.linalg.norm(own - others) / np.linalg.norm(own))
    require(f"coefficients of {name}: relative difference {apart:.1e}", apart < tolerance)


def fit_of(n_sequences: int, ridge: float) -> pa.OneHotFit:
    return pa.fit(*data(n_sequences), ridge=ridge)


def certificate_of(n_sequences: int) -> pa.Certificate:
    return pa.certify(data(n_sequences)[0], domain="one_hot")


def prepared(work: Callable[..., Any], n_sequences: int, *more: Any) -> Callable[[], Any]:
    data(n_sequences)
    return partial(work, n_sequences, *more)


def main() -> None:
    n_sequences = SIZES[-1]
    batch, Y = data(n_sequences)
    features = explicit_features(batch)
    print(f"{N_SYMBOLS} symbols, {n_sequences} sequences of {N_TOKENS} tokens, mode last")
    plain, ours = timed(lambda: fit_of(n_sequences, 0.0))
    found, theirs = timed(lambda: lsqr(features, Y, atol=1e-12, btol=1e-12, iter_lim=10_000)[0])
    print(f"  least norm:  ours {ours:.2f} s, lsqr {theirs:.2f} s ({theirs / ours:.1f}x)")
    compare("the minimum norm, lsqr", plain, found, 1e-8)
    ridged, ours = timed(lambda: fit_of(n_sequences, RIDGE))
    # sklearn's checks know matrices, not sparse arrays of 64-bit indices.
    sparse = csr_matrix(features)
    model = Ridge(RIDGE, fit_intercept=False, solver="sparse_cg", tol=1e-12, max_iter=10_000)
    _, theirs = timed(lambda: model.fit(sparse, Y))
    print(
        f"  ridge {RIDGE:g}:     ours {ours:.2f} s, sparse_cg {theirs:.2f} s ({theirs / ours:.1f}x)"
    )
    compare("the ridge, sparse_cg", ridged, model.coef_, 1e-8)
    certificate, seconds = timed(lambda: certificate_of(n_sequences))
    print(f"  certificate: {seconds:.2f} s, {certificate.verdict}, rank {certificate.rank:,}")
    holds, seconds = timed(lambda: pa.verify(certificate, batch))
    print(f"  verify:      {seconds:.2f} s")
    require("the checker accepts the certificate", holds)
    forged = pa.certify(batch[:-1], domain="one_hot")
    require("and refuses that of other data", not pa.verify(forged, batch))
    outputs, seconds = timed(lambda: plain.predict(batch))
    print(f"  predict:     {seconds:.2f} s")
    apart = float(np.abs(outputs[:, 0] - features @ dense_table(plain)).max())
    require(f"outputs and explicit features: {apart:.1e}", apart < 1e-8)
    print("memory of a fresh process beyond its imports and data")
    rows = []
    for size in SIZES:
        pairs = fit_of(size, 0.0).n_occurring
        fit = peak_memory(partial(prepared, fit_of, size, 0.0))
        proof = peak_memory(partial(prepared, certificate_of, size))
        rows.append((pairs, fit, proof))
        print(
            f"  {size * N_TOKENS:>9,} tokens: {pairs:>7,} pairs occur, fit {fit:.0f} MB, "
            f"certificate {proof:.0f} MB"
        )
    dense = n_sequences * N_TOKENS * N_SYMBOLS
    print(f"  dense one-hot tokens of one byte: {dense / 2**20:,.0f} MB")
    (few, *small), (many, *large) = rows
    growth = max(more / less for more, less in zip(large, small, strict=True))
    most = max(many / few, SIZES[1] / SIZES[0])
    verdict(f"memory grows no faster than tokens ({growth:.1f}x for {most:.1f}x)", growth <= most)
    verdict("a million tokens of 1,000 symbols take less than 300 MB", max(large) < 300)


if __name__ == "__main__":
    main()
