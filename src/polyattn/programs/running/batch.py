"""Many histories at once: the engine's steps on arrays, one row for each history.

Arrays are float64, and integers beyond 2^53 would be rounded.  With n tokens of entries up to m
(1 in one-hot attributes) and w the most that the weights |attn value| of one output add up to,

    |G[j, k]| <= n m^2,        |output| <= w n m^3,

and so is every partial sum.  In units of the common denominator u of the weights all are
integers, exact while u w n m^3 <= 2^53.  Beyond that (1/3 alone has u = 2^54) an output is a sum
of products that errs by at most EPSILON w n m^3 for each, and is rounded to the right token if it
is farther from every border.  Histories for which neither holds are run by ``Engine``, which is
exact for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.encoding import Decoded, decode
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.lowering import Head
from polyattn.programs.running.engine import Engine, common_denominator

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
        block = _one_hot_blocks(schema)
        entries: dict[tuple[int, int], int] = {}
        found = [
            (query, entries.setdefault((match, read), len(entries)), write, weight * share)
            for head in heads
            for (query, match), weight in head.attn.items()
            for (read, write), share in head.value.items()
            if match == read or block[match] < 0 or block[match] != block[read]
        ]
        self.match, self.read = np.array(list(entries), dtype=np.int64).reshape(-1, 2).T
        query = np.array([each[0] for each in found], dtype=np.int64)
        self.entry = np.array([each[1] for each in found], dtype=np.int64)
        self.write = np.array([each[2] for each in found], dtype=np.int64)
        weights = np.array([float(each[3]) for each in found])
        shape = (schema.n_dims, len(found))
        self.products = sparse.csr_array((weights, (query, np.arange(len(found)))), shape=shape)
        self._weight = float(
            np.bincount(self.write, np.abs(weights), minlength=schema.n_dims).max(initial=0.0)
        )
        # A power of two, as weights are floats; that of tiny ones would not fit float64.
        self._unit = float(min(common_denominator(each[3] for each in found), 1 << 1000))
        kinds = [(schema.blocks[each.name], each.rounding) for each in schema.attributes]
        self._blocks = [block for block, rounding in kinds if rounding == ONE_HOT]
        counting = [range(schema.n_dims)[block] for block, rounding in kinds if rounding != ONE_HOT]
        self._counting = np.array([at for block in counting for at in block], dtype=np.int64)

    def gram(self, tokens: NDArray) -> NDArray[np.float64]:
        """The entries that are read, of the Gram matrix of tokens (n, d)."""
        entries = tokens[:, self.match] * tokens[:, self.read]
        return entries.sum(axis=0).astype(np.float64)

    def update(self, grams: NDArray[np.float64], tokens: NDArray) -> None:
        """Add one token (B, d) to each history, in place."""
        grams += tokens[:, self.match] * tokens[:, self.read]

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
        integers = outputs[:, self._counting]
        left = np.abs(integers - np.floor(integers) - 0.5).min(axis=1, initial=np.inf)
        for block in self._blocks:
            best = np.sort(outputs[:, block], axis=1)[:, ::-1][:, :2]
            left = np.minimum(left, np.abs(best[:, 0] - 0.5))
            if best.shape[1] > 1:
                clear = (best[:, 0] - best[:, 1]) / 2.0
                left = np.minimum(left, np.where(best[:, 0] > 0.5, clear, np.inf))
        return certain | ((left > error) & (powers <= EXACT) & (most <= EXACT))


def decode_batch(
    schema: Schema, heads: Sequence[Head], prompts: Sequence[list[Token]], limits: Sequence[int]
) -> list[Decoded]:
    """What ``decode`` gives for each prompt, all histories in step."""
    engine, exact_engine = BatchEngine(schema, heads), Engine(schema, heads)
    encoded = [schema.encode(prompt) for prompt in prompts]
    stopped = np.zeros(len(prompts), dtype=bool)
    left = np.array(limits, dtype=np.int64)
    active = np.flatnonzero(left > 0)
    grams, powers = np.zeros((len(active), len(engine.match))), np.zeros(len(active))
    last = np.zeros((len(active), schema.n_dims), dtype=np.int64)
    for place, history in enumerate(active):
        powers[place] = np.sum(engine.largest(encoded[history]) ** 2)
        # What does not fit is not looked at again.
        grams[place] = engine.gram(encoded[history]) if powers[place] <= EXACT else 0.0
        last[place] = encoded[history][-1]
    largest = engine.largest(last)
    owners, written, alone = [active[:0]], [last[:0]], [active[:0]]
    while len(active):
        outputs = engine.outputs(grams, last)
        certain = engine.are_certain(outputs, powers, largest)
        if not certain.all():
            alone.append(active[~certain])
            active, grams, powers = active[certain], grams[certain], powers[certain]
            outputs = outputs[certain]
        last = schema.round(outputs)
        largest = engine.largest(last)
        owners.append(active)
        written.append(last)
        engine.update(grams, last)
        powers += largest**2
        stopped[active] = _are_last(schema, last)
        left[active] -= 1
        going = ~stopped[active] & (left[active] > 0)
        active, grams, last = active[going], grams[going], last[going]
        powers, largest = powers[going], largest[going]
    tokens = _tokens(schema, np.concatenate(owners), np.concatenate(written), len(prompts))
    found = [Decoded(each, bool(end)) for each, end in zip(tokens, stopped, strict=True)]
    for history in np.concatenate(alone).tolist():
        found[history] = decode(schema, exact_engine.fresh(), prompts[history], limits[history])
    return found


def _are_last(schema: Schema, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """What ``Schema.is_last`` says of each row (B, d)."""
    endings = [schema.coordinates[atom] for atom in schema.endings]
    found = np.asarray(rows[:, endings].any(axis=1) | ~rows.any(axis=1))
    if schema.stop_without:
        needed = [rows[:, schema.blocks[name]].any(axis=1) for name in schema.stop_without]
        found |= ~np.any(needed, axis=0)
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


def _one_hot_blocks(schema: Schema) -> list[int]:
    """The number of the one-hot attribute that each coordinate belongs to; -1 for others."""
    return [
        number if attribute.rounding == ONE_HOT else -1
        for number, attribute in enumerate(schema.attributes)
        for _ in attribute.values
    ]
