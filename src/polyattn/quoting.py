"""How values, texts and counts are shown in messages: short, and without control characters.

A file or a name can hold anything, terminal escapes and megabytes included.  What is quoted of
it in a message or on a screen goes through one of these functions.
"""

from __future__ import annotations

import reprlib
from typing import Any

# A message is read by people; what it quotes is cut before this.
LONGEST_MESSAGE = 4000
LONGEST_VALUE = 80


def shown(value: Any, longest: int = LONGEST_VALUE) -> str:
    """A value as Python writes it, cut to about ``longest`` characters, whatever it is."""
    return shortened(_short.repr(value), longest)


def printable(text: str) -> str:
    r"""A text with every character that no printer prints as its escape: ``\x1b``, ``\u202e``.

    Ends of lines stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode()
        for each in text
    )


def shortened(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """A text of at most about ``longest`` characters: the middle is left out, and counted."""
    if len(text) <= longest:
        return text
    ends = longest // 2
    return f"{text[:ends]} [... {len(text) - 2 * ends} characters ...] {text[-ends:]}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 head, 2,176 features."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}{_plural(noun)}"


def _plural(noun: str) -> str:
    return "es" if noun.endswith("s") else "s"


def readable_bytes(count: int) -> str:
    """Bytes in the unit in which they are a small number."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count} {unit}"
        count //= 1000
    return f"{count:,} TB"


def readable_seconds(seconds: float) -> str:
    """A time in the unit in which it is a small number, with one or two digits."""
    if seconds < 1e-3:
        return "less than 1 ms"
    for unit, size, most in (("ms", 1e-3, 1e3), ("s", 1.0, 120.0), ("minutes", 60.0, 120.0)):
        if seconds < most * size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    hours = float(f"{seconds / 3600:.2g}")
    return f"{hours:,.0f} hours" if hours >= 10 else f"{hours:g} hours"


class _Short(reprlib.Repr):
    """Two levels of a few entries each; integers of thousands of digits by their size."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxstring = self.maxother = 2 * LONGEST_VALUE

    def repr_int(self, value: int, level: int) -> str:
        if value.bit_length() > 1000:
            return f"an integer of {value.bit_length()} bits"
        return super().repr_int(value, level)


_short = _Short()
