"""Softmax heads from random examples: the learner, and beside it the control and Adam.

Every row is a cell (m heads, d coordinates, k tokens, N examples, logits of size c) over fresh
seeds.  "exact" counts runs whose heads are right to 1e-10 (hard families: 1e-6), "recovered"
those that say so, "wrong claims" those that say so and are off by more than 1e-3 (with noise:
and by more than five times their own error bars).  The control is the same Levenberg–Marquardt
from random starts, with as many starts as fit in the time the learner took, at least one, counted
when they are right on fresh sequences to 1e-6 (with noise: better than one target is).  Adam gets
the time given by --adam.  All on one thread.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import numpy as np
import torch
from common import require, verdict
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn_papers.tasks.softmax_methods import by_adam, by_learner, by_random_starts
from polyattn_papers.tasks.softmax_truth import Truth, worst_error


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


@dataclass
class Tally:
    """What the runs of one cell came to."""

    errors: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    to_bound: list[float] = field(default_factory=list)
    adam: list[float] = field(default_factory=list)
    claims: int = 0
    wrong_claims: int = 0
    counted: int = 0
    control: int = 0
    control_starts: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)} [default: generic]")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--adam", type=float, default=2.0, help="seconds of training, 0: without")
    parser.add_argument("--count", action="store_true", help="do not tell the number of heads")
    parser.add_argument("--max-seconds", type=float, help="of each run of the learner")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = runs = 0
    with threadpool_limits(limits=1):
        for name in arguments.tables or ["generic"]:
            print(f"{name}:")
            for cell in TABLES[name]:
                tally = row(cell, arguments)
                wrong, runs = wrong + tally.wrong_claims, runs + len(tally.errors)
    require(f"wrong claims: {wrong} in {runs} runs", wrong == 0)


def row(cell: Cell, arguments: argparse.Namespace) -> Tally:
    seeds = range(arguments.first, arguments.first + min(arguments.seeds, cell.n_seeds or 999))
    threshold = 1e-6 if cell.family else 1e-10
    tally = Tally()
    for seed in seeds:
        run(cell, seed, arguments, tally)
    errors, seconds = tally.errors, tally.seconds
    exact = sum(error <= threshold for error in errors)
    adam = f"{np.median(tally.adam):.0e}" if tally.adam else "–"
    bound = f", attn error / bound {np.mean(tally.to_bound):.2f}" if cell.noise else ""
    print(
        f"  {cell!s:<46} exact {exact}/{len(errors)} (worst {max(errors):.0e}), recovered "
        f"{tally.claims}, heads {tally.counted}, {np.median(seconds):.2f} s (most "
        f"{max(seconds):.2f}){bound} | control {tally.control} of {tally.control_starts} starts | "
        f"Adam's error {adam}",
        flush=True,
    )
    if exact < len(errors) and not cell.noise:
        verdict("exact in every run", False)
    if max(seconds) > cell.limit and not arguments.count:
        verdict(f"at most {cell.limit:g} s each", False)
    if cell.noise and np.mean(tally.to_bound) > 1.5:
        verdict("attn error at most 1.5x the bound", False)
    return tally


def run(cell: Cell, seed: int, arguments: argparse.Namespace, tally: Tally) -> None:
    """One layer: the learner, the control in the same time, Adam."""
    task = pa.data.planted_softmax(
        cell.n, cell.k, cell.d, n_heads=cell.m, logits=cell.logits, distribution=cell.tokens,
        family=cell.family, noise=cell.noise, random_state=seed,
    )  # fmt: skip
    truth = Truth.of(task, seed, cell.tokens)
    n_heads = None if arguments.count else cell.m
    found = by_learner(task, n_heads, max_seconds=arguments.max_seconds)
    row = truth.row("auto", found)
    right = found.layer is not None and found.layer.n_heads == cell.m
    tally.seconds.append(found.seconds)
    tally.counted += right
    tally.errors.append(worst_error(row) if right else np.inf)
    tally.claims += found.claimed
    tally.wrong_claims += found.claimed and not row["right"]
    if row["to_bound"] is not None:
        tally.to_bound.append(row["to_bound"])
    chance = by_random_starts(task, cell.m, found.seconds, seed, truth.solved)
    tally.control, tally.control_starts = (
        tally.control + (chance.n_solved or 0),
        tally.control_starts + (chance.n_starts or 0),
    )
    if arguments.adam:
        trained = by_adam(task, cell.m, arguments.adam, seed)
        tally.adam.append(truth.row("adam", trained)["function_error"])


if __name__ == "__main__":
    main()
