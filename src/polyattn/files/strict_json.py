"""JSON as it should be: no key twice, no NaN, bounded size and depth; and a digest over it."""

from __future__ import annotations

import hashlib
import json
import os
from math import isinf
from typing import Any

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.atomic import file_to_read
from polyattn.quoting import shown

# Nothing that polyattn writes comes near these.
MOST_BYTES = 1 << 28
MOST_DEPTH = 64


def parse_json(text: str) -> Any:
    """What a JSON text holds; InvalidInput says what is wrong with it, and where."""
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"line {error.lineno}, column {error.colno}: it is no JSON ({error.msg})."
        ) from None
    except InvalidInput:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise InvalidInput(f"it is no JSON that can be read ({error}).") from None
    except RecursionError:
        raise InvalidInput("it is nested too deeply.") from None
    _require_plain(content)
    return content


def read_text(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> str:
    """The text of a file in UTF-8 that is not too large, or an error that names the file."""
    source = file_to_read(path)
    size = source.stat().st_size
    if size > most_bytes:
        raise FileFormatError(
            f"{str(source)!r} has {size} bytes; a file of its kind has at most {most_bytes}."
        )
    try:
        return source.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(
            f"{str(source)!r} is no text in UTF-8 (byte {error.start})."
        ) from None


def json_digest(content: Any) -> str:
    """SHA-256 over plain data, as JSON with sorted keys and no spaces."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys all differ: json would silently keep the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in found if keys.count(key) > 1)
        raise InvalidInput(f"the key {shown(twice)} stands twice in one object; leave one out.")
    return found


def _no_number(name: str) -> Any:
    raise InvalidInput(f"{name} is no number of JSON.")


def _require_plain(content: Any) -> None:
    """Refuse what JSON can write and nothing should hold: bottomless lists, endless numbers."""
    level = [content]
    for _ in range(MOST_DEPTH):
        if any(isinstance(each, float) and isinf(each) for each in level):
            raise InvalidInput("it holds a number beyond 1.8e308, which float64 cannot hold.")
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise InvalidInput(f"it is nested too deeply: {MOST_DEPTH} levels are enough for anything.")
