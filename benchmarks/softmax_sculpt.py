"""The six phases of Chen and Li against the truth: alone, with the polish, and chance beside them.

Boolean tokens, A entries of deviation c/d.  Medians over seeds, errors relative:

    S1, S3, S4   of the sum of the values after phases 1, 3 and 4
    hull         distance of the centre of K* from the affine hull of the heads
    width        of K* along a typical direction, in norms of a head
    cos          of the largest angle between the span that was found and that of the heads
    alone        of the worst head when phase 6 ends, without any polish
    polished     of the worst head after the polish from there
    in K*, 1-hot, cert.   runs in which K* contains all heads, in which phase 3 rests on one-hot
                 rows, and in which the heads of phase 6 lie in K*

Random starts of the same polish stand beside it: they end exactly on such layers, too.  The first
table has several sizes, the second more and more examples for one to three heads, the third many
layers, for how often K* contains all heads.  ``--quick`` takes a tenth of the examples and seeds.
"""

from __future__ import annotations

import sys

import numpy as np
from common import verdict
from threadpoolctl import threadpool_limits

from polyattn.data import planted_softmax
from polyattn.model import match_heads
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.polish import Projection, polish
from polyattn_papers.tasks.softmax_methods import Task
from polyattn_papers.tasks.softmax_phases import CONFIDENCE, PhaseErrors, by_phases

QUICK = "--quick" in sys.argv
N_EXAMPLES, N_POLISH, EXACT = (2000 if QUICK else 20_000), 400, 1e-10

# (m, d, k, c): several sizes, with the hull distance and cosine that are claimed of them.
CELLS = (
    ((1, 8, 4, 1.0), 1e-3, 1.0),
    ((1, 8, 4, 4.0), 1e-3, 1.0),
    ((2, 8, 4, 1.0), 0.06, 0.99),
    ((2, 8, 4, 2.0), 0.1, 0.98),
    ((2, 8, 4, 4.0), 0.4, 0.8),
    ((3, 8, 3, 1.0), 0.1, 0.9),
    ((3, 8, 4, 1.0), 0.2, 0.8),
)

# More and more examples.
CURVES = ((1, 8, 4, 1.0), (2, 8, 4, 1.0), (3, 8, 3, 1.0), (3, 8, 4, 1.0))
COUNTS = (250, 1000, 4000) if QUICK else (250, 1000, 4000, 16_000, 64_000)
N_SEEDS = 1 if QUICK else 3

# Of many layers: sizes and examples, and how many of them.
CONTAINMENT = (((1, 8, 4, 1.0), 500), ((2, 8, 4, 1.0), 500), ((3, 8, 3, 1.0), 500))
N_LAYERS = 4 if QUICK else 30

COLUMNS = {
    "S1": "crude_sum", "S3": "sharp_sum", "S4": "last_sum", "hull": "hull_distance",
    "width": "body_width", "cos": "span_cosine", "alone": "heads_error",
}  # fmt: skip
COUNTED = {"in K*": "contained", "1-hot": "one_hot", "cert.": "certified"}


def main() -> None:
    with threadpool_limits(limits=1):
        print(f"several sizes, {N_EXAMPLES} examples; K* calibrated to {CONFIDENCE:.0%}")
        print(headings() + "  polished  random starts")
        for cell, hull, cosine in CELLS:
            run_cell(cell, hull, cosine)
        for cell in CURVES:
            run_curve(cell)
        for cell, count in CONTAINMENT:
            run_containment(cell, count)


