"""Text to plain data: JSON or YAML, with the place of every mistake."""

from __future__ import annotations

import json
from typing import Any

from polyattn.errors import InvalidInput

JSON, YAML = (".json",), (".yaml", ".yml")


def parse(text: str, suffix: str) -> Any:
    """What a text holds, in plain types; InvalidInput says where it is no JSON or YAML."""
    if not text.strip():
        raise InvalidInput("it is empty; a machine needs at least its transitions or rules.")
    try:
        if suffix in JSON:
            return _json(text)
        # Loaded when needed, since it is an extra.
        from polyattn.programs.machines.format.yaml_syntax import parse_yaml

        return parse_yaml(text)
    except RecursionError:
        raise InvalidInput("it is nested too deeply to be a machine.") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"line {error.lineno}, column {error.colno}: it is no JSON ({error.msg})."
        ) from None
    except InvalidInput:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise InvalidInput(f"it is no JSON that can be read ({error}).") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys all differ: json would silently keep the last."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidInput(f"the key {key!r} stands twice in one object; leave one out.")
        found[key] = value
    return found


def _no_number(name: str) -> Any:
    raise InvalidInput(f"{name} is no number that a machine can use.")
