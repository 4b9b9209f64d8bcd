"""Machines that are ready to run, and machines by what people call them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from polyattn.errors import InvalidInput, require_integer
from polyattn.programs.machines.automata import ACCEPT, DFA, REJECT, TuringMachine
from polyattn.programs.machines.files import SUFFIXES, load_machine
from polyattn.programs.machines.named import LAST, NamedMachine

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TRIPLES = r"(?:[0-9][LRS][A-Z]|---)+"
_SHORT_FORM = re.compile(rf"{_TRIPLES}(?:_{_TRIPLES})*")

# Divisors beyond this make programs that take minutes to compile.
MOST_STATES = 1000

# Champions of the busy beaver game: on a blank tape they halt after the most steps
# (6, 21, 107, 47,176,870) of all machines with as many states and two letters.
_BUSY_BEAVERS = {
    2: "1RB1LB_1LA1RH",
    3: "1RB1RH_1LB0RC_1LC1LA",
    4: "1RB1LB_1LA0LC_1RH1LD_1RD0RA",
    5: "1RB1LC_1RC1RB_1RD0LE_1LA1LD_1RH0LA",
}


def busy_beaver(n_states: int) -> TuringMachine:
    """The busy beaver of 2 to 5 states: start it on a blank tape."""
    if not isinstance(n_states, int) or n_states not in _BUSY_BEAVERS:
        raise InvalidInput(f"busy beavers are ready for 2 to 5 states; got {n_states!r}.")
    return TuringMachine.parse(_BUSY_BEAVERS[n_states])


def binary_increment() -> TuringMachine:
    """Adds one to a binary number; start at its last digit, with a 0 before its first."""
    return TuringMachine.parse("1SH0LA")


def unary_addition() -> TuringMachine:
    """Joins two blocks of ones that one blank separates; start at the first one."""
    return TuringMachine.parse("1RB1RA_0LC1RB_0SH0SH")


def palindrome() -> TuringMachine:
    """Decides palindromes over the letters 1 and 2, which it erases; start at the first letter.

    It accepts, and leaves a single 1 on the tape, if the word reads the same backwards, and
    rejects without one otherwise.  The word needs a blank on either side.
    """
    rules = {
        (0, 0): (ACCEPT, 1, 0), (0, 1): (1, 0, 1), (0, 2): (2, 0, 1),   # take the first letter
        (1, 0): (3, 0, -1), (1, 1): (1, 1, 1), (1, 2): (1, 2, 1),   # carry a 1 to the end
        (2, 0): (4, 0, -1), (2, 1): (2, 1, 1), (2, 2): (2, 2, 1),   # carry a 2 to the end
        (3, 0): (ACCEPT, 1, 0), (3, 1): (5, 0, -1), (3, 2): (6, 0, -1),  # is the last letter a 1?
        (4, 0): (ACCEPT, 1, 0), (4, 1): (6, 0, -1), (4, 2): (5, 0, -1),  # is the last letter a 2?
        (5, 0): (0, 0, 1), (5, 1): (5, 1, -1), (5, 2): (5, 2, -1),  # go back to the start
        (6, 0): (REJECT, 0, 0), (6, 1): (6, 0, -1), (6, 2): (6, 0, -1),  # no: erase the rest
    }  # fmt: skip
    return TuringMachine(rules, n_states=7, n_letters=3)


def equal_blocks() -> TuringMachine:
    """Decides whether a word is n ones and then n twos, which it erases; start at its first letter.

    The word needs a blank on either side.
    """
    rules = {
        (0, 0): (ACCEPT, 0, 0), (0, 1): (1, 0, 1), (0, 2): (REJECT, 2, 0),  # take a first 1
        (1, 0): (2, 0, -1), (1, 1): (1, 1, 1), (1, 2): (1, 2, 1),           # go to the end
        (2, 0): (REJECT, 0, 0), (2, 1): (REJECT, 1, 0), (2, 2): (3, 0, -1),  # take a last 2
        (3, 0): (0, 0, 1), (3, 1): (3, 1, -1), (3, 2): (3, 2, -1),          # go to the start
    }  # fmt: skip
    return TuringMachine(rules, n_states=4, n_letters=3)


def balanced() -> TuringMachine:
    """Decides whether opening (1) and closing (2) brackets balance; start at the first one.

    It crosses pairs out with the letter 3.  The word needs a blank on either side.
    """
    rules = {
        # Go right to a closing bracket, then left to the opening one before it.
        (0, 0): (2, 0, -1), (0, 1): (0, 1, 1), (0, 2): (1, 3, -1), (0, 3): (0, 3, 1),
        (1, 0): (REJECT, 0, 0), (1, 1): (0, 3, 1), (1, 2): (REJECT, 2, 0), (1, 3): (1, 3, -1),
        # No closing bracket is left: is an opening one?
        (2, 0): (ACCEPT, 0, 0), (2, 1): (REJECT, 1, 0), (2, 2): (REJECT, 2, 0), (2, 3): (2, 3, -1),
    }  # fmt: skip
    return TuringMachine(rules, n_states=3, n_letters=4)


def parity() -> DFA:
    """Is the number of ones even?  Letters 0 and 1; state 0 accepts."""
    return DFA([[0, 1], [1, 0]], accepting=[0])


def divisibility(divisor: int, base: int = 2) -> DFA:
    """Is a number, read from its first digit, divisible?  The state is the remainder."""
    divisor, base = require_integer("divisor", divisor), require_integer("base", base, least=2)
    table = [[(base * rest + digit) % divisor for digit in range(base)] for rest in range(divisor)]
    return DFA(table, accepting=[0])


@dataclass(frozen=True)
class ReadyMachine:
    """A machine that is there by name, with an input to try it on."""

    about: str
    example: str
    machine: NamedMachine


# What each does, an input to try it on, the machine, and where its head starts.
_TURING: dict[str, tuple[str, str, TuringMachine, int | str]] = {
    **{
        f"bb{n}": (f"busy beaver of {n} states, on a blank tape", "", busy_beaver(n), 0)
        for n in _BUSY_BEAVERS
    },
    "increment": ("adds one to a binary number", "1011", binary_increment(), LAST),
    "addition": ("adds two numbers of ones", "1110111", unary_addition(), 0),
    "palindrome": (
        "accepts words of 1 and 2 that are the same backwards",
        "12121",
        palindrome(),
        0,
    ),
    "equal-blocks": ("accepts n ones and then n twos", "1122", equal_blocks(), 0),
    "balanced": ("accepts balanced brackets, 1 opens and 2 closes", "112212", balanced(), 0),
}
_PARITY = NamedMachine(parity(), ("even", "odd"), ("0", "1"), "parity", decides=True)

READY = {"parity": ReadyMachine("is the number of ones even?", "1101", _PARITY)} | {
    name: ReadyMachine(about, example, replace(NamedMachine.plain(machine, name), position=start))
    for name, (about, example, machine, start) in _TURING.items()
}


def find_machine(text: str) -> NamedMachine:
    """The machine that a text means; an error that lists what there is."""
    if text in READY:
        return READY[text].machine
    if text.startswith("divisibility:"):
        numbers = text.partition(":")[2].split(",")
        if not 1 <= len(numbers) <= 2 or not all(each.strip().isdecimal() for each in numbers):
            raise InvalidInput(
                f"{text!r} must be like divisibility:7, or divisibility:7,10 in base 10."
            )
        divisor, base = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 2
        if divisor > MOST_STATES or base > len(_DIGITS):
            raise InvalidInput(
                f"divisibility goes up to divisor {MOST_STATES} and base {len(_DIGITS)}; got "
                f"{text!r}."
            )
        states, letters = tuple(map(str, range(divisor))), tuple(_DIGITS[:base])
        return NamedMachine(divisibility(divisor, base), states, letters, text, decides=True)
    if Path(text).suffix.lower() in SUFFIXES or Path(text).is_file():
        return load_machine(text)
    if _SHORT_FORM.fullmatch(text):
        return NamedMachine.plain(TuringMachine.parse(text), text)
    raise InvalidInput(
        f"{text!r} is no machine: give a file ({', '.join(SUFFIXES)}), one of "
        f"{', '.join(READY)}, divisibility:N[,BASE], or a text such as 1RB1LB_1LA1RH."
    )
