"""Computations as attention: compiled from a small language, run, learned from traces."""

from polyattn.programs import machines
from polyattn.programs.certificates import ProgramCertificate
from polyattn.programs.compile import (
    Compiled,
    compile,  # noqa: A004 - P.compile says what it does
)
from polyattn.programs.deciding import Decision, decide
from polyattn.programs.head_entries import HeadEntry
from polyattn.programs.language.attributes import Attribute, Variable, variables
from polyattn.programs.language.instructions import (
    Conjunction,
    Constant,
    Copy,
    IfThen,
    Lookup,
    Register,
)
from polyattn.programs.language.program import Instruction, Program, ProgramRefused
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import Sort, circle, line, names, symbols
from polyattn.programs.language.terms import Term
from polyattn.programs.learning import Abstained, Learned, LearnedCoefficients, LearnedRules, learn
from polyattn.programs.library import (
    associative_memory,
    fixed_dfa,
    tape_rewriting_turing_machine,
    universal_dfa,
    universal_turing_machine,
)
from polyattn.programs.machines import DFA, TuringMachine, TuringRun
from polyattn.programs.quantised import Quantised, quantise
from polyattn.programs.traces import Trace, all_traces, traces

__all__ = [
    "DFA",
    "Abstained",
    "Attribute",
    "Compiled",
    "Conjunction",
    "Constant",
    "Copy",
    "Decision",
    "HeadEntry",
    "IfThen",
    "Instruction",
    "Learned",
    "LearnedCoefficients",
    "LearnedRules",
    "Lookup",
    "Program",
    "ProgramCertificate",
    "ProgramRefused",
    "Quantised",
    "Register",
    "Schema",
    "Sort",
    "Term",
    "Trace",
    "TuringMachine",
    "TuringRun",
    "Variable",
    "all_traces",
    "associative_memory",
    "circle",
    "compile",
    "decide",
    "fixed_dfa",
    "learn",
    "line",
    "machines",
    "names",
    "quantise",
    "symbols",
    "tape_rewriting_turing_machine",
    "traces",
    "universal_dfa",
    "universal_turing_machine",
    "variables",
]
