"""Exception types: misuse is an exception, mathematical failure is a value.

Every message says what was required, what came, and what to do.  The types derive from the
built-in ones, so ``except ValueError`` keeps working for callers who do not know this module.
"""

from __future__ import annotations

from numbers import Real

import numpy as np

from polyattn.quoting import printable, shortened, shown


class PolyattnError(Exception):
    """Common base of everything that polyattn raises on purpose.

    Messages can quote names and files: their text is cut where it is long, and what a terminal
    would obey is escaped.
    """

    def __str__(self) -> str:
        return shortened(printable(super().__str__()))


class InvalidInput(PolyattnError, ValueError):
    """A value, shape or option that cannot be used."""


class InvalidType(PolyattnError, TypeError):
    """An object of a kind that cannot be used (text, complex numbers, Python objects)."""


class OutOfRange(PolyattnError, ValueError):
    """A correct answer exists but float64 cannot hold it."""


class FileFormatError(PolyattnError, OSError):
    """A file that is truncated, foreign, tampered with, or of a newer format."""


class ClusterFailed(PolyattnError, RuntimeError):
    """Workers or a scheduler that went away for good; no result is wrong, there is none."""


class MissingExtra(PolyattnError, ImportError):
    """An optional dependency is needed and not installed."""


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``; otherwise name them all."""
    if isinstance(value, str) and value in choices:
        return value
    allowed = ", ".join(repr(choice) for choice in choices)
    got, shape = shown(value), tuple(np.shape(value)) if hasattr(value, "__array__") else None
    if isinstance(value, list | tuple):
        shape = (len(value),)
    if shape:
        got = f"{type(value).__name__} of shape {shape}; if these are targets, none are taken here"
    raise InvalidInput(f"{name} must be one of {allowed}; got {got}.")


def require_flag(name: str, value: object) -> bool:
    """Return ``value`` as a bool if it is one (numpy's included)."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InvalidType(f"{name} must be True or False; got {shown(value)}.")


def require_integer(name: str, value: object, least: int = 1) -> int:
    """Return ``value`` as an int if it is an integer (numpy's included) of at least ``least``."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= least:
        return int(value)
    raise InvalidInput(f"{name} must be an integer of at least {least}; got {shown(value)}.")


def require_number(name: str, value: object, most: float = np.inf) -> float:
    """Return ``value`` as a float if it is a finite real number between 0 and ``most``."""
    if isinstance(value, Real) and not isinstance(value, bool):
        number = _as_float(value)
        if 0.0 <= number <= most and np.isfinite(number):
            return number
    wanted = "a finite number >= 0" if most == np.inf else f"a number between 0 and {most:g}"
    raise InvalidInput(f"{name} must be {wanted}; got {shown(value)}.")


def _as_float(value: Real) -> float:
    """The number, or infinity where it is an integer that float64 cannot hold."""
    try:
        return float(value)
    except OverflowError:
        return np.inf


def require_callable(name: str, value: object) -> None:
    """Refuse what cannot be called; None is fine."""
    if value is not None and not callable(value):
        raise InvalidType(f"{name} must be a function; got {shown(value)}.")


def require_confidence(confidence: object) -> float:
    """Return ``confidence`` as a float if it is a number between 0 and 1, exclusively."""
    if isinstance(confidence, bool) or not isinstance(confidence, Real):
        raise InvalidType(f"confidence must be a number; got {shown(confidence)}.")
    if not 0.0 < _as_float(confidence) < 1.0:
        raise InvalidInput(
            f"confidence must lie between 0 and 1, exclusively; got {shown(confidence)}."
        )
    return float(confidence)


def require_head_count(n_heads: object) -> int | str | None:
    """Return ``n_heads`` if it is None, "auto", or an integer of at least 1."""
    if n_heads is None or (isinstance(n_heads, str) and n_heads == "auto"):
        return n_heads
    if isinstance(n_heads, int | np.integer) and not isinstance(n_heads, bool) and n_heads >= 1:
        return int(n_heads)
    raise InvalidInput(
        f"n_heads must be None, 'auto' or an integer >= 1; got {shown(n_heads)}. "
        "None keeps the exact optimum, 'auto' lets the noise decide."
    )


def missing_extra(package: str, extra: str | None = None) -> MissingExtra:
    """The error for an absent optional package, with the command that installs it.

    extra : which extra of polyattn has the package; None where none does
    """
    what = package if extra is None else f"'polyattn[{extra}]'"
    return MissingExtra(
        f"this needs the package {package!r}, which is not installed; "
        f"install it with: pip install {what}."
    )
