"""The engines: one token after another, touching only what the tokens hold.

The layer's output is sum over heads of x A G V.  The Gram matrix G of the tokens is not
recomputed but updated by each new token, only in the entries that some head reads, and kept as
dictionaries without zeros.  All arithmetic is that of integers of any size, in units of the
least common fraction of the weights: nothing is rounded, and counts beyond 64 bits are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from copy import copy
from math import lcm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.schema import Decoded, Schema, Token, decode, require_count
from polyattn.programs.language.terms import Exact
from polyattn.programs.lowering import Head

# Coordinates and their values, zeros left out.
Sparse: TypeAlias = dict[int, int]

# For each coordinate that is read, where it is written to and with which weight.
Writes: TypeAlias = dict[int, list[tuple[int, int]]]


class Engine:
    """Predicts the next token of one history by the heads of a layer.

    Cost per token: its products that heads match, and the Gram entries at what it asks for.
    """

    def __init__(self, schema: Schema, heads: Sequence[Head]) -> None:
        self._schema = schema
        of_value = common_denominator(weight for head in heads for weight in head.value.values())
        of_attn = common_denominator(weight for head in heads for weight in head.attn.values())
        self._unit = of_value * of_attn
        # What a query coordinate leads to: matched coordinates, weights, and what is written.
        self._probes = defaultdict[int, list[tuple[int, int, Writes]]](list)
        self._read_with = defaultdict[int, set[int]](set)
        for head in heads:
            writes: Writes = defaultdict(list)
            for (read, write), weight in head.value.items():
                writes[read].append((write, int(weight * of_value)))
            for (query, match), weight in head.attn.items():
                self._probes[query].append((match, int(weight * of_attn), dict(writes)))
                self._read_with[match] |= writes.keys()
        self._attribute = [at for at, each in enumerate(schema.attributes) for _ in each.values]
        self._one_hot = [each.rounding == ONE_HOT for each in schema.attributes]
        self._gram: dict[int, Sparse] = {}
        self._last: Sparse = {}

    def fresh(self) -> Engine:
        """Another engine of the same heads, which has seen no tokens; their tables are shared."""
        other = copy(self)
        other._gram, other._last = {}, {}
        return other

    def start(self, prompt: list[Token]) -> None:
        self._gram = defaultdict(dict)
        # By the schema's own rows: it refuses what it does not know, and zeros fall away.
        for row in self._schema.encode(prompt):
            self._append({int(at): int(row[at]) for at in row.nonzero()[0]})

    def next_token(self) -> Token:
        # Rounded as ``Schema.round`` rounds arrays: the largest above one half, or integers.
        rounded: Sparse = {}
        best: dict[int, tuple[int, int]] = {}
        unit = self._unit
        for at, amount in self._sums().items():
            block = self._attribute[at]
            if not self._one_hot[block]:
                if whole := amount if unit == 1 else _nearest(amount, unit):
                    rounded[at] = require_count(self._schema.atoms[at], whole)
            elif 2 * amount > unit and (amount, -at) > best.get(block, (0, 0)):
                best[block] = (amount, -at)
        rounded |= {-at: 1 for _, at in best.values()}
        token = dict(sorted(rounded.items()))
        self._append(token)
        atoms = self._schema.atoms
        return {atoms[at]: times for at, times in token.items()}

    def output(self) -> NDArray[np.float64]:
        """The layer's output (d,) after the last token, before rounding."""
        found = np.zeros(self._schema.n_dims)
        for at, amount in self._sums().items():
            found[at] = amount / self._unit
        return found

    def _sums(self) -> dict[int, int]:
        """The output times the unit of the weights: integers."""
        found: dict[int, int] = defaultdict(int)
        gram, nothing = self._gram, dict[int, int]()
        for query, asked in self._last.items():
            for match, weight, writes in self._probes.get(query, ()):
                factor = asked * weight
                for read, amount in gram.get(match, nothing).items():
                    for write, share in writes.get(read, ()):
                        found[write] += factor * amount * share
        return found

    def _append(self, token: Sparse) -> None:
        for match, times in token.items():
            readers = self._read_with.get(match)
            if not readers:
                continue
            row = self._gram[match]
            for read, held in token.items():
                if read in readers:
                    amount = row.get(read, 0) + times * held
                    if amount:
                        row[read] = amount
                    else:
                        del row[read]
        self._last = token


def _nearest(amount: int, unit: int) -> int:
    """amount / unit rounded to an integer; halves to the even one, as ``round`` does."""
    whole, rest = divmod(2 * amount + unit, 2 * unit)
    return whole - 1 if rest == 0 and whole % 2 else whole


