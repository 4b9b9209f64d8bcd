"""The exact solver: few rows determine the layer, and all others agree with it.

Data that some layer computes exactly (a planted layer, a program) need no p x p sums over all
rows.  A layer without error minimises every squared error, and where some rows determine all
coefficients, all rows do: solve for the first rows, then check all by 2 e p flops per row.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import apply_coef
from polyattn.numerics.parallel import map_pieces
from polyattn.numerics.scaling import EPS, exponent_for
from polyattn.solve.primal import solve_definite
from polyattn.solve.solution import Solution
from polyattn.stats import Moments
from polyattn.stats.passes import of_parts
from polyattn.stats.rows import Rows

# The sample: at least so many rows per feature, of at least so many sequences.
SAMPLE_ROWS, SAMPLE_SEQUENCES = 2, 16

# A sample is tried when there are so many times its rows: if it fails, some percent are lost.
WORTHWHILE = 32

# The norm of the residual of an output beside that output: no more than rounding leaves.
AGREEMENT = 64 * EPS

# Numbers of summaries that are checked between two reports of progress, and at a time.
PORTION_NUMBERS, BLOCK_NUMBERS, MIN_ROWS = 1 << 24, 1 << 17, 64


def solve_exact(rows: Rows) -> Solution | None:
    """The layer that computes all targets to rounding, if a sample of the rows determines it."""
    wanted = SAMPLE_ROWS * rows.n_features
    if rows.n_rows < WORTHWHILE * wanted:
        return None
    n_sequences = max(rows.sequences_with(wanted), min(SAMPLE_SEQUENCES, len(rows.batch)))
    sample = rows.part(0, n_sequences)
    if rows.n_rows < WORTHWHILE * sample.n_rows:
        return None
    solution = solve_definite(Moments.of(sample), sample, 0.0)
    if solution is None or not _agree(solution.theta, sample)[0]:
        return None
    agree, power = _agree(solution.theta, rows)
    if not agree:
        return None
    note = (
        f" The first {sample.n_rows} of {rows.n_rows} predicted positions determine it, and all "
        "others agree with it to rounding."
    )
    return replace(solution, residual_power=power, note=note)


def _agree(theta: NDArray, rows: Rows) -> tuple[bool, float]:
    """Whether the residual of each output is rounding beside it, and the sum of all squares."""
    coef, weights = rows.layout.as_coef(theta), rows.sequence_weights
    # Outputs are divided by powers of two before they are squared, mostly by 1: the squares of a
    # small output would underflow, and zero agrees with anything.
    heaviest = 1.0 if weights is None else float(np.sqrt(weights.max()))
    sizes = np.ldexp(rows.output_sizes, -(rows.target_exponent or 0)) * heaviest
    units = np.array([exponent_for(float(size)) or 0 for size in sizes], dtype=np.intp)

    total = np.zeros((2, len(coef)))
    for some in of_parts(rows, _powers_of_part, coef, units):
        total += some
    agree = bool(np.all(total[0] <= AGREEMENT**2 * total[1]))
    return agree, float(np.sum(np.ldexp(total[0], 2 * units)))


def _powers_of_part(rows: Rows, coef: NDArray, units: NDArray) -> NDArray[np.float64]:
    """Sums of squares of each output, (2, e): of the residual and of the targets."""
    total = np.zeros((2, len(coef)))
    for portion in rows.portions(PORTION_NUMBERS):
        for some in map_pieces(partial(_powers, coef=coef, units=units), portion.shares()):
            total += some
    return total


def _powers(share: Rows, coef: NDArray, units: NDArray) -> NDArray[np.float64]:
    sums = np.zeros((2, len(coef)))
    # Each block is checked while it is in the cache of the core that read it.
    for block in share.blocks(max(MIN_ROWS, BLOCK_NUMBERS // coef.shape[1])):
        residual = apply_coef(coef, block.sums, block.queries)
        residual -= block.targets
        for at, values in enumerate((residual, block.targets)):
            in_units = np.ldexp(values, -units[:, None]) if np.any(units) else values
            sums[at] += np.einsum("ar,ar->a", in_units, in_units)
    return sums
