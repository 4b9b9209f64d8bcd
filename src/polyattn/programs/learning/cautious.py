"""Abstaining: stop where the traces do not determine what comes next, instead of guessing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.numerics.arrays import require_float64
from polyattn.programs.certificates.certify_traces import INSIDE, OUTSIDE, RowSpan
from polyattn.programs.language.schema import Predictor, Schema, Token
from polyattn.programs.traces import TraceRows


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
    def row(self) -> TraceRows:
        """What is seen before the next token; there is no target."""
        return TraceRows(self._gram[None], self.last[None], np.zeros((1, self._schema.n_dims)))

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


@dataclass(frozen=True)
class Abstained:
    """A run that stopped before a token that the traces do not determine.

    reason : what is missing, as a sentence
    number : the number of the token that was not written
    tokens : those before it, which are determined
    """

    reason: str
    number: int
    tokens: list[Token]

    def __str__(self) -> str:
        return self.reason


class Undetermined(Exception):
    """Raised by a cautious predictor, and caught by the run that it stops."""

    def __init__(self, abstained: Abstained) -> None:
        self.abstained = abstained
        super().__init__(abstained.reason)


class CautiousPredictor:
    """A predictor that looks at the span of the training rows before each token.

    ``doubt`` says why the predictor is not right on those rows themselves, if it is not: then
    their span says nothing about it, and no token is written.
    Cost: that of the span's test, beside the predictor's own.
    """

    def __init__(
        self, schema: Schema, predictor: Predictor, span: RowSpan, doubt: str = ""
    ) -> None:
        self._schema, self._predictor, self._span, self._doubt = schema, predictor, span, doubt
        self._history, self._written = History(schema), list[Token]()

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt."""
        self._written = []
        self._history.start(prompt)
        self._predictor.start(prompt)

    def next_token(self) -> Token:
        """The token that comes next, if the training rows determine it."""
        if self._doubt:
            raise Undetermined(Abstained(f"Stopped before token 0: {self._doubt}", 0, []))
        status = str(self._span.inside(self._history.row)[0])
        if status != INSIDE:
            raise Undetermined(self._abstained(status))
        token = self._predictor.next_token()
        self._history.append(self._schema.encode([token])[0])
        self._written.append(token)
        return token

    def _abstained(self, status: str) -> Abstained:
        number = len(self._written)
        said = self._schema.show(self._schema.decode(self._history.last))
        why = (
            "no combination of training rows gives it"
            if status == OUTSIDE
            else "whether training rows determine it is too close to call"
        )
        reason = (
            f"Stopped before token {number}, after '{said}': what comes next was not learned, "
            f"since {why}. More traces that lead there would help."
        )
        return Abstained(reason, number, list(self._written))
