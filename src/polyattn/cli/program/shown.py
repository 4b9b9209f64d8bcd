"""Programs and machines as text: coordinates and what they mean, entries of heads, tables."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from polyattn.cli import console, tables
from polyattn.cli.tables import Grid
from polyattn.programs import Compiled, Learned, LearnedRules, Schema
from polyattn.programs.language.schema import atom_text
from polyattn.programs.machines import NamedMachine
from polyattn.programs.machines.files import table_of
from polyattn.quoting import counted

# Values of an attribute that are named in its row.
NAMED_VALUES = 3


def program_text(program: Compiled | Learned, in_full: bool) -> list[str | Grid]:
    """What a program computes, its coordinates and its heads; ``in_full`` every entry of them."""
    text: list[str | Grid] = list(console.shown(program, numbers=False))
    text.append(_coordinates(program.schema, in_full))
    compiled = program.compiled if isinstance(program, LearnedRules) else program
    if not isinstance(compiled, Compiled):
        # Coefficients that were learned one by one are terms of one product each.
        terms = [str(term) for term in program.terms]
        shown = [f"{i + 1:4d}. {term}" for i, term in enumerate(terms)]
        return [*text, "terms:", *(shown if in_full else console.numbered(terms))]
    text.append(_entries(compiled) if in_full else _heads(compiled))
    if not in_full:
        text.append("polyattn show --weights prints every coordinate and every entry of the heads.")
    return text


def program_content(program: Compiled | Learned) -> dict[str, Any]:
    """The same as plain data: what every coordinate means, and entries of heads by coordinates."""
    content = program.to_full_dict()
    content["coordinates"] = list(program.schema.coordinate_names)
    compiled = program.compiled if isinstance(program, LearnedRules) else program
    if isinstance(compiled, Compiled):
        content["n_heads"] = compiled.n_heads
        content["entries"] = [
            {
                "head": each.head, "matrix": each.matrix, "row": each.row, "column": each.column,
                "from": each.start, "to": each.end, "weight": float(each.weight),
            }
            for each in compiled.entries
        ]  # fmt: skip
    return content


def machine_text(named: NamedMachine, content: dict[str, Any]) -> list[str | Grid]:
    """A machine as a table, a row for each state and a column for each letter."""
    rows = []
    for state, remarks, rules in table_of(named):
        accepts = " (accepting)" if "accepting" in remarks else ""
        rows.append((f"{'>' if 'start' in remarks else ' '} {state}{accepts}", *rules))
    rest = {
        "start": content["start"],
        "accepting": ", ".join(content["accepting"]) if "accepting" in content else None,
        "rejecting": ", ".join(content.get("rejecting", [])) or None,
        "blank": content.get("blank"),
        "halts in": ", ".join(content.get("halt", [])) or None,
    }
    if named.input:
        rest["word" if named.kind == "dfa" else "tape"] = named.written(named.input)
    known = {key: each for key, each in rest.items() if each is not None}
    return [
        named.title,
        tables.table("", ("state", *named.letters), rows),
        tables.facts("machine", known),
    ]


def _coordinates(schema: Schema, in_full: bool) -> Grid:
    """The coordinates of a token and what they mean, block by block or each of them."""
    title = f"{counted(schema.n_dims, 'coordinate')} of a token (schema.coordinates)"
    if in_full:
        names = enumerate(schema.coordinate_names)
        return tables.table(title, ("coordinate", "is 1 where a token says"), names)
    rows = []
    for attribute in schema.attributes:
        block, values = schema.blocks[attribute.name], attribute.values
        named = [atom_text(attribute.name, value, 1) for value in values]
        if len(named) > NAMED_VALUES + 1:
            named = [*named[:NAMED_VALUES], "...", named[-1]]
        places = f"{block.start}" if len(values) == 1 else f"{block.start}..{block.stop - 1}"
        rows.append((places, str(attribute), ", ".join(named)))
    return tables.table(title, ("coordinates", "attribute", "values, in this order"), rows)


def _heads(compiled: Compiled) -> Grid:
    """How many entries each head has, and between which attributes."""
    rows = []
    for number, entries in groupby(compiled.entries, lambda each: each.head):
        found = list(entries)
        between = [
            ", ".join(dict.fromkeys(
                f"{_attribute(each.start)} -> {_attribute(each.end)}"
                for each in found if each.matrix == matrix
            ))
            for matrix in ("attn", "value")
        ]  # fmt: skip
        rows.append((number, *between, len(found)))
        if len(rows) == console.MOST_LINES:
            break
    size = f"{compiled.n_dims} x {compiled.n_dims}"
    title = f"{counted(compiled.n_heads, 'head')}, each attn {size} and value {size}"
    if compiled.n_heads > len(rows):
        title += f"; the first {len(rows)}"
    headings = ("head", "attn: query -> key", "value: read -> write", "nonzero entries")
    return tables.table(title, headings, rows, right=("nonzero entries",))


def _entries(compiled: Compiled) -> Grid:
    """Every entry of the heads that is not zero."""
    headings = ("head", "matrix", "row", "column", "from", "to", "weight")
    rows = [
        (each.head, each.matrix, each.row, each.column, each.start, each.end, each.weight)
        for each in compiled.entries
    ]
    return tables.table(f"entries that are not zero: {len(rows)}", headings, rows)


def _attribute(atom: str) -> str:
    return atom.partition("(")[0]
