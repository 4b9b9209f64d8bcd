"""Which features of a form are independent on a domain, where no formula is known by heart.

On all real sequences a sufficient condition is derived below.  Otherwise features of random
sequences of the domain are taken modulo a prime: rows that are independent there are independent,
and with many more rows than features none is missed but with a probability that nobody will see.

The condition, for maps that pick coordinates.  Let y be a token at distance o >= 1 from the query
x.  Of a combination with coefficients c[scale, pair, l] the part that depends on y is

    sum over scales of w_scale(o) c[scale, pair, l],    for each product of two columns of y,

so all c vanish if the weights w_scale(o) at the distances o that can occur determine the scales.
A product of two constants (``bias``) does not depend on y: its sums are numbers h(n) of tokens
attended to (with weights), and they stand beside ``skip`` and ``intercept``, whose number is 1.
These have to be independent as functions of the length n.  In a context the query is never one of
the tokens attended to, and o = 0 counts like the others.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from scipy.sparse import csr_array

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.rank import ExactRank, exact_rank
from polyattn.errors import InvalidInput
from polyattn.features.products import features
from polyattn.features.summaries import SeenSequences
from polyattn.form.form import Form
from polyattn.form.layout import Layout
from polyattn.sequences import SequenceBatch

# Features up to which independence is found by trying; 10 to 20 seconds.
MOST_TRIED = 3000

# Rows that are tried for each feature, and some more: of real tokens nearly every row is new, while
# discrete ones repeat themselves.
REAL_ROWS, DISCRETE_ROWS, MORE_ROWS = 3.0, 8.0, 200

# Rows of which the last share brings nothing new are enough.
ENOUGH = 0.8

# Residues up to this size are integers: others are so small once in a hundred thousand times.
MOST_FACTOR = 16

# Sequences that are looked at are not much longer.
MOST_NAMED = 256

Lengths = tuple[int, int | None]


def has_functions(form: Form) -> bool:
    """Whether tokens are seen through a function, of which nothing is known."""
    return any(callable(given) for given in (form.query, form.key, form.value))


def independent_on_real(layout: Layout, lengths: Lengths) -> bool:
    """Whether all features are independent on real sequences; False where this does not show it."""
    form = layout.form
    if any(columns.maps for columns in (layout.columns, layout.pair_columns)):
        return False
    context = layout.n_context_dims is not None
    seen = lengths_seen(form, lengths)
    farthest = (seen[-1] if not context or form.mode == "causal" else 2) - 1
    first = 0 if context else 1
    if form.mode == "full" and not context:
        distances = [[Fraction(1)]] if farthest >= 1 else []
    else:
        distances = [_weights(form, o) for o in range(first, farthest + 1)]
    if _rank(distances) < layout.n_scales:
        return False
    if not form.bias:
        return True
    if context and form.mode != "causal":
        seen = list(range(1, 4))
    constants = [_constants(form, n, context) for n in seen]
    return _rank(constants) == len(constants[0])


def can_be_tried(layout: Layout) -> bool:
    """Whether there are few enough features, of sequences that are short enough."""
    return layout.n_features <= MOST_TRIED and farthest_named(layout.form) <= MOST_NAMED


def space_by_trying(
    layout: Layout,
    sample: Callable[[float], tuple[SequenceBatch, SequenceBatch | None]],
    name: str,
    size: float,
) -> FeatureSpace:
    """Representatives found in the features of many random sequences of a domain.

    sample : from rows for each feature to sequences and their contexts
    size : of the tokens, which can be divided by it
    """
    if not can_be_tried(layout):
        raise InvalidInput(
            f"which of the {layout.n_features} features of this form are independent on the "
            f"domain {name!r} is found by trying, which this release does for up to {MOST_TRIED} "
            f"features, and windows and lags up to {MOST_NAMED}; use fewer coordinates, or give "
            "the domain as domains.Finite(sequences)."
        )
    many = REAL_ROWS if name == "real" else DISCRETE_ROWS
    while True:
        batch, context = sample(many)
        rows = FeatureRows(batch, np.arange(layout.n_features), layout, context)
        found = exact_rank(rows)
        if not found.rank:
            raise InvalidInput(
                f"no feature of this form ever differs from zero on the domain {name!r}: there is "
                "nothing to determine. Allow longer sequences, or choose other coordinates."
            )
        if found.independent.max() < ENOUGH * rows.n_rows:
            break
        many *= 2
    if found.rank == layout.n_features:
        return FeatureSpace.whole(layout)
    return FeatureSpace(
        layout, np.sort(found.pivots), lambda: _relations(rows, found, size, 2 * layout.n_features)
    )


def _relations(rows: FeatureRows, found: ExactRank, size: float, n_sequences: int) -> csr_array:
    """E (p, m): how all features follow from those that are independent, the pivots in order.

    Where the residues of a relation are small they are its integers; other relations are solved
    for in float64, with the features of some sequences.
    size : of the tokens, which can be divided by it
    """
    columns = np.sort(found.pivots)
    place = np.searchsorted(columns, found.pivots)
    expansion = np.zeros((rows.n_columns, len(columns)))
    expansion[columns, np.arange(len(columns))] = 1.0
    expansion[np.ix_(found.free, place)] = found.coefficients.T
    open_ = found.free[np.abs(found.coefficients).max(axis=0) > MOST_FACTOR]
    if len(open_):
        part, other = (
            None if each is None else _divided(each.part(0, min(len(each), n_sequences)), size)
            for each in (rows.batch, rows.context)
        )
        assert part is not None  # noqa: S101 - only a context may be missing
        seen = SeenSequences(rows.layout, part, other)
        psi = np.concatenate(
            [features(rows.layout, block.sums, block.queries).T for block in seen.blocks()]
        )
        psi /= np.maximum(np.abs(psi).max(axis=1, keepdims=True), 1e-300)
        used = np.flatnonzero(expansion[open_].any(axis=0))
        solved = lstsq(psi[:, columns[used]], psi[:, open_], lapack_driver="gelsy")[0].T
        whole = np.rint(solved)
        expansion[np.ix_(open_, used)] = np.where(np.abs(solved - whole) < 1e-7, whole, solved)
    return csr_array(expansion)


def _divided(batch: SequenceBatch, size: float) -> SequenceBatch:
    return SequenceBatch(batch.values / size, batch.offsets)


def random_sequences(
    layout: Layout,
    lengths: Lengths,
    draw: Callable[[int, int], NDArray],
    rng: np.random.Generator,
    rows_per_feature: float,
) -> tuple[SequenceBatch, SequenceBatch | None]:
    """Many sequences of all lengths that make a difference, and contexts for them.

    draw : (number of tokens, coordinates) -> random tokens of a domain
    """
    seen = lengths_seen(layout.form, lengths)
    if layout.form.mode == "causal":
        seen = seen[-1:]
    n_rows = rows_per_feature * layout.n_features + MORE_ROWS
    per_sequence = 1.0 if layout.form.mode == "last" else float(np.mean(seen))
    count = int(n_rows / per_sequence) + 1

    def batch_of(chosen: NDArray[np.int64], n_dims: int) -> SequenceBatch:
        tokens = draw(int(chosen.sum()), n_dims)
        return SequenceBatch.from_sequences(np.split(tokens, np.cumsum(chosen)[:-1]))

    chosen = rng.choice(seen, count)
    batch = batch_of(chosen, layout.n_dims)
    if layout.n_context_dims is None:
        return batch, None
    chosen = chosen if layout.form.mode == "causal" else rng.integers(1, 5, count)
    return batch, batch_of(chosen, layout.n_context_dims)


def lengths_seen(form: Form, lengths: Lengths) -> list[int]:
    """How many tokens predicted positions can see, as far as that makes a difference.

    Sums over more tokens than any distance that is named are combinations of 1, n and powers of
    the decays, which so many values of n determine.  Of very long windows only shorter sequences
    are looked at.
    """
    least, most = lengths
    named = min(farthest_named(form), MOST_NAMED)
    first = 1 if form.mode == "causal" else least
    last = max(least, named) + len(form.scales) + 4
    return list(range(first, (last if most is None else min(most, last)) + 1))


def farthest_named(form: Form) -> int:
    """The largest distance at which weights change otherwise than by a decay."""
    return max(max(scale.start, scale.stop or 0) for scale in form.scales)


def _weights(form: Form, distance: int) -> list[Fraction]:
    """The weight of a token at this distance in each scale."""
    return [
        Fraction(scale.decay) ** distance
        if scale.start <= distance and (scale.stop is None or distance < scale.stop)
        else Fraction(0)
        for scale in form.scales
    ]


def _constants(form: Form, n_tokens: int, context: bool) -> list[Fraction]:
    """What the product of two constants sums up to in each scale, then those of skip, intercept."""
    if form.mode == "full" or (context and form.mode == "last"):
        totals = [Fraction(n_tokens - (not form.include_query))]
    else:
        each = [_weights(form, o) for o in range(n_tokens)]
        totals = [sum(column, Fraction(0)) for column in zip(*each, strict=True)]
    if form.mean:
        count = max(int(form.n_attended(np.array(n_tokens))), 1)
        totals = [total / count for total in totals]
    return totals + [Fraction(1)] * (form.skip + form.intercept)


def _rank(rows: list[list[Fraction]]) -> int:
    """The rank of a small matrix of fractions."""
    rank, left = 0, [list(row) for row in rows]
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        left.remove(pivot)
        rank += 1
        for row in left:
            factor = row[column] / pivot[column]
            row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return rank
