"""The black box behind a counter: its answers checked, in units, for the attention in it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, PolyattnError
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.arrays import even_ranges, real_array, require_finite
from polyattn.numerics.scaling import exponent_for, largest_magnitude, restored, scaled
from polyattn.softmax.queries.layers import rewritten
from polyattn.softmax.queries.outcomes import Stopped
from polyattn.softmax.queries.raw_answers import RawAnswers
from polyattn.softmax.recorder import require_time

# Numbers of one call: batches of sequences are smaller than this, whatever the batch size.
CALL_NUMBERS = 1 << 22

# Entries of a head that count alike beside one another, and what to do where they do not fit.
ONE = np.ones(1)
ADVICE = "let the oracle multiply its inputs or its outputs by a constant."


@dataclass
class Oracle:
    """Outputs of a black box (B, n, d) -> (B, n, e) at the last token, counted.

    Heads are read from the last row: in a causal layer as in a full one it attends to all tokens.
    The other rows tell these two apart, once the heads are known.

    max_queries : how many sequences may be given to it; infinite without a limit
    batch_size : most sequences of one call
    on_answers : called after every call
    token_limit : norm below which tokens must stay, infinite without a limit
    outside : what the black box is given for tokens (B, n, k), if these are other coordinates
    adds_input : whether what it is given is part of its answers, and taken off
    """

    function: Callable[[NDArray[np.float64]], Any]
    n_dims: int
    max_queries: float
    batch_size: int
    on_answers: Callable[[], None] = lambda: None
    n_queries: int = 0
    n_outputs: int = 0
    output_dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))
    token_exponent: int = 0
    answer_exponent: int | None = None
    token_limit: float = inf
    outside: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None
    adds_input: bool = False
    raw: RawAnswers = field(default_factory=RawAnswers)

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Last rows (B, e) of the outputs for X (B, n, d), in the units of ``rows``."""
        return self.rows(X, 1)[:, 0]

    def rows(self, X: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
        """The last ``n_rows`` rows of the outputs for X (B, n, d), both divided by powers of two.

        Of these only the last is sure to be finite.  The unit of answers is set by the first which
        are not zero.  Raises Stopped when the budget does not suffice or the black box fails
        (InvalidInput before its first answer, since nothing is lost), and OutOfTime after the
        caller's deadline.
        """
        if self.n_queries + len(X) > self.max_queries:
            raise Stopped(
                "budget",
                f"{len(X)} more queries were needed; of max_queries = {self.max_queries}, "
                f"{self.n_queries} had been made.",
            )
        at_once = max(1, min(self.batch_size, CALL_NUMBERS // X[0].size))
        given = scaled(X, self.token_exponent)
        answers = [
            self._answers(given[first:stop], n_rows) for first, stop in even_ranges(len(X), at_once)
        ]
        rows = np.concatenate(answers)
        if self.answer_exponent is None:
            self.answer_exponent = exponent_for(largest_magnitude(rows[:, -1]))
        return scaled(rows, -(self.answer_exponent or 0))

    def restored(self, layer: SoftmaxAttention) -> SoftmaxAttention:
        """The layer in the units of the black box; refused where float64 would lose digits."""
        of_value = (self.answer_exponent or 0) - self.token_exponent
        return rewritten(
            layer,
            lambda attn: restored(attn, -2 * self.token_exponent, "attn", ONE, ADVICE),
            lambda each: restored(each, -self.token_exponent, "W_Q and W_K", ONE, ADVICE),
            lambda value: restored(value, of_value, "value", ONE, ADVICE),
        )

    def restored_errors(
        self, attn: NDArray, value: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Standard errors of attn and value in the units of the black box."""
        of_value = (self.answer_exponent or 0) - self.token_exponent
        bars = np.ldexp(attn, -2 * self.token_exponent), np.ldexp(value, of_value)
        return np.ascontiguousarray(bars[0]), np.ascontiguousarray(bars[1])

    def _answers(self, X: NDArray[np.float64], n_rows: int) -> NDArray[np.float64]:
        require_time()
        given = X if self.outside is None else self.outside(X)
        try:
            answer = self.function(given)
        except Exception as error:
            if not self.n_outputs:
                if isinstance(error, PolyattnError):
                    raise
                raise InvalidInput(
                    f"the oracle raised {type(error).__name__} when it was first called, with "
                    f"sequences {given.shape}: {error}"
                ) from error
            raise Stopped(
                "oracle_failed", f"The oracle raised {type(error).__name__}: {error}"
            ) from error
        self.n_queries += len(X)
        try:
            rows = self._checked(answer, given, n_rows)
        except InvalidInput as error:
            if not self.n_outputs:
                raise
            raise Stopped("oracle_failed", f"After good answers, {error}") from error
        self.n_outputs = rows.shape[2]
        self.on_answers()
        return rows

    @property
    def bits(self) -> int:
        """Significant bits of the answers."""
        of_array = np.finfo(self.output_dtype).nmant + 1 if self.output_dtype.kind == "f" else 53
        return min(int(of_array), self.raw.bits)

    def whole(self, X: NDArray[np.float64], answers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Answers (.., e) to tokens (.., d) with the input, where it was taken off."""
        if not self.adds_input:
            return answers
        given = scaled(X, self.token_exponent)
        given = given if self.outside is None else self.outside(given)
        return answers + scaled(given, -(self.answer_exponent or 0))

    def _checked(self, answer: object, X: NDArray, n_rows: int) -> NDArray[np.float64]:
        """The last rows, if ``answer`` has the shape (B, n, e) of all and ends in finite rows.

        An input X (B, n, d) that is part of them is taken off.
        """
        shape = X.shape
        array = real_array(answer, "the output of the oracle")
        wanted = f"({shape[0]}, {shape[1]}, {self.n_outputs or 'e'})"
        as_before = array.ndim == 3 and self.n_outputs in (0, array.shape[2])
        if not as_before or array.shape[:2] != shape[:2] or not array.shape[2]:
            raise InvalidInput(
                f"the oracle must return an array of shape {wanted} for sequences {shape}; "
                f"got {array.shape}."
            )
        self.output_dtype = array.dtype
        rows = np.array(array[:, -n_rows:], dtype=np.float64)
        require_finite(rows[:, -1], "the output of the oracle")
        self.raw.add(X, rows[:, -1])
        if not self.adds_input:
            return rows
        if array.shape != shape:
            raise InvalidInput(
                f"residual=True needs outputs of the shape of the inputs, {shape}; the oracle "
                f"returned {array.shape}."
            )
        # Rows that nobody reads may hold anything.
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(rows - X[:, -n_rows:])
