"""The error of leaving out each sequence, for every ridge of a grid, without fitting again.

With H the hat matrix of all rows, the residuals of a sequence B that was left out are

    (1 - H_BB)^-1 r_B        in feature space,           r = (1 - H) y,
    (C_BB)^-1 (C y)_B        in sample space,            C = (Phi Phi^T + ridge)^-1.

The first is cheap for many rows, and cancels where a sequence nearly decides its own fit.  Such
sequences are few: they are judged by the second, beside the triangular factor of all the others.
Its rounding is estimated, too: a small sequence with large targets may steer all others at a tiny
ridge, and its features are known only beside the largest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.scaling import EPS
from polyattn.solve import decomposition
from polyattn.solve.decomposition import Decomposition
from polyattn.solve.sequence_rows import SequenceRows, sequence_rows
from polyattn.stats import TriangularFactor
from polyattn.stats.passes import factor_of, of_parts
from polyattn.stats.rows import Rows

# Sequences with more leverage than this in some direction are judged in sample space.
MOST_LEVERAGE = 0.9

# Numbers that are in memory together for the ridges of a grid.
GRID_NUMBERS = 1 << 22

# Singular vectors are wrong by a few roundings, and by at most so much of an error of prediction.
ROUNDINGS, MOST_DOUBT = 8.0, 1e-4

# Errors below this part of the targets' power are as good as none: they need not be known.
NO_ERROR = 1e-12


def errors_of_many(rows: Rows, ridges: NDArray | None) -> tuple[NDArray, NDArray]:
    """The grid and the sums of squares, of data with at least as many rows as features."""
    found = decomposition.of_features(rows, ridges)
    # 1 / (values + ridge), (p, grid), and the solutions of all ridges (grid, p, e), in basis V
    shrink = 1.0 / (found.values[:, None] + found.grid)
    thetas = shrink.T[:, :, None] * (np.sqrt(found.values)[:, None] * found.components)
    errors, doubts = np.zeros((2, len(found.grid)))
    decisive: list[SequenceRows] = []
    n_before = 0
    for more, left, n_sequences in of_parts(rows, _judged_part, found.vectors, shrink, thetas):
        errors += more
        decisive += [replace(each, number=n_before + each.number) for each in left]
        n_before += n_sequences
    for group in _groups(decisive, rows.n_features):
        more, unsure = _beside_the_others(rows, group, found.grid)
        errors += more
        doubts += unsure
    return _judged(found, errors, doubts, ridges is None)


def errors_of_few(rows: Rows, ridges: NDArray | None) -> tuple[NDArray, NDArray]:
    """The same of data with fewer rows than features."""
    found = decomposition.of_samples(rows, ridges)
    # Only sequences of positive weight stand among the rows that were decomposed.
    sizes = np.ones(len(rows.batch), int) if rows.mode == "last" else rows.batch.lengths
    if rows.sequence_weights is not None:
        sizes = sizes[rows.sequence_weights > 0]
    errors, doubts = _in_sample_space(found, _blocks(sizes, 0))
    return _judged(found, errors, doubts, ridges is None)


def _judged_part(
    rows: Rows, vectors: NDArray, shrink: NDArray, thetas: NDArray
) -> tuple[NDArray, list[SequenceRows], int]:
    """Squared errors of the sequences of a part, the decisive among them, and their number."""
    errors, decisive = np.zeros(shrink.shape[1]), []
    judge = _single_rows if rows.mode == "last" else _one_sequence
    for some in sequence_rows(rows):
        more, left = judge(some, vectors, shrink, thetas)
        errors += more
        decisive += left
    return errors, decisive, len(rows.batch)


def _single_rows(
    rows: SequenceRows, vectors: NDArray, shrink: NDArray, thetas: NDArray
) -> tuple[NDArray, list[SequenceRows]]:
    """Squared errors of rows that are sequences of their own, and the decisive among them."""
    basis = rows.features @ vectors
    leverage = basis**2 @ shrink  # (n, grid)
    decisive = leverage[:, 0] > MOST_LEVERAGE
    residual = rows.targets - basis @ thetas  # (grid, n, e)
    left_out = residual[:, ~decisive] / (1.0 - leverage[~decisive]).T[:, :, None]
    left = [
        SequenceRows(rows.number + int(at), rows.features[at : at + 1], rows.targets[at : at + 1])
        for at in np.flatnonzero(decisive)
    ]
    return np.sum(left_out**2, axis=(1, 2)), left


def _one_sequence(
    whole: SequenceRows, vectors: NDArray, shrink: NDArray, thetas: NDArray
) -> tuple[NDArray, list[SequenceRows]]:
    """Squared errors of the rows of one sequence; none yet where it is decisive."""
    sequence, (n, p) = whole, whole.features.shape
    if n > p:
        # As few rows as there are features: a rotation of the rows changes no error.
        both = np.asarray(np.linalg.qr(np.hstack([whole.features, whole.targets]), mode="r"))
        outside = float(np.sum(both[p:] ** 2))
        sequence = SequenceRows(whole.number, both[:p, :p], both[:p, p:], outside)
    basis = sequence.features @ vectors
    errors = np.zeros(shrink.shape[1])
    most = (basis * shrink[:, 0]) @ basis.T
    if np.trace(most) > MOST_LEVERAGE and np.linalg.eigvalsh(most)[-1] > MOST_LEVERAGE:
        return errors, [sequence]
    for part in _some_ridges(len(errors), basis.size):
        hat = (basis * shrink.T[part, None, :]) @ basis.T
        residual = sequence.targets - basis @ thetas[part]
        left_out = np.linalg.solve(np.eye(len(basis)) - hat, residual)
        errors[part] = np.sum(left_out**2, axis=(1, 2)) + sequence.outside
    return errors, []


def _beside_the_others(
    rows: Rows, group: list[SequenceRows], grid: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Squared errors of some sequences; all others enter as the rows of their factor."""
    factor = _factor_of_others(rows, [left.number for left in group])
    root = factor.scaled_factor() / rows.layout.feature_weights
    features = np.concatenate([root, *(left.features for left in group)])
    targets = np.concatenate([factor.scaled_projection(), *(left.targets for left in group)])
    found = decomposition.of_matrix(features, targets, grid)
    blocks = _blocks([len(left.features) for left in group], len(root))
    errors, doubts = _in_sample_space(found, blocks)
    return errors + sum(left.outside for left in group), doubts


