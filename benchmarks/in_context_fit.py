"""pa.fit of in-context prompts against Gaussian tokens of the same shape.

In a prompt the label of the query is always 0, so that some features are.  They are left out before
anything is factored: such data are to be no slower than data of full rank.  The same layer from a
factorisation of all rows, the way for singular features, is printed beside it.
"""

from __future__ import annotations

import numpy as np
from common import best_times, require, verdict

import polyattn as pa

SHAPES = ((20_000, 20, 15), (20_000, 20, 8), (5_000, 40, 11))
MOST_RATIO = 1.5


def main() -> None:
    print("pa.fit of prompts (query without label) against Gaussian tokens, seconds")
    for n_sequences, n_examples, n_dims in SHAPES:
        compare(n_sequences, n_examples, n_dims)


def compare(n_sequences: int, n_examples: int, n_dims: int) -> None:
    task = pa.data.in_context_regression(n_sequences, n_examples, np.eye(n_dims), noise=0.1)
    gaussian = np.random.default_rng(0).standard_normal(task.X.shape)
    seconds = best_times(
        {
            "prompts": lambda: pa.fit(task.X, task.Y),
            "gaussian": lambda: pa.fit(gaussian, task.Y),
        },
        repeats=3,
    )
    ratio = seconds["prompts"] / seconds["gaussian"]
    shape = f"N={n_sequences:,} n={n_examples} d={n_dims}+1"
    times = "  ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    print(f"{shape:24s} {times}   prompts/gaussian {ratio:.2f}")
    if n_dims <= 8:
        found, exact = (pa.fit(task.X, task.Y, solver=name) for name in ("primal", "direct"))
        error = np.abs(found.coef - exact.coef).max() / np.abs(exact.coef).max()
        require(f"largest difference {error:.1e} from a factorisation of all rows", error < 1e-9)
    verdict(f"at most {MOST_RATIO}x slower", ratio <= MOST_RATIO)


if __name__ == "__main__":
    main()
