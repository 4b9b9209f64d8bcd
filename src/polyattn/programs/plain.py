"""Schemas and terms as plain data (JSON types), and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from itertools import accumulate
from math import prod
from typing import Any

from polyattn.errors import InvalidInput
from polyattn.files.fields import entries, integer, listed, nullable, number, one_of, require, text
from polyattn.programs.language.attributes import ROUNDINGS, Argument, Attribute, Pattern, Variable
from polyattn.programs.language.program import pattern_refusals, term_refusals
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES, SYMBOLS, Sort
from polyattn.programs.language.terms import Beyond, Condition, Term, Unequal
from polyattn.programs.library import ENCODINGS, LibraryEncoding
from polyattn.programs.lowering import n_entries
from polyattn.programs.machines.automata import DFA
from polyattn.quoting import shown

# Larger programs take longer than ten seconds, or more than a gigabyte, to become heads.
MOST_COORDINATES, MOST_ENTRIES = 1 << 18, 1 << 20

_NAME, _NUMBER = text(1000), integer(0, MOST_COORDINATES)


def _automaton(value: Any, where: str) -> None:
    """The transitions and the accepting states of an automaton."""
    require(isinstance(value, list) and len(value) == 2, where, "transitions and states", value)
    listed(listed(_NUMBER))(value[0], f"{where}[0]")
    listed(_NUMBER)(value[1], f"{where}[1]")


def _argument(value: Any, where: str) -> None:
    """A variable with its step, a number or a name."""
    if isinstance(value, dict):
        _VARIABLE(value, where)
    elif isinstance(value, str):
        _NAME(value, where)
    else:
        integer()(value, where)


def _condition(value: Any, where: str) -> None:
    """Two arguments that differ, or that lie apart."""
    sides = {"left": _argument, "right": _argument}
    far = {"steps": _NUMBER, "sort": _NAME}
    distant = isinstance(value, dict) and "steps" in value
    entries(sides | far if distant else sides)(value, where)


# What files hold of programs.
_VARIABLE = entries({"variable": _NAME, "offset": integer(-MOST_COORDINATES, MOST_COORDINATES)})
_PATTERN = entries({"attribute": _NAME, "arguments": listed(_argument), "whole": nullable(_NAME)})
_SORT = entries({
    "name": _NAME, "kind": one_of((SYMBOLS, LINE, CIRCLE, NAMES)), "named": listed(_NAME),
    "size": _NUMBER, "landmarks": _NUMBER,
})  # fmt: skip
_ATTRIBUTE = entries({
    "name": _NAME, "sorts": listed(_SORT), "whole": listed(_NAME), "rounding": one_of(ROUNDINGS),
})  # fmt: skip
SCHEMA = entries({
    "attributes": listed(_ATTRIBUTE, least=1), "stop": listed(_PATTERN),
    "stop_without": listed(_NAME),
})  # fmt: skip
TERM = entries({
    "weight": number(), "patterns": listed(_PATTERN, 4, 4), "where": listed(_condition),
})  # fmt: skip


def plain_schema(schema: Schema) -> dict[str, Any]:
    """A schema as plain data: by its encoding if it has one, attribute by attribute otherwise."""
    encoding = schema.encoding
    if encoding is None:
        return {
            # Through JSON, which makes lists of tuples.
            "attributes": json.loads(json.dumps([asdict(each) for each in schema.attributes])),
            "stop": [plain_pattern(each) for each in schema.stop],
            "stop_without": list(schema.stop_without),
        }
    name = encoding.name if isinstance(encoding, LibraryEncoding) else ""
    if ENCODINGS.get(name) is not type(encoding):
        raise InvalidInput(
            f"a schema with the encoding {type(encoding).__name__} cannot be saved: files know "
            f"{', '.join(ENCODINGS)}."
        )
    sizes = {
        key: [size.transitions.tolist(), sorted(size.accepting)] if isinstance(size, DFA) else size
        for key, size in encoding.sizes.items()
    }
    return {"encoding": name, "sizes": sizes}


def schema_from(plain: dict[str, Any]) -> Schema:
    """The inverse of ``plain_schema``; what no schema can be is refused with its place."""
    if isinstance(plain, dict) and "encoding" in plain:
        name = plain["encoding"]
        kind = ENCODINGS.get(name) if isinstance(name, str) else None
        if kind is None:
            raise InvalidInput(f"the encoding {shown(name)} is not known to this release.")
        size = integer(1, MOST_COORDINATES)
        checks = {each.name: _automaton if each.name == "dfa" else size for each in fields(kind)}
        entries({"encoding": text(), "sizes": entries(checks)})(plain, "schema")
        sizes = dict(plain["sizes"])
        if "dfa" in sizes:
            sizes["dfa"] = DFA(*sizes["dfa"])
        return kind(**sizes).schema
    SCHEMA(plain, "schema")
    attributes = []
    for each in plain["attributes"]:
        sorts = tuple(Sort(**(sort | {"named": tuple(sort["named"])})) for sort in each["sorts"])
        attributes.append(Attribute(each["name"], sorts, tuple(each["whole"]), each["rounding"]))
    bare = Schema(tuple(attributes))
    require_size(bare)
    stop = tuple(_pattern_from(each, bare) for each in plain["stop"])
    for at, pattern in enumerate(stop):
        for reason in pattern_refusals(pattern, bare):
            raise InvalidInput(f"schema.stop[{at}]: {reason}.")
    return Schema(bare.attributes, stop, tuple(plain["stop_without"]))


def plain_term(term: Term) -> dict[str, Any]:
    """A term as plain data."""
    conditions = []
    for each in term.where:
        sides = {"left": _plain_argument(each.left), "right": _plain_argument(each.right)}
        far = {"steps": each.steps, "sort": each.sort.name} if isinstance(each, Beyond) else {}
        conditions.append(sides | far)
    patterns = [plain_pattern(pattern) for pattern in term.patterns]
    return {"weight": term.weight, "patterns": patterns, "where": conditions}


def terms_from(plain: Any, schema: Schema) -> tuple[Term, ...]:
    """The inverse of ``plain_term`` for all terms of a program that is not too large to run."""
    require_size(schema)
    listed(TERM)(plain, "terms")
    terms = []
    for each in plain:
        write, read, match, query = (_pattern_from(one, schema) for one in each["patterns"])
        conditions = tuple(_condition_from(one, schema) for one in each["where"])
        terms.append(Term(write, read, match, query, each["weight"], conditions))
    require_size(schema, terms)
    for at, term in enumerate(terms):
        for reason in term_refusals(term, schema):
            raise InvalidInput(f"terms[{at}]: {reason}.")
    return tuple(terms)


def require_size(schema: Schema, terms: Iterable[Term] = ()) -> None:
    """Refuse a program whose layer would take minutes to make; so no file holds one."""
    # Without writing the coordinates down.
    count = sum(
        prod(sort.size + len(sort.named) for sort in each.sorts) + len(each.whole)
        for each in schema.attributes
    )
    _require_few(f"tokens of the program have {count} coordinates", count, MOST_COORDINATES)
    # As they come: looking at many large terms would take as long as making heads of them.
    for size in accumulate(n_entries(term) for term in terms):
        _require_few(f"the heads of the program have up to {size} entries", size, MOST_ENTRIES)


def _require_few(said: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidInput(
            f"{said}; files hold programs with at most {most}. Choose smaller sizes."
        )


def plain_pattern(pattern: Pattern) -> dict[str, Any]:
    """A pattern as plain data."""
    return {
        "attribute": pattern.attribute.name,
        "arguments": [_plain_argument(each) for each in pattern.arguments],
        "whole": pattern.whole,
    }


def _pattern_from(plain: dict[str, Any], schema: Schema) -> Pattern:
    name = plain["attribute"]
    if name not in schema.blocks:
        raise InvalidInput(f"the schema has no attribute {shown(name)}.")
    arguments = tuple(_argument_from(each) for each in plain["arguments"])
    return Pattern(getattr(schema, name), arguments, plain["whole"])


def _plain_argument(argument: Argument) -> Any:
    if isinstance(argument, Variable):
        return {"variable": argument.name, "offset": argument.offset}
    return argument


def _argument_from(plain: Any) -> Argument:
    if isinstance(plain, dict):
        return Variable(plain["variable"], plain["offset"])
    return plain


def _condition_from(plain: dict[str, Any], schema: Schema) -> Condition:
    left, right = _argument_from(plain["left"]), _argument_from(plain["right"])
    if "steps" not in plain:
        return Unequal(left, right)
    if not isinstance(left, Variable) or not isinstance(right, Variable):
        raise InvalidInput("a distance is between two variables.")
    if plain["sort"] not in schema.sorts:
        raise InvalidInput(f"the schema has no sort {shown(plain['sort'])}.")
    return Beyond(left, right, plain["steps"], schema.sorts[plain["sort"]])
