"""``polyattn program show``: a program in words, or the table of a machine."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table

from polyattn.cli.console import emit, facts, json_option, plain, working
from polyattn.cli.program.programs import (
    make_program,
    option_name,
    program_facts,
    size_options,
)
from polyattn.programs import Program
from polyattn.programs import compile as compile_program
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines import NamedMachine
from polyattn.programs.machines.format.content import content_of, table_of
from polyattn.programs.machines.ready import find_machine

# Longer lists are cut; --json prints them whole.
MOST_LINES = 40


@click.command()
@click.argument("name")
@size_options
@json_option
def show(name: str, as_json: bool, **sizes: Any) -> None:
    """Print NAME: a program of the library at the sizes given, or a machine.

    A program has attributes (what a token can say), instructions, and the terms that a layer
    computes.  A machine is a file, a ready name, or a text such as 1RB1LB_1LA1RH.
    """
    if name in PROGRAMS:
        program = make_program(name, sizes)
        with working("compiling"):
            content = program_facts(compile_program(program)) | program_json(program)
        emit(content, _program_text(program, content), as_json)
        return
    given = [key for key, value in sizes.items() if value is not None]
    if given:
        said = option_name(given[0]) or given[0]
        raise click.UsageError(f"--{said} is for programs ({', '.join(PROGRAMS)}).")
    named = find_machine(name)
    emit(content_of(named), machine_text(named), as_json)


def program_json(program: Program) -> dict[str, Any]:
    """A program in plain types."""
    return {
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


def _program_text(program: Program, content: dict[str, Any]) -> list[RenderableType]:
    sizes = ", ".join(f"{name} = {size}" for name, size in content["sizes"].items())
    table = Table(title="attributes of a token", title_justify="left")
    for heading in ("attribute", "values", "coordinates", "rounded to"):
        table.add_column(heading)
    for each in program.schema.attributes:
        values = "; ".join([*map(str, each.sorts), *each.whole]) or "holds or not"
        table.add_row(*map(plain, (str(each), values, str(len(each.values)), each.rounding)))
    return [
        f"{program.name} ({sizes})",
        table,
        "instructions:",
        *lines(content["instructions"]),
        "terms (write <- read & match of one token, given the last token):",
        *lines(content["terms"]),
        facts("layer", {"coordinates": content["n_dims"], "heads": content["n_heads"]}),
    ]


def lines(texts: list[str], most: int = MOST_LINES) -> list[RenderableType]:
    """Numbered lines, not more than a screen of them."""
    shown: list[RenderableType] = [f"{i + 1:4d}. {text}" for i, text in enumerate(texts[:most])]
    if len(texts) > most:
        shown.append(f"      ... {len(texts) - most} more (--json prints all)")
    return shown


def machine_text(named: NamedMachine) -> list[RenderableType]:
    """A machine as a table, a row for each state and a column for each letter."""
    table = Table()
    table.add_column("state")
    for letter in named.letters:
        table.add_column(plain(letter))
    for row in table_of(named):
        accepts = " (accepting)" if "accepting" in row.remarks else ""
        state = f"{'>' if 'start' in row.remarks else ' '} {row.state}{accepts}"
        table.add_row(*map(plain, (state, *row.rules)))
    content = content_of(named)
    rest = {
        "start": content["start"],
        "accepting": ", ".join(content.get("accepting", [])) if named.decides else None,
        "blank": content.get("blank"),
        "halts in": ", ".join(content.get("halt", [])) or None,
        "word": named.written(named.input) if named.kind == "dfa" and named.input else None,
        "tape": named.written(named.input) if named.kind != "dfa" and named.input else None,
    }
    known = {key: each for key, each in rest.items() if each is not None}
    return [named.title, table, facts("machine", known)]