def margins(schema: Schema, outputs: NDArray) -> NDArray[np.float64]:
    """How far every number of outputs (..., d) may move before they round to other tokens.

    The distance, in the largest change of a number, to the nearest border of ``schema.round``:
    in a one-hot block half the lead over the next best, and what is above or below one half; in
    other blocks what is left to the next integer.  A layer that writes 0 and 1 exactly has 0.5.
    """
    found = []
    for attribute in schema.attributes:
        block = outputs[..., schema.blocks[attribute.name]]
        if attribute.rounding != ONE_HOT:
            found.append(0.5 - np.abs(block - np.rint(block)).max(axis=-1))
            continue
        best, *others = np.moveaxis(np.sort(block)[..., ::-1][..., :2], -1, 0)
        found.append(np.abs(best - 0.5))
        found += [np.where(best > 0.5, (best - next_best) / 2, np.inf) for next_best in others]
    return np.asarray(np.min(found, axis=0))


def common_denominator(weights: Iterable[Exact]) -> int:
    """The least number that makes integers of all weights."""
    return lcm(1, *(weight.denominator for weight in weights))


# Many histories at once: the engine's steps on arrays, one row for each history.
#
# Arrays are float64, exact for integers up to 2^53.  With n tokens of entries up to m (1 in one-hot
# attributes), and w the most that the weights |attn value| of one output add up to,
#
#     |G[j, k]| <= n m^2,        |output| <= w n m^3,
#
# and so is every partial sum.  In units of the common denominator u of the weights all are
# integers, exact while u w n m^3 <= 2^53.  Beyond that (1/3 alone has u = 2^54) each product of an
# output errs by at most EPSILON w n m^3, and the token is right if the margin of the output is
# larger than all of them.  Histories for which neither holds are run by ``Engine``.

# Half of 2^53, since the bounds themselves are computed in float64; and what one product of an
# output may lose to rounding.
EXACT, EPSILON = 2.0**52, 2.0**-50


class BatchEngine:
    """The heads of a layer for B histories.

    ``grams`` (B, S) has the S entries (match, read) of the Gram matrix that some head reads and
    that can differ from zero: two values of a one-hot attribute never meet in a token.
    For a query coordinate l, row l of ``products`` lists the products G[s] x[l] that it takes
    part in; product e belongs to entry ``entry[e]`` and is written to ``write[e]``.

    Cost per token and history: O(S) to update, O(products of what the token holds) to predict.
    """

    def __init__(self, schema: Schema, heads: Sequence[Head]) -> None:
        self.schema = schema
        # The number of the one-hot attribute that each coordinate belongs to; -1 for others.
        block = [
            number if attribute.rounding == ONE_HOT else -1
            for number, attribute in enumerate(schema.attributes)
            for _ in attribute.values
        ]
        entries: dict[tuple[int, int], int] = {}
        found = [
            (query, entries.setdefault((match, read), len(entries)), write, weight * share)
            for head in heads
            for (query, match), weight in head.attn.items()
            for (read, write), share in head.value.items()
            if match == read or block[match] < 0 or block[match] != block[read]
        ]
        self.match, self.read = np.array(list(entries), dtype=np.int64).reshape(-1, 2).T
        places = np.array([each[:3] for each in found], dtype=np.int64).reshape(-1, 3)
        query, self.entry, self.write = places.T.copy()
        weights = np.array([float(each[3]) for each in found])
        shape = (schema.n_dims, len(found))
        self.products = sparse.csr_array((weights, (query, np.arange(len(found)))), shape=shape)
        of_outputs = np.bincount(self.write, np.abs(weights), minlength=schema.n_dims)
        self._weight = float(of_outputs.max(initial=0.0))
        # A power of two, as weights are floats; that of tiny ones would not fit float64.
        self._unit = float(min(common_denominator(each[3] for each in found), 1 << 1000))

    def gram(self, tokens: NDArray) -> NDArray[np.float64]:
        """The entries that are read, of the Gram matrix of tokens (n, d)."""
        entries = tokens[:, self.match] * tokens[:, self.read]
        return entries.sum(axis=0).astype(np.float64)

    def outputs(self, grams: NDArray[np.float64], last: NDArray) -> NDArray[np.float64]:
        """The layer's outputs (B, d), before rounding."""
        asked = sparse.csr_array(last.astype(float)) @ self.products
        row = np.repeat(np.arange(len(last)), np.diff(asked.indptr))
        amounts = asked.data * grams[row, self.entry[asked.indices]]
        place = row * self.schema.n_dims + self.write[asked.indices]
        flat = np.bincount(place, weights=amounts, minlength=last.size)
        return np.asarray(flat, dtype=np.float64).reshape(last.shape)

    def largest(self, tokens: NDArray) -> NDArray[np.float64]:
        """m of each token (B, d): the size of its largest entry, at least 1."""
        if tokens.max(initial=0) <= 1 and tokens.min(initial=0) >= -1:
            return np.ones(len(tokens))
        return np.maximum(np.abs(tokens.astype(np.float64)).max(axis=1), 1.0)

    def are_certain(
        self, outputs: NDArray[np.float64], powers: NDArray[np.float64], largest: NDArray
    ) -> NDArray[np.bool_]:
        """Which outputs (B, d) are rounded to the token that exact arithmetic gives.

        ``powers`` (B,): sums of m^2 over the tokens; ``largest`` (B,): m of the last one.
        """
        most = powers * largest * self._weight
        certain = np.asarray((self._unit * most <= EXACT) & (self._unit * powers <= EXACT))
        if certain.all():
            return certain
        error = EPSILON * (most + 1.0) * (len(self.entry) + 1.0)
        clear = margins(self.schema, outputs) > error
        return certain | (clear & (powers <= EXACT) & (most <= EXACT))


