"""The programs of the library by name, and the options for their sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from polyattn.cli.console import FILE
from polyattn.cli.program.machines import find_machine
from polyattn.programs import (
    DFA,
    Compiled,
    Program,
    associative_memory,
    fixed_dfa,
    universal_dfa,
    universal_turing_machine,
)

Command = TypeVar("Command", bound=Callable[..., Any])
STYLES = ("registers", "one-hot")

_OPTIONS = {
    "states": "Most states of a machine.",
    "letters": "Most letters of a machine.",
    "length": "Most letters of a word.",
    "cells": "Cells of the tape.",
    "keys": "Keys of the memory.",
    "values": "Values of the memory.",
}


@dataclass(frozen=True)
class Entry:
    """A program of the library: what it does, its sizes unless others are given."""

    about: str
    sizes: dict[str, int]
    make: Callable[..., Program]


def _dfa(states: int, letters: int, length: int, style: str = STYLES[0]) -> Program:
    return universal_dfa(states, letters, length, style=style.replace("-", "_"))


def _fixed_dfa(length: int, machine: str = "parity") -> Program:
    named = find_machine(machine)
    if not isinstance(named.machine, DFA):
        raise click.UsageError(f"fixed-dfa has a finite automaton built in; {machine} is none.")
    return fixed_dfa(named.machine, length)


PROGRAMS = {
    "associative-memory": Entry(
        "stores pairs, answers for a key", {"keys": 8, "values": 8}, associative_memory
    ),
    "fixed-dfa": Entry("runs one automaton, built in, on words", {"length": 8}, _fixed_dfa),
    "dfa": Entry("runs any automaton on words", {"states": 4, "letters": 4, "length": 8}, _dfa),
    "turing": Entry(
        "runs any Turing machine", {"states": 3, "letters": 2, "cells": 16},
        universal_turing_machine,
    ),
}  # fmt: skip


def program_option(command: Command) -> Command:
    """The option ``--program``: where to keep the program itself."""
    option = click.option(
        "--program", "kept", type=FILE,
        help="Where to save the program (.safetensors), for polyattn report.",
    )  # fmt: skip
    return option(command)


def size_options(command: Command) -> Command:
    """The options for sizes, styles and machines, the same wherever programs are made."""
    style = click.option(
        "--style", type=click.Choice(STYLES), help="Of the program dfa [default: registers]."
    )
    machine = click.option(
        "--machine", help="A machine to take states and letters from, or to build in (fixed-dfa)."
    )
    command = machine(style(command))
    for name, text in reversed(_OPTIONS.items()):
        command = click.option(f"--{name}", type=click.IntRange(1), help=text)(command)
    return command


def make_program(name: str, given: dict[str, Any]) -> Program:
    """A program of the library at the sizes that were given, and its own where none were."""
    if name not in PROGRAMS:
        raise click.UsageError(f"{name!r} is no program; there are {', '.join(PROGRAMS)}.")
    entry = PROGRAMS[name]
    chosen = {key: value for key, value in given.items() if value is not None}
    machine = chosen.get("machine")
    if machine is not None and name in ("dfa", "turing"):
        named = find_machine(chosen.pop("machine"))
        if (named.kind == "dfa") != (name == "dfa"):
            raise click.UsageError(f"the program {name} does not run {machine}.")
        sizes = {"states": len(named.states), "letters": len(named.letters)}
        chosen = sizes | chosen
    takes = (*entry.sizes, *{"dfa": ["style", "machine"], "turing": ["machine"]}.get(name, ()))
    takes = (*takes, "machine") if name == "fixed-dfa" else takes
    for key in chosen:
        if key not in takes:
            options = ", ".join(f"--{each}" for each in takes)
            raise click.UsageError(f"{name} has no --{key}; it takes {options}.")
    return entry.make(
        *({**entry.sizes, **chosen}[key] for key in entry.sizes), **_rest(entry, chosen)
    )


def program_facts(compiled: Compiled) -> dict[str, Any]:
    """The figures of a compiled program, in plain types."""
    sizes = compiled.schema.encoding.sizes if compiled.schema.encoding else {}
    return {
        "program": compiled.name,
        "sizes": {key: size for key, size in sizes.items() if isinstance(size, int)},
        "n_dims": compiled.n_dims,
        "n_heads": compiled.n_heads,
        "n_terms": len(compiled.terms),
    }


def _rest(entry: Entry, chosen: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in chosen.items() if key not in entry.sizes}
