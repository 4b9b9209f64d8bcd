"""Bounds through the leverage against the worst-case form, on pairs of layers of known risk.

For each task, random pairs of layers whose training risk exceeds the optimal one by a given
excess, and for each new input the pair that is worst there.  No pair may exceed a bound; printed
is how much of each bound the pairs use.
"""

from __future__ import annotations

import numpy as np
from common import require, verdict
from scipy.linalg import solve_triangular

import polyattn as pa
from polyattn.features.products import all_products
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.sequences import as_batch

N_PAIRS, EXCESS = 200, 1e-3


def main() -> None:
    rng = np.random.default_rng(0)
    memory = pa.data.associative_memory(4096, 2, unitary=0.95, random_state=0).X
    tasks = {
        "Gaussian, d = 3": rng.standard_normal((500, 8, 3)),
        "Gaussian, d = 6": rng.standard_normal((2000, 8, 6)),
        "units 1 : 10 : 100": rng.standard_normal((500, 8, 3)) * [1.0, 10.0, 100.0],
        "associative memory, d = 2": np.asarray(memory),
    }
    gains = [compare(name, X, rng) for name, X in tasks.items()]
    print(f"pairs in all: {len(tasks) * N_PAIRS} random, and the worst for each of 50 inputs")
    verdict("the leverage is tighter in every task", min(gains) > 1.0)


def compare(name: str, X: np.ndarray, rng: np.random.Generator) -> float:
    train, new = X[:-50], X[-50:]
    certificate = pa.certify(train)
    bound = certificate.bound(new, EXCESS)
    worst = certificate.bound(new, EXCESS, kind="worst_case")
    psi, fresh = features(train), features(new)
    root = np.linalg.cholesky(psi @ psi.T / psi.shape[1])

    def difference(direction: np.ndarray) -> np.ndarray:
        """Coefficients, as a difference to the minimiser, of exactly the allowed excess."""
        unit = direction / np.linalg.norm(direction, axis=0)
        return solve_triangular(root.T, np.sqrt(EXCESS) * unit)

    random = difference(rng.standard_normal((len(psi), 2 * N_PAIRS)))
    apart = np.abs(fresh.T @ (random[:, :N_PAIRS] - random[:, N_PAIRS:]))
    steepest = 2 * difference(solve_triangular(root, fresh, lower=True))
    reached = np.abs(np.einsum("pi,pi->i", fresh, steepest))
    largest = max(float((apart / bound[:, None]).max()), float((reached / bound).max()))
    gain = float(np.median(worst / bound))
    print(
        f"{name:26s} median worst case / leverage {gain:8.2f}   of the leverage bound: random "
        f"pairs use {np.median(apart / bound[:, None]):.3f} (median), the worst pair {largest:.9f}"
    )
    require("no pair exceeds the bound", largest <= 1.0)
    return gain


def features(X: np.ndarray) -> np.ndarray:
    blocks = SeenSequences(Layout.plain(as_batch(X).n_dims), as_batch(X)).blocks()
    return np.concatenate([all_products(b.sums, b.queries) for b in blocks], axis=1)


if __name__ == "__main__":
    main()
