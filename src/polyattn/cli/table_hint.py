"""What to say of a table whose columns nobody named: which there are, and a command with them."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from polyattn.quoting import shown
from polyattn.sources.open_tables import described_columns

# Words in names of columns that tell what these are for.
_SEQUENCE = ("id", "sequence", "series", "case", "subject", "session", "unit", "run")
_ORDER = ("time", "order", "step", "date", "timestamp", "t", "index", "position")
_TARGET = ("y", "target", "label", "class", "state", "output", "outcome")

# More columns are counted, not listed.
MOST_COLUMNS = 20

_NUMBERS = ("numbers", "whole numbers", "yes or no")


def columns_hint(path: Path, command: click.Command | None) -> str:
    """The columns of a table with what they hold, and a command that names them."""
    columns = described_columns(path)
    listed = [f"{name} ({holds})" for name, holds in list(columns.items())[:MOST_COLUMNS]]
    if len(columns) > len(listed):
        listed.append(f"and {len(columns) - len(listed)} more")
    example = _example(path, columns, command)
    return f"Its columns are {', '.join(listed)}. {example}".strip()


def other_columns(path: Path, used: tuple[str, ...]) -> str:
    """The columns that no option names yet."""
    return shown([name for name in described_columns(path) if name not in used], 300)


def _example(path: Path, columns: dict[str, str], command: click.Command | None) -> str:
    """A command with columns that look as if they were meant; a guess, called an example."""
    left = dict(columns)
    if "lists" in columns.values():
        return ""
    sequence = _taken(left, _SEQUENCE, ("text", "whole numbers"))
    order = _taken(left, _ORDER, ("times", "whole numbers", "numbers"))
    has_targets = command is not None and any(each.name == "targets" for each in command.params)
    target = _taken(left, _TARGET, ("text", *_NUMBERS)) if has_targets else None
    if target is None and has_targets:
        target = next((name for name, holds in left.items() if holds == "text"), None)
    tokens = [name for name, holds in left.items() if holds in _NUMBERS and name != target]
    if target is None and has_targets and len(tokens) > 1:
        target = tokens.pop()
    if sequence is None or not tokens or (has_targets and target is None):
        return ""
    words = ["polyattn", (command.name if command and command.name else "fit"), str(path)]
    words += ["--sequence", sequence, *(["--order", order] if order else [])]
    words += ["--tokens", ",".join(tokens), *(["--targets", target] if target else [])]
    if target and columns[target] == "text" and command is not None and command.name == "fit":
        words.append("--classify")
    return f"For example: {shlex.join(words)}"


def _taken(left: dict[str, str], words: tuple[str, ...], kinds: tuple[str, ...]) -> str | None:
    """The first column with one of these words in its name, and of such a kind; taken out."""
    for name, holds in left.items():
        parts = name.lower().replace("-", "_").replace(" ", "_").split("_")
        if holds in kinds and any(word in parts for word in words):
            del left[name]
            return name
    return None
