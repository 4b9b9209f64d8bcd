"""The library: computations that one layer of attention can do, written in the language."""

from polyattn.programs.library.fixed_dfa import fixed_dfa
from polyattn.programs.library.memory import associative_memory
from polyattn.programs.library.universal_dfa import universal_dfa
from polyattn.programs.library.universal_turing import universal_turing_machine

__all__ = ["associative_memory", "fixed_dfa", "universal_dfa", "universal_turing_machine"]