def _factor_of_others(rows: Rows, numbers: list[int]) -> TriangularFactor:
    """The factor of all sequences but some."""
    left_out: dict[int, list[int]] = {}
    first = 0
    for part in rows.parts:
        stop = first + part.n_sequences
        left_out[part.base] = [number - first for number in numbers if first <= number < stop]
        first = stop
    return factor_of(rows, left_out)


# A ridge of almost nothing moves them beyond float64: infinity is not known.
@np.errstate(over="ignore", invalid="ignore")
def _in_sample_space(found: Decomposition, blocks: list[slice]) -> tuple[NDArray, NDArray]:
    """Squared errors of blocks of rows, and what rounding may have done to them.

    With C = W W^T, W = U diag(values + ridge)^-1/2, the residual of block B is the x of least
    ||W_B^T x - W^T y||: nothing is squared, and nothing cancels.
    """
    errors, doubts = np.zeros((2, len(found.grid)))
    roots = 1.0 / np.sqrt(found.values + found.grid[:, None])[:, :, None]  # (grid, m, 1)
    inside = found.components * roots  # W^T y
    # A rounding of U moves C y by so much.
    moved = ROUNDINGS * EPS * np.linalg.norm(inside * roots, axis=(1, 2))
    single = np.array([block.start for block in blocks if block.stop - block.start == 1], int)
    for own, solve in [
        (found.vectors[single], _rows_alone),
        *((found.vectors[b], _rows_together) for b in blocks if b.stop - b.start > 1),
    ]:
        for part in _some_ridges(len(errors), own.size):
            sizes, least = solve(own.T * roots[part], inside[part])
            doubt = moved[part, None] / least
            errors[part] += np.sum(sizes**2, axis=1)
            doubts[part] += np.sum((2 * sizes + doubt) * doubt, axis=1)
    return errors, doubts


def _rows_alone(across: NDArray, inside: NDArray) -> tuple[NDArray, NDArray]:
    """||x|| of each row by itself and its C_ii, (ridges, rows); across (ridges, m, rows)."""
    squares = np.sum(across**2, axis=1)
    return np.linalg.norm(across.swapaxes(1, 2) @ inside, axis=2) / squares, squares


def _rows_together(across: NDArray, inside: NDArray) -> tuple[NDArray, NDArray]:
    """||x|| of the rows of one block and the smallest eigenvalue of C_BB, (ridges, 1)."""
    basis, triangle = np.linalg.qr(across)
    left_out = np.linalg.solve(triangle, basis.swapaxes(1, 2) @ inside)
    smallest = np.linalg.svd(triangle, compute_uv=False)[:, -1:]
    return np.linalg.norm(left_out, axis=(1, 2))[:, None], smallest**2


def _judged(
    found: Decomposition, errors: NDArray, doubts: NDArray, default: bool
) -> tuple[NDArray, NDArray]:
    """The ridges whose errors are known, and these."""
    power = found.outside + float(np.sum(found.components**2))
    known = doubts <= MOST_DOUBT * np.maximum(errors, NO_ERROR * power)
    known &= np.isfinite(errors)
    return decomposition.visible(found.grid, known, default), errors[known]


def _some_ridges(count: int, numbers: int) -> Iterator[slice]:
    """Ridges that are worked on together, where each takes so many numbers."""
    step = max(1, GRID_NUMBERS // max(numbers, 1))
    return (slice(first, first + step) for first in range(0, count, step))


def _groups(sequences: list[SequenceRows], most_rows: int) -> Iterator[list[SequenceRows]]:
    """Sequences in order, with at most so many rows together unless one alone has more."""
    group: list[SequenceRows] = []
    for sequence in sequences:
        if group and sum(len(one.features) for one in [*group, sequence]) > most_rows:
            yield group
            group = []
        group.append(sequence)
    if group:
        yield group


def _blocks(sizes: NDArray | list[int], first: int) -> list[slice]:
    """Slices of these sizes, one after the other."""
    ends = first + np.cumsum(sizes)
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
