"""Many histories at once: the engine's steps on arrays, one row for each history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.language.attributes import ONE_HOT
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.lowering import Head
from polyattn.programs.running.decode import Decoded


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
        weights = np.array([each[3] for each in found])
        shape = (schema.n_dims, len(found))
        self.products = sparse.csr_array((weights, (query, np.arange(len(found)))), shape=shape)

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


def decode_batch(
    schema: Schema, heads: Sequence[Head], prompts: Sequence[list[Token]], limits: Sequence[int]
) -> list[Decoded]:
    """What ``decode`` gives for each prompt, all histories in step."""
    engine = BatchEngine(schema, heads)
    encoded = [schema.encode(prompt) for prompt in prompts]
    stopped = np.zeros(len(prompts), dtype=bool)
    left = np.array(limits, dtype=np.int64)
    active = np.flatnonzero(left > 0)
    grams = np.zeros((len(active), len(engine.match)))
    last = np.zeros((len(active), schema.n_dims), dtype=np.int64)
    for place, history in enumerate(active):
        grams[place], last[place] = engine.gram(encoded[history]), encoded[history][-1]
    owners, written = [active[:0]], [last[:0]]
    while len(active):
        last = schema.round(engine.outputs(grams, last))
        owners.append(active)
        written.append(last)
        engine.update(grams, last)
        stopped[active] = _are_last(schema, last)
        left[active] -= 1
        going = ~stopped[active] & (left[active] > 0)
        active, grams, last = active[going], grams[going], last[going]
    tokens = _tokens(schema, np.concatenate(owners), np.concatenate(written), len(prompts))
    return [Decoded(each, bool(end)) for each, end in zip(tokens, stopped, strict=True)]


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
