"""Passes of conjugate gradients for six kinds of tokens, as they are and whitened.

The gradient falls by 1e-12 in the whitened norm; one output, noise 0.1, five rows per feature.
Then fewer rows than features (N/p = 0.71), without a ridge and with one, relative to the mean of
the diagonal of the kernel: passes as they are, with pivoted rows (both keep to the row space) and
whitened, and which of them ``solver="iterative"`` takes.

    python benchmarks/iteration_passes.py [coordinates of the second part]
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import numpy as np
from common import THREADS, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.solve import normal_equations
from polyattn.solve.normal_equations import MAX_PASSES, FeatureEquations
from polyattn.stats.rows import Rows

N_TOKENS, ROWS_PER_FEATURE = 10, 5

KINDS = ("Gaussian", "scales 1 : 0.05", "AR(1) 0.9", "mean 2", "constant coordinate", "one-hot")


def tokens(kind: str, n_sequences: int, n_dims: int) -> Any:
    """Tokens (N, n, d) of one of the kinds."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_sequences, N_TOKENS, n_dims))
    if kind.startswith("scales"):
        least = float(kind.rpartition(":")[2])
        turn = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
        return X * np.geomspace(1, least, n_dims) @ turn
    if kind == "AR(1) 0.9":
        for t in range(1, N_TOKENS):
            X[:, t] = 0.9 * X[:, t - 1] + np.sqrt(1 - 0.81) * X[:, t]
    elif kind == "mean 2":
        X += 2.0
    elif kind == "constant coordinate":
        X[..., -1] = 1.0
    elif kind == "one-hot":
        X = np.eye(n_dims)[rng.integers(0, n_dims, X.shape[:2])]
    return X


def targets(X: Any) -> Any:
    truth = pa.data.random_layer(X.shape[2], 1, n_heads=2, mode="last", random_state=0)
    Y = truth(X)
    noise = np.random.default_rng(1).standard_normal(Y.shape)
    return Y / Y.std() + 0.1 * noise


def passes(X: Any, in_norm: bool, pivoted: bool = False, ridge: float = 0.0) -> str:
    """How many a descent takes; with ``in_norm`` as they are, or with pivoted rows."""
    rows = Rows.build(X, targets(X), pa.Form())
    least = 0 if pivoted else rows.n_features + 1
    with patch.object(normal_equations, "MANY_COEFFICIENTS", least):
        found = FeatureEquations.of(rows, ridge, MAX_PASSES).solved(in_norm)
    return f"{found.passes}" if found.reached else f"> {found.passes}"


def few_rows(n_dims: int) -> None:
    n_features = n_dims**2 * (n_dims + 1) // 2
    n_rows = int(0.71 * n_features)
    for kind in ("Gaussian", "scales 1 : 0.1"):
        X = tokens(kind, n_rows, n_dims)
        grams = np.einsum("ntj,ntk->njk", X, X)
        mean = float(np.mean(np.sum(grams**2, axis=(1, 2)) * np.sum(X[:, -1] ** 2, axis=1)))
        for relative in (0.0, 1e-4, 1e-2):
            plain, pivoted, whitened = (
                passes(X, *way, ridge=relative * mean)
                for way in ((True, False), (True, True), (False, False))
            )
            result = pa.fit(X, targets(X), ridge=relative * mean, solver="iterative")
            print(f"  {kind}, ridge {relative:g}: {plain}, pivoted {pivoted}, whitened {whitened}")
            print(f"    {result.solver!r}: {result.outcome.sentence}")
            sys.stdout.flush()


def main() -> None:
    with threadpool_limits(limits=THREADS):
        for kind in KINDS:
            counts = []
            for n_dims in (12, 16):
                X = tokens(kind, ROWS_PER_FEATURE * n_dims**2 * (n_dims + 1) // 2, n_dims)
                counts.append([passes(X, in_norm) for in_norm in (True, False)])
            plain, whitened = (", ".join(each) for each in zip(*counts, strict=True))
            print(f"{kind:20} d = 12, 16: as they are {plain}; whitened {whitened}", flush=True)
            most = max(int(each[1].lstrip("> ")) for each in counts)
            verdict("at most 120 passes, whitened", most <= 120)
        n_dims = int(sys.argv[1]) if len(sys.argv) > 1 else 32
        print(f"fewer rows than features, d = {n_dims}")
        few_rows(n_dims)


if __name__ == "__main__":
    main()
