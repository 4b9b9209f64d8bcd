"""LayerView: all heads of a layer on blocks of sequences, as the fit goes through them.

Sequences of one length come together, in blocks of bounded memory, whatever their number.
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

    def seen(self, X: Array, head: int) -> SeenHead:
        """Queries, keys and values of a head on X (B, n, d)."""
        return self.heads.see(X, head, self.mean, self.coordinates[head][0])

    def block(self, X: Array, head: int, with_targets: bool = True) -> HeadBlock:
        """What the replacement of a head sees of X (B, n, d), and its targets."""
        return head_block(
            self.seen(X, head), self.feature_map, head, self.replacement, with_targets
        )

    def ratio_block(self, X: Array, head: int) -> HeadBlock:
        """A block whose rows (B, T, G', c + 1) end with the sums of features; without targets."""
        seen, mode = self.seen(X, head), self.replacement.mode
        ones = np.ones((*seen.values.shape[:2], 1))
        values = np.concatenate([seen.values, ones], axis=2)
        phi = self.feature_map.query.features(seen.queries, head)
        rows = attended_rows(seen.keys, values, self.feature_map.key, head, mode, "tokens")
        rows = np.broadcast_to(rows, (*phi.shape[:2], *rows.shape[2:]))
        if self.replacement.window is not None:
            own = window_rows(seen.queries, seen.keys, values, mode, self.replacement.window)
            rows = np.concatenate([rows, own[:, :, None]], axis=2)
        return HeadBlock(phi, rows, None, np.empty((*phi.shape[:2], 0)))

    def outputs(self, X: Array, head: int, mixing: Array) -> Array:
        """Outputs (B, T, c) of a head that is replaced, with M (F, G')."""
        if self.replacement.denominator == "fitted":
            return normalised(predictions(self.ratio_block(X, head), mixing))
        return predictions(self.block(X, head, with_targets=False), mixing)

    def targets(self, X: Array, head: int) -> Array:
        """Outputs (B, T, c) of a softmax head on X, in its own coordinates of the outputs."""
        return softmax_outputs(self.seen(X, head), self.replacement.mode)

    def in_outputs(self, parts: Sequence[Array]) -> Array:
        """sum_h o_h E_h (B, T, e) of outputs (B, T, c) of all heads."""
        total = np.zeros((*parts[0].shape[:2], self.heads.n_outputs))
        for part, (_, E) in zip(parts, self.coordinates, strict=True):
            total += part @ E
        return total

    def tokens(self, X: Array) -> Array:
        """The query tokens less their mean, and a constant 1: (B T, d + 1)."""
        asking = X[:, -1:] if self.replacement.mode == "last" else X
        flat = (asking - self.mean).reshape(-1, X.shape[2])
        return np.column_stack([flat, np.ones(len(flat))])

    def linear(self, X: Array, weights: Array) -> Array:
        """A linear map (d + 1, e) of the query tokens of X: (B, T, e)."""
        n_asking = 1 if self.replacement.mode == "last" else X.shape[1]
        return np.asarray((self.tokens(X) @ weights).reshape(len(X), n_asking, -1))

    def blocks(self, batch: SequenceBatch) -> Iterator[Array]:
        """Tokens X (B, n, d) of all sequences, those of one length together."""
        tokens, done = Tokens.whole(batch, False), 0
        G, c = self.feature_map.shape[1] + 1, self.heads.W_O.shape[1]
        for group in equal_groups(batch.lengths):
            length = int(batch.lengths[group[0]])
            rows = length if self.replacement.mode == "causal" else 1
            most = min(BLOCK_NUMBERS // (G * c * rows), BLOCK_TOKENS // length)
            for first, stop in even_ranges(len(group), max(1, most)):
                which = group[first:stop]
                yield in_sequences(tokens.read(tokens_of(batch, which)), len(which))
                done += len(which)
                report(done, len(batch))
