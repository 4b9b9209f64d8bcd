"""What saved things must hold: checks of single values, and of objects with named fields.

Each kind of saved thing declares its fields beside its ``from_record``, as a dictionary of names
and checks.  A check is called with a value and its name; it returns nothing, or raises a
FileFormatError that names the field, what it must be, and what came.

    FIELDS = entries({"n_dims": integer(1), "mode": one_of(MODES), "ridge": number(0)})
    FIELDS(record.metadata, "metadata")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from sys import float_info
from typing import Any, TypeAlias

import numpy as np

from polyattn.errors import FileFormatError
from polyattn.quoting import shown

Check: TypeAlias = Callable[[Any, str], None]

# No count is larger, and no text of ours is longer.
MOST = 2**63 - 1
LONGEST_TEXT = 100_000

_SHA256 = re.compile(r"[0-9a-f]{64}")


def require(holds: bool, where: str, wanted: str, value: Any) -> None:
    """Refuse a value of a file unless it is what is wanted."""
    if not holds:
        raise FileFormatError(f"{where} must be {wanted}; got {shown(value)}.")


def check_that(fits: Callable[[Any], bool], wanted: str) -> Check:
    """Whatever ``fits``; ``wanted`` says so in words."""
    return lambda value, where: require(fits(value), where, wanted, value)


def text(longest: int = LONGEST_TEXT) -> Check:
    """A text that is not too long."""
    return check_that(
        lambda value: isinstance(value, str) and len(value) <= longest,
        f"a text of at most {longest} characters",
    )


def integer(least: int = 0, most: int | None = MOST) -> Check:
    """An integer, which true and 1.0 are not; ``most=None`` lets it be of any size."""
    wanted = f"an integer >= {least}" + (f" and <= {most}" if most not in (None, MOST) else "")
    return check_that(
        lambda value: type(value) is int and least <= value and (most is None or value <= most),
        wanted,
    )


def number(least: float = -float_info.max, most: float = float_info.max) -> Check:
    """A finite number that float64 holds."""
    wanted = "a finite number" + (f" >= {least:g}" if least != -float_info.max else "")
    return check_that(lambda value: type(value) in (int, float) and least <= value <= most, wanted)


def one_of(choices: tuple[str, ...]) -> Check:
    """One of a few words."""
    return check_that(
        lambda value: isinstance(value, str) and value in choices, "one of " + ", ".join(choices)
    )


def nullable(check: Check) -> Check:
    """Null, or what another check lets pass."""

    def checked(value: Any, where: str) -> None:
        if value is not None:
            check(value, where)

    return checked


def listed(check: Check, least: int = 0, most: int = MOST) -> Check:
    """A list of so many entries, each checked."""
    at_least = "" if least == most else "at least "
    wanted = f"a list of {at_least}{least} {'entry' if least == 1 else 'entries'}"

    def checked(value: Any, where: str) -> None:
        require(isinstance(value, list) and least <= len(value) <= most, where, wanted, value)
        for at, each in enumerate(value):
            check(each, f"{where}[{at}]")

    return checked


def entries(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields and no others, each checked."""
    known = {**required, **(optional or {})}

    def checked(value: Any, where: str) -> None:
        require(isinstance(value, dict), where, "an object with named fields", value)
        for name in required:
            if name not in value:
                raise FileFormatError(f"{where} lacks the field {name!r}.")
        for name in value:
            if name not in known:
                raise FileFormatError(f"{where} holds an unknown field {shown(name)}.")
            known[name](value[name], f"{where}.{name}")

    return checked


def plain_value(value: Any, where: str) -> None:
    """Any JSON value whose numbers are finite."""
    if isinstance(value, dict | list):
        inside = value.items() if isinstance(value, dict) else enumerate(value)
        for name, each in inside:
            plain_value(each, f"{where}[{shown(name)}]")
    elif type(value) in (int, float):
        number()(value, where)


def array(
    *shapes: tuple[int | None, ...],
    least: float = -inf,
    most: float = inf,
    finite: bool = True,
    dtype: str = "float64",
) -> Check:
    """An array of one of these shapes (None: any length), without NaN.

    finite : whether infinity is refused, too
    least, most : what no number may be below or above
    """
    words = [", ".join("any" if n is None else str(n) for n in shape) for shape in shapes]
    wanted = f"{'an' if dtype == 'int64' else 'a'} {dtype} array of shape "
    wanted += " or ".join(f"({lengths})" for lengths in words)

    def fits(own: tuple[int, ...]) -> bool:
        fitting = (shape for shape in shapes if len(shape) == len(own))
        return any(all(n in (None, m) for n, m in zip(s, own, strict=True)) for s in fitting)

    def checked(value: Any, where: str) -> None:
        is_array = isinstance(value, np.ndarray)
        came = f"{value.dtype} of shape {value.shape}" if is_array else value
        right = is_array and value.dtype == dtype and fits(value.shape)
        require(right, where, wanted, came)
        if value.size == 0:
            return
        # The least and the largest number are NaN if any is, so that no array of flags is made.
        low, high = float(value.min()), float(value.max())
        require(not np.isnan(low), where, "an array without NaN", low)
        if finite:
            require(bool(np.isfinite([low, high]).all()), where, "an array of finite numbers", high)
        require(low >= least, where, f"an array of numbers >= {least:g}", low)
        require(high <= most, where, f"an array of numbers <= {most:g}", high)

    return checked


#: True or false.
flag = check_that(lambda value: type(value) is bool, "true or false")

#: An object whose fields are checked elsewhere.
any_object = check_that(lambda value: isinstance(value, dict), "an object with named fields")

#: SHA-256 in hexadecimal.
digest = check_that(
    lambda value: isinstance(value, str) and _SHA256.fullmatch(value) is not None,
    "64 hexadecimal digits",
)
