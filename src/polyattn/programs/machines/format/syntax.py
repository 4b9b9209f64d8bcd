"""Text to plain data: JSON or YAML, with the place of every mistake."""

from __future__ import annotations

from typing import Any

from polyattn.errors import InvalidInput
from polyattn.files.strict_json import parse_json

JSON, YAML = (".json",), (".yaml", ".yml")


def parse(text: str, suffix: str) -> Any:
    """What a text holds, in plain types; InvalidInput says where it is no JSON or YAML."""
    if not text.strip():
        raise InvalidInput("it is empty; a machine needs at least its transitions or rules.")
    if suffix in JSON:
        return parse_json(text)
    # Loaded when needed, since it is an extra.
    from polyattn.programs.machines.format.yaml_syntax import parse_yaml

    return parse_yaml(text)
