"""Machines: automata and Turing machines as plain data, and a few that are ready to run."""

from polyattn.programs.machines.dfa import DFA
from polyattn.programs.machines.ready import (
    binary_increment,
    busy_beaver,
    divisibility,
    palindrome,
    parity,
    unary_addition,
)
from polyattn.programs.machines.turing import TuringMachine, TuringRun, TuringStep

__all__ = [
    "DFA",
    "TuringMachine",
    "TuringRun",
    "TuringStep",
    "binary_increment",
    "busy_beaver",
    "divisibility",
    "palindrome",
    "parity",
    "unary_addition",
]
