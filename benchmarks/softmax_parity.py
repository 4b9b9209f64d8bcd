"""Parity heads: how far the learner, random starts and Adam get on functions of high degree.

s heads compute the parity of s hidden bits (docs/derivations/softmax_parity.md); only the
informative output is given.  On Boolean tokens the marker of a pair of heads is not determined,
so success is the relative error on fresh sequences below 1e-6, and the learner may say
"ambiguous" of a function that is right.  "recovered" must never be said of a wrong one.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from common import require
from threadpoolctl import threadpool_limits

from polyattn_papers.tasks.parity import parity_task
from polyattn_papers.tasks.softmax_methods import by_adam, by_learner, by_random_starts
from polyattn_papers.tasks.softmax_truth import Truth

N_DIMS, N_TOKENS, N_SEQUENCES = 8, 4, 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=2000, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run, of every method")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    with threadpool_limits(limits=1):
        for n_bits, beta in ((1, 2.0), (1, 8.0), (3, 0.5), (3, 1.0), (3, 2.0), (3, 4.0)):
            wrong += row(n_bits, beta, arguments)
    require(f"wrong claims: {wrong}", wrong == 0)


def row(n_bits: int, beta: float, arguments: argparse.Namespace) -> int:
    """All methods on every seed; returns how many claims are wrong."""
    learned, chances, adam = [], [], []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        task = parity_task(n_bits, beta, N_SEQUENCES, N_TOKENS, N_DIMS, seed)
        truth = Truth.of(task, seed)
        found = by_learner(task, n_bits, max_seconds=arguments.seconds)
        learned.append(truth.row("auto", found))
        chances.append(by_random_starts(task, n_bits, found.seconds, seed, truth.solved))
        trained = by_adam(task, n_bits, min(found.seconds, 10), seed)
        adam.append(truth.row("adam", trained)["function_error"])
    seconds = [one["seconds"] for one in learned]
    print(
        f"  s={n_bits} beta={beta:g}: right {sum(one['solved'] for one in learned)}/{len(learned)} "
        f"(errors {', '.join(format(one['function_error'], '.0e') for one in learned)}; "
        f"{', '.join(one['outcome'] for one in learned)}), "
        f"{np.median(seconds):.1f} s (most {max(seconds):.1f}) | control "
        f"{sum(one.n_solved or 0 for one in chances)} of "
        f"{sum(one.n_starts or 0 for one in chances)} starts | Adam's error {min(adam):.0e}",
        flush=True,
    )
    return sum(one["claimed"] and not one["right"] for one in learned)


if __name__ == "__main__":
    main()
