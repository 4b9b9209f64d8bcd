"""Parity heads: how far the learner, random starts and Adam get where cost must grow with m.

s heads compute the parity of s hidden bits (docs/derivations/softmax_parity.md); only the
informative output is given.  On Boolean tokens the marker of a pair of heads is not determined,
so success is the relative error on fresh sequences below 1e-6, and the learner may say
"ambiguous" of a function that is right.  "recovered" must never be said of a wrong one.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from common import require
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.experiments.adam_softmax import train_softmax
from polyattn.sequences import as_batch
from polyattn.softmax.examples import prepare
from polyattn.softmax.growth import restarts
from polyattn.targets import as_targets

N_DIMS, N_TOKENS, N_SEQUENCES = 8, 4, 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=2000, help="the first seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run, of every side")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    with threadpool_limits(limits=1):
        for n_bits, beta in ((1, 2.0), (1, 8.0), (3, 0.5), (3, 1.0), (3, 2.0), (3, 4.0)):
            wrong += row(n_bits, beta, arguments)
    require(f"wrong claims: {wrong}", wrong == 0)


def row(n_bits: int, beta: float, arguments: argparse.Namespace) -> int:
    outcomes, errors, seconds, adam = [], [], [], []
    solved = started = wrong = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(N_DIMS)
        layer = pa.softmax.parity_layer(
            chosen[:n_bits].tolist(), int(chosen[n_bits]), 0, N_DIMS, beta, n_outputs=1
        )
        X = pa.data.boolean_sequences(N_SEQUENCES, N_TOKENS, N_DIMS, random_state=seed)
        fresh = pa.data.boolean_sequences(500, N_TOKENS, N_DIMS, random_state=seed + 10**6)
        Y = layer(X)
        start = time.perf_counter()
        found = pa.learn_softmax(X, Y, n_bits, max_seconds=arguments.seconds)
        seconds.append(time.perf_counter() - start)
        outcomes.append(found.outcome.name)
        errors.append(relative(found.layer, layer, fresh))
        match = pa.match_heads(found.layer, layer)
        wrong += found.recovered and (match.worst_attn > 1e-3 or found.n_heads != n_bits)
        one, some = by_control(X, Y, n_bits, seconds[-1], rng)
        solved, started = solved + one, started + some
        adam.append(
            relative(train_softmax(X, Y, n_bits, min(seconds[-1], 10), seed=seed), layer, fresh)
        )
    right = sum(error < 1e-6 for error in errors)
    print(
        f"  s={n_bits} beta={beta:g}: right {right}/{len(errors)} (errors "
        f"{', '.join(f'{error:.0e}' for error in errors)}; {', '.join(outcomes)}), "
        f"{np.median(seconds):.1f} s (most {max(seconds):.1f}) | control {solved} of {started} "
        f"starts | Adam's error {min(adam):.0e}",
        flush=True,
    )
    return wrong


def by_control(
    X: np.ndarray, Y: np.ndarray, n_heads: int, seconds: float, rng: np.random.Generator
) -> tuple[int, int]:
    """Random starts that solved the task in the given time, and how many there were."""
    batch = as_batch(X)
    examples, _ = prepare(batch, as_targets(Y, batch, "full"), "full", rng)
    solved = started = 0
    start = time.perf_counter()
    for polished in restarts(examples, n_heads, rng):
        started += 1
        solved += polished.error < 1e-6
        if time.perf_counter() - start > seconds:
            break
    return solved, started


def relative(found: pa.SoftmaxAttention, layer: pa.SoftmaxAttention, X: np.ndarray) -> float:
    expected = layer(X)
    return float(np.linalg.norm(found(X) - expected) / np.linalg.norm(expected))


if __name__ == "__main__":
    main()
