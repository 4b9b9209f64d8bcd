"""What the encodings of the library check alike, and how they read tokens."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, InvalidType, PolyattnError
from polyattn.programs.language.attributes import Value
from polyattn.programs.language.schema import Token
from polyattn.programs.machines.dfa import DFA


class BrokenTrace(PolyattnError, RuntimeError):
    """Tokens that no machine writes: the layer that wrote them does not compute the program."""


def require_kind(machine: object, kind: type, example: str) -> None:
    """A machine of the right kind; an error that says what ``run`` takes."""
    if not isinstance(machine, kind):
        raise InvalidType(
            f"this program runs a {kind.__name__}, as in {example}; got {type(machine).__name__}."
        )


def require_fit(machine: Any, n_states: int, n_letters: int) -> None:
    """A machine that is not larger than the program."""
    if machine.n_states > n_states or machine.n_letters > n_letters:
        raise InvalidInput(
            f"the machine has {machine.n_states} states and {machine.n_letters} letters; this "
            f"program was made for up to {n_states} and {n_letters}."
        )


def require_word(dfa: DFA, word: Any, max_length: int) -> list[int]:
    """The letters of a word that is not too long."""
    letters = dfa.check(word)
    if len(letters) > max_length:
        raise InvalidInput(
            f"the word has {len(letters)} letters; this program was made for up to {max_length} "
            "(max_length)."
        )
    return letters


def random_word(
    rng: np.random.Generator, dfa: DFA, given: Any, lengths: tuple[int, int]
) -> list[int]:
    """The given word, or a random one of a random length between two."""
    if given is not None:
        return dfa.check(given)
    length = rng.integers(lengths[0], lengths[1] + 1)
    return rng.integers(dfa.n_letters, size=length).tolist()


def held(token: Token, attribute: str, number: int) -> Value:
    """The value of a one-hot attribute in token ``number`` of what came out."""
    for name, value in token:
        if name == attribute:
            return value
    raise BrokenTrace(
        f"token {number} holds no {attribute}, but {[*token] or 'nothing'}: the layer does not "
        "compute the program here."
    )
