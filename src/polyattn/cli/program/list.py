"""``polyattn program list``: what there is to compile and to run."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from polyattn.cli.console import emit, json_option, working
from polyattn.cli.program.programs import make_program, option_name, program_facts, size_options
from polyattn.programs import compile as compile_program
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines.ready import READY

# The list has a line for each style.
_LINES = [(name, style) for name, each in PROGRAMS.items() for style in each.styles or (None,)]


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
        for name, style in _LINES:
            entry = PROGRAMS[name]
            chosen = {key: sizes[key] for key in entry.sizes} | ({"style": style} if style else {})
            found = program_facts(compile_program(make_program(name, chosen)))
            said = style and style.replace("_", "-")
            programs.append({"name": name, "style": said, "about": entry.about} | found)
    machines = [
        {
            "name": name, "about": each.about, "kind": each.make().kind,
            "title": each.make().title, "example": f"polyattn program run {name} {each.example}",
        }
        for name, each in READY.items()
    ]  # fmt: skip
    machines.append({
        "name": "divisibility:N[,BASE]", "about": "is a number divisible by N?", "kind": "dfa",
        "title": "DFA", "example": "polyattn program run divisibility:7 10101",
    })  # fmt: skip
    content = {"programs": programs, "machines": machines}
    emit(content, [_programs(programs), _machines(machines)], as_json)


def _programs(found: list[dict[str, Any]]) -> Table:
    table = Table(title="programs: polyattn program show NAME", title_justify="left")
    for heading in ("name", "what it does", "sizes", "coordinates", "heads"):
        table.add_column(heading)
    for one in found:
        sizes = ", ".join(f"{option_name(key)} {size}" for key, size in one["sizes"].items())
        name = one["name"] + (f" --style {one['style']}" if one["style"] else "")
        table.add_row(name, one["about"], sizes, str(one["n_dims"]), str(one["n_heads"]))
    return table


def _machines(found: list[dict[str, Any]]) -> Table:
    table = Table(title="machines: polyattn program run NAME INPUT", title_justify="left")
    for heading in ("name", "what it does", "try"):
        table.add_column(heading)
    for one in found:
        table.add_row(one["name"], one["about"], one["example"].removeprefix("polyattn "))
    return table
