"""Machines: automata and Turing machines as plain data, and a few that are ready to run."""

from polyattn.programs.machines.automata import (
    ACCEPT,
    DFA,
    HALT,
    REJECT,
    TuringMachine,
    TuringRun,
    TuringStep,
)
from polyattn.programs.machines.files import load_machine, save_machine
from polyattn.programs.machines.named import NamedMachine
from polyattn.programs.machines.ready import (
    balanced,
    binary_increment,
    busy_beaver,
    divisibility,
    equal_blocks,
    palindrome,
    parity,
    unary_addition,
)

__all__ = [
    "ACCEPT",
    "DFA",
    "HALT",
    "REJECT",
    "NamedMachine",
    "TuringMachine",
    "TuringRun",
    "TuringStep",
    "balanced",
    "binary_increment",
    "busy_beaver",
    "divisibility",
    "equal_blocks",
    "load_machine",
    "palindrome",
    "parity",
    "save_machine",
    "unary_addition",
]
