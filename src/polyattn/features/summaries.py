"""Sequences reduced to what a linear attention layer sees of them.

For one predicted position the layer sees the tokens attended to only through their Gram matrix
G = sum_t x_t x_t^T, and the query token x.  The summary is (vech(G), x): q + d numbers.

    last     one row per sequence: G of all tokens, x the last token
    causal   one row per token t:  G of tokens 1..t, x = x_t        (a running sum)
    full     one row per token t:  G of all tokens, x = x_t

Other layers linear in their parameters (feature maps, decay) would change the summary and nothing
behind it.  Cost: O(n d^2) time per sequence, memory of one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polyattn.features.pairs import n_pairs, pair_index
from polyattn.numerics.arrays import even_ranges, ranges_of_rows
from polyattn.sequences import SequenceBatch

# A block of summaries holds about this many numbers: 4 MB, which get large memory pages.
BLOCK_NUMBERS = 1 << 19
MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 256, 1 << 16

# Tokens of one sequence that are converted to float64 together.
TOKEN_BLOCK = 1 << 16

# Numbers in the tokens and Gram matrices of sequences that are summarised together.
GRAM_NUMBERS = 1 << 18

# Up to this many tokens, sums of pair products along the rows beat one small product each.
SHORT_SEQUENCE = 8


@dataclass(frozen=True)
class SummaryBlock:
    """Rows first..stop of the predicted positions, in their natural order."""

    first: int
    stop: int
    pairs: NDArray[np.float64]  # (q, rows): vech of the token Gram
    queries: NDArray[np.float64]  # (d, rows)


@dataclass(frozen=True)
class Tokens:
    """How tokens are read: an appended constant coordinate, and a power of two taken out."""

    batch: SequenceBatch
    bias: bool = False
    exponent: int = 0

    @property
    def width(self) -> int:
        """Coordinates per token, the constant one included."""
        return self.batch.n_dims + self.bias

    def read_rows(self, first: int, stop: int) -> NDArray[np.float64]:
        """Tokens first..stop as float64 (tokens, d); a view where nothing has to change."""
        if self.bias or self.exponent:
            return self.read(slice(first, stop)).T
        return self.batch.values[first:stop].astype(np.float64, copy=False)

    def read(self, which: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """The chosen tokens as float64 (d, tokens), contiguous, divided by 2**exponent."""
        chosen = self.batch.values[which]
        tokens = np.empty((self.width, len(chosen)))
        tokens[: self.batch.n_dims] = chosen.T
        if self.bias:
            tokens[-1] = 1.0
        return np.ldexp(tokens, -self.exponent, out=tokens) if self.exponent else tokens


def summary_blocks(
    tokens: Tokens, mode: str, block_rows: int | None = None
) -> Iterator[SummaryBlock]:
    """The summaries of all predicted positions, block after block, in order."""
    read = {"last": _last_blocks, "causal": _causal_blocks, "full": _full_blocks}[mode]
    return read(tokens, block_rows or default_block_rows(tokens.width))


def default_block_rows(width: int) -> int:
    """Rows per block so that a block of summaries holds about BLOCK_NUMBERS numbers."""
    return int(np.clip(BLOCK_NUMBERS // n_pairs(width), MIN_BLOCK_ROWS, MAX_BLOCK_ROWS))


def sequence_grams(tokens: Tokens, first: int, stop: int) -> NDArray[np.float64]:
    """vech of the token Gram of each sequence first..stop, shape (q, stop - first)."""
    offsets = tokens.batch.offsets[first : stop + 1]
    lengths = np.diff(offsets)
    result = np.empty((n_pairs(tokens.width), stop - first))
    if np.any(lengths != lengths[0]) or lengths[0] > TOKEN_BLOCK:
        for i, (start, end) in enumerate(pairwise(offsets.tolist())):
            gram = np.zeros((tokens.width, tokens.width))
            for at in range(start, end, TOKEN_BLOCK):
                block = tokens.read(slice(at, min(at + TOKEN_BLOCK, end)))
                gram += block @ block.T
            result[:, i] = gram[pair_index(tokens.width)]
        return result
    length = int(lengths[0])
    step = max(1, GRAM_NUMBERS // (tokens.width * (tokens.width + length)))
    for i in range(0, stop - first, step):
        j = min(i + step, stop - first)
        block = tokens.read_rows(int(offsets[i]), int(offsets[j]))
        together = block.reshape(j - i, length, tokens.width)
        if length <= SHORT_SEQUENCE:
            _pair_sums(np.ascontiguousarray(together.transpose(1, 2, 0)), result[:, i:j])
        else:
            grams = together.transpose(0, 2, 1) @ together
            result[:, i:j] = grams.transpose(1, 2, 0)[pair_index(tokens.width)]
    return result


def pair_products(rows: NDArray) -> NDArray[np.float64]:
    """All products rows[a] * rows[b], a <= b: from (m, r) to (m(m+1)/2, r)."""
    m, n_rows = rows.shape
    products = np.empty((n_pairs(m), n_rows))
    start = 0
    for a in range(m):
        np.einsum("r,br->br", rows[a], rows[a:], out=products[start : start + m - a])
        start += m - a
    return products


def _pair_sums(tokens: NDArray, out: NDArray[np.float64]) -> None:
    """vech(G) (q, sequences) from tokens (n, d, sequences), one coordinate after the other."""
    start, m = 0, tokens.shape[1]
    for a in range(m):
        np.einsum("tr,tbr->br", tokens[:, a], tokens[:, a:], out=out[start : start + m - a])
        start += m - a


def _last_blocks(tokens: Tokens, block_rows: int) -> Iterator[SummaryBlock]:
    offsets = tokens.batch.offsets
    for first, stop in even_ranges(len(tokens.batch), block_rows):
        last = offsets[first + 1 : stop + 1] - 1
        yield SummaryBlock(first, stop, sequence_grams(tokens, first, stop), tokens.read(last))


def _causal_blocks(tokens: Tokens, block_rows: int) -> Iterator[SummaryBlock]:
    offsets, length = tokens.batch.offsets, tokens.batch.common_length
    total = len(tokens.batch.values)
    # Whole sequences per block where they fit: their running sums are then one call.
    whole = length is not None and length <= block_rows
    unit = length if whole and length else 1
    carry = np.zeros(n_pairs(tokens.width))
    for start, end in even_ranges(total // unit, block_rows // unit):
        first, stop = start * unit, end * unit
        queries = tokens.read(slice(first, stop))
        pairs = pair_products(queries)
        if whole and length:
            by_sequence = pairs.reshape(len(pairs), -1, length)
            np.cumsum(by_sequence, axis=2, out=by_sequence)
        else:
            # Within each sequence; ``carry`` links one across blocks.
            after, before = np.searchsorted(offsets, first, "right"), np.searchsorted(offsets, stop)
            if offsets[after - 1] != first:
                pairs[:, 0] += carry
            for begin, finish in pairwise([first, *offsets[after:before].tolist(), stop]):
                segment = pairs[:, begin - first : finish - first]
                np.cumsum(segment, axis=1, out=segment)
            carry = pairs[:, -1].copy()
        yield SummaryBlock(first, stop, pairs, queries)


def _full_blocks(tokens: Tokens, block_rows: int) -> Iterator[SummaryBlock]:
    offsets = tokens.batch.offsets
    for first, stop in ranges_of_rows(offsets, block_rows):
        grams = sequence_grams(tokens, first, stop)
        # A sequence longer than a block comes alone and is cut into several.
        for start in range(int(offsets[first]), int(offsets[stop]), block_rows):
            end = min(start + block_rows, int(offsets[stop]))
            owner = np.searchsorted(offsets, np.arange(start, end), side="right") - 1 - first
            # take: plain indexing of columns would give an array in column order.
            pairs = np.take(grams, owner, axis=1)
            yield SummaryBlock(start, end, pairs, tokens.read(slice(start, end)))
