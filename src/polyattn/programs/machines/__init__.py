"""Machines: automata and Turing machines as plain data, and a few that are ready to run."""

from polyattn.programs.machines.automata import DFA, TuringMachine, TuringRun, TuringStep
from polyattn.programs.machines.files import load_machine, save_machine
from polyattn.programs.machines.named import NamedMachine
from polyattn.programs.machines.ready import (
    binary_increment,
    busy_beaver,
    divisibility,
    palindrome,
    parity,
    unary_addition,
)

__all__ = [
    "DFA",
    "NamedMachine",
    "TuringMachine",
    "TuringRun",
    "TuringStep",
    "binary_increment",
    "busy_beaver",
    "divisibility",
    "load_machine",
    "palindrome",
    "parity",
    "save_machine",
    "unary_addition",
]
