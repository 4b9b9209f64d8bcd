"""The cost model of ``solve.plan``: seconds that it estimates, and seconds that it took.

One thread.  The last column is what the constants of ``solve/costs.py`` would be multiplied by; a
common factor is the speed of the machine, and only ratios decide which solver is taken.
"""

from __future__ import annotations

import time

import numpy as np
from common import verdict
from threadpoolctl import threadpool_limits

import polyattn as pa

# sequences, tokens, coordinates, outputs, solvers
SHAPES = (
    (20_000, 20, 12, 1, ("primal", "direct", "iterative")),
    (20_000, 20, 16, 1, ("primal", "iterative")),
    (20_000, 20, 16, 8, ("primal", "iterative")),
    (6_000, 10, 20, 1, ("primal", "iterative")),
    (1_024, 20, 16, 1, ("direct", "dual", "iterative")),
    (3_000, 10, 24, 1, ("dual", "iterative")),
)

# What a ratio of two estimates may be off by.
ALLOWED = 4.0


def main() -> None:
    rng, factors = np.random.default_rng(0), []
    for n_sequences, n_tokens, n_dims, n_outputs, solvers in SHAPES:
        X = rng.standard_normal((n_sequences, n_tokens, n_dims))
        Y = rng.standard_normal((n_sequences, n_outputs))
        for solver in solvers:
            made = pa.solve.plan(n_sequences, n_dims, n_outputs, solver, n_tokens=n_tokens)
            with threadpool_limits(limits=1):
                start = time.perf_counter()
                result = pa.fit(X, Y, solver=solver, try_exact=False)
                seconds = time.perf_counter() - start
            factors.append(seconds / made.seconds)
            print(
                f"N={n_sequences}, d={n_dims}, e={n_outputs}, p={result.n_features}, {solver}: "
                f"estimated {made.seconds:.3f} s, took {seconds:.3f} s, {factors[-1]:.2f}x",
                flush=True,
            )
    middle = float(np.median(factors))
    spread = max(max(factors) / middle, middle / min(factors))
    print(f"median {middle:.2f}x")
    verdict(f"all within {spread:.1f} times of the median", spread <= ALLOWED)


if __name__ == "__main__":
    main()
