"""One history as arrays: the Gram matrix of its tokens, and the last of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import require_float64
from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.learning.rows import Rows


class History:
    """The row that a layer sees next, kept up to date as tokens come."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._gram = np.zeros((schema.n_dims, schema.n_dims))
        self.last = np.zeros(schema.n_dims)

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        tokens = float_tokens(self._schema, prompt)
        self._gram, self.last = tokens.T @ tokens, tokens[-1]

    @property
    def row(self) -> Rows:
        """What is seen before the next token; there is no target."""
        return Rows(self._gram[None], self.last[None], np.zeros((1, self._schema.n_dims)))

    def append(self, token: NDArray) -> Token:
        """Round outputs (d,) to a token, and append it."""
        rounded = self._schema.round(token)
        self.last = rounded.astype(np.float64)
        self._gram += np.outer(self.last, self.last)
        return self._schema.decode(rounded)


def float_tokens(schema: Schema, prompt: list[Token]) -> NDArray[np.float64]:
    """A prompt as rows (n, d) of float64; counts that it cannot hold are refused."""
    tokens = schema.encode(prompt)
    require_float64(tokens, "the prompt of a learned layer")
    return tokens.astype(np.float64)
