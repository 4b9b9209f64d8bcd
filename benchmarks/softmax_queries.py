"""Softmax layers recovered from black-box access: heads, errors, queries, time and memory.

Random layers are hidden behind an oracle that answers chosen sequences.  Beside the queries stands
4 H d^2 - 2 H + 1, the number in the literature [arXiv 2608.03294], where a query is answered with
one number.  Here heads are read from a row of e numbers for each query: "numbers" are queries
times e, and only layers with one output compare (scalar_queries.py has many of them).  Every case
is run in a process of its own, with answers in float64 or rounded.  "held" is the part of all
entries of attn and value that lie within 1.96 of their standard errors: 95 % of them should.

    python benchmarks/softmax_queries.py --cases 8x3 16x4 384x12 --answers float64 float32 --seeds 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from common import peak_memory, verdict
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import polyattn as pa
from polyattn.softmax.queries import learn_from_queries

MOST_QUERIES, MOST_SECONDS, MOST_MEGABYTES = 250_000, 1800, 8192


@dataclass(frozen=True)
class Case:
    """The shape of a layer; attn and value have the given rank."""

    n_dims: int
    n_heads: int
    rank: int
    n_outputs: int
    bias: bool = False

    @property
    def name(self) -> str:
        outputs = f"to{self.n_outputs}" if self.n_outputs != self.n_dims else ""
        return f"{self.n_dims}x{self.n_heads}{outputs}"


CASES = [
    Case(8, 3, 8, 8),
    Case(8, 3, 8, 1),
    Case(16, 4, 16, 16),
    Case(16, 4, 16, 1),
    Case(32, 6, 32, 32),
    Case(64, 8, 64, 64),
    Case(128, 12, 32, 128),
    Case(384, 12, 32, 384, bias=True),
    Case(512, 12, 32, 512, bias=True),
]


def _bfloat16(Y: NDArray) -> NDArray[np.float32]:
    """Rounded to the nearest number of bfloat16, to even ones in the middle, in float32."""
    bits = np.ascontiguousarray(Y, np.float32).view(np.uint32)
    bits += ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


# What answers are rounded to, and the largest error that is expected of heads.
ANSWERS: dict[str, tuple[Callable[[NDArray], NDArray], float]] = {
    "float64": (lambda Y: Y, 1e-8),
    "float32": (lambda Y: Y.astype(np.float32), 1e-4),
    "float16": (lambda Y: Y.astype(np.float16), 1e-1),
    "bfloat16": (_bfloat16, 1e-1),
}

# Error bars hold when so many entries lie within nominal intervals of 95 %.
LEAST_HELD = 0.9


def main() -> None:
    options = _options()
    print(
        "    d   H  rank    e  bias  answers   outcome                 heads  attn error  "
        "value error     doubt  held  queries     numbers   4Hd^2-2H+1  seconds    MB"
    )
    for case in CASES:
        if options.cases and case.name not in options.cases:
            continue
        for answers in options.answers:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                megabytes = peak_memory(partial(prepare, case, answers, seed))
                print(f"{megabytes:6.0f}", flush=True)
                if megabytes > MOST_MEGABYTES:
                    verdict("peak memory at most 8 GB", holds=False)


def prepare(case: Case, answers: str, seed: int) -> Callable[[], None]:
    """Hide a layer, and return the work that recovers it and prints its row."""
    layer = planted(case, seed)
    rounded, largest = ANSWERS[answers]

    def oracle(X: NDArray) -> NDArray:
        return rounded(layer(X))

    def work() -> None:
        start = time.perf_counter()
        result = learn_from_queries(oracle, case.n_dims, bias=case.bias, random_state=seed)
        seconds = time.perf_counter() - start
        of_attn, of_value, held = errors_of(layer, result)
        holds = (
            result.recovered
            and max(of_attn, of_value) <= largest
            and held >= LEAST_HELD
            and result.n_queries <= MOST_QUERIES
            and seconds <= MOST_SECONDS
        )
        print(
            f"{case.n_dims:5d} {case.n_heads:3d} {case.rank:5d} {case.n_outputs:4d} "
            f"{'yes' if case.bias else 'no':>5s}  {answers:8s}  {result.outcome.name:22s} "
            f"{result.n_heads:6d}  {of_attn:10.1e}  {of_value:11.1e}  {result.doubt or 0:8.1e}  "
            f"{held:4.2f}  {result.n_queries:7d}  {result.n_queries * case.n_outputs:10d}  "
            f"{in_literature(case):11d}  {seconds:7.1f}",
            end="",
            flush=True,
        )
        if not holds:
            print("  MISSED", end="", flush=True)

    return work


def in_literature(case: Case) -> int:
    """Queries in the literature, each answered with one number."""
    return 4 * case.n_heads * case.n_dims**2 - 2 * case.n_heads + 1


def planted(case: Case, seed: int) -> pa.SoftmaxAttention:
    """A random layer of that shape."""
    rng = np.random.default_rng([seed, case.n_dims, case.n_heads])
    rows, size = case.n_dims + case.bias, np.sqrt(case.rank * (case.n_dims + case.bias))
    queries, keys, values = rng.standard_normal((3, case.n_heads, rows, case.rank))
    outputs = rng.standard_normal((case.n_heads, case.rank, case.n_outputs))
    attn = queries @ keys.transpose(0, 2, 1) / size
    return pa.SoftmaxAttention(attn, values @ outputs / size, bias=case.bias)


def errors_of(layer: pa.SoftmaxAttention, result: pa.QueryResult) -> tuple[float, float, float]:
    """Largest relative errors over matched heads, and the part of entries within their bars.

    Of what can be seen of attn and value.
    """
    d, found = layer.n_dims, result.layer
    if found is None or found.n_heads != layer.n_heads:
        return np.inf, np.inf, 0.0
    pairs = [(layer.attn[:, :, :d], found.attn[:, :, :d]), (layer.value[:, :d], found.value[:, :d])]
    apart = [
        np.array([[np.linalg.norm(a - b) / np.linalg.norm(a) for b in other] for a in true])
        for true, other in pairs
    ]
    matched = linear_sum_assignment(apart[0] + apart[1])
    worst = [float(each[matched].max()) for each in apart]
    if result.attn_error is None or result.value_error is None:
        return worst[0], worst[1], 0.0
    bars, order = (result.attn_error[:, :, :d], result.value_error[:, :d]), matched[1]
    within = [
        np.abs(other[order] - true) < 1.96 * bar[order]
        for (true, other), bar in zip(pairs, bars, strict=True)
    ]
    return worst[0], worst[1], float(np.mean(np.concatenate([each.ravel() for each in within])))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="*", choices=[case.name for case in CASES])
    parser.add_argument("--answers", nargs="*", choices=list(ANSWERS), default=["float64"])
    parser.add_argument("--seeds", type=int, default=1, help="how many layers of each case")
    parser.add_argument("--first-seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