def decode_batch(
    schema: Schema, heads: Sequence[Head], prompts: Sequence[list[Token]], limits: Sequence[int]
) -> list[Decoded]:
    """What ``decode`` gives for each prompt, all histories in step."""
    engine, exact_engine = BatchEngine(schema, heads), Engine(schema, heads)
    encoded = [schema.encode(prompt) for prompt in prompts]
    endings = [schema.coordinates[atom] for atom in schema.endings]
    needed = [schema.blocks[name] for name in schema.stop_without]
    stopped = np.zeros(len(prompts), dtype=bool)
    left = np.array(limits, dtype=np.int64)
    active = np.flatnonzero(left > 0)
    grams, powers = np.zeros((len(active), len(engine.match))), np.zeros(len(active))
    last = np.zeros((len(active), schema.n_dims), dtype=np.int64)
    for place, history in enumerate(active):
        prompt, last[place] = encoded[history][:-1], encoded[history][-1]
        powers[place] = np.sum(engine.largest(prompt) ** 2)
        # What does not fit is not looked at again.
        grams[place] = engine.gram(prompt) if powers[place] <= EXACT else 0.0
    owners, written, alone = [active[:0]], [last[:0]], [active[:0]]
    while len(active):
        largest = engine.largest(last)
        powers += largest**2
        grams += last[:, engine.match] * last[:, engine.read]
        outputs = engine.outputs(grams, last)
        certain = engine.are_certain(outputs, powers, largest)
        if not certain.all():
            alone.append(active[~certain])
            active, grams, powers = active[certain], grams[certain], powers[certain]
            outputs = outputs[certain]
        last = schema.round(outputs)
        owners.append(active)
        written.append(last)
        # The same as ``Schema.is_last`` of each row.
        ends = last[:, endings].any(axis=1) | ~last.any(axis=1)
        if needed:
            ends |= ~np.any([last[:, block].any(axis=1) for block in needed], axis=0)
        stopped[active] = ends
        left[active] -= 1
        going = ~ends & (left[active] > 0)
        active, grams, powers, last = active[going], grams[going], powers[going], last[going]
    tokens = _tokens(schema, np.concatenate(owners), np.concatenate(written), len(prompts))
    found = [Decoded(each, bool(end)) for each, end in zip(tokens, stopped, strict=True)]
    for history in np.concatenate(alone).tolist():
        found[history] = decode(schema, exact_engine.fresh(), prompts[history], limits[history])
    return found


def _tokens(
    schema: Schema, owners: NDArray[np.int64], rows: NDArray[np.int64], n_histories: int
) -> list[list[Token]]:
    """The tokens of each history, from all rows (T, d) in the order in which they were written."""
    tokens: list[Token] = [{} for _ in rows]
    at, coordinate = np.nonzero(rows)
    times = rows[at, coordinate]
    for row, place, held in zip(at.tolist(), coordinate.tolist(), times.tolist(), strict=True):
        tokens[row][schema.atoms[place]] = held
    histories: list[list[Token]] = [[] for _ in range(n_histories)]
    for owner, token in zip(owners.tolist(), tokens, strict=True):
        histories[owner].append(token)
    return histories
