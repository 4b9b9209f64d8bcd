"""Examples in the form that learning takes them: blocks of one length, tokens of order one.

Every coordinate of the tokens and the targets as a whole are divided by powers of two, which is
exact, so that thresholds for logits and residuals mean the same for all data.  With
X = X' D and Y = s Y' the layer (A', V') of the scaled data is the layer

    A = D^-1 A' D^-1,      V = s D^-1 V'

of the data.  With ``bias`` every token gets a last coordinate 1, which is not scaled.  No input
shows the last column of attn, which shifts all logits of a query alike, and of the last rows of
value only the sum over heads can be seen.  By convention the column is zero, and every head has an
equal share of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import OutOfRange
from polyattn.numerics.scaling import column_magnitudes, restored, rounded_up
from polyattn.sequences import SequenceBatch, equal_sequences, split_apart

Matrix = NDArray[np.float64]

# Coordinates may differ in size by this power of two: a layer divides tokens and attn by one
# power each, which leaves logits of its square, and of these no digits may underflow.
COMPARABLE_EXPONENT = 450

# What to do about heads that do not fit.
IN_RANGE = (
    "multiply the coordinates of X, or Y, by constants so that they are of order one, and learn "
    "again."
)


@dataclass(frozen=True)
class ExampleBlock:
    """Sequences of one length n; equal ones stand beside each other.

    keys : (B, n, d), all tokens
    targets : (B, r, e), for the last r of them: r = n, or 1 in mode ``last``
    hidden : (r, n) or None, which keys a query does not see
    bias : whether the last coordinate of the tokens is the constant of ``bias``
    """

    keys: Matrix
    targets: Matrix
    hidden: NDArray[np.bool_] | None
    bias: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def queries(self) -> Matrix:
        """The tokens (B, r, d) at the predicted positions."""
        return self.keys[:, self.keys.shape[1] - self.targets.shape[1] :]

    @property
    def borders(self) -> NDArray[np.intp]:
        """Where copies of another sequence begin, and the end."""
        changes = np.any(self.keys[1:] != self.keys[:-1], axis=(1, 2))
        return np.flatnonzero(np.concatenate([[True], changes, [True]]))

    @property
    def n_rows(self) -> int:
        """B r, how many positions are predicted."""
        return self.targets.shape[0] * self.targets.shape[1]

    def part(self, first: int, stop: int) -> ExampleBlock:
        """Sequences first..stop, a view."""
        return replace(self, keys=self.keys[first:stop], targets=self.targets[first:stop])


@dataclass(frozen=True)
class ExampleUnits:
    """The powers of two taken out: token coordinate j is divided by 2**of_tokens[j]."""

    of_tokens: NDArray[np.int64]
    of_targets: int

    def heads(self, attn: Matrix, value: Matrix) -> tuple[Matrix, Matrix]:
        """The heads of the data from those of the scaled data; refused where digits are lost.

        In scaled units entries of attn count alike in a head, those of value in one of its outputs.
        """
        alike, of_attn, of_value = np.ones(1), *self._of_heads()
        # The outputs of a head as rows (m e, d).
        columns = value.transpose(0, 2, 1)
        rows = columns.reshape(-1, value.shape[1])
        rows = restored(rows, of_value[:, 0], "value", alike, IN_RANGE)
        attn = restored(attn, of_attn, "attn", alike, IN_RANGE)
        return attn, rows.reshape(columns.shape).transpose(0, 2, 1)

    def deviations(self, attn: Matrix, value: Matrix) -> tuple[Matrix, Matrix]:
        """Standard deviations of heads in the units of the data: never rounded down."""
        of_attn, of_value = self._of_heads()
        return rounded_up(attn, of_attn), rounded_up(value, of_value)

    def noise(self, scaled_noise: float) -> float:
        """A standard deviation of targets in the units of the data: never rounded down."""
        noise = float(rounded_up(np.array(scaled_noise), self.of_targets))
        if not np.isfinite(noise):
            raise OutOfRange(
                f"the noise would be {scaled_noise:.1e} * 2**{self.of_targets}, which float64 "
                "cannot hold; divide the targets by a constant."
            )
        return noise

    def scaled_noise(self, noise: float | None) -> float | None:
        """A standard deviation that was declared for the targets, if any, in scaled units."""
        with np.errstate(over="ignore", under="ignore"):
            return None if noise is None else float(np.ldexp(noise, -self.of_targets))

    def _of_heads(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of attn (d, d) and of value (d, 1)."""
        of_tokens = self.of_tokens[:, None]
        return -of_tokens - self.of_tokens, self.of_targets - of_tokens


