"""Numbers as the sentences of softmax learning say them."""

from __future__ import annotations


def counted_heads(n_heads: int) -> str:
    """How many heads, in words."""
    return "1 head" if n_heads == 1 else f"{n_heads} heads"


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage of so many digits; up to a million without an exponent."""
    number = 100 * share
    short = f"{number:.{digits}g}"
    return f"{number:.0f} %" if "e+" in short and number < 1e6 else f"{short} %"
