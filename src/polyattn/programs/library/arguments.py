"""What the encodings of the library check alike, and how they read tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from operator import index
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


def require_range(name: str, given: Any, least: int, most: int | None = None) -> tuple[int, int]:
    """Two integers, the smaller first, that do not leave what is possible."""
    said = f"from {least} to {most}" if most is not None else f"of at least {least}"
    try:
        low, high = (index(each) for each in given)
    except (TypeError, ValueError):
        raise InvalidType(
            f"{name} must be two integers {said}, as in {name}=({least}, {most or 25}); got "
            f"{given!r}."
        ) from None
    if not least <= low <= high or (most is not None and high > most):
        raise InvalidInput(f"{name} must be two integers {said}, the smaller first; got {given!r}.")
    return low, high


def random_word(
    rng: np.random.Generator, dfa: DFA, given: Any, lengths: Any, max_length: int
) -> list[int]:
    """The given word, or a random one of any length, or of one between two."""
    least, most = require_lengths(lengths, max_length)
    if given is not None:
        return dfa.check(given)
    return rng.integers(dfa.n_letters, size=rng.integers(least, most + 1)).tolist()


def all_words(dfa: DFA, lengths: Any, max_length: int) -> Iterator[list[int]]:
    """Every word of these lengths."""
    least, most = require_lengths(lengths, max_length)
    letters = range(dfa.n_letters)
    return (
        list(word) for length in range(least, most + 1) for word in product(letters, repeat=length)
    )


def require_lengths(lengths: Any, max_length: int) -> tuple[int, int]:
    """Lengths of words that are not empty and fit; all of them unless given."""
    return (1, max_length) if lengths is None else require_range("lengths", lengths, 1, max_length)


def held(token: Token, attribute: str, number: int) -> Value:
    """The value of a one-hot attribute in token ``number`` of what came out."""
    for name, value in token:
        if name == attribute:
            return value
    raise BrokenTrace(
        f"token {number} holds no {attribute}, but {[*token] or 'nothing'}: the layer does not "
        "compute the program here."
    )
