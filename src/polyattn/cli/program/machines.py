"""Machines by what people call them: a file, a ready name, or the short form."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from polyattn.errors import InvalidInput
from polyattn.programs import machines as ready
from polyattn.programs.machines import NamedMachine, TuringMachine, load_machine
from polyattn.programs.machines.named import LAST

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TRIPLES = r"(?:[0-9][LRS][A-Z]|---)+"
_SHORT_FORM = re.compile(rf"{_TRIPLES}(?:_{_TRIPLES})*")
_FILES = (".json", ".yaml", ".yml")

# Divisors beyond this make programs that take minutes to compile.
MOST_STATES = 1000


@dataclass(frozen=True)
class Ready:
    """A machine that is there by name, with an input to try it on."""

    about: str
    example: str
    make: Callable[[], NamedMachine]


def _turing(machine: TuringMachine, name: str, position: int | str = 0) -> NamedMachine:
    return replace(NamedMachine.plain(machine, name), position=position)


def _parity() -> NamedMachine:
    return NamedMachine(ready.parity(), ("even", "odd"), ("0", "1"), "parity", decides=True)


READY = {
    "parity": Ready("is the number of ones even?", "1101", _parity),
    **{
        f"bb{n}": Ready(
            f"busy beaver of {n} states, on a blank tape", "",
            lambda n=n: _turing(ready.busy_beaver(n), f"bb{n}"),  # type: ignore[misc]
        )
        for n in (2, 3, 4, 5)
    },
    "increment": Ready(
        "adds one to a binary number", "1011",
        lambda: _turing(ready.binary_increment(), "increment", LAST),
    ),
    "addition": Ready(
        "adds two numbers of ones", "1110111",
        lambda: _turing(ready.unary_addition(), "addition"),
    ),
    "palindrome": Ready(
        "leaves a 1 if a word of 1 and 2 is the same backwards", "12121",
        lambda: _turing(ready.palindrome(), "palindrome"),
    ),
}  # fmt: skip


def find_machine(text: str) -> NamedMachine:
    """The machine that a text means; an error that lists what there is."""
    if text in READY:
        return READY[text].make()
    if text.startswith("divisibility:"):
        return _divisibility(text)
    if Path(text).suffix.lower() in _FILES or Path(text).is_file():
        return load_machine(text)
    if _SHORT_FORM.fullmatch(text):
        return NamedMachine.plain(TuringMachine.parse(text), text)
    raise InvalidInput(
        f"{text!r} is no machine: give a file ({', '.join(_FILES)}), one of "
        f"{', '.join(READY)}, divisibility:N[,BASE], or a text such as 1RB1LB_1LA1RH."
    )


def _divisibility(text: str) -> NamedMachine:
    numbers = text.partition(":")[2].split(",")
    if not 1 <= len(numbers) <= 2 or not all(each.strip().isdecimal() for each in numbers):
        raise InvalidInput(
            f"{text!r} must be like divisibility:7, or divisibility:7,10 in base 10."
        )
    divisor, base = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 2
    if divisor > MOST_STATES or base > len(_DIGITS):
        raise InvalidInput(
            f"divisibility goes up to divisor {MOST_STATES} and base {len(_DIGITS)}; got {text!r}."
        )
    dfa = ready.divisibility(divisor, base)
    states = tuple(map(str, range(divisor)))
    return NamedMachine(dfa, states, tuple(_DIGITS[:base]), text, decides=True)
