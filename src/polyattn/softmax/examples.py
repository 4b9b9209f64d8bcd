"""Examples in the form that learning takes them: blocks of one length, tokens of order one.

Every coordinate of the tokens and the targets as a whole are divided by powers of two, which is
exact, so that thresholds for logits and residuals mean the same for all data.  With
X = X' D and Y = s Y' the layer (A', V') of the scaled data is the layer

    A = D^-1 A' D^-1,      V = s D^-1 V'

of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.sequences import SequenceBatch

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Block:
    """Sequences of one length n.

    keys : array (B, n, d), all tokens
    targets : array (B, r, e), for the last r of them: r = n, or 1 in mode ``last``
    hidden : array (r, n) or None, which keys a query does not see
    """

    keys: Matrix
    targets: Matrix
    hidden: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def queries(self) -> Matrix:
        """The tokens (B, r, d) at the predicted positions."""
        return self.keys[:, self.keys.shape[1] - self.targets.shape[1] :]

    @property
    def n_rows(self) -> int:
        """B r, how many positions are predicted."""
        return self.targets.shape[0] * self.targets.shape[1]

    def part(self, first: int, stop: int) -> Block:
        """Sequences first..stop, a view."""
        return Block(self.keys[first:stop], self.targets[first:stop], self.hidden)


@dataclass(frozen=True)
class Units:
    """The powers of two taken out: token coordinate j is divided by 2**of_tokens[j]."""

    of_tokens: NDArray[np.int64]
    of_targets: int

    def restore(self, attn: Matrix, value: Matrix) -> tuple[Matrix, Matrix]:
        """Heads (or their standard deviations) of the data from those of the scaled data."""
        of_rows = -self.of_tokens[:, None]
        return (
            np.ldexp(attn, of_rows - self.of_tokens[None, :]),
            np.ldexp(value, of_rows + self.of_targets),
        )


@dataclass(frozen=True)
class Examples:
    """Sequences with targets, as one block for each length that occurs."""

    groups: tuple[Block, ...]

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def n_dims(self) -> int:
        """d, the coordinates of a token."""
        return self.groups[0].keys.shape[2]

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of a target."""
        return self.groups[0].targets.shape[2]

    @property
    def n_rows(self) -> int:
        """How many positions are predicted."""
        return sum(group.n_rows for group in self.groups)

    def queries(self) -> Matrix:
        """The tokens at all predicted positions, shape (n_rows, d)."""
        return np.concatenate([group.queries.reshape(-1, self.n_dims) for group in self.groups])

    @property
    def power(self) -> float:
        """The sum of the squared targets."""
        return float(sum(np.vdot(group.targets, group.targets) for group in self.groups))

    def n_distinct_rows(self, most: int) -> int:
        """How many predicted positions differ in the query or in what it attends to, up to most.

        Neither the order of the tokens counts, nor a common factor of their numbers, nor a sign
        of all: no layer depends on the first two, and every one has F(-X) = -F(X).  Positions
        with a zero query or equal tokens show the sum of the values alone: no more than d count.
        """
        found: set[bytes] = set()
        of_sum: set[bytes] = set()
        for group in self.groups:
            for keys, queries in zip(group.keys, group.queries, strict=True):
                for row, query in enumerate(queries):
                    if len(found) >= most:
                        return most
                    there = keys if group.hidden is None else keys[~group.hidden[row]]
                    uniform = not np.any(query) or np.all(there == there[0])
                    content = min(_content(query, there), _content(-query, -there))
                    (of_sum if uniform else found).add(content)
        return min(most, len(found) + min(len(of_sum), self.n_dims))

    def blocks(self, n_rows: int) -> Iterator[Block]:
        """All examples in pieces of about ``n_rows`` predicted positions."""
        for group in self.groups:
            step = max(1, n_rows // group.targets.shape[1])
            for first in range(0, len(group), step):
                yield group.part(first, first + step)

    def first(self, count: int) -> Examples:
        """About ``count`` examples from the beginning, every length in its proportion."""
        return self.split(count)[0]

    def split(self, count: int) -> tuple[Examples, Examples]:
        """About ``count`` examples, every length in its proportion, and the others."""
        share = min(1.0, max(count, 1) / len(self))
        # Rounding running totals, not each part: many lengths with few examples add up.
        totals = np.rint(share * np.cumsum([len(group) for group in self.groups])).astype(int)
        borders = np.diff(totals, prepend=0).tolist()
        pairs = list(zip(self.groups, borders, strict=True))
        before = tuple(group.part(0, border) for group, border in pairs if border)
        after = tuple(
            group.part(border, len(group)) for group, border in pairs if border < len(group)
        )
        return Examples(before), Examples(after)


def prepare(
    batch: SequenceBatch, rows: NDArray, mode: str, rng: np.random.Generator
) -> tuple[Examples, Units]:
    """Sequences and targets (n_rows, e) as shuffled, scaled examples, with their units."""
    units = Units(_exponents(batch.values), int(_exponents(rows.reshape(-1, 1))[0]))
    order = rng.permutation(len(batch))
    lengths = batch.lengths[order]
    groups = []
    for length in np.unique(lengths):
        chosen = order[lengths == length]
        positions = batch.offsets[chosen][:, None] + np.arange(length)
        keys = np.ldexp(batch.values[positions].astype(np.float64), -units.of_tokens)
        of_rows = chosen[:, None] if mode == "last" else positions
        targets = np.ldexp(rows[of_rows].astype(np.float64), -units.of_targets)
        hidden = ~np.tri(length, dtype=bool) if mode == "causal" else None
        groups.append(Block(keys, targets, hidden))
    return Examples(tuple(groups)), units


def _content(query: Matrix, keys: Matrix) -> bytes:
    """A query and the tokens it sees, with their shares: equal for positions of one output."""
    # Adding zero makes of -0.0 the same bits as of 0.0.
    different, counts = np.unique(keys + 0.0, axis=0, return_counts=True)
    shares = counts // np.gcd.reduce(counts)
    return b"".join([(query + 0.0).tobytes(), different.tobytes(), shares.tobytes()])


def _exponents(columns: NDArray) -> NDArray[np.int64]:
    """For each column the power of two nearest above its root mean square; 0 if it is zero."""
    magnitude = np.abs(columns).max(axis=0).astype(np.float64)
    safe = np.where(magnitude > 0, magnitude, 1.0)
    root = safe * np.sqrt(np.mean((columns / safe) ** 2, axis=0))
    return np.where(magnitude > 0, np.frexp(root)[1], 0).astype(np.int64)
