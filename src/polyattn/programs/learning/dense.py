"""The predictor of a layer with any coefficients: the Gram matrix on active pairs, updated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.programs.language.schema import Schema, Token
from polyattn.programs.learning.history import float_tokens
from polyattn.programs.learning.untied.layer import ActiveLayer


class DensePredictor:
    """Predicts the next token of one history by the coefficients of a layer.

    Cost: u numbers to update and 2 d u flops for each coordinate that the last token holds, with
    u active pairs.
    """

    def __init__(self, schema: Schema, layer: ActiveLayer) -> None:
        self._schema, self._layer = schema, layer
        self._entries = np.zeros(len(layer.active))
        self._last = np.zeros(schema.n_dims)

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        tokens = float_tokens(self._schema, prompt)
        active = self._layer.active
        self._entries = np.sum(tokens[:, active.first] * tokens[:, active.second], axis=0)
        self._last = tokens[-1]

    def output(self) -> NDArray[np.float64]:
        """The layer's output (d,) after the last token, before rounding."""
        return self._layer.step(self._entries, self._last)

    def next_token(self) -> Token:
        """The token that comes next, rounded; it is appended."""
        rounded = self._schema.round(self.output())
        self._last = rounded.astype(np.float64)
        active = self._layer.active
        self._entries += self._last[active.first] * self._last[active.second]
        return self._schema.decode(rounded)
