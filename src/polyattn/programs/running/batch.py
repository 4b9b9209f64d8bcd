"""Many histories at once: the engine's steps on arrays, one row for each history."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.lowering import Head
from polyattn.programs.running.decode import Decoded


class BatchEngine:
    """The heads of a layer for B histories.

    ``grams`` (B, S) has the S entries (match, read) of the Gram matrix that some head reads.
    For a query coordinate l, row l of ``products`` lists the products G[s] x[l] that it takes
    part in; product e belongs to entry ``entry[e]`` and is written to ``write[e]``.

    Cost per token and history: O(S) to update, O(products of what the token holds) to predict.
    """

    def __init__(self, schema: Schema, heads: Sequence[Head]) -> None:
        self.schema = schema
        entries: dict[tuple[int, int], int] = {}
        found = [
            (query, entries.setdefault((match, read), len(entries)), write, weight * share)
            for head in heads
            for (query, match), weight in head.attn.items()
            for (read, write), share in head.value.items()
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
    written: list[list[Token]] = [[] for _ in prompts]
    stopped = [False] * len(prompts)
    active = np.array([i for i, limit in enumerate(limits) if limit > 0], dtype=np.int64)
    grams = np.array([engine.gram(encoded[i]) for i in active]).reshape(len(active), -1)
    last = np.array([encoded[i][-1] for i in active]).reshape(len(active), schema.n_dims)
    while len(active):
        last = schema.round(engine.outputs(grams, last))
        for i, row in zip(active, last, strict=True):
            token = schema.decode(row)
            written[i].append(token)
            stopped[i] = schema.is_last(token)
        engine.update(grams, last)
        going = np.array([not stopped[i] and len(written[i]) < limits[i] for i in active])
        active, grams, last = active[going], grams[going], last[going]
    return [Decoded(tokens, end) for tokens, end in zip(written, stopped, strict=True)]
