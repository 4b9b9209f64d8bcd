"""Directions that the data do not see, up to the rounding of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains.separating import grid_of
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.evidence import Evidence
from polyattn.certify.exact.modular import random_prime
from polyattn.certify.exact.rank import exact_rank
from polyattn.certify.verified.rounding import SLACK, UNIT, feature_depth, gamma, longest
from polyattn.certify.verified.sizes import LEAST_EXPONENT, row_pieces
from polyattn.features.products import apply_coef
from polyattn.form.pairs import pair_position, unfold_coef
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.sequences import SequenceBatch, checked_before
from polyattn.stats.passes import folded, of_parts
from polyattn.stats.rows import Rows

# A direction is unseen if the proved bound of its effect stays within so many tolerances ...
PROVED_FACTOR = 8.0

# ... and if inputs within this relative distance of the given ones would not show it at all.
INPUT_ROUNDING = 2.0**-46

# Ranks are compared modulo so many random primes: each is misled less often than once in fifty.
PRIMES = 4

# Inputs are moved by this share, with random signs, so many times, to see how outputs depend on
# them in forms of which the derivative is not written down.  Signs that agree may move nothing.
MOVED, MOVES = 2.0**-20, 8


def effect_if_unseen(
    evidence: Evidence,
    direction: NDArray[np.float64],
    sequences: SequenceBatch | None = None,
    context: SequenceBatch | None = None,
) -> float | None:
    """A bound of ||Phi direction|| over all rows, if that is nothing but rounding; else None.

    ``direction`` (m,) is D v with ||v|| = 1, rows are normalised.  Two conditions: outputs on the
    data move by no more than rounding (proved, the errors of evaluation included), and inputs
    within a few roundings of the given ones would not move them at all (to first order).
    Without the second, a layer that shows only in the cube of a small deviation would be called
    unseen, and exact arithmetic could prove the opposite.  Only coordinates that look rounded
    may move; where that does not explain the outputs, ``leave_open`` decides whether the
    numbers as they are leave something undetermined, of ``sequences`` if given.
    """
    rows, space = evidence.rows, evidence.space
    if rows is None or _underflows(evidence) or np.isinf(evidence.tolerance):
        return None
    layout = space.layout
    plain = layout.is_plain
    forms = grid_of(space.embed(direction), layout)
    forms = unfold_coef(forms[None])[0] if plain else forms
    moving = (forms, evidence.rounded) if plain else None
    depth = feature_depth(layout, longest(rows))
    bounded, unexplained = folded(of_parts(rows, _effect_of_part, space, direction, depth, moving))
    bound = SLACK * float(np.sqrt(bounded))
    if bound > PROVED_FACTOR * evidence.tolerance:
        return None
    if not plain and evidence.rounded.any():
        unexplained = _unexplained(evidence, forms)
    # In a few rows the output may hardly depend on the inputs by chance.
    explained = evidence.rounded.any() and unexplained <= 0.1 * rows.n_rows
    return bound if explained or leave_open(evidence, sequences, context) else None


def _effect_of_part(
    rows: Rows,
    space: FeatureSpace,
    direction: NDArray,
    depth: int,
    moving: tuple[NDArray, NDArray[np.bool_]] | None,
) -> tuple[float, int]:
    """Of a part: the square of the bound, and rows that moving inputs do not explain.

    moving : the forms of a plain layer and which coordinates may move; None: that is not asked
    """
    bounded, unexplained = 0.0, 0
    per_feature, per_product = gamma(depth), gamma(len(direction) + 2)
    for piece in row_pieces(rows, space, normalised=True):
        phi = piece.features(space)
        doubts = per_feature * piece.magnitudes(space) + per_product * np.abs(phi)
        values = direction @ phi
        bounded += float(np.sum((np.abs(values) + np.abs(direction) @ doubts) ** 2))
        if moving is not None:
            forms, which = moving
            possible = INPUT_ROUNDING * _movements(forms, piece.sums, piece.queries, which)
            # A value below the noise of its own evaluation, even zero, is as good as that noise.
            noise = UNIT * (np.abs(direction) @ np.abs(phi))
            unexplained += int(np.count_nonzero(np.maximum(np.abs(values), noise) > possible))
    return bounded, unexplained


def leave_open(
    evidence: Evidence,
    sequences: SequenceBatch | None = None,
    context: SequenceBatch | None = None,
) -> bool:
    """Whether the numbers as they are leave something undetermined, nearly certainly.

    Modulo random primes their features have a rank below the dimension; or, given sequences,
    below the rank together with the features of those.
    """
    rows, both = evidence.exact_rows, None
    if sequences is not None:
        batch = SequenceBatch.from_sequences([*rows.batch, *sequences])
        others = None
        if rows.context is not None and context is not None:
            others = SequenceBatch.from_sequences([*rows.context, *context])
        both = replace(rows, batch=batch, context=others)
    # The same data give the same primes, which nobody can choose data for.
    digest = digest_sequences(rows.batch, rows.context)
    rng = np.random.default_rng(int(digest[:16], 16))
    for prime in filter(rows.allows, (random_prime(rng) for _ in range(PRIMES))):
        rank = exact_rank(rows, prime=prime).rank
        if rank >= (rows.n_columns if both is None else exact_rank(both, prime=prime).rank):
            return False
    return True


def _movements(
    forms: NDArray, pairs: NDArray, queries: NDArray, moving: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """How far outputs (rows,) move at most, to first order, per relative change of the inputs.

    ``moving`` (d,): the coordinates that change.

    The output is sum_t y_t M y_t, M = sum_l x_l forms[.., l], and the query x is one of the y_t.
    Its derivative by x is 2 M x + <G, forms[.., l]>; by another token y it is 2 M y, and
    sum_y |y_j| |(M y)_j| <= sqrt(H_jj (M H M)_jj) with H = G - x x^T (Cauchy-Schwarz).  The
    constant coordinate of bias never moves.
    """
    x = queries.T  # (rows, width)
    grams = pairs[pair_position(len(queries))].transpose(2, 0, 1)
    forms_of_rows = np.tensordot(x, forms, axes=(1, 2))  # M, (rows, width, width)
    slopes = 2.0 * np.einsum("rjk,rk->rj", forms_of_rows, x) + np.tensordot(grams, forms, axes=2)
    others = grams - x[:, :, None] * x[:, None, :]
    powers = np.einsum("rjk,rkj->rj", forms_of_rows @ others, forms_of_rows)
    sizes = np.einsum("rjj->rj", others)
    through_others = 2.0 * np.sqrt(np.maximum(powers, 0.0) * np.maximum(sizes, 0.0))
    movements = np.abs(slopes * x) + through_others
    return np.sum(movements[:, : len(moving)][:, moving], axis=1)


def _unexplained(evidence: Evidence, grid: NDArray[np.float64]) -> int:
    """In how many rows no rounding of the inputs explains the output of coefficients (m, r)."""
    rows, rng = evidence.rows, np.random.default_rng(0)
    assert rows is not None  # noqa: S101 - the caller has asked
    coef, most = grid[None], np.zeros(rows.n_rows)
    outputs = np.concatenate([apply_coef(coef, b.sums, b.queries)[0] for b in rows.blocks()])
    noise = UNIT * np.concatenate(
        [apply_coef(np.abs(coef), np.abs(b.sums), np.abs(b.queries))[0] for b in rows.blocks()]
    )
    n_dims = rows.n_dims
    for _ in range(MOVES):
        batch = _moved(rows.batch, evidence.rounded[:n_dims], rng)
        context = rows.context
        if context is not None:
            context = _moved(context, evidence.rounded[n_dims:], rng)
        moved = replace(rows, batch=batch, context=context).blocks()
        others = np.concatenate([apply_coef(coef, b.sums, b.queries)[0] for b in moved])
        most = np.maximum(most, np.abs(others - outputs) / MOVED)
    possible = INPUT_ROUNDING * most
    return int(np.count_nonzero(np.maximum(np.abs(outputs), noise) > possible))


def _moved(
    batch: SequenceBatch, which: NDArray[np.bool_], rng: np.random.Generator
) -> SequenceBatch:
    """The same tokens with some coordinates moved by a small share of themselves."""
    tokens: Any = batch.values
    if isinstance(tokens, OneHotTokens):
        tokens = tokens[:]
    if not isinstance(tokens, np.ndarray):
        seed = int(rng.integers(1 << 62))
        return checked_before(tokens.moved(MOVED * which, seed), batch.offsets)
    signs = rng.choice([-MOVED, MOVED], tokens.shape) * which
    return SequenceBatch(tokens * (1.0 + signs), batch.offsets)


def _underflows(evidence: Evidence) -> bool:
    """Whether weights of tokens far back may have vanished: then nothing is known of their rows."""
    least = min(scale.decay for scale in evidence.space.layout.form.scales)
    return longest(evidence.source) * np.log2(least) < LEAST_EXPONENT
