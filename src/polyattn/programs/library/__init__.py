"""The library: computations that one layer of attention can do, written in the language.

What it has is registered here: ``ENCODINGS``, by their names in files, and ``PROGRAMS``, by the
names that the command line has for them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from polyattn.programs.language.program import Program
from polyattn.programs.library.associative_memory import MemoryEncoding, associative_memory
from polyattn.programs.library.fixed_dfa import FixedDFAEncoding, fixed_dfa
from polyattn.programs.library.runs import LibraryEncoding, show_run
from polyattn.programs.library.tape_rewriting import (
    RewritingEncoding,
    tape_rewriting_turing_machine,
)
from polyattn.programs.library.universal_dfa import (
    STYLES,
    OneHotEncoding,
    RegisterEncoding,
    universal_dfa,
)
from polyattn.programs.library.universal_turing_machine import (
    TuringEncoding,
    universal_turing_machine,
)
from polyattn.programs.machines import parity

__all__ = [
    "ENCODINGS",
    "PROGRAMS",
    "LibraryEncoding",
    "LibraryProgram",
    "associative_memory",
    "fixed_dfa",
    "show_run",
    "tape_rewriting_turing_machine",
    "universal_dfa",
    "universal_turing_machine",
]

ENCODINGS: dict[str, type[LibraryEncoding]] = {
    kind.name: kind
    for kind in (
        MemoryEncoding,
        FixedDFAEncoding,
        OneHotEncoding,
        RegisterEncoding,
        TuringEncoding,
        RewritingEncoding,
    )
}


@dataclass(frozen=True)
class LibraryProgram:
    """A program of the library.

    about : what it does
    make : the program, from its sizes and perhaps a ``style`` or a ``dfa``
    sizes : its sizes unless others are given
    styles : the styles that it has, the first unless another is given
    runs : the kind of machines it runs, whose sizes it can take ("dfa" or "turing")
    built_in : whether an automaton is built in, parity unless another is given
    learned_at : the sizes of the traces that it is learned from unless others are given, if it is
    """

    about: str
    make: Callable[..., Program]
    sizes: dict[str, int]
    styles: tuple[str, ...] = ()
    runs: str | None = None
    built_in: bool = False
    learned_at: dict[str, int] = field(default_factory=dict)


PROGRAMS = {
    "associative-memory": LibraryProgram(
        "stores pairs, answers for a key", associative_memory, {"n_keys": 8, "n_values": 8}
    ),
    "fixed-dfa": LibraryProgram(
        "runs one automaton, built in, on words", partial(fixed_dfa, dfa=parity()),
        {"max_length": 8}, built_in=True,
    ),
    "dfa": LibraryProgram(
        "runs any automaton on words", universal_dfa,
        {"n_states": 4, "n_letters": 4, "max_length": 8}, STYLES, runs="dfa",
        learned_at={"n_states": 3, "n_letters": 3, "max_length": 6},
    ),
    "turing": LibraryProgram(
        "runs any Turing machine", universal_turing_machine,
        {"n_states": 3, "n_letters": 2, "n_cells": 16}, runs="turing",
        learned_at={"n_states": 3, "n_letters": 2, "n_cells": 9},
    ),
    "turing-rewriting": LibraryProgram(
        "runs any Turing machine, writes the tape anew at every step",
        tape_rewriting_turing_machine,
        {"n_states": 2, "n_letters": 2, "n_cells": 4, "n_steps": 6}, runs="turing",
    ),
}  # fmt: skip