@dataclass(frozen=True)
class Examples:
    """Sequences with targets, as one block for each length that occurs."""

    groups: tuple[ExampleBlock, ...]

    def __len__(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def bias(self) -> bool:
        """Whether the last coordinate of the tokens is the constant of ``bias``."""
        return self.groups[0].bias

    @property
    def width(self) -> int:
        """The coordinates of a token, with the constant of ``bias``."""
        return self.groups[0].keys.shape[2]

    @property
    def n_different(self) -> int:
        """The number of sequences, copies counted once."""
        return sum(len(group.borders) - 1 for group in self.groups)

    @property
    def n_outputs(self) -> int:
        """e, the coordinates of a target."""
        return self.groups[0].targets.shape[2]

    @property
    def n_rows(self) -> int:
        """How many positions are predicted."""
        return sum(group.n_rows for group in self.groups)

    @property
    def power(self) -> float:
        """The sum of the squared targets."""
        return float(sum(np.vdot(group.targets, group.targets) for group in self.groups))

    def n_unknowns(self, n_heads: int) -> int:
        """The parameters of ``n_heads`` heads."""
        return count_unknowns(n_heads, self.width, self.n_outputs, self.bias)

    def with_constant(self) -> Examples:
        """The same examples with a last coordinate 1 beside each token, that of ``bias``."""
        wider = []
        for group in self.groups:
            keys = np.pad(group.keys, ((0, 0), (0, 0), (0, 1)), constant_values=1.0)
            wider.append(replace(group, keys=keys, bias=True))
        return Examples(tuple(wider))

    def n_distinct_rows(self, most: int) -> int:
        """How many predicted positions differ in the query or in what it attends to, up to most.

        Neither the order of the tokens counts, nor a common factor of their numbers, nor a sign
        of all: no layer depends on the first two, and every one has F(-X) = -F(X).  Positions
        with a zero query or equal tokens show the sum of the values alone: no more of them count
        than tokens have coordinates.
        """
        found: set[bytes] = set()
        of_sum: set[bytes] = set()
        for group in self.groups:
            for at, row in np.ndindex(*group.targets.shape[:2]):
                if len(found) >= most:
                    return most
                keys, query = group.keys[at], group.queries[at, row]
                there = keys if group.hidden is None else keys[~group.hidden[row]]
                uniform = not np.any(query) or np.all(there == there[0])
                content = min(_content(query, there), _content(-query, -there))
                (of_sum if uniform else found).add(content)
        return min(most, len(found) + min(len(of_sum), self.width))

    def blocks(self, n_rows: int = 1 << 14) -> Iterator[ExampleBlock]:
        """All examples in pieces of about ``n_rows`` predicted positions."""
        for group in self.groups:
            step = max(1, n_rows // group.targets.shape[1])
            for first in range(0, len(group), step):
                yield group.part(first, first + step)

    def first(self, count: int) -> Examples:
        """About ``count`` examples from the beginning, every length in its proportion."""
        return self.split(count)[0]

    def split(self, count: int) -> tuple[Examples, Examples]:
        """About ``count`` examples, every length in its proportion, and the others.

        Copies count once, and are on one side.
        """
        different = [group.borders for group in self.groups]
        counts = [len(each) - 1 for each in different]
        share = min(1.0, max(count, 1) / sum(counts))
        # Rounding running totals, not each part: many lengths with few examples add up.
        totals = np.rint(share * np.cumsum(counts)).astype(int)
        chosen = np.diff(totals, prepend=0)
        borders = [int(each[n]) for each, n in zip(different, chosen, strict=True)]
        pairs = list(zip(self.groups, borders, strict=True))
        before = [group.part(0, border) for group, border in pairs]
        after = [group.part(border, len(group)) for group, border in pairs]
        return Examples(tuple(filter(len, before))), Examples(tuple(filter(len, after)))


def count_unknowns(n_heads: int, width: int, n_outputs: int, bias: bool) -> int:
    """The parameters of heads that some input shows: of tokens with so many coordinates."""
    n_dims = width - bias
    return n_heads * n_dims * (width + n_outputs) + bias * n_outputs


def prepare(
    batch: SequenceBatch, rows: NDArray, mode: str, rng: np.random.Generator, bias: bool = False
) -> tuple[Examples, ExampleUnits]:
    """Sequences and targets (n_rows, e) as shuffled, scaled examples, and their units."""
    of_tokens = _exponents(batch.values)
    known = of_tokens[np.any(batch.values, axis=0)]
    if bias:
        known = np.append(known, 0)
    if len(known) and known.max() - known.min() > COMPARABLE_EXPONENT:
        raise OutOfRange(
            f"the coordinates of X are of sizes from 2**{known.min()} to 2**{known.max()}; logits "
            "of tokens like these do not fit float64. Multiply the coordinates by constants so "
            "that they are of similar size."
        )
    of_targets = int(_exponents(rows.reshape(-1, 1))[0])
    numbers = equal_sequences((batch, None))
    order = split_apart(numbers, rng.permutation(numbers.max() + 1), 0)[1]
    lengths = batch.lengths[order]
    groups = []
    for length in np.unique(lengths):
        chosen = order[lengths == length]
        positions = batch.offsets[chosen][:, None] + np.arange(length)
        keys = np.ldexp(batch.values[positions].astype(np.float64), -of_tokens)
        of_rows = chosen[:, None] if mode == "last" else positions
        targets = np.ldexp(rows[of_rows].astype(np.float64), -of_targets)
        hidden = ~np.tri(length, dtype=bool) if mode == "causal" else None
        groups.append(ExampleBlock(keys, targets, hidden))
    examples = Examples(tuple(groups))
    if bias:
        return examples.with_constant(), ExampleUnits(np.append(of_tokens, 0), of_targets)
    return examples, ExampleUnits(of_tokens, of_targets)


def _content(query: Matrix, keys: Matrix) -> bytes:
    """A query and the tokens it sees, with their shares: equal for positions of one output."""
    # Adding zero makes of -0.0 the same bits as of 0.0.
    different, counts = np.unique(keys + 0.0, axis=0, return_counts=True)
    shares = counts // np.gcd.reduce(counts)
    return b"".join([(query + 0.0).tobytes(), different.tobytes(), shares.tobytes()])


def _exponents(columns: NDArray) -> NDArray[np.int64]:
    """For each column the power of two nearest above its root mean square; 0 if it is zero."""
    largest = np.frexp(column_magnitudes([columns], columns.shape[1]))[1]
    # Powers of two, so that no digits are lost of numbers at the ends of float64.
    below_one = np.ldexp(columns.astype(np.float64), -largest)
    root = np.sqrt(np.mean(below_one**2, axis=0))
    return np.where(root > 0, largest + np.frexp(root)[1], 0).astype(np.int64)
