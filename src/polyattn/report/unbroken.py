"""Numbers that stay whole: a line of a page ends before or after a number, never within it."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# Browsers end lines after a hyphen that stands between letters and digits, as in 1e-15.
_NUMBER = r"[-−+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\^[-+]?\d+)?"
_NUMBERS = re.compile(rf"(?<![\w.]){_NUMBER}(?: ?± ?{_NUMBER})?(?: ?%)?(?![\w.]*\w)")
_BREAKS = re.compile(r"[-−+ ±%]")

# Cards of notebooks have no style sheet of their own.
_WHOLE = Markup('<span style="white-space: nowrap">{}</span>')


def unbroken(text: object) -> Markup:
    """A text as HTML, escaped unless it is HTML already, in which no line ends within a number.

    Signs, powers of ten, ± and % belong to the number.  What could not break stays as it is.
    """
    if isinstance(text, Markup):
        return text
    plain, made, end = str(text), Markup(), 0
    for found in _NUMBERS.finditer(plain):
        # No line ends after the sign that a number begins with.
        if _BREAKS.search(found[0], 1):
            made += escape(plain[end : found.start()]) + _WHOLE.format(found[0])
            end = found.end()
    return made + escape(plain[end:])
