"""Schemas and terms as plain data (JSON types), and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import prod
from typing import Any

from polyattn.errors import InvalidInput
from polyattn.files.fields import (
    entries,
    integer,
    listed,
    nullable,
    number,
    one_of,
    text,
)
from polyattn.programs.language.attributes import (
    INTEGER,
    ONE_HOT,
    Argument,
    Attribute,
    Pattern,
    Variable,
)
from polyattn.programs.language.encoding import Encoding
from polyattn.programs.language.schema import Schema
from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES, SYMBOLS, Sort
from polyattn.programs.language.terms import Beyond, Condition, Term, Unequal
from polyattn.programs.language.validate import pattern_refusals, term_refusals
from polyattn.programs.library import ENCODINGS, LibraryEncoding
from polyattn.programs.library.runs import MOST_COORDINATES
from polyattn.programs.lowering import n_entries
from polyattn.programs.machines.dfa import DFA
from polyattn.quoting import shown

# Larger programs take longer than ten seconds, or more than a gigabyte, to become heads.
MOST_ENTRIES = 1 << 20

_NAME = text(1000)


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
    far = {"steps": integer(0, MOST_COORDINATES), "sort": _NAME}
    distant = isinstance(value, dict) and "steps" in value
    entries(sides | far if distant else sides)(value, where)


# What files hold of programs.
_VARIABLE = entries({
    "variable": _NAME, "offset": integer(-MOST_COORDINATES, MOST_COORDINATES),
})  # fmt: skip
_PATTERN = entries({
    "attribute": _NAME, "arguments": listed(_argument), "whole": nullable(_NAME),
})  # fmt: skip
_SORT = entries({
    "name": _NAME, "kind": one_of((SYMBOLS, LINE, CIRCLE, NAMES)), "named": listed(_NAME),
    "size": integer(0, MOST_COORDINATES), "landmarks": integer(0, MOST_COORDINATES),
})  # fmt: skip
_ATTRIBUTE = entries({
    "name": _NAME, "sorts": listed(_SORT), "whole": listed(_NAME),
    "rounding": one_of((ONE_HOT, INTEGER)),
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
    if schema.encoding is not None:
        return plain_encoding(schema.encoding)
    return {
        "attributes": [_plain_attribute(each) for each in schema.attributes],
        "stop": [plain_pattern(each) for each in schema.stop],
        "stop_without": list(schema.stop_without),
    }


def schema_from(plain: dict[str, Any]) -> Schema:
    """The inverse of ``plain_schema``; what no schema can be is refused with its place."""
    if isinstance(plain, dict) and "encoding" in plain:
        return _encoding_from(plain).schema
    SCHEMA(plain, "schema")
    bare = Schema(tuple(_attribute_from(each) for each in plain["attributes"]))
    _require_coordinates(bare)
    stop = tuple(pattern_from(each, bare) for each in plain["stop"])
    for at, pattern in enumerate(stop):
        _refuse(pattern_refusals(pattern, bare), f"schema.stop[{at}]")
    return Schema(bare.attributes, stop, tuple(plain["stop_without"]))


def terms_from(plain: Any, schema: Schema) -> tuple[Term, ...]:
    """The inverse of ``plain_term`` for all terms of a program that is not too large to run."""
    _require_coordinates(schema)
    listed(TERM)(plain, "terms")
    terms, size = [], 0
    for at, each in enumerate(plain):
        term = _term_from(each, schema)
        # Counted as they come: looking at many large terms would take as long as making them.
        size += n_entries(term)
        _require_entries(size)
        _refuse(term_refusals(term, schema), f"terms[{at}]")
        terms.append(term)
    return tuple(terms)


def require_size(schema: Schema, terms: tuple[Term, ...]) -> None:
    """Refuse a program whose layer would take minutes to make; so no file holds one."""
    _require_coordinates(schema)
    _require_entries(sum(n_entries(term) for term in terms))


def plain_encoding(encoding: Encoding) -> dict[str, Any]:
    """The name of an encoding and its sizes."""
    if isinstance(encoding, LibraryEncoding) and ENCODINGS.get(encoding.name) is type(encoding):
        return {"encoding": encoding.name, "sizes": _plain_sizes(encoding.sizes)}
    raise InvalidInput(
        f"a schema with the encoding {type(encoding).__name__} cannot be saved: files know "
        f"{', '.join(ENCODINGS)}."
    )


def plain_term(term: Term) -> dict[str, Any]:
    """A term as plain data."""
    return {
        "weight": term.weight,
        "patterns": [plain_pattern(pattern) for pattern in term.patterns],
        "where": [_plain_condition(condition) for condition in term.where],
    }


def plain_pattern(pattern: Pattern) -> dict[str, Any]:
    """A pattern as plain data."""
    return {
        "attribute": pattern.attribute.name,
        "arguments": [_plain_argument(each) for each in pattern.arguments],
        "whole": pattern.whole,
    }


def pattern_from(plain: dict[str, Any], schema: Schema) -> Pattern:
    """The inverse of ``plain_pattern``."""
    attributes = {each.name: each for each in schema.attributes}
    name = plain["attribute"]
    if name not in attributes:
        raise InvalidInput(f"the schema has no attribute {shown(name)}.")
    arguments = tuple(_argument_from(each) for each in plain["arguments"])
    return Pattern(attributes[name], arguments, plain["whole"])


def _term_from(plain: dict[str, Any], schema: Schema) -> Term:
    write, read, match, query = (pattern_from(each, schema) for each in plain["patterns"])
    conditions = tuple(_condition_from(each, schema) for each in plain["where"])
    return Term(write, read, match, query, plain["weight"], conditions)


def _refuse(reasons: Iterator[str], where: str) -> None:
    for reason in reasons:
        raise InvalidInput(f"{where}: {reason}.")


def _require_entries(size: int) -> None:
    if size > MOST_ENTRIES:
        raise InvalidInput(
            f"the heads of the program have up to {size} entries; files hold programs with at most "
            f"{MOST_ENTRIES}. Choose smaller sizes."
        )


def _require_coordinates(schema: Schema) -> None:
    """Refuse tokens of too many coordinates, counted without writing them down."""
    count = sum(
        prod(sort.size + len(sort.named) for sort in each.sorts) + len(each.whole)
        for each in schema.attributes
    )
    if count > MOST_COORDINATES:
        raise InvalidInput(
            f"tokens of the program have {count} coordinates; files hold programs with at most "
            f"{MOST_COORDINATES}. Choose smaller sizes."
        )


def _plain_argument(argument: Argument) -> Any:
    if isinstance(argument, Variable):
        return {"variable": argument.name, "offset": argument.offset}
    return argument


def _argument_from(plain: Any) -> Argument:
    if isinstance(plain, dict):
        return Variable(plain["variable"], plain["offset"])
    return plain


def _plain_condition(condition: Condition) -> dict[str, Any]:
    sides = {"left": _plain_argument(condition.left), "right": _plain_argument(condition.right)}
    if isinstance(condition, Beyond):
        return sides | {"steps": condition.steps, "sort": condition.sort.name}
    return sides


def _condition_from(plain: dict[str, Any], schema: Schema) -> Condition:
    left, right = _argument_from(plain["left"]), _argument_from(plain["right"])
    if "steps" not in plain:
        return Unequal(left, right)
    if not isinstance(left, Variable) or not isinstance(right, Variable):
        raise InvalidInput("a distance is between two variables.")
    if plain["sort"] not in schema.sorts:
        raise InvalidInput(f"the schema has no sort {shown(plain['sort'])}.")
    return Beyond(left, right, plain["steps"], schema.sorts[plain["sort"]])


def _plain_attribute(attribute: Attribute) -> dict[str, Any]:
    return {
        "name": attribute.name,
        "sorts": [asdict(sort) | {"named": list(sort.named)} for sort in attribute.sorts],
        "whole": list(attribute.whole),
        "rounding": attribute.rounding,
    }


def _attribute_from(plain: dict[str, Any]) -> Attribute:
    sorts = tuple(Sort(**(each | {"named": tuple(each["named"])})) for each in plain["sorts"])
    return Attribute(plain["name"], sorts, tuple(plain["whole"]), plain["rounding"])


def _plain_sizes(sizes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [size.transitions.tolist(), sorted(size.accepting)] if isinstance(size, DFA) else size
        for name, size in sizes.items()
    }


def _encoding_from(plain: dict[str, Any]) -> Encoding:
    name = plain["encoding"]
    if not isinstance(name, str) or name not in ENCODINGS:
        raise InvalidInput(f"the encoding {shown(name)} is not known to this release.")
    entries({"encoding": text(), "sizes": entries(dict(ENCODINGS[name].fields))})(plain, "schema")
    sizes = {
        name: DFA(*size) if isinstance(size, list) else size
        for name, size in plain["sizes"].items()
    }
    return ENCODINGS[name](**sizes)
