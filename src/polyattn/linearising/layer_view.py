"""LayerView: all heads of a layer on blocks of sequences, as the fit goes through them.

Sequences of one length come together, in blocks of bounded memory, whatever their number.  A fit
goes through them several times: what a block was found to be is kept as far as KEPT_BYTES go, and
computed anew beyond.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.features.tokens import Tokens
from polyattn.linearising.head_blocks import Replacement, head_block, predictions
from polyattn.linearising.head_sums import HeadBlock
from polyattn.linearising.softmax_heads import SeenHead, SoftmaxHeads, softmax_outputs
from polyattn.model.attended import attended_rows, window_rows
from polyattn.model.feature_maps import FeatureMap
from polyattn.model.layer import equal_groups, in_sequences, tokens_of
from polyattn.model.linearised import normalised
from polyattn.numerics.arrays import even_ranges
from polyattn.progress import report
from polyattn.sequences import SequenceBatch

Array = NDArray[np.float64]

# Numbers of one head that are in memory together, and tokens of all heads.
BLOCK_NUMBERS, BLOCK_TOKENS = 1 << 22, 1 << 12

# Bytes of blocks that are kept from one pass to the next.
KEPT_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class LayerView:
    """Given heads, the map and the replacement that they get, and the mean token (d,)."""

    heads: SoftmaxHeads
    feature_map: FeatureMap
    replacement: Replacement
    mean: Array

    @cached_property
    def coordinates(self) -> list[tuple[Array, Array]]:
        """L (v, c) and E (c, e) of each head: W_O = L E."""
        return [self.heads.output_coordinates(h) for h in range(self.heads.n_heads)]

    def in_outputs(self, parts: Sequence[Array]) -> Array:
        """sum_h o_h E_h (B, T, e) of outputs (B, T, c) of all heads."""
        total = np.zeros((*parts[0].shape[:2], self.heads.n_outputs))
        for part, (_, E) in zip(parts, self.coordinates, strict=True):
            total += part @ E
        return total

    def blocks(self, batch: SequenceBatch, kept_bytes: int = 0) -> LayerBlocks:
        """All sequences, in blocks of one length; kept where that takes at most so many bytes."""
        (F, G), c = self.feature_map.shape, self.heads.W_O.shape[1]
        causal, last = self.replacement.mode == "causal", self.replacement.mode == "last"
        found = []
        for group in equal_groups(batch.lengths):
            length = int(batch.lengths[group[0]])
            most = min(
                BLOCK_NUMBERS // ((G + 1) * c * (length if causal else 1)), BLOCK_TOKENS // length
            )
            for first, stop in even_ranges(len(group), max(1, most)):
                found.append(LayerBlock(self, batch, group[first:stop], keep=False))
        n_asking = len(batch) if last else len(batch.values)
        rows = n_asking if causal else len(batch)
        numbers = n_asking * (F + 2 * c) + rows * G * c
        numbers = self.heads.n_heads * numbers + len(batch.values) * self.heads.n_dims
        for block in found:
            block.keep = 8 * numbers <= kept_bytes
        return LayerBlocks(found)


class LayerBlocks:
    """Blocks of sequences, gone through as often as needed; progress is reported."""

    def __init__(self, blocks: list[LayerBlock]) -> None:
        self.blocks = blocks

    def __iter__(self) -> Iterator[LayerBlock]:
        total, done = sum(len(block.which) for block in self.blocks), 0
        for block in self.blocks:
            yield block
            block.forget()
            done += len(block.which)
            report(done, total)

    def __add__(self, other: LayerBlocks) -> LayerBlocks:
        return LayerBlocks([*self.blocks, *other.blocks])


class LayerBlock:
    """Some sequences of one length: tokens X (B, n, d), and what every head makes of them."""

    def __init__(
        self, view: LayerView, batch: SequenceBatch, which: NDArray[np.intp], keep: bool
    ) -> None:
        self.view, self.batch, self.which, self.keep = view, batch, which, keep
        self._kept: dict[int, HeadBlock] = {}

    @cached_property
    def X(self) -> Array:  # noqa: N802 – the name that sequences have everywhere
        """Tokens (B, n, d), until the next block."""
        columns = Tokens.whole(self.batch, False).read(tokens_of(self.batch, self.which))
        return in_sequences(columns, len(self.which))

    def forget(self) -> None:
        """Free the tokens: they are read again when they are needed."""
        vars(self).pop("X", None)

    def seen(self, head: int) -> SeenHead:
        """Queries, keys and values of a head."""
        view = self.view
        return view.heads.see(self.X, head, view.mean, view.coordinates[head][0])

    def of_head(self, head: int, with_targets: bool = False) -> HeadBlock:
        """What the replacement of a head sees, and its targets."""
        if head in self._kept:
            return self._kept[head]
        view = self.view
        found = head_block(
            self.seen(head), view.feature_map, head, view.replacement, with_targets or self.keep
        )
        if self.keep:
            self._kept[head] = found
        return found

    def ratio(self, head: int) -> HeadBlock:
        """A block whose rows (B, T, G', c + 1) end with the sums of features; without targets."""
        seen, view, mode = self.seen(head), self.view, self.view.replacement.mode
        ones = np.ones((*seen.values.shape[:2], 1))
        values = np.concatenate([seen.values, ones], axis=2)
        phi = view.feature_map.query.features(seen.queries, head)
        rows = attended_rows(seen.keys, values, view.feature_map.key, head, mode, "tokens")
        rows = np.broadcast_to(rows, (*phi.shape[:2], *rows.shape[2:]))
        if view.replacement.window is not None:
            own = window_rows(seen.queries, seen.keys, values, mode, view.replacement.window)
            rows = np.concatenate([rows, own[:, :, None]], axis=2)
        return HeadBlock(phi, rows, None, np.empty((*phi.shape[:2], 0)))

    def outputs(self, head: int, mixing: Array) -> Array:
        """Outputs (B, T, c) of a head that is replaced, with M (F, G')."""
        if self.view.replacement.denominator == "fitted":
            return normalised(predictions(self.ratio(head), mixing))
        return predictions(self.of_head(head), mixing)

    def targets(self, head: int) -> Array:
        """Outputs (B, T, c) of a softmax head, in its own coordinates of the outputs."""
        if self.keep and self.view.replacement.denominator != "fitted":
            return self.of_head(head).targets
        return softmax_outputs(self.seen(head), self.view.replacement.mode)

    def tokens(self) -> Array:
        """The query tokens less their mean, and a constant 1: (B, T, d + 1)."""
        X = self.X
        asking = X[:, -1:] if self.view.replacement.mode == "last" else X
        ones = np.ones((*asking.shape[:2], 1))
        return np.concatenate([asking - self.view.mean, ones], axis=2)

    def linear(self, weights: Array) -> Array:
        """A linear map (d + 1, e) of the query tokens: (B, T, e)."""
        return np.asarray(self.tokens() @ weights)
