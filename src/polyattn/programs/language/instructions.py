"""Instructions: what a program is made of.  Each has a meaning, and terms that a layer computes.

The meaning (``act``) speaks of symbols: which tokens are found, what the last token holds.  The
terms are what the compiler lowers to heads; where they mean the same only under an assumption,
the assumption is part of the instruction and the interpreter checks it.
"""

from polyattn.programs.language.conditionals import Conjunction, Constant, IfThen
from polyattn.programs.language.instruction import Instruction
from polyattn.programs.language.lookups import Copy, Lookup, Register

__all__ = ["Conjunction", "Constant", "Copy", "IfThen", "Instruction", "Lookup", "Register"]
