"""``polyattn program compile``, and the options from which programs of the library are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from polyattn.cli.console import FILE, emit, facts, json_option, working
from polyattn.cli.io import require_output
from polyattn.errors import InvalidInput
from polyattn.programs import Compiled, Program
from polyattn.programs import compile as compile_layer
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines.ready import find_machine
from polyattn.storage import save

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = {
    "n_states": "Most states of a machine.",
    "n_letters": "Most letters of a machine.",
    "max_length": "Most letters of a word.",
    "n_cells": "Cells of the tape.",
    "n_keys": "Keys of the memory.",
    "n_values": "Values of the memory.",
}

STYLES = tuple(style.replace("_", "-") for style in PROGRAMS["dfa"].styles)


def option_name(size: str) -> str:
    """What the command line calls a size: "states" for n_states, "length" for max_length."""
    return size.partition("_")[2]


def program_option(command: Command) -> Command:
    """The option ``--program``: where to keep the program itself."""
    said = "Where to save the program (.safetensors), for polyattn report."
    return click.option("--program", "kept", type=FILE, help=said)(command)


def size_options(command: Command) -> Command:
    """The options for sizes, styles and machines, the same wherever programs are made."""
    style = click.option(
        "--style", type=click.Choice(STYLES), help="Of the program dfa [default: registers]."
    )
    machine = click.option(
        "--machine", help="A machine to take states and letters from, or to build in (fixed-dfa)."
    )
    command = machine(style(command))
    for size, text in reversed(_OPTIONS.items()):
        names = f"--{option_name(size)}", size
        command = click.option(*names, type=click.IntRange(1), help=text)(command)
    return command


def make_program(name: str, given: dict[str, Any]) -> Program:
    """A program of the library at the sizes that were given, and its own where none were."""
    if name not in PROGRAMS:
        raise click.UsageError(f"{name!r} is no program; there are {', '.join(PROGRAMS)}.")
    entry = PROGRAMS[name]
    chosen = {key: value for key, value in given.items() if value is not None}
    machine = chosen.pop("machine", None)
    # Options that a program does not have are a mistake.
    takes = [*entry.sizes, *(["style"] if entry.styles else [])]
    takes += ["machine"] if entry.runs or entry.built_in else []
    for key in (*chosen, *(["machine"] if machine is not None else [])):
        if key not in takes:
            words = [option_name(each) if each in _OPTIONS else each for each in (key, *takes)]
            known = ", ".join(f"--{word}" for word in words[1:])
            raise click.UsageError(f"{name} has no --{words[0]}; it takes {known}.")
    if machine is not None:
        named = find_machine(machine)
        if entry.built_in and named.kind != "dfa":
            raise click.UsageError(f"{name} has a finite automaton built in; {machine} is none.")
        if entry.runs and named.kind != entry.runs:
            raise click.UsageError(f"the program {name} does not run {machine}.")
        own: dict[str, Any] = {"n_states": len(named.states), "n_letters": len(named.letters)}
        chosen = {"dfa": named.machine, **chosen} if entry.built_in else own | chosen
    if "style" in chosen:
        chosen["style"] = chosen["style"].replace("-", "_")
    return entry.make(**(entry.sizes | chosen))


def program_facts(compiled: Compiled) -> dict[str, Any]:
    """The figures of a compiled program, in plain types."""
    encoding = compiled.schema.encoding
    sizes = {} if encoding is None else encoding.sizes
    return {
        "program": compiled.name,
        "sizes": {key: size for key, size in sizes.items() if isinstance(size, int)},
        "n_dims": compiled.n_dims,
        "n_heads": compiled.n_heads,
        "n_terms": len(compiled.terms),
    }


# Layers are stored with all their zeros.
MOST_BYTES = 2**31


@click.command(name="compile")
@click.argument("name", type=click.Choice(tuple(PROGRAMS)))
@size_options
@click.option("-o", "--output", type=FILE, help="Where to save the layer (.safetensors).")
@program_option
@json_option
def compile_program(
    name: str, output: Path | None, kept: Path | None, as_json: bool, **sizes: Any
) -> None:
    """Compile the program NAME to one layer of linear attention, and save it."""
    require_output(output, kept)
    program = make_program(name, sizes)
    with working("compiling"):
        compiled = compile_layer(program)
    content = program_facts(compiled)
    content["bytes"] = 2 * 8 * compiled.n_heads * compiled.n_dims**2
    if output is not None:
        if content["bytes"] > MOST_BYTES:
            raise InvalidInput(
                f"the layer has {compiled.n_heads} heads of {compiled.n_dims} coordinates, which "
                f"is {content['bytes'] / 2**30:.1f} GB in a file; choose smaller sizes."
            )
        with working("writing"):
            save(compiled.layer, output)
        content["layer"] = str(output)
    if kept is not None:
        save(compiled, kept)
        content["saved_program"] = str(kept)
    rows = {
        "program": content["program"],
        "sizes": ", ".join(f"{key} = {size}" for key, size in content["sizes"].items()),
        "coordinates": compiled.n_dims,
        "heads": compiled.n_heads,
        "terms": content["n_terms"],
        **({"layer saved to": output} if output is not None else {}),
        **({"program saved to": kept} if kept is not None else {}),
    }
    emit(content, [facts("compiled", rows)], as_json)
