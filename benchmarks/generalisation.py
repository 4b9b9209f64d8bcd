"""How often a fit on fresh sequences is worse than ``result.generalisation`` promised.

Each cell draws data sets from a population whose best layer is known, fits them, and compares the
true excess risk with the bound.  "exceeded" counts data sets whose bound was too small, of all, and
"of bounds" of those that were promised a bound; "bound / truth" is the median over all data sets,
infinity where most have none.  The last cells are those that no data can show: sequences so large
and so rare that most data sets have none of them.  They are printed to be seen, and have no gate.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from _populations import Population
from common import verdict

import polyattn as pa

CONFIDENCE = 0.95


class Cell(NamedTuple):
    """A population, how many sequences per feature, and what is done with them."""

    population: Population
    ratio: float
    copies: int = 1
    ridge: float = 0.0
    weighted: bool = False
    informative: bool = False  # the bound must be less than 10 times the truth

    def __str__(self) -> str:
        p = self.population
        extras = [f"{self.copies} copies"] * (self.copies > 1)
        extras += [f"ridge {self.ridge:g}"] * (self.ridge > 0) + ["weights"] * self.weighted
        extras += [f"{p.n_outputs} outputs"] * (p.n_outputs > 1)
        extras += [p.mode] * (p.mode != "last")
        words = f"{p.tokens} d={p.n_dims} n={p.n_tokens}, {p.target}, noise {p.noise}"
        return ", ".join([words, *extras])


P = Population
CELLS = [
    Cell(P(), 1.1),
    Cell(P(), 1.5),
    Cell(P(), 2.0),
    Cell(P(), 10.0, informative=True),
    Cell(P(n_dims=4, n_tokens=6), 10.0, informative=True),
    Cell(P(target="tanh"), 10.0, informative=True),
    Cell(P("Boolean"), 2.0),
    Cell(P("Boolean"), 10.0, informative=True),
    Cell(P("Boolean", target="even", noise="none"), 10.0, informative=True),
    Cell(P("Boolean", n_dims=4, n_tokens=6, n_outputs=2), 10.0, informative=True),
    Cell(P(target="even"), 40.0),
    Cell(P(n_dims=2, n_tokens=4, target="even", noise="none"), 40.0),
    Cell(P(noise="uneven"), 10.0),
    Cell(P(target="fifth", noise="uneven"), 40.0),
    Cell(P("Student 8", n_dims=2, n_tokens=4), 10.0),
    Cell(P("Student 8", n_dims=2, n_tokens=4), 40.0),
    Cell(P("Student 8", target="even"), 10.0),
    Cell(P("Student 10"), 40.0),
    Cell(P("Student 10", target="fifth"), 10.0),
    Cell(P("Laplace", n_dims=2), 40.0),
    Cell(P("5 % large", n_dims=2, n_tokens=4, target="even"), 40.0),
    Cell(P("5 % large"), 10.0),
    Cell(P("uniform", target="tanh"), 10.0),
    Cell(P("sparse", target="tanh"), 40.0),
    Cell(P("one-hot", n_dims=4), 10.0),
    Cell(P("Zipf", n_dims=4), 40.0),
    Cell(P(n_dims=2, n_tokens=4, noise="Student 3"), 40.0),
    Cell(P(n_tokens=4, noise="shared", n_outputs=3), 10.0),
    Cell(P(n_dims=2, mode="causal", noise="shared"), 10.0),
    Cell(P(n_dims=2, mode="causal", noise="uneven", target="even", n_outputs=2), 40.0),
    Cell(P(), 10.0, copies=3),
    Cell(P("few", n_tokens=2, target="even", noise="none", n_listed=64), 10.0),
    Cell(P(), 10.0, ridge=30.0),
    Cell(P(), 10.0, weighted=True),
]
UNSEEN = [
    Cell(P("1 % large", n_dims=2, n_tokens=4), 10.0),
    Cell(P("1 % large", n_dims=2, n_tokens=4), 40.0),
]


class Row(NamedTuple):
    """What became of the data sets of a cell."""

    exceeded: float  # share of data sets whose excess was larger than the bound
    risk_exceeded: float  # the same of the risk
    promised: float
    of_bounds: float  # share of the promised bounds that were too small
    ratio: float  # median of bound / truth
    n_sequences: int


def judge(cell: Cell, n_trials: int, seed: int = 0) -> Row:
    """Fit ``n_trials`` data sets and compare."""
    population = cell.population
    N = int(np.ceil(cell.ratio * population.rank))
    rng = np.random.default_rng(seed)
    trials = []
    for _ in range(n_trials):
        X, Y = population.draw(rng, N)
        weights = rng.integers(1, 4, N).astype(float) if cell.weighted else None
        X, Y = np.repeat(X, cell.copies, axis=0), np.repeat(Y, cell.copies, axis=0)
        result = pa.fit(X, Y, population.mode, cell.ridge, sample_weight=weights)
        found = result.generalisation(CONFIDENCE)
        truth = population.excess(result.coef)
        trials.append((truth, found.excess_risk, population.least_risk + truth > found.risk))
    truths, bounds, risks = np.array(trials).T
    exceeded, promised = np.mean(truths > bounds), np.mean(np.isfinite(bounds))
    return Row(
        float(exceeded),
        float(np.mean(risks)),
        float(promised),
        float(exceeded / promised) if promised else 0.0,
        float(np.median(bounds / truths)),
        N,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    options = parser.parse_args()
    head = ("cell", "N", "exceeded", "of risk", "promised", "of bounds", "bound / truth")
    print("{:60s} {:>5s} {:>8s} {:>8s} {:>8s} {:>9s} {:>13s}".format(*head))
    calm = informative = True
    for cell in [*CELLS, *UNSEEN]:
        row = judge(cell, options.trials)
        print(
            f"{cell!s:60s} {row.n_sequences:5d} {row.exceeded:8.3f} {row.risk_exceeded:8.3f} "
            f"{row.promised:8.3f} {row.of_bounds:9.3f} {row.ratio:13.2f}",
            flush=True,
        )
        if any(cell is each for each in UNSEEN):
            continue
        calm &= max(row.exceeded, row.risk_exceeded) <= 1.0 - CONFIDENCE
        informative &= not cell.informative or row.ratio < 10.0
    verdict("no cell exceeds its bounds more often than promised", calm)
    verdict("at N = 10 p the bound is less than 10 times the truth", informative)


if __name__ == "__main__":
    main()
