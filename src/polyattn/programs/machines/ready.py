"""Machines that are ready to run."""

from __future__ import annotations

from polyattn.errors import InvalidInput, require_integer
from polyattn.programs.machines.dfa import DFA
from polyattn.programs.machines.turing import TuringMachine

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

    It leaves a single 1 on the tape if the word reads the same backwards, and halts without
    one otherwise.  The word needs a blank on either side.
    """
    rules = {
        (0, 0): (-1, 1, 0), (0, 1): (1, 0, 1), (0, 2): (2, 0, 1),   # take the first letter
        (1, 0): (3, 0, -1), (1, 1): (1, 1, 1), (1, 2): (1, 2, 1),   # carry a 1 to the end
        (2, 0): (4, 0, -1), (2, 1): (2, 1, 1), (2, 2): (2, 2, 1),   # carry a 2 to the end
        (3, 0): (-1, 1, 0), (3, 1): (5, 0, -1), (3, 2): (6, 0, -1),  # is the last letter a 1?
        (4, 0): (-1, 1, 0), (4, 1): (6, 0, -1), (4, 2): (5, 0, -1),  # is the last letter a 2?
        (5, 0): (0, 0, 1), (5, 1): (5, 1, -1), (5, 2): (5, 2, -1),  # go back to the start
        (6, 0): (-1, 0, 0), (6, 1): (6, 0, -1), (6, 2): (6, 0, -1),  # no: erase the rest
    }  # fmt: skip
    return TuringMachine(rules, n_states=7, n_letters=3)


def parity() -> DFA:
    """Is the number of ones even?  Letters 0 and 1; state 0 accepts."""
    return DFA([[0, 1], [1, 0]], accepting=[0])


def divisibility(divisor: int, base: int = 2) -> DFA:
    """Is a number, read from its first digit, divisible?  The state is the remainder."""
    divisor, base = require_integer("divisor", divisor), require_integer("base", base, least=2)
    table = [[(base * rest + digit) % divisor for digit in range(base)] for rest in range(divisor)]
    return DFA(table, accepting=[0])
