"""Moments.update from sequences against a bare symmetric rank-k update on ready-made features.

The alternative gets its features for nothing; ours starts from the sequences (n = 4, mode last).
Below the paired width, ours is the explicit way itself; the last columns force each way.
"""

from __future__ import annotations

import numpy as np
from common import best_times, require, verdict
from scipy.linalg import blas

import polyattn as pa
from polyattn.features.products import all_products
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.form.pairs import n_features
from polyattn.sequences import as_batch
from polyattn.stats import moments
from polyattn.stats.moment_sums import ExplicitSums, PairedSums

TARGETS = {16: 1.25, 24: 1.5}


def main() -> None:
    print("Moments.update (from sequences) against dsyrk (features ready-made)")
    for n_dims in (4, 6, 8, 10, 12, 14, 16, 20, 24):
        n_sequences = 32768 if n_dims < 12 else 8192 if n_dims < 20 else 4096
        X = np.random.default_rng(0).standard_normal((n_sequences, 4, n_dims))
        compare(n_dims, X)


def compare(n_dims: int, X: np.ndarray) -> None:
    block = next(SeenSequences(Layout.plain(as_batch(X).n_dims), as_batch(X)).blocks(len(X)))
    features = np.asfortranarray(all_products(block.sums, block.queries).T)
    sides = {
        "dsyrk": lambda: blas.dsyrk(1.0, features, trans=1),
        "ours": lambda: pa.Moments(n_dims).update(X),
        "explicit": lambda: forced(ExplicitSums, n_dims, X),
        "paired": lambda: forced(PairedSums, n_dims, X),
    }
    seconds = best_times(sides, repeats=7)
    print(
        f"d={n_dims:3d} p={n_features(n_dims):5d}  "
        + "  ".join(f"{name} {value * 1e3:8.2f} ms" for name, value in seconds.items())
        + f"   dsyrk/ours {seconds['dsyrk'] / seconds['ours']:.2f}x"
    )
    expected = np.triu(sides["dsyrk"]())
    error = np.abs(np.triu(sides["ours"]().gram) - expected).max() / np.abs(expected).max()
    require(f"largest difference {error:.1e} of the largest entry", error < 1e-13)
    if n_dims in TARGETS:
        ratio = seconds["dsyrk"] / seconds["ours"]
        verdict(f"at least {TARGETS[n_dims]}x faster than bare dsyrk", ratio >= TARGETS[n_dims])
    else:
        # Ours is one of the two forced ways: what can be wrong is the choice.
        ways = ("paired", "explicit")
        chosen, other = ways if n_dims >= moments.PAIRED_FROM_QUERIES else ways[::-1]
        verdict(f"{chosen} is not slower than {other}", seconds[chosen] <= seconds[other])


def forced(engine: type, n_dims: int, X: np.ndarray) -> pa.Moments:
    """Moments in the given way, whatever the width."""
    original, moments.make_sums = moments.make_sums, engine
    try:
        return pa.Moments(n_dims).update(X)
    finally:
        moments.make_sums = original


if __name__ == "__main__":
    main()
