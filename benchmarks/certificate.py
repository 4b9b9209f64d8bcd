"""A verified floating-point certificate against the moments it rests on, and its memory.

d = 16 (p = 2176), mode last.  The certificate makes the same moments, proves that they are
definite, and estimates the ends of their spectrum; the alternative that proves nothing computes
all eigenvalues.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from common import best_times, peak_memory, require, verdict

import polyattn as pa

N_DIMS, N_TOKENS = 16, 24


def main() -> None:
    for n_sequences in (16_384, 65_536):
        X = data(n_sequences)
        sides = {
            "moments": lambda X=X: pa.Moments(N_DIMS).update(X),
            "certificate": lambda X=X: pa.certify(X),
        }
        seconds = best_times(sides, repeats=3)
        ratio = seconds["certificate"] / seconds["moments"]
        print(
            f"N={n_sequences:6d}  "
            + "  ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
            + f"   certificate / moments {ratio:.2f}x"
        )
        verdict("the certificate costs at most 2x the moments", ratio <= 2.0)
    certificate = pa.certify(data(16_384))
    spectrum = pa.Moments(N_DIMS).update(data(16_384)).spectrum()
    away = abs(certificate.lambda_min / spectrum[0] - 1)
    require(f"lambda_min of all eigenvalues and ours differ by {away:.1e}", away < 1e-5)
    require("the verdict is identifiable", certificate.verdict == "identifiable")
    memory = {count: peak_memory(partial(prepared, count)) for count in (16_384, 65_536)}
    print("  ".join(f"N={count}: {value:.0f} MB" for count, value in memory.items()))
    verdict("memory does not grow with N", memory[65_536] < 1.2 * memory[16_384])


def data(n_sequences: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n_sequences, N_TOKENS, N_DIMS))


def prepared(n_sequences: int):
    X = data(n_sequences)
    return lambda: pa.certify(X)


if __name__ == "__main__":
    main()
