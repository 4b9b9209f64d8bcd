"""``polyattn program list`` and ``show``: what there is, programs in words, tables of machines."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType
from rich.table import Table

from polyattn.cli.console import emit, facts, json_option, plain, working
from polyattn.cli.program.compile import make_program, option_name, program_facts, size_options
from polyattn.programs import Program
from polyattn.programs import compile as compile_program
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines import NamedMachine
from polyattn.programs.machines.files import content_of, table_of
from polyattn.programs.machines.ready import READY, find_machine

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
            content = program_facts(compile_program(program))
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
        emit(content, _program_text(program, content), as_json)
        return
    given = [key for key, value in sizes.items() if value is not None]
    if given:
        said = option_name(given[0]) or given[0]
        raise click.UsageError(f"--{said} is for programs ({', '.join(PROGRAMS)}).")
    named = find_machine(name)
    emit(content_of(named), machine_text(named), as_json)


def _program_text(program: Program, content: dict[str, Any]) -> list[RenderableType]:
    sizes = ", ".join(f"{name} = {size}" for name, size in content["sizes"].items())
    headings = ("attribute", "values", "coordinates", "rounded to")
    table = Table(*headings, title="attributes of a token", title_justify="left")
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


def lines(texts: list[str]) -> list[RenderableType]:
    """Numbered lines, not more than a screen of them."""
    more = len(texts) - MOST_LINES
    shown = [f"{i + 1:4d}. {text}" for i, text in enumerate(texts[:MOST_LINES])]
    return [*shown, *([f"      ... {more} more (--json prints all)"] if more > 0 else [])]


def machine_text(named: NamedMachine) -> list[RenderableType]:
    """A machine as a table, a row for each state and a column for each letter."""
    table = Table("state")
    for letter in named.letters:
        table.add_column(plain(letter))
    for state, remarks, rules in table_of(named):
        accepts = " (accepting)" if "accepting" in remarks else ""
        said = f"{'>' if 'start' in remarks else ' '} {state}{accepts}"
        table.add_row(*map(plain, (said, *rules)))
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


@click.command(name="list")
@size_options
@json_option
def list_programs(as_json: bool, **sizes: Any) -> None:
    """List the programs of the library, at the sizes given, and the machines that are ready."""
    if sizes.pop("style") or sizes["machine"]:
        raise click.UsageError(
            "the list has every style and machine; leave --style, --machine out."
        )
    programs = []
    with working("compiling"):
        # A line for each style.
        listed = [(name, style) for name in PROGRAMS for style in PROGRAMS[name].styles or (None,)]
        for name, style in listed:
            entry = PROGRAMS[name]
            chosen = {key: sizes[key] for key in entry.sizes} | ({"style": style} if style else {})
            found = program_facts(compile_program(make_program(name, chosen)))
            said = style and style.replace("_", "-")
            programs.append({"name": name, "style": said, "about": entry.about} | found)
    machines = [
        {
            "name": name, "about": each.about, "kind": each.machine.kind,
            "title": each.machine.title, "example": f"polyattn program run {name} {each.example}",
        }
        for name, each in READY.items()
    ]  # fmt: skip
    machines.append({
        "name": "divisibility:N[,BASE]", "about": "is a number divisible by N?", "kind": "dfa",
        "title": "DFA", "example": "polyattn program run divisibility:7 10101",
    })  # fmt: skip
    content = {"programs": programs, "machines": machines}
    headings = ("name", "what it does", "sizes", "coordinates", "heads")
    of_programs = Table(
        *headings, title="programs: polyattn program show NAME", title_justify="left"
    )
    for one in programs:
        said = ", ".join(f"{option_name(key)} {size}" for key, size in one["sizes"].items())
        name = one["name"] + (f" --style {one['style']}" if one["style"] else "")
        of_programs.add_row(name, one["about"], said, str(one["n_dims"]), str(one["n_heads"]))
    title = "machines: polyattn program run NAME INPUT"
    of_machines = Table("name", "what it does", "try", title=title, title_justify="left")
    for each in machines:
        example = each["example"].removeprefix("polyattn ")
        of_machines.add_row(each["name"], each["about"], example)
    emit(content, [of_programs, of_machines], as_json)