def run_cell(cell: tuple[int, int, int, float], hull: float, cosine: float) -> None:
    """The phases alone, the polish from there, and the polish from random starts."""
    phases, polished, random = [], [], []
    for seed in range(1000, 1000 + N_SEEDS):
        task = planted(cell, N_EXAMPLES, seed)
        attempt, errors = by_phases(task, cell[0], seed)
        phases.append(errors)
        polished.append(polished_error(task, attempt.layer.attn))
        shape = task.layer.attn.shape
        drawn = np.random.default_rng(seed).standard_normal(shape) * 0.3 / shape[1]
        random.append(polished_error(task, drawn))
    lucky = sum(error <= EXACT for error in random)
    line = f"{np.median(polished):9.1e}  {lucky} of {len(random)} exact"
    print(f"{cell!s:>16s} {described(phases)} {line}")
    verdict(f"hull distance <= {hull:g}", middle(phases, "hull_distance") <= hull)
    verdict(f"span cosine >= {cosine:g}", middle(phases, "span_cosine") >= cosine - 1e-9)
    verdict("exact after the polish in every seed", max(polished) <= EXACT)


def run_curve(cell: tuple[int, int, int, float]) -> None:
    """The phases alone with more and more examples: every one must become better."""
    print(f"{cell}: more and more examples\n{headings()}")
    ends = []
    for count in COUNTS:
        phases = [
            by_phases(planted(cell, count, seed), cell[0], seed)[1]
            for seed in range(2000, 2000 + N_SEEDS)
        ]
        ends.append(phases)
        print(f"{count:16d} {described(phases)}", flush=True)
    for name, column in COLUMNS.items():
        first, last = (middle(ends[place], column) for place in (0, -1))
        better = last > first if column == "span_cosine" else last < first
        verdict(f"more examples make {name} better", better or column_is_perfect(cell, column))


def column_is_perfect(cell: tuple[int, int, int, float], column: str) -> bool:
    """The span of one head is that of the centre, which the hull distance measures."""
    return cell[0] == 1 and column == "span_cosine"


def run_containment(cell: tuple[int, int, int, float], count: int) -> None:
    """How often K* contains all heads, over many layers."""
    phases = [
        by_phases(planted(cell, count, seed), cell[0], seed)[1]
        for seed in range(4000, 4000 + N_LAYERS)
    ]
    inside = sum(errors.contained for errors in phases)
    needed = np.quantile([errors.slack_needed for errors in phases], [0.5, 1.0])
    print(
        f"{cell}, {count} examples: K* contains all heads in {inside} of {N_LAYERS} layers; "
        f"slack needed {needed[0]:.2f} in the middle, {needed[1]:.2f} at most; width "
        f"{middle(phases, 'body_width'):.2g}"
    )
    error = np.sqrt(CONFIDENCE * (1 - CONFIDENCE) * N_LAYERS)
    verdict("as often as its confidence", inside >= CONFIDENCE * N_LAYERS - 3 * error)


def planted(cell: tuple[int, int, int, float], count: int, seed: int) -> Task:
    n_heads, n_dims, n_tokens, size = cell
    return planted_softmax(count, n_tokens, n_dims, n_heads=n_heads, logits=size, random_state=seed)


def polished_error(task: Task, attn: np.ndarray) -> float:
    """The largest error of a head after the polish from ``attn`` on few examples."""
    X, Y = np.asarray(task.X)[:N_POLISH], np.asarray(task.Y)[:N_POLISH]
    found: Projection = polish(Examples((ExampleBlock(X, Y, None),)), attn)
    layer = type(task.layer)(found.attn, found.value, task.layer.mode)
    return float(match_heads(layer, task.layer).worst_attn)


def headings() -> str:
    names = (*COLUMNS, *COUNTED)
    return f"{'':>16s} " + " ".join(f"{name:>8s}" for name in names)


def described(phases: list[PhaseErrors]) -> str:
    figures = [f"{middle(phases, column):8.2g}" for column in COLUMNS.values()]
    counts = [sum(getattr(errors, column) for errors in phases) for column in COUNTED.values()]
    return " ".join([*figures, *(f"{f'{count}/{len(phases)}':>8s}" for count in counts)])


def middle(phases: list[PhaseErrors], column: str) -> float:
    return float(np.median([getattr(errors, column) for errors in phases]))


if __name__ == "__main__":
    main()
