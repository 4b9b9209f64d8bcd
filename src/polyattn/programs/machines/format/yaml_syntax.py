"""YAML as people mean it: words are words, no key stands twice, and nothing refers to elsewhere.

Of words without quotes only true, false, null and plain numbers are anything but text: states
called ``on`` and ``off`` are these, not truth values, and a letter ``01`` is not the number 1.
Aliases (``*name``) and tags (``!!set``) are refused: a machine needs none, and a few lines of
aliases can stand for more than any memory holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from polyattn.errors import InvalidInput, missing_extra
from polyattn.files.strict_json import MOST_DEPTH
from polyattn.quoting import shown

try:
    import yaml  # type: ignore[import-untyped]
except ImportError:
    raise missing_extra("pyyaml", "yaml") from None

# The parser in C, where pyyaml was built with it, is some thirty times as fast.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    "~": None, "null": None, "Null": None, "NULL": None, "": None,
}  # fmt: skip
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?")


def parse_yaml(text: str) -> Any:
    """What a text holds, in plain types."""
    try:
        events = yaml.parse(text, Loader=_PARSER)
        documents: list[Any] = []
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if documents:
                    raise _unreadable(event.start_mark, "a file holds a single document")
                documents.append(_value(events, next(events), 0))
        return documents[0] if documents else None
    except InvalidInput:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and mark.line > text.rstrip().count("\n"):
            # What was begun is not ended before the end: its beginning says more.
            mark = error.context_mark or mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise _unreadable(mark, problem) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(None, " ".join(str(error).split())) from None


def _value(events: Iterator[Any], event: Any, depth: int) -> Any:
    """Plain data from the events of a parser; never deeper than MOST_DEPTH."""
    here = event.start_mark
    if isinstance(event, yaml.AliasEvent):
        raise _unreadable(here, f"the alias {shown(event.anchor)}: write out what it stands for")
    if event.tag not in (None, "!"):
        raise _unreadable(here, f"the tag {shown(event.tag)}: machines are written without tags")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value) if event.implicit[0] else event.value
    if depth == MOST_DEPTH:
        raise _unreadable(here, f"nested too deeply: {MOST_DEPTH} levels are enough for anything")
    if isinstance(event, yaml.SequenceStartEvent):
        listed = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            listed.append(_value(events, event, depth + 1))
        return listed
    found: dict[Any, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _value(events, event, depth + 1)
        if isinstance(key, dict | list):
            raise _unreadable(event.start_mark, f"the key {shown(key)} is no text and no number")
        if key in found:
            raise _unreadable(event.start_mark, f"the key {shown(key)} stands twice")
        found[key] = _value(events, next(events), depth + 1)
    return found


def _unreadable(mark: Any, problem: str) -> InvalidInput:
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return InvalidInput(f"{place}it is no YAML that can be read ({problem}).")


def _scalar(word: str) -> Any:
    """What a word without quotes is."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


def write_yaml(content: dict[str, Any]) -> str:
    """Plain data as YAML, the innermost tables on one line each."""
    return str(
        yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None)
    )
