"""Features of any form for the checker alone, written out once more.

For one sequence the sums that its predicted positions see are W P: P holds the products of values
and keys of its tokens, and W the weight of each token for each position.  Sequences of equal
length share W, and are taken together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.check.features import BLOCK_NUMBERS, INNER, product, reduce, residues
from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch

if TYPE_CHECKING:
    from polyattn.form.form import Form

# Positions whose sums are made together.
POSITIONS = 512


@dataclass(frozen=True, eq=False)
class FormFeatures:
    """What a form sees of sequences: sums S and queries u, whose products are the features."""

    form: Form
    n_dims: int
    n_context_dims: int | None

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Products of a value and a key, as their places; each once, in whichever order."""
        n_dims = self.n_dims if self.n_context_dims is None else self.n_context_dims
        values, keys = (self._labels(name, n_dims) for name in ("value", "key"))
        known: set[frozenset[Hashable]] = set()
        found = []
        for c, value in enumerate(values):
            for b, key in enumerate(keys):
                both = frozenset((value, key))
                if both not in known:
                    known.add(both)
                    found.append((c, b))
        return found

    @cached_property
    def scales(self) -> list[tuple[int, int | None, float]]:
        """(first distance, distance to stop before, decay) of each set of sums."""
        form = self.form
        nearest, end = int(not form.include_query), form.window
        if form.lags is not None:
            lone = [lag for lag in range(nearest, form.lags) if end is None or lag < end]
            pooled = max(nearest, form.lags)
            more = [(pooled, end, 1.0)] if end is None or pooled < end else []
            return [(lag, lag + 1, 1.0) for lag in lone] + more
        decays = form.decay if isinstance(form.decay, tuple) else [form.decay or 1.0]
        return [(nearest, end, float(decay)) for decay in decays]

    @property
    def n_sums(self) -> int:
        """Entries of S, the constant of skip or intercept included."""
        return len(self.scales) * len(self.pairs) + (self.form.skip or self.form.intercept)

    @cached_property
    def n_queries(self) -> int:
        """Entries of u, the constant of intercept included."""
        return len(self._labels("query", self.n_dims)) + self.form.intercept

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """Which products (sum, query) are features, in order."""
        table = np.ones((self.n_sums, self.n_queries), dtype=bool)
        if self.form.intercept:
            # The constant of u meets that of S alone, and that of S meets u only with skip.
            table[:, -1] = False
            table[-1, :] = self.form.skip
            table[-1, -1] = True
        return np.flatnonzero(table)

    @property
    def n_features(self) -> int:
        return len(self.kept)

    @cached_property
    def columns(self) -> list[tuple[str, int]]:
        """The columns of the tokens attended to, each by a name and its place there.

        Coordinates in order, then what maps make of them, then the constant.
        """
        names, n_dims = ["query", "key", "value"], self.n_dims
        if self.n_context_dims is not None:
            names, n_dims = names[1:], self.n_context_dims
        found: dict[Hashable, tuple[str, int]] = {}
        for name in names:
            for at, label in enumerate(self._labels(name, n_dims)):
                found.setdefault(label, (name, at))
        coordinates = sorted(label for label in found if isinstance(label, int))
        constant = [label for label in found if label == "constant"]
        maps = [label for label in found if label not in {*coordinates, *constant}]
        return [found[label] for label in [*coordinates, *maps, *constant]]

    @property
    def reach(self) -> int:
        """The largest distance that is named."""
        return max(max(start, stop or 0) for start, stop, _ in self.scales)

    def seen(
        self, name: str, tokens: NDArray, prime: int | None, exponent: int, sizes: bool = False
    ) -> NDArray[np.float64]:
        """Queries, keys or values (n, r) of tokens (n, d); ``sizes``: without any cancellation."""
        given = getattr(self.form, name)
        if isinstance(given, np.ndarray) and prime is not None:
            numbers = product(residues(tokens, prime), residues(given, prime), prime)
        elif isinstance(given, np.ndarray):
            exact = tokens.astype(np.float64)
            numbers = np.abs(exact) @ np.abs(given) if sizes else exact @ given
        else:
            if callable(given):
                tokens = np.asarray(given(tokens.astype(np.float64)), dtype=np.float64)
            elif given is not None:
                tokens = tokens[:, given if isinstance(given, slice) else list(given)]
            numbers = tokens.astype(np.float64) if prime is None else residues(tokens, prime)
        constant = np.ones((len(tokens), int(self.form.bias)))
        numbers = np.concatenate([numbers, constant], axis=1)
        if prime is None:
            numbers = np.ldexp(np.abs(numbers) if sizes else numbers, -exponent)
        return numbers

    def largest(self, batch: SequenceBatch, context: SequenceBatch | None) -> float:
        """The largest number that is seen of any token."""
        found = [float(self.form.bias or self.form.skip or self.form.intercept)]
        others = batch if context is None else context
        for name, of in (("query", batch), ("key", others), ("value", others)):
            sizes = (np.abs(self.seen(name, piece, None, 0)).max() for piece in pieces(of.values))
            found.extend(map(float, sizes))
        return max(found)

    def summaries(
        self,
        batch: SequenceBatch,
        context: SequenceBatch | None,
        prime: int | None,
        exponent: int,
        sizes: bool = False,
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """(S (rows, sums), u (rows, queries)) of all predicted positions, in order."""
        others = batch if context is None else context
        value, key = np.array(self.pairs).T
        for first, stop in self._runs(batch, others):
            length, seen = int(batch.lengths[first]), int(others.lengths[first])
            own, attended = (
                each.values[each.offsets[first] : each.offsets[stop]] for each in (batch, others)
            )
            queries = self.seen("query", own, prime, exponent, sizes)
            keys = self.seen("key", attended, prime, exponent, sizes)
            values = self.seen("value", attended, prime, exponent, sizes)
            products = reduce(values[:, value] * keys[:, key], prime)
            products = products.reshape(stop - first, seen, -1)
            sums = [self._sums(products, scale, length, prime) for scale in self.scales]
            rows = sums[0].shape[1]
            if self.form.skip or self.form.intercept:
                unit = 1.0 if prime is not None else 2.0 ** (-2 * exponent)
                sums.append(np.full((stop - first, rows, 1), unit))
            queries = queries.reshape(stop - first, length, -1)[:, -rows:]
            if self.form.intercept:
                unit = 1.0 if prime is not None else 2.0**-exponent
                constant = np.full((stop - first, rows, 1), unit)
                queries = np.concatenate([queries, constant], axis=2)
            together = np.concatenate(sums, axis=2)
            yield (
                together.reshape(-1, self.n_sums),
                np.ascontiguousarray(queries).reshape(-1, self.n_queries),
            )

    def _sums(
        self,
        products: NDArray,
        scale: tuple[int, int | None, float],
        length: int,
        prime: int | None,
    ) -> NDArray[np.float64]:
        """The sums (sequences, positions, pairs) of one scale, from products of all tokens."""
        form, seen = self.form, products.shape[1]
        aligned = self.n_context_dims is None or form.mode == "causal"
        if form.mode == "causal":
            sums = _running(products, scale, prime)
        elif form.mode == "last" and aligned:
            distances = np.arange(seen)[::-1]
            sums = _times(
                _weights(distances, scale, _powers(scale[2], seen, prime))[None], products, prime
            )
        elif form.include_query:
            # Of a context that is not aligned all tokens are attended to.
            sums = _times(np.ones((1, seen)), products, prime)
            sums = np.repeat(sums, 1 if form.mode == "last" else length, axis=1)
        else:
            spans = [
                range(first, min(first + POSITIONS, seen)) for first in range(0, seen, POSITIONS)
            ]
            others = (np.arange(seen) != np.array(span)[:, None] for span in spans)
            parts = [_times(each.astype(np.float64), products, prime) for each in others]
            sums = np.concatenate(parts, axis=1)
        return self._divided(sums, seen, aligned, prime) if form.mean else sums

    def _divided(
        self, sums: NDArray, seen: int, aligned: bool, prime: int | None
    ) -> NDArray[np.float64]:
        """Sums divided by how many tokens each position attends to, in all scales together."""
        positions = (
            np.arange(seen) if self.form.mode == "causal" else np.full(sums.shape[1], seen - 1)
        )
        counts = positions + 1
        if self.form.window is not None and self.form.mode != "full" and aligned:
            counts = np.minimum(counts, min(self.form.window, seen))
        counts = np.maximum(counts - (not self.form.include_query), 1)
        if prime is None:
            return sums / counts[:, None]
        inverses = np.array([float(pow(int(count), -1, prime)) for count in counts])
        return reduce(sums * reduce(inverses, prime)[:, None], prime)

    def _runs(self, batch: SequenceBatch, others: SequenceBatch) -> Iterator[tuple[int, int]]:
        """Neighbouring sequences of one length, and of one length attended to."""
        lengths = np.stack([batch.lengths, others.lengths], axis=1)
        borders = [0, *(np.flatnonzero(np.any(np.diff(lengths, axis=0), axis=1)) + 1), len(batch)]
        for start, end in pairwise(borders):
            numbers = int(lengths[start].max()) * max(self.n_sums, self.n_queries)
            step = max(1, BLOCK_NUMBERS // numbers)
            for first in range(start, end, step):
                yield first, min(first + step, end)

    def _labels(self, name: str, n_dims: int) -> list[Hashable]:
        """What each number of a query, key or value is: equal labels are equal numbers."""
        given: Any = getattr(self.form, name)
        constant: list[Hashable] = ["constant"] * self.form.bias
        if given is None or isinstance(given, slice):
            return [*range(n_dims)[slice(None) if given is None else given], *constant]
        if isinstance(given, tuple):
            return [*(each % n_dims for each in given), *constant]
        if isinstance(given, np.ndarray):
            label: Hashable = ("matrix", given.shape, (given + 0.0).tobytes())
            return [*((label, i) for i in range(given.shape[1])), *constant]
        width = np.asarray(given(np.full((1, n_dims), 0.5))).shape[1]
        return [*((given, i) for i in range(width)), *constant]


def _powers(decay: float, count: int, prime: int | None) -> NDArray[np.float64]:
    """decay^o for o below ``count``."""
    if prime is None:
        return np.asarray(decay ** np.arange(float(count)))
    top, below = decay.as_integer_ratio()
    base = top * pow(below, -1, prime) % prime
    return reduce(np.array([float(pow(base, o, prime)) for o in range(count)]), prime)


def _weights(
    distances: NDArray, scale: tuple[int, int | None, float], powers: NDArray
) -> NDArray[np.float64]:
    """The weights of tokens at these distances; ``powers`` are those of the decay."""
    start, stop, _ = scale
    far = len(powers) if stop is None else min(stop, len(powers))
    counts = (distances >= start) & (distances < far)
    return np.where(counts, powers[np.maximum(distances, 0)], 0.0)


def _running(
    products: NDArray, scale: tuple[int, int | None, float], prime: int | None
) -> NDArray[np.float64]:
    """The sums of one scale that each token sees up to its place, some positions at a time.

    Cost: POSITIONS and the window, if there is one, for each token.
    """
    seen, (start, stop, decay) = products.shape[1], scale
    stop = None if stop is None or stop >= seen else stop
    powers = _powers(decay, seen + 1, prime)
    parts, done, carry = [], 0, np.zeros((len(products), 1, products.shape[2]))
    for first in range(0, seen, POSITIONS):
        last = min(first + POSITIONS, seen)
        # Tokens from here on count one by one; of a long past only a sum, carried along.
        near = max(0, first - start) if stop is None else max(0, first + 1 - stop)
        distances = np.arange(first, last)[:, None] - np.arange(near, last)
        sums = _times(_weights(distances, scale, powers), products[:, near:last], prime)
        if stop is None and near:
            fresh = powers[near - 1 - np.arange(done, near)][None]
            carry = carry * powers[near - done] + _times(fresh, products[:, done:near], prime)
            carry, done = reduce(carry, prime), near
            sums = sums + powers[np.arange(first, last) + 1 - near][:, None] * carry
        parts.append(reduce(sums, prime))
    return np.concatenate(parts, axis=1)


def _times(weights: NDArray, products: NDArray, prime: int | None) -> NDArray[np.float64]:
    """W P for each sequence: (sequences, positions, pairs)."""
    if prime is None:
        return np.asarray(weights @ products)
    total = np.zeros((len(products), len(weights), products.shape[2]))
    for start in range(0, weights.shape[1], INNER):
        some = slice(start, start + INNER)
        total += weights[:, some] @ products[:, some]
        reduce(total, prime)
    return total
