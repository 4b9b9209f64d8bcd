"""``polyattn program list``, ``show`` and ``compile``: what there is, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from polyattn.cli import console, tables
from polyattn.cli.program.shown import machine_text
from polyattn.cli.tables import Grid
from polyattn.errors import InvalidInput
from polyattn.programs import Compiled, Program
from polyattn.programs import compile as compile_layer
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines.files import content_of
from polyattn.programs.machines.ready import READY, find_machine

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = {
    "n_states": "Most states of a machine.",
    "n_letters": "Most letters of a machine.",
    "max_length": "Most letters of a word.",
    "n_cells": "Cells of the tape.",
    "n_steps": "Steps of the longest run (turing-rewriting).",
    "n_keys": "Keys of the memory.",
    "n_values": "Values of the memory.",
}

STYLES = tuple(style.replace("_", "-") for style in PROGRAMS["dfa"].styles)

# Layers are stored with all their zeros.
MOST_BYTES = 2**31


# Where to keep the program itself, beside its layer.
_KEPT = "Where to save the program (.safetensors), for polyattn report."
program_option = click.option(
    "--program", "kept", type=console.FILE, callback=console.writable, help=_KEPT
)


def option_name(size: str) -> str:
    """What the command line calls a size: "states" for n_states, "length" for max_length.

    ``--steps`` says elsewhere how many steps to print.
    """
    return "run-steps" if size == "n_steps" else size.partition("_")[2]


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
    entry = PROGRAMS[name]
    chosen = {key: value for key, value in given.items() if value is not None}
    # Options that a program does not have are a mistake.
    takes = [*entry.sizes, *(["style"] if entry.styles else [])]
    takes += ["machine"] if entry.runs or entry.built_in else []
    for key in chosen:
        if key not in takes:
            words = [option_name(each) if each in _OPTIONS else each for each in (key, *takes)]
            known = ", ".join(f"--{word}" for word in words[1:])
            raise click.UsageError(f"{name} has no --{words[0]}; it takes {known}.")
    machine = chosen.pop("machine", None)
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
    sizes = compiled.schema.encoding.sizes if compiled.schema.encoding else {}
    return {
        "program": compiled.name,
        "sizes": {key: size for key, size in sizes.items() if isinstance(size, int)},
        "n_dims": compiled.n_dims,
        "n_heads": compiled.n_heads,
        "n_terms": len(compiled.terms),
    }


@click.command(name="list")
@size_options
@console.json_option
def list_programs(as_json: bool, **sizes: Any) -> None:
    """List the programs of the library, at the sizes given, and the machines that are ready."""
    if sizes.pop("style") or sizes["machine"]:
        raise click.UsageError(
            "the list has every style and machine; leave --style, --machine out."
        )
    programs, of_programs = [], []
    # A line for each style.
    listed = [(name, style) for name in PROGRAMS for style in PROGRAMS[name].styles or (None,)]
    with console.working("compiling"):
        for name, style in listed:
            about, own = PROGRAMS[name].about, PROGRAMS[name].sizes
            chosen = {key: sizes[key] for key in own} | ({"style": style} if style else {})
            found = program_facts(compile_layer(make_program(name, chosen)))
            said = style and style.replace("_", "-")
            programs.append({"name": name, "style": said, "about": about} | found)
            command = f"{name} --style {said}" if said else name
            at = ", ".join(f"{option_name(key)} {size}" for key, size in found["sizes"].items())
            of_programs.append((command, about, at, found["n_dims"], found["n_heads"]))
    machines = [
        {
            "name": name, "about": each.about, "kind": each.machine.kind,
            "title": each.machine.title,
            "example": f"polyattn program run {name} {each.example}".rstrip(),
        }
        for name, each in READY.items()
    ]  # fmt: skip
    machines.append({
        "name": "divisibility:N[,BASE]", "about": "is a number divisible by N?", "kind": "dfa",
        "title": "DFA", "example": "polyattn program run divisibility:7 10101",
    })  # fmt: skip
    of_machines = [
        (each["name"], each["about"], each["example"].removeprefix("polyattn "))
        for each in machines
    ]
    does = "what it does"
    text: list[str | Grid] = [
        tables.table(
            "programs: polyattn program show NAME",
            ("name", does, "sizes", "coordinates", "heads"),
            of_programs,
            whole=("name",),
        ),
        tables.table(
            "machines: polyattn program run NAME INPUT",
            ("name", does, "try"),
            of_machines,
            whole=("name", "try"),
        ),
    ]
    console.emit({"programs": programs, "machines": machines}, text, as_json)


@click.command()
@click.argument("name")
@size_options
@console.json_option
def show(name: str, as_json: bool, **sizes: Any) -> None:
    """Print NAME: a program of the library at the sizes given, or a machine.

    A program has attributes (what a token can say), instructions, and the terms that a layer
    computes.  A machine is a file, a ready name, or a text such as 1RB1LB_1LA1RH.
    """
    if name in PROGRAMS:
        program = make_program(name, sizes)
        with console.working("compiling"):
            content = program_facts(compile_layer(program))
        content |= {
            "attributes": [
                {
                    "name": each.name, "sorts": [str(sort) for sort in each.sorts],
                    "n_values": len(each.values), "rounding": each.rounding,
                }
                for each in program.schema.attributes
            ],
            "instructions": [str(each) for each in program.instructions],
            "terms": [str(term) for term in program.terms()],
        }  # fmt: skip
        console.emit(content, _program_text(program, content), as_json)
        return
    given = [key for key, value in sizes.items() if value is not None]
    if given:
        said = option_name(given[0]) or given[0]
        raise click.UsageError(f"--{said} is for programs ({', '.join(PROGRAMS)}).")
    named = find_machine(name)
    content = content_of(named)
    console.emit(content, machine_text(named, content), as_json)


def _program_text(program: Program, content: dict[str, Any]) -> list[str | Grid]:
    headings, attributes = ("attribute", "values", "coordinates", "rounded to"), []
    for each in program.schema.attributes:
        values = "; ".join([*map(str, each.sorts), *each.whole]) or "holds or not"
        attributes.append((each, values, len(each.values), each.rounding))
    return [
        f"{program.name} ({console.sizes_text(content['sizes'])})",
        tables.table("attributes of a token", headings, attributes),
        "instructions:",
        *console.numbered(content["instructions"]),
        "terms (write <- read & match of one token, given the last token):",
        *console.numbered(content["terms"]),
        tables.facts("layer", {"coordinates": content["n_dims"], "heads": content["n_heads"]}),
    ]


@click.command(name="compile")
@click.argument("name", metavar="NAME", type=click.Choice(tuple(PROGRAMS)))
@size_options
@console.saved_option("Where to save the layer")
@program_option
@console.json_option
def compile_program(
    name: str, output: Path | None, kept: Path | None, as_json: bool, **sizes: Any
) -> None:
    """Compile the program NAME to one layer of linear attention, and save it."""
    program = make_program(name, sizes)
    with console.working("compiling"):
        compiled = compile_layer(program)
    content = program_facts(compiled)
    content["bytes"] = 2 * 8 * compiled.n_heads * compiled.n_dims**2
    if output is not None and content["bytes"] > MOST_BYTES:
        raise InvalidInput(
            f"the layer has {compiled.n_heads} heads of {compiled.n_dims} coordinates, which is "
            f"{content['bytes'] / 2**30:.1f} GB in a file; choose smaller sizes."
        )
    rows = {
        "program": content["program"],
        "sizes": console.sizes_text(content["sizes"]),
        "coordinates": compiled.n_dims,
        "heads": compiled.n_heads,
        "terms": content["n_terms"],
    }
    if output is not None:
        rows |= console.saved(compiled.layer, output, content, "layer", "layer saved to")
    rows |= console.saved(compiled, kept, content, "saved_program", "program saved to")
    console.emit(content, [tables.facts("compiled", rows)], as_json)
