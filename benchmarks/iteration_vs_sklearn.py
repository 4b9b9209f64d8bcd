"""The iteration against scikit-learn on explicit features: Ridge by lsqr and sag, and Nystroem.

Correlated tokens, one output, a ridge of 1e-4 of the mean square of a row of features.  lsqr and
sag get the features for nothing and 1e-10 as tolerance; what they miss of the least objective is
printed.  Nystroem with as many components as half of the features stands for FALKON.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import require, verdict
from large_iteration import mean_square, tokens
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits

import polyattn as pa

N_SEQUENCES, N_DIMS = 8_000, 12


def features(X: Any) -> Any:
    """Explicit features (N, p), off the diagonal times sqrt(2): then the penalty is ||theta||^2."""
    tokens = X.astype(np.float64)
    j, k = np.triu_indices(N_DIMS)
    sums = np.einsum("ntj,ntj->nj", tokens[:, :, j], tokens[:, :, k]) * np.where(j == k, 1, 2**0.5)
    return (sums[:, :, None] * tokens[:, -1, None, :]).reshape(len(X), -1)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    X, Y = tokens(N_SEQUENCES, N_DIMS)
    phi, ridge = features(X), 1e-4 * mean_square(X)

    def objective(theta: Any) -> float:
        return float(np.sum((Y[:, 0] - phi @ theta) ** 2) + ridge * np.sum(theta**2))

    gram = phi.T @ phi + ridge * np.eye(phi.shape[1])
    least = objective(np.linalg.solve(gram, phi.T @ Y[:, 0]))
    fit = lambda: pa.fit(X, Y, ridge=ridge, solver="iterative")  # noqa: E731
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        own, result = timed(fit)
        j, k = np.triu_indices(N_DIMS)
        theta = (result.coef[0] * np.where(j == k, 1, 0.5**0.5)[:, None]).reshape(-1)
        print(f"p={phi.shape[1]}, N={N_SEQUENCES}, ridge {ridge:.3g}, one thread")
        print(f"  iterative {own:.2f} s, tokens to coefficients: {result.outcome.sentence}")
        require("least objective to 1e-9", abs(objective(theta) - least) <= 1e-9 * least)
        for solver in ("lsqr", "sag"):
            model = Ridge(ridge, fit_intercept=False, solver=solver, tol=1e-10, max_iter=300)
            seconds, found = timed(lambda model=model: model.fit(phi, Y[:, 0]))
            off = objective(found.coef_) / least - 1
            print(f"  Ridge {solver} {seconds:.2f} s, objective {off:.1e} above the least")
            verdict(f"the iteration is faster than {solver}", own < seconds)

        def approximated() -> tuple[Any, Any]:
            chosen = Nystroem("linear", n_components=phi.shape[1] // 2, random_state=0)
            mapped = chosen.fit_transform(phi)
            return mapped, Ridge(ridge, fit_intercept=False).fit(mapped, Y[:, 0])

        seconds, (mapped, found) = timed(approximated)
        residual = Y[:, 0] - found.predict(mapped)
        off = float(np.sum(residual**2) + ridge * np.sum(found.coef_**2)) / least - 1
        print(f"  Nystroem {seconds:.2f} s, objective {off:.1e} above the least")


if __name__ == "__main__":
    main()
