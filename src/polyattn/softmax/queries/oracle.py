"""The black box behind a counter: batches, a budget, checks of what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, PolyattnError
from polyattn.model.softmax import SoftmaxAttention
from polyattn.numerics.arrays import even_ranges, real_array, require_finite
from polyattn.numerics.scaling import exponent_for, largest_magnitude, restored, scaled
from polyattn.softmax.queries.outcomes import QueryName
from polyattn.softmax.recorder import require_time

# Numbers of one call: batches of sequences are smaller than this, whatever the batch size.
CALL_NUMBERS = 1 << 22

# Entries of a head that count alike beside one another, and what to do where they do not fit.
ONE = np.ones(1)
ADVICE = "let the oracle multiply its inputs or its outputs by a constant."


class Stopped(PolyattnError):
    """No further query can be made: ``name`` is that of the outcome, the message the reason."""

    def __init__(self, name: QueryName, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


class Oracle:
    """Outputs of a black box at the last token, counted.

    Parameters
    ----------
    function : callable (B, n, d) -> (B, n, e)
        The layer.  Only the last row is read: in a causal layer as in a full one it attends to
        all tokens.
    n_dims : int
        d.
    max_queries : int or None
        How many sequences may be given to it; the query that would exceed that raises Stopped.
    batch_size : int
        Most sequences of one call.

    ``on_answers`` is called after every call.
    """

    def __init__(
        self,
        function: Callable[[NDArray[np.float64]], Any],
        n_dims: int,
        max_queries: int | None,
        batch_size: int,
    ) -> None:
        self.n_queries = 0
        self.n_outputs = 0
        self.n_dims = n_dims
        self.on_answers: Callable[[], None] | None = None
        self.output_dtype = np.dtype(np.float64)
        self.token_exponent = 0
        self.answer_exponent: int | None = None
        self._function = function
        self._max_queries = max_queries
        self._batch_size = batch_size

    def __call__(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Last rows (B, e) of the outputs for X (B, n, d), both in units of their own.

        Answers of extreme size are divided by a power of two, that of the first which is not zero.

        Raises Stopped when the budget does not suffice or the black box fails, and OutOfTime after
        the caller's deadline.  Before the first answer nothing is lost by an exception, so there
        the black box's own passes through.
        """
        budget = self._max_queries
        if budget is not None and self.n_queries + len(X) > budget:
            raise Stopped(
                "budget",
                f"{len(X)} more queries were needed; of max_queries = {budget}, "
                f"{self.n_queries} had been made.",
            )
        at_once = max(1, min(self._batch_size, CALL_NUMBERS // X[0].size))
        given = scaled(X, self.token_exponent)
        answers = [self._answers(given[first:stop]) for first, stop in even_ranges(len(X), at_once)]
        rows = np.concatenate(answers)
        if self.answer_exponent is None:
            self.answer_exponent = exponent_for(largest_magnitude([rows]))
        return scaled(rows, -(self.answer_exponent or 0))

    def scale_tokens(self, exponent: int) -> None:
        """From now on multiply tokens by 2**exponent, and choose the units of answers anew."""
        self.token_exponent += exponent
        self.answer_exponent = None

    def in_units_of_answers(self, size: float) -> float:
        """A size of scaled answers in the units of the black box."""
        return float(np.ldexp(size, self.answer_exponent or 0))

    def restored(self, layer: SoftmaxAttention) -> SoftmaxAttention:
        """The layer in the units of the black box, from that of scaled tokens and answers.

        Refused where float64 cannot hold it without losing digits.
        """
        of_tokens, of_answers = self.token_exponent, self.answer_exponent or 0
        if not of_tokens and not of_answers:
            return layer
        attn = restored(layer.attn, -2 * of_tokens, "attn", ONE, ADVICE)
        value = restored(layer.value, of_answers - of_tokens, "value", ONE, ADVICE)
        return SoftmaxAttention(attn, value, layer.mode, layer.bias)

    def _answers(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        require_time()
        try:
            answer = self._function(X)
        except Exception as error:
            if not self.n_outputs:
                raise
            raise Stopped(
                "oracle_failed", f"The oracle raised {type(error).__name__}: {error}"
            ) from error
        self.n_queries += len(X)
        try:
            rows = self._checked(answer, X.shape)
        except InvalidInput as error:
            if not self.n_outputs:
                raise
            raise Stopped("oracle_failed", f"After good answers, {error}") from error
        self.n_outputs = rows.shape[1]
        if self.on_answers is not None:
            self.on_answers()
        return rows

    def _checked(self, answer: object, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """The last rows, if ``answer`` is finite and has the shape (B, n, e) of all answers."""
        array = real_array(answer, "the output of the oracle")
        wanted = f"({shape[0]}, {shape[1]}, {self.n_outputs or 'e'})"
        as_before = array.ndim == 3 and self.n_outputs in (0, array.shape[2])
        if not as_before or array.shape[:2] != shape[:2] or not array.shape[2]:
            raise InvalidInput(
                f"the oracle must return an array of shape {wanted} for sequences {shape}; "
                f"got {array.shape}."
            )
        self.output_dtype = array.dtype
        rows = np.array(array[:, -1], dtype=np.float64)
        require_finite(rows, "the output of the oracle")
        return rows
