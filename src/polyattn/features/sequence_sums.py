"""Sums over whole sequences: S where one query, or all, attend to the tokens of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from polyattn.features.running_sums import products_of
from polyattn.features.tokens import Tokens
from polyattn.form.layout import Layout
from polyattn.form.pairs import pair_index
from polyattn.numerics.arrays import places_by_length, ranges_of_rows

# Sequences of more tokens are summarised one by one, in blocks.
TOKEN_BLOCK = 1 << 16

# Numbers in the tokens and products of sequences that are summarised together.
GRAM_NUMBERS = 1 << 18

# Up to this many tokens, sums of pair products along the rows beat one small product each.
SHORT_SEQUENCE = 8


def sequence_sums(layout: Layout, tokens: Tokens, first: int, stop: int) -> NDArray[np.float64]:
    """Sums of products of values and keys of sequences first..stop, (n_products, sequences).

    As the last token sees them: distances are counted back from it.
    """
    offsets = tokens.batch.offsets[first : stop + 1]
    lengths = np.diff(offsets)
    result = np.empty((layout.n_products, stop - first))
    if np.any(lengths != lengths[0]) or lengths[0] > TOKEN_BLOCK:
        _one_by_one(layout, tokens, offsets, result)
    else:
        _equal_lengths(layout, tokens, offsets, int(lengths[0]), result)
    if layout.form.mean:
        result /= np.maximum(layout.form.n_attended(lengths), 1)
    return result


def others_sums(
    layout: Layout, tokens: Tokens, offsets: NDArray[np.int64], block_rows: int
) -> Iterator[tuple[int, NDArray[np.float64], NDArray[np.float64]]]:
    """(start, columns, sums) of tokens that attend to all others of their sequence.

    offsets : the borders of sequences that together have at most ``block_rows`` tokens and come as
        one block, or of one longer sequence, which is cut
    Tokens before and after are added up apart: taking a token off the sum of all would lose digits
    where it is larger than the others.
    """
    begin, finish = int(offsets[0]), int(offsets[-1])
    starts = range(begin, finish, block_rows)
    # Sums of whole blocks that come later, from the last one on.
    later = [np.zeros(layout.n_products)]
    for start in reversed(starts[1:]):
        products = products_of(layout, tokens.read(slice(start, min(start + block_rows, finish))))
        later.append(later[-1] + products.sum(axis=1))
    earlier = np.zeros(layout.n_products)
    for start, after in zip(starts, reversed(later), strict=True):
        columns = tokens.read(slice(start, min(start + block_rows, finish)))
        products = products_of(layout, columns)
        borders = np.clip(offsets - start, 0, products.shape[1])
        sums = _sums_of_others(products, borders)
        if len(starts) > 1:
            sums += (earlier + after)[:, None]
            earlier = earlier + products.sum(axis=1)
        if layout.form.mean:
            attended = layout.form.n_attended(np.diff(offsets))
            sums /= np.maximum(np.repeat(attended, np.diff(borders)), 1)
        yield start, columns, sums


def query_grams(
    read: Callable[[slice], NDArray[np.float64]], offsets: NDArray[np.int64], n_queries: int
) -> NDArray[np.float64]:
    """vech of the sum of u u^T over each sequence, (r(r+1)/2, sequences)."""
    pairs = pair_index(n_queries)
    result = np.zeros((len(pairs[0]), len(offsets) - 1))
    for at, until, first, stop in _blocks(offsets, n_queries):
        queries = read(slice(at, until))
        for i in range(first, stop):
            own = queries[:, max(int(offsets[i]) - at, 0) : int(offsets[i + 1]) - at]
            result[:, i] += (own @ own.T)[pairs]
    return result


def _equal_lengths(
    layout: Layout, tokens: Tokens, offsets: NDArray, length: int, out: NDArray[np.float64]
) -> None:
    width, n_sequences, pairs = tokens.width, out.shape[1], layout.pairs
    value, key = layout.pair_places
    whole = value is None and key is None
    step = max(1, GRAM_NUMBERS // (width * (width + length)))
    for i in range(0, n_sequences, step):
        j = min(i + step, n_sequences)
        block = tokens.read_rows(int(offsets[i]), int(offsets[j]))
        together = block.reshape(j - i, length, width)
        for number, scale in enumerate(layout.form.scales):
            attended = scale.attended(length)
            part, to = together[:, attended], out[_rows(layout, number), i:j]
            weights = scale.weights(length - 1 - np.arange(attended.start, attended.stop))
            if whole and weights is None and 0 < part.shape[1] <= SHORT_SEQUENCE:
                _pair_sums(np.ascontiguousarray(part.transpose(1, 2, 0)), to)
                continue
            values = part if value is None else part[:, :, value]
            keys = part if key is None else part[:, :, key]
            values = values if weights is None else values * weights[:, None]
            grams = values.transpose(0, 2, 1) @ keys
            to[:] = grams.transpose(1, 2, 0)[pairs.first]


def _one_by_one(layout: Layout, tokens: Tokens, offsets: NDArray, out: NDArray[np.float64]) -> None:
    value, key = layout.pair_places
    out[:] = 0.0
    for at, until, first, stop in _blocks(offsets, tokens.width):
        block = tokens.read(slice(at, until))
        values = block if value is None else block[value]
        keys = block if key is None else block[key]
        for i in range(first, stop):
            start, end = int(offsets[i]) - at, int(offsets[i + 1]) - at
            _add_sums(layout, values, keys, start, end, out[:, i])


def _blocks(offsets: NDArray[np.int64], width: int) -> Iterator[tuple[int, int, int, int]]:
    """(at, until, first, stop): tokens to be read together, and the sequences they belong to.

    Whole sequences, or a part of a longer one.
    """
    step = max(1, GRAM_NUMBERS // width)
    for first, stop in ranges_of_rows(offsets, step):
        for at in range(int(offsets[first]), int(offsets[stop]), step):
            yield at, min(at + step, int(offsets[stop])), first, stop


def _add_sums(
    layout: Layout, values: NDArray, keys: NDArray, start: int, end: int, out: NDArray[np.float64]
) -> None:
    """Add the sums of the sequence at start..end of a block, as far as the block holds it."""
    for number, scale in enumerate(layout.form.scales):
        attended = scale.attended(end - start)
        low, high = max(start + attended.start, 0), min(start + attended.stop, keys.shape[1])
        if low < high:
            weights = scale.weights(end - 1 - np.arange(low, high))
            part = values[:, low:high] if weights is None else values[:, low:high] * weights
            out[_rows(layout, number)] += (part @ keys[:, low:high].T)[layout.pairs.first]


def _sums_of_others(products: NDArray, borders: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums over all other tokens of a sequence, from products (pairs, tokens)."""
    lengths = np.diff(borders)
    if np.all(lengths == lengths[0]):
        together = products.reshape(len(products), -1, int(lengths[0]))
        return _before_and_after(together).reshape(products.shape)
    sums = np.empty_like(products)
    for at in places_by_length(borders):
        sums[:, at] = _before_and_after(products[:, at])
    return sums


def _before_and_after(numbers: NDArray) -> NDArray[np.float64]:
    """The sum of all other numbers along the last axis, for each of them."""
    sums = np.zeros_like(numbers)
    np.cumsum(numbers[..., :-1], axis=-1, out=sums[..., 1:])
    sums[..., :-1] += np.cumsum(numbers[..., :0:-1], axis=-1)[..., ::-1]
    return sums


def _rows(layout: Layout, scale: int) -> slice:
    """The rows of S that belong to a scale."""
    count = len(layout.pairs)
    return slice(scale * count, (scale + 1) * count)


def _pair_sums(tokens: NDArray, out: NDArray[np.float64]) -> None:
    """vech(G) (q, sequences) from tokens (n, d, sequences), one coordinate after the other."""
    start, m = 0, tokens.shape[1]
    for a in range(m):
        np.einsum("tr,tbr->br", tokens[:, a], tokens[:, a:], out=out[start : start + m - a])
        start += m - a
