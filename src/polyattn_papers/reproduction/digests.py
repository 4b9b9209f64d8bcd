"""Files with a digest of their content, so that an edited one is named and not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.fields import Check, any_object, entries, listed, number, require, text
from polyattn.files.strict_json import json_digest, parse_json, read_text


def with_digest(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its digest at the end."""
    return content | {"digest": json_digest(content)}


def require_intact(
    content: dict[str, Any], path: Path, check: Check, remedy: str
) -> dict[str, Any]:
    """The content of a file that was read, if its fields and its digest are right.

    remedy : what to do with a file that fails, for the message
    """
    try:
        check(content, "it")
    except FileFormatError as error:
        raise FileFormatError(f"{str(path)!r} is damaged: {error} {_sentence(remedy)}") from None
    inside = {name: each for name, each in content.items() if name != "digest"}
    if json_digest(inside) != content["digest"]:
        raise FileFormatError(
            f"{str(path)!r} is damaged or was changed after it was written: its digest does not "
            f"match its content. {_sentence(remedy)}"
        )
    return content


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The JSON object in a file, of whatever fields."""
    try:
        content = parse_json(read_text(path))
        any_object(content, "it")
    except (InvalidInput, FileFormatError) as error:
        raise FileFormatError(f"{str(path)!r} is damaged: {error} {_sentence(remedy)}") from None
    return dict(content)


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."


def _row(value: Any, where: str) -> None:
    """Names and plain values: text, finite numbers, true, false or null."""
    any_object(value, where)
    for name, each in value.items():
        fits = each is None or isinstance(each, bool | str | int | float)
        require(fits, f"{where}.{name}", "text, a number, true, false or null", each)
        if type(each) in (int, float):
            number()(each, f"{where}.{name}")


def _environment(value: Any, where: str) -> None:
    any_object(value, where)
    entries({"date": text(1000)}, dict.fromkeys(value, text(1000)))(value, where)


#: The rows of a table, and when, with what and on which machine they were measured.
ROWS, ENVIRONMENT = listed(_row), _environment
