"""Sums over whole sequences: S where one query, or all, attend to the tokens of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyattn.features.running_sums import pair_columns, products_of
from polyattn.features.tokens import Tokens
from polyattn.form.form import Scale
from polyattn.form.layout import Layout
from polyattn.form.pairs import pair_index

# Tokens of one sequence that are converted to float64 together.
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
    layout: Layout, tokens: Tokens, begin: int, finish: int, block_rows: int
) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """(start, end, sums) of one sequence in blocks, where tokens attend to all others.

    Tokens before and after are added up apart: taking a token off the sum of all would lose digits
    where it is larger than the others.
    """
    starts = list(range(begin, finish, block_rows))
    n_products = layout.n_products
    # Sums of whole blocks that come later, from the last one on.
    later = [np.zeros(n_products)]
    for start in reversed(starts[1:]):
        products = products_of(layout, tokens.read(slice(start, min(start + block_rows, finish))))
        later.append(later[-1] + products.sum(axis=1))
    earlier = np.zeros(n_products)
    for start, after in zip(starts, reversed(later), strict=True):
        end = min(start + block_rows, finish)
        products = products_of(layout, tokens.read(slice(start, end)))
        sums = np.empty_like(products)
        sums[:, 0] = earlier
        np.cumsum(products[:, :-1], axis=1, out=sums[:, 1:])
        sums[:, 1:] += earlier[:, None]
        backwards = np.cumsum(products[:, :0:-1], axis=1)[:, ::-1]
        sums[:, :-1] += backwards
        sums += after[:, None]
        earlier = earlier + products.sum(axis=1)
        if layout.form.mean:
            sums /= max(finish - begin - 1, 1)
        yield start, end, sums


def query_grams(
    read: Callable[[slice], NDArray[np.float64]], offsets: NDArray[np.int64]
) -> NDArray[np.float64]:
    """vech of the sum of u u^T over each sequence, (r(r+1)/2, sequences)."""
    columns: list[NDArray] = []
    for start, end in pairwise(offsets.tolist()):
        total: NDArray | float = 0.0
        for at in range(start, end, TOKEN_BLOCK):
            queries = read(slice(at, min(at + TOKEN_BLOCK, end)))
            total = total + queries @ queries.T
        assert isinstance(total, np.ndarray)  # noqa: S101 - no sequence is empty
        columns.append(total[pair_index(len(total))])
    return np.stack(columns, axis=1)


def _weights(scale: Scale, length: int, attended: slice) -> NDArray[np.float64] | None:
    """Weights of these tokens as the last one sees them; None where all are 1."""
    return scale.weights(length - 1 - np.arange(attended.start, attended.stop))


def _equal_lengths(
    layout: Layout, tokens: Tokens, offsets: NDArray, length: int, out: NDArray[np.float64]
) -> None:
    width, n_sequences, pairs = tokens.width, out.shape[1], layout.pairs
    value, key = pair_columns(layout)
    whole = value is None and key is None
    step = max(1, GRAM_NUMBERS // (width * (width + length)))
    for i in range(0, n_sequences, step):
        j = min(i + step, n_sequences)
        block = tokens.read_rows(int(offsets[i]), int(offsets[j]))
        together = block.reshape(j - i, length, width)
        for number, scale in enumerate(layout.form.scales):
            attended = scale.attended(length)
            part, to = together[:, attended], out[_rows(layout, number), i:j]
            weights = _weights(scale, length, attended)
            if whole and weights is None and 0 < part.shape[1] <= SHORT_SEQUENCE:
                _pair_sums(np.ascontiguousarray(part.transpose(1, 2, 0)), to)
                continue
            values = part if value is None else part[:, :, value]
            keys = part if key is None else part[:, :, key]
            values = values if weights is None else values * weights[:, None]
            grams = values.transpose(0, 2, 1) @ keys
            to[:] = grams.transpose(1, 2, 0)[pairs.first]


def _one_by_one(layout: Layout, tokens: Tokens, offsets: NDArray, out: NDArray[np.float64]) -> None:
    value, key = pair_columns(layout)
    n_values, n_keys = layout.pairs.n_values, layout.pairs.n_keys
    for i, (start, end) in enumerate(pairwise(offsets.tolist())):
        for number, scale in enumerate(layout.form.scales):
            gram = np.zeros((n_values, n_keys))
            attended = scale.attended(end - start)
            weights = _weights(scale, end - start, attended)
            for at in range(attended.start, attended.stop, TOKEN_BLOCK):
                until = min(at + TOKEN_BLOCK, attended.stop)
                block = tokens.read(slice(start + at, start + until))
                values = block if value is None else block[value]
                keys = block if key is None else block[key]
                if weights is not None:
                    values = values * weights[at - attended.start : until - attended.start]
                gram += values @ keys.T
            out[_rows(layout, number), i] = gram[layout.pairs.first]


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
