"""Running sums over the tokens of a sequence, as each position sees those before it.

For a scale of distances start <= t - s < stop and weights decay^(t - s)

    S_t = sum_s decay^(t - s) v_s k_s^T.

Without a last distance that is a recurrence.  A window is added up from two parts, of which the
one ends and the other begins where blocks of its length meet: no token is ever subtracted, which
would lose digits wherever a large token leaves the window.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyattn.features.products import pair_products
from polyattn.form.form import Scale
from polyattn.form.layout import Layout
from polyattn.numerics.arrays import places_by_length

# All tokens up to the query, with the same weight: the papers' layer.
EVERY_TOKEN = Scale(0, None)

# Up to this many tokens, those of a window are added one after the other.
SHORT_WINDOW = 16


def products_of(layout: Layout, columns: NDArray) -> NDArray[np.float64]:
    """Products of values and keys of each token, (pairs, ...), from columns (width, ...)."""
    pairs = layout.pairs
    value, key = layout.pair_places
    if value is None and key is None:
        rows = columns.reshape(len(columns), -1)
        return pair_products(rows).reshape(-1, *columns.shape[1:])
    at_value, at_key = np.array(pairs.value)[pairs.first[0]], np.array(pairs.key)[pairs.first[1]]
    return np.take(columns, at_value, axis=0) * np.take(columns, at_key, axis=0)


def reach(layout: Layout) -> int:
    """How many tokens before a piece of a sequence have to be read with it."""
    return max(
        scale.start if scale.stop is None else scale.stop - 1 for scale in layout.form.scales
    )


def sums_every_token(layout: Layout) -> bool:
    """Whether S is the sum of all products so far, as in the papers' layer."""
    return layout.form.scales == (EVERY_TOKEN,) and not layout.form.mean


def running_sums(
    layout: Layout,
    products: NDArray[np.float64],
    skipped: int = 0,
    position: int = 0,
    before: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """S (n_products, sequences, n) of each position, from products (pairs, sequences, tokens).

    skipped : how many of the first tokens belong to earlier positions, for which no sums are made
    position : how many tokens of the sequence come before the first one for which sums are made
    before : S (n_products,) of the position before, of all but the first piece of a sequence
    The products may be overwritten; they are where the layout ``sums_every_token``.
    """
    form = layout.form
    if sums_every_token(layout):
        if before is not None:
            products[..., 0] += before[:, None]
        return np.cumsum(products, axis=-1, out=products)
    n_pairs, n_sequences, n_tokens = products.shape
    sums = np.empty((layout.n_products, n_sequences, n_tokens - skipped))
    for number, scale in enumerate(form.scales):
        rows = slice(number * n_pairs, (number + 1) * n_pairs)
        carry = None if before is None or scale.stop is not None else before[rows].copy()
        if carry is not None and form.mean:
            carry *= max(int(form.n_attended(np.array(position))), 1)
        _sums_of(products, scale, skipped, carry, sums[rows])
    if form.mean:
        attended = form.n_attended(position + 1 + np.arange(n_tokens - skipped))
        sums /= np.maximum(attended, 1)
    return sums


def sums_in_pieces(
    layout: Layout,
    products: NDArray[np.float64],
    borders: NDArray[np.int64],
    skipped: int,
    position: int,
    before: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """S (n_products, rows) of sequences of any lengths, from products (pairs, skipped + rows).

    borders : the rows at which sequences begin, and the end
    skipped, position, before : as in ``running_sums``, of the first sequence; ``before`` is None
        where it begins here
    """
    if sums_every_token(layout):
        # In place: a call for each sequence is less work than moving the numbers.
        for begin, finish in pairwise(borders.tolist()):
            running_sums(layout, products[:, None, begin:finish], before=before)
            before = None
        return products
    sums = np.empty((layout.n_products, int(borders[-1])))
    if before is not None:
        end = int(borders[1])
        those = products[:, None, : skipped + end]
        sums[:, :end] = running_sums(layout, those, skipped, position, before)[:, 0]
        borders = borders[1:]
    for at in places_by_length(borders):
        sums[:, at] = running_sums(layout, products[:, at + skipped])
    return sums


def _sums_of(
    products: NDArray, scale: Scale, skipped: int, carry: NDArray | None, out: NDArray[np.float64]
) -> None:
    """The sums of one scale; positions before the first token see nothing."""
    # What enters at position t is the token at t - start.
    first, width = skipped - scale.start, None if scale.stop is None else scale.stop - scale.start
    late = min(max(0, -first), out.shape[-1])
    out[..., :late] = 0.0
    begin = max(0, first if width is None else first - width + 1)
    entering = products[..., begin : max(begin, products.shape[-1] - scale.start)]
    weight = scale.decay**scale.start
    if weight != 1.0:
        entering = entering * weight
    if width is not None:
        sums = window_sums(entering, width, scale.decay)[..., max(0, first) - begin :]
    else:
        if carry is not None:
            entering = entering.copy()
            entering[..., :1] += scale.decay * carry[:, None, None]
        sums = decayed_sums(entering, scale.decay)
    out[..., late:] = sums


def decayed_sums(numbers: NDArray, decay: float) -> NDArray[np.float64]:
    """s_t = decay s_(t-1) + numbers_t along the last axis."""
    if decay == 1.0:
        return np.cumsum(numbers, axis=-1)
    length = numbers.shape[-1]
    if numbers.size >= length**2:
        # Many short sequences: a step for all of them together is faster.
        sums = np.array(numbers, dtype=np.float64)
        for t in range(1, length):
            sums[..., t] += decay * sums[..., t - 1]
        return sums
    from scipy.signal import lfilter  # slow to import, and rarely needed

    return np.asarray(lfilter([1.0], [1.0, -decay], numbers, axis=-1))


def window_sums(numbers: NDArray, width: int, decay: float = 1.0) -> NDArray[np.float64]:
    """sum_(o < width) decay^o numbers_(t-o) along the last axis; nothing is subtracted."""
    length = numbers.shape[-1]
    if width >= length:
        return decayed_sums(numbers, decay)
    if width <= SHORT_WINDOW:
        sums = np.array(numbers, dtype=np.float64)
        for distance in range(1, width):
            before = numbers[..., : length - distance]
            sums[..., distance:] += before if decay == 1.0 else before * decay**distance
        return sums
    n_blocks = -(-length // width)
    padded = np.zeros((*numbers.shape[:-1], n_blocks * width))
    padded[..., :length] = numbers
    blocks = padded.reshape(*numbers.shape[:-1], n_blocks, width)
    # At place i of a block: tokens 0..i of it, and tokens i+1.. of the block before.
    own = decayed_sums(blocks, decay)
    distances = np.arange(width - 1, -1, -1)  # from the end of a block
    tails = np.cumsum((blocks * decay**distances)[..., ::-1], axis=-1)[..., ::-1]
    own[..., 1:, :-1] += tails[..., :-1, 1:] * decay ** np.arange(1.0, width)
    return own.reshape(padded.shape)[..., :length]
