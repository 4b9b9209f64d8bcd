"""What files hold of programs, field by field: schemas, terms, and the sizes of encodings."""

from __future__ import annotations

from typing import Any

from polyattn.files.fields import (
    Check,
    entries,
    integer,
    listed,
    nullable,
    number,
    one_of,
    require,
    text,
)
from polyattn.programs.language.attributes import INTEGER, ONE_HOT
from polyattn.programs.language.sorts import CIRCLE, LINE, NAMES, SYMBOLS

# Larger programs take longer than ten seconds, or more than a gigabyte, to become heads.
MOST_COORDINATES, MOST_ENTRIES = 1 << 18, 1 << 20

_SIZE = integer(1, MOST_COORDINATES)
_NAME = text(1000)
_DFA_SIZES = {"n_states": _SIZE, "n_letters": _SIZE, "max_length": _SIZE}


def _table(value: Any, where: str) -> None:
    """A list of the transitions and the accepting states of an automaton."""
    require(isinstance(value, list) and len(value) == 2, where, "transitions and states", value)
    listed(listed(integer(0, MOST_COORDINATES)))(value[0], f"{where}[0]")
    listed(integer(0, MOST_COORDINATES))(value[1], f"{where}[1]")


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
SIZES: dict[str, dict[str, Check]] = {
    "associative_memory": {"n_keys": _SIZE, "n_values": _SIZE},
    "fixed_dfa": {"dfa": _table, "max_length": _SIZE},
    "one_hot_dfa": _DFA_SIZES,
    "register_dfa": _DFA_SIZES,
    "turing_machine": {"n_states": _SIZE, "n_letters": _SIZE, "n_cells": _SIZE},
}
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
