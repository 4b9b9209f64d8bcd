"""Runs of automata as strings of symbols, in the paper's encoding [yau2024: Appendix G.4].

A string is the table, ``|``, the word, ``|``, the history, with five symbols for each entry of the
table and for each step:

    (s a δ(s, a)) ... for all states s and letters a  |  w_0 ... w_{L-1}  |
    (s⁰ w_0 s¹)(s¹ w_1 s²) ... (s^{L-1} w_{L-1} s^L)

with s⁰ = 0 and s^{t+1} = δ(s^t, w_t).  The paper prints the word as w_0 ... w_L and the last step
as (s^{L-1} w_L s^L); by its text the word has L letters and s^i = δ(s^{i-1}, w_{i-1}), and so they
are written here.  The paper does not give an order of the table: here it is that of the states,
and of the letters within a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_integer
from polyattn.programs.machines.automata import DFA

# Symbols of an entry of the table, or of a step of the history: ( s a r ).
PER_STEP = 5

# Where the new state stands among them.
NEW_STATE = 3


@dataclass(frozen=True)
class StringEncoding:
    """Strings of automata with Q states and V letters on words of L letters.

    Ids: 0..Q-1 are the states, Q..Q+V-1 the letters, then ``(``, ``)``, ``|``.
    """

    n_states: int
    n_letters: int
    length: int

    def __post_init__(self) -> None:
        for name in ("n_states", "n_letters", "length"):
            require_integer(name, getattr(self, name))

    @property
    def n_symbols(self) -> int:
        """How many ids there are: Q + V + 3."""
        return self.n_states + self.n_letters + 3

    @property
    def n_history(self) -> int:
        """Symbols of the history, which are predicted: 5 L."""
        return PER_STEP * self.length

    @property
    def new_states(self) -> tuple[int, ...]:
        """Places of the states s¹, ..., s^L in the history: what needs the table."""
        return tuple(range(NEW_STATE, self.n_history, PER_STEP))

    @property
    def n_tokens(self) -> int:
        """Symbols of a string: 5 Q V + 1 + L + 1 + 5 L."""
        table = PER_STEP * self.n_states * self.n_letters
        return table + 1 + self.length + 1 + self.n_history

    def encode(self, tables: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Strings (N, n_tokens) of automata with tables (N, Q, V) on words (N, L).

        Cost: O(N n_tokens).
        """
        tables, words = self._checked(tables, words)
        opening, closing, bar = range(self.n_symbols - 3, self.n_symbols)
        n_strings = len(words)
        states, letters = np.arange(self.n_states), self.n_states + np.arange(self.n_letters)
        entries = _triples(tables.shape, opening, closing)
        entries[..., 1], entries[..., 2] = states[:, None], letters
        entries[..., NEW_STATE] = tables
        steps = _triples(words.shape, opening, closing)
        steps[..., 2] = self.n_states + words
        state = np.zeros(n_strings, dtype=np.int64)
        for t in range(self.length):
            steps[:, t, 1] = state
            state = tables[np.arange(n_strings), state, words[:, t]]
            steps[:, t, NEW_STATE] = state
        bars = np.full((n_strings, 1), bar)
        table = entries.reshape(n_strings, PER_STEP * self.n_states * self.n_letters)
        history = steps.reshape(n_strings, self.n_history)
        return np.concatenate((table, bars, self.n_states + words, bars, history), axis=1)

    def decode(self, string: NDArray[np.int64]) -> tuple[DFA, list[int], list[int]]:
        """The automaton, the word and the states s⁰, ..., s^L that one string (n_tokens,) holds.

        A string that is not of this form is refused; that its history is right is not checked.
        """
        string = np.asarray(string)
        if string.shape != (self.n_tokens,):
            raise InvalidInput(
                f"string must have {self.n_tokens} symbols; got shape {string.shape}."
            )
        n_table = PER_STEP * self.n_states * self.n_letters
        n_prompt = self.n_tokens - self.n_history
        entries = string[:n_table].reshape(self.n_states, self.n_letters, PER_STEP)
        word = string[n_table + 1 : n_prompt - 1] - self.n_states
        steps = string[n_prompt:].reshape(self.length, PER_STEP)
        table, states = entries[..., NEW_STATE], [0, *steps[:, NEW_STATE]]
        expected = self.encode(table[None], word[None])[0]
        free = np.zeros(self.n_tokens, dtype=bool)
        free[n_prompt:] = np.tile(np.isin(np.arange(PER_STEP), (1, NEW_STATE)), self.length)
        if not np.array_equal(string[~free], expected[~free]):
            raise InvalidInput("string must have the symbols of table, word and steps in place.")
        return DFA(table), [int(a) for a in word], [int(s) for s in states]

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Strings (count, n_tokens) of uniformly random automata on uniformly random words."""
        tables = rng.integers(self.n_states, size=(count, self.n_states, self.n_letters))
        return self.encode(tables, rng.integers(self.n_letters, size=(count, self.length)))

    def _checked(
        self, tables: NDArray[np.int64], words: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        tables, words = np.asarray(tables), np.asarray(words)
        wanted = (len(tables), self.n_states, self.n_letters), (len(tables), self.length)
        if (tables.shape, words.shape) != wanted:
            raise InvalidInput(
                f"tables and words must have shapes (N, {self.n_states}, {self.n_letters}) and "
                f"(N, {self.length}); got {tables.shape} and {words.shape}."
            )
        for name, values, most in (
            ("tables", tables, self.n_states),
            ("words", words, self.n_letters),
        ):
            whole = np.issubdtype(values.dtype, np.integer)
            if not whole or (values.size and not 0 <= values.min() <= values.max() < most):
                raise InvalidInput(f"{name} must hold integers from 0 to {most - 1}.")
        return tables, words


def _triples(shape: tuple[int, ...], opening: int, closing: int) -> NDArray[np.int64]:
    """Empty triples in parentheses, (*shape, 5)."""
    found = np.zeros((*shape, PER_STEP), dtype=np.int64)
    found[..., 0], found[..., -1] = opening, closing
    return found
