"""Softmax layers with one output from queries: one number for each, as in the literature.

4 H d^2 - 2 H + 1 queries [arXiv 2608.03294] are those of an oracle that answers one number.  A row
of e numbers says more than one, so that counts compare only where layers have one output.  Random
layers of that kind, of six heads on eight coordinates, are asked with the defaults; what is called
recovered must be the layer.

    python benchmarks/scalar_queries.py --seeds 30
"""

from __future__ import annotations

import argparse

import numpy as np
from common import require
from softmax_queries import Case, errors_of, in_literature, planted

import polyattn as pa

CASE = Case(8, 6, 8, 1)
LARGEST_ERROR = 1e-8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30, help="how many layers")
    n_layers = parser.parse_args().seeds
    literature, asked, worst = in_literature(CASE), [], 0.0
    print(f"d={CASE.n_dims}, {CASE.n_heads} heads, one output: 4Hd^2-2H+1 = {literature}")
    for seed in range(n_layers):
        layer = planted(CASE, seed)
        result = pa.learn_from_queries(layer, CASE.n_dims, random_state=seed)
        error = max(errors_of(layer, result)[:2])
        words = f"{result.outcome.name}, {result.n_queries} queries, error {error:.1e}"
        print(f"  layer {seed}: {words}", flush=True)
        if result.recovered:
            asked.append(result.n_queries)
            worst = max(worst, error)
    print(f"recovered {len(asked)} of {n_layers}")
    if asked:
        fewer = sum(n <= literature for n in asked)
        print(
            f"queries of these: median {np.median(asked):,.0f}, {min(asked):,} to {max(asked):,}; "
            f"at most {literature:,} in {fewer}"
        )
        require(f"worst error of these {worst:.1e}", worst <= LARGEST_ERROR)


if __name__ == "__main__":
    main()
