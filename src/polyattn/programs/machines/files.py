"""Machines in files: JSON or YAML that people write (docs/guides/machine_files.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.atomic import write_atomically
from polyattn.files.strict_json import parse_json, read_text
from polyattn.programs.machines.dfa import DFA
from polyattn.programs.machines.format.content import content_of, machine_from
from polyattn.programs.machines.named import NamedMachine
from polyattn.programs.machines.turing import TuringMachine

JSON, YAML = (".json",), (".yaml", ".yml")

# Far more than any machine that can be run.
MOST_BYTES = 1_000_000


def load_machine(path: str | os.PathLike[str]) -> NamedMachine:
    """Read a machine from a ``.json``, ``.yaml`` or ``.yml`` file.

    Returns the machine with its start state and blank as number 0, and the names of the file.
    Raises FileFormatError, with the file and the place in it, for whatever is wrong there, and
    MissingExtra for YAML without pyyaml.
    """
    source = Path(path)
    suffix = _suffix(source)
    text = read_text(source, MOST_BYTES)
    try:
        return machine_from(_parsed(text, suffix))
    except (InvalidInput, InvalidType) as error:
        raise FileFormatError(f"{str(source)!r}: {error}") from None


def save_machine(machine: NamedMachine | DFA | TuringMachine, path: str | os.PathLike[str]) -> None:
    """Write a machine to a ``.json``, ``.yaml`` or ``.yml`` file, complete or not at all."""
    target = Path(path)
    suffix = _suffix(target)
    named = machine if isinstance(machine, NamedMachine) else NamedMachine.plain(machine)
    content = content_of(named)
    if suffix in JSON:
        text = _json(content)
    else:
        from polyattn.programs.machines.format.yaml_syntax import write_yaml

        text = write_yaml(content)
    write_atomically(target, lambda file: file.write(text.encode()))


def _parsed(text: str, suffix: str) -> Any:
    """What a text holds, in plain types; InvalidInput says where it is no JSON or YAML."""
    if not text.strip():
        raise InvalidInput("it is empty; a machine needs at least its transitions or rules.")
    if suffix in JSON:
        return parse_json(text)
    # Loaded when needed, since it is an extra.
    from polyattn.programs.machines.format.yaml_syntax import parse_yaml

    return parse_yaml(text)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (*JSON, *YAML):
        raise FileFormatError(
            f"machine files end in {', '.join((*JSON, *YAML))}; got {str(path)!r}."
        )
    return suffix


def _json(content: dict[str, Any]) -> str:
    """JSON with one line for each key, and one for each state of the table."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict):
            rows = ",\n".join(
                f"    {json.dumps(state)}: {json.dumps(row)}" for state, row in value.items()
            )
            lines.append(f"  {json.dumps(key)}: {{\n{rows}\n  }}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
