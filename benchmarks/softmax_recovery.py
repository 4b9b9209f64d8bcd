"""Softmax heads from random examples: the learner, and beside it the control and Adam.

Every row is a cell (m heads, d coordinates, k tokens, N examples, logits of size c) over fresh
seeds.  "exact" counts runs whose heads are right to 1e-10 (hard families: 1e-6), "recovered"
those that say so, "wrong claims" those that say so and are off by more than 1e-3 (with noise:
and by more than five times their own error bars).  The control is the same Levenberg–Marquardt
from random starts, with as many starts as fit in the time the learner took, at least one.  Adam
gets the time given by --adam.  All on one thread.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from common import require, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.experiments.adam_softmax import train_softmax
from polyattn.model.matching import match_heads
from polyattn.sequences import as_batch
from polyattn.softmax.examples import prepare
from polyattn.softmax.growth import restarts
from polyattn.targets import as_targets


@dataclass(frozen=True)
class Cell:
    """One row of a table; ``limit`` is the claim on its seconds."""

    m: int
    d: int
    k: int
    n: int
    logits: float = 1.0
    tokens: str = "boolean"
    family: str | None = None
    noise: float = 0.0
    limit: float = np.inf
    n_seeds: int | None = None

    def __str__(self) -> str:
        extra = [self.family or "", self.tokens if self.tokens != "boolean" else ""]
        noise = f"noise {self.noise:g}" if self.noise else ""
        words = " ".join(word for word in (*extra, noise) if word)
        return f"({self.m},{self.d},{self.k}) N={self.n} c={self.logits:g} {words}".strip()


FAMILIES = ("close", "same_value", "rank_one_value", "scales", "identity")

TABLES = {
    "generic": [
        *(Cell(m, 8, 4, 50, c, limit=1) for m in (1, 2, 3) for c in (0.5, 1, 2)),
        *(Cell(2, 16, 6, 1000, c, limit=4, n_seeds=3) for c in (0.5, 1, 2)),
        Cell(4, 16, 6, 1000, limit=15, n_seeds=3),
        Cell(1, 32, 8, 300, limit=10, n_seeds=3),
        Cell(2, 32, 8, 600, limit=60, n_seeds=2),
    ],
    "shapes": [
        Cell(2, 8, 2, 200), Cell(2, 8, 3, 200), Cell(2, 4, 8, 200), Cell(6, 4, 4, 400),
        Cell(8, 8, 4, 600, n_seeds=3), Cell(2, 8, 4, 200, tokens="gaussian"),
        Cell(3, 8, 4, 200, 2.0, "gaussian"),
    ],
    "hard": [Cell(3, 8, 4, 2000, 4.0, family=name, limit=20, n_seeds=5) for name in FAMILIES],
    "harder": [
        *(Cell(3, 8, 4, 2000, 10.0, family=name, n_seeds=5) for name in FAMILIES),
        *(Cell(4, 8, 4, 2000, 4.0, family=name, n_seeds=5) for name in FAMILIES),
    ],
    "noise": [
        Cell(m, 8, 4, 2000, noise=noise) for m in (1, 2, 3) for noise in (1e-3, 1e-2, 1e-1)
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)} [default: generic]")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--adam", type=float, default=2.0, help="seconds of training, 0: without")
    parser.add_argument("--count", action="store_true", help="do not tell the number of heads")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(limits=1):
        for name in arguments.tables or ["generic"]:
            print(f"{name}:")
            for cell in TABLES[name]:
                row(cell, arguments)


def row(cell: Cell, arguments: argparse.Namespace) -> None:
    seeds = range(arguments.first, arguments.first + min(arguments.seeds, cell.n_seeds or 999))
    threshold = 1e-6 if cell.family else 1e-10
    worst, seconds, claims, false, counted, bound = [], [], 0, 0, 0, []
    control, control_starts, adam = 0, 0, []
    for seed in seeds:
        task = pa.data.planted_softmax(
            cell.n, cell.k, cell.d, n_heads=cell.m, logits=cell.logits, tokens=cell.tokens,
            family=cell.family, noise=cell.noise, random_state=seed,
        )  # fmt: skip
        start = time.perf_counter()
        found = pa.learn_softmax(task.X, task.Y, None if arguments.count else cell.m)
        seconds.append(time.perf_counter() - start)
        match = match_heads(found.layer, task.layer)
        right = found.n_heads == cell.m
        counted += right
        worst.append(max(match.worst_attn, match.worst_value) if right else np.inf)
        claims += found.recovered
        false += found.recovered and not within_bars(found, match, right, cell.noise)
        bound.append(match.worst_attn / found.attn_error.max() if right else np.inf)
        solved, started = by_control(task, cell.m, seconds[-1], seed, threshold, cell.noise)
        control, control_starts = control + solved, control_starts + started
        if arguments.adam:
            layer = train_softmax(task.X, task.Y, cell.m, arguments.adam, seed=seed)
            adam.append(fresh_error(layer, task.layer, cell, seed))
    exact = sum(error <= threshold for error in worst)
    by_adam = f"{np.median(adam):.0e}" if adam else "–"
    to_bound = f", attn error / bound {np.median(bound):.2f}" if cell.noise else ""
    print(
        f"  {cell!s:<40} exact {exact}/{len(worst)}, worst error {max(worst):.0e}, recovered "
        f"{claims}, heads {counted}, {np.median(seconds):.2f} s (most {max(seconds):.2f})"
        f"{to_bound} | control {control} of {control_starts} starts | Adam's error {by_adam}",
        flush=True,
    )
    require("no wrong claim", false == 0)
    if not cell.noise:
        verdict("exact in every run", exact == len(worst))
    if cell.limit < np.inf:
        verdict(f"at most {cell.limit:g} s each", max(seconds) <= cell.limit)


def within_bars(found: pa.LearnedSoftmax, match: pa.HeadMatch, right: bool, noise: float) -> bool:
    """Whether heads are right: to 1e-3, or with noise within five times their error bars."""
    sides = ((match.worst_attn, found.attn_error), (match.worst_value, found.value_error))
    allowed = 5.0 if noise else 0.0
    return right and all(error <= max(1e-3, allowed * bar.max()) for error, bar in sides)


def by_control(
    task: pa.data.Planted, n_heads: int, seconds: float, seed: int, threshold: float, noise: float
) -> tuple[int, int]:
    """How many random starts solved the task, and how many there were in the given time."""
    rng = np.random.default_rng(seed)
    batch = as_batch(task.X)
    examples, _ = prepare(batch, as_targets(task.Y, batch, "full"), "full", rng)
    size = np.sqrt(examples.power)
    floor = 1.1 * noise * np.sqrt(task.Y.size) / size if noise else threshold
    solved = started = 0
    start = time.perf_counter()
    for polished in restarts(examples, n_heads, rng):
        started += 1
        solved += polished.error <= floor
        if time.perf_counter() - start > seconds:
            return solved, started
    return solved, started


def fresh_error(
    layer: pa.SoftmaxAttention, planted: pa.SoftmaxAttention, cell: Cell, seed: int
) -> float:
    """Relative error on sequences that nobody has seen."""
    X = pa.data.boolean_sequences(500, cell.k, cell.d, random_state=seed + 10**6)
    expected = planted(X)
    return float(np.linalg.norm(layer(X) - expected) / np.linalg.norm(expected))


if __name__ == "__main__":
    main()
