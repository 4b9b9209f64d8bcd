"""The essentials of ``certificate.schema.json``, checked by hand: names, types, ranges."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from polyattn.certify.domains import BUILT_IN
from polyattn.certify.finding import VERDICTS
from polyattn.errors import FileFormatError
from polyattn.sequences import MODES

METHODS = ("count", "exact", "gram", "triangular", "span")

SHA256 = re.compile(r"[0-9a-f]{64}")
INTEGER = re.compile(r"-?([0-9]+|0x[0-9a-f]+)")
FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+")

# Python reads no longer decimal numbers.
MOST_DIGITS = 4000

Check = Callable[[Any], bool]


def check_document(document: dict[str, Any]) -> None:
    """Refuse a document that does not fit the schema, naming what is wrong with it."""
    missing = sorted(set(ENTRIES) - set(document))
    unknown = sorted(set(document) - set(ENTRIES))
    if missing or unknown:
        raise FileFormatError(
            f"the certificate lacks {missing or 'nothing'} and holds {unknown or 'nothing'} beyond "
            "what its format knows."
        )
    for name, (wanted, fits) in ENTRIES.items():
        if not fits(document[name]):
            raise FileFormatError(
                f"{name} of the certificate must be {wanted}; got {document[name]!r:.60}."
            )
    direction = document["direction"]
    if direction is not None:
        (entries,) = direction.values()
        if len(entries) != document["n_features"]:
            raise FileFormatError(
                f"the direction must have {document['n_features']} entries, one per feature; got "
                f"{len(entries)}."
            )


def _integer(least: int) -> Check:
    return lambda entry: type(entry) is int and entry >= least


def _one_of(choices: tuple[str, ...]) -> Check:
    return lambda entry: isinstance(entry, str) and entry in choices


def _or_null(fits: Check) -> Check:
    return lambda entry: entry is None or fits(entry)


def _is_text(entry: Any) -> bool:
    return isinstance(entry, str)


def _is_size(entry: Any) -> bool:
    """A number that float64 holds, at least zero."""
    return type(entry) in (int, float) and 0 <= entry <= 1.8e308


def _is_digest(entry: Any) -> bool:
    return isinstance(entry, str) and SHA256.fullmatch(entry) is not None


def _are_versions(entry: Any) -> bool:
    known = isinstance(entry, dict) and {"polyattn", "numpy", "scipy", "python"} <= set(entry)
    return known and all(map(_is_text, entry.values()))


def _is_domain(entry: Any) -> bool:
    if not isinstance(entry, dict) or not _is_text(entry.get("name")):
        return False
    if set(entry) == {"name", "lengths"}:
        lengths = entry["lengths"]
        pair = isinstance(lengths, list) and len(lengths) == 2
        return pair and entry["name"] in BUILT_IN and _is_range(*lengths)
    return (
        set(entry) == {"name", "exhaustive", "n_sequences", "digest"}
        and type(entry["exhaustive"]) is bool
        and _integer(1)(entry["n_sequences"])
        and _is_digest(entry["digest"])
    )


def _is_range(least: Any, most: Any) -> bool:
    return _integer(1)(least) and (most is None or _integer(least)(most))


def _is_direction(entry: Any) -> bool:
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    ((kind, numbers),) = entry.items()
    forms = {"integers": INTEGER, "floats": FLOAT}
    if kind not in forms or not isinstance(numbers, list):
        return False
    return all(_is_number(text, forms[kind]) for text in numbers)


def _is_number(text: Any, form: re.Pattern[str]) -> bool:
    fits = isinstance(text, str) and form.fullmatch(text) is not None
    return fits and ("x" in text or len(text) <= MOST_DIGITS) and (form is INTEGER or _fits(text))


def _fits(text: str) -> bool:
    try:
        float.fromhex(text)
    except OverflowError:
        return False
    return True


VERDICT = ("one of " + ", ".join(VERDICTS), _one_of(VERDICTS))
COUNT = ("an integer >= 1", _integer(1))
SIZE = ("a number >= 0, or null", _or_null(_is_size))
DIGEST = ("64 hexadecimal digits", _is_digest)
TEXT = ("text", _is_text)

ENTRIES: dict[str, tuple[str, Check]] = {
    "format": TEXT,
    "version": ("an integer", _integer(1)),
    "schema": TEXT,
    "versions": ("the versions of polyattn, numpy, scipy and python", _are_versions),
    "verdict": VERDICT,
    "verdict_on_real_inputs": VERDICT,
    "domain": ("a built-in domain with its lengths, or a custom one", _is_domain),
    "mode": ("one of " + ", ".join(MODES), _one_of(MODES)),
    "bias": ("true or false", lambda entry: type(entry) is bool),
    "n_dims": COUNT,
    "n_sequences": COUNT,
    "n_rows": COUNT,
    "n_features": COUNT,
    "dimension": ("an integer >= 1, or null", _or_null(_integer(1))),
    "rank": ("an integer >= 0, or null", _or_null(_integer(0))),
    "lambda_min": SIZE,
    "lambda_max": SIZE,
    "method": ("one of " + ", ".join(METHODS), _one_of(METHODS)),
    "rounding": SIZE,
    "digest": DIGEST,
    "note": TEXT,
    "prime": ("an integer >= 2, or null", _or_null(_integer(2))),
    "direction": ("null, or a list of integers or floats as text", _or_null(_is_direction)),
    "sentence": TEXT,
    "seal": DIGEST,
}
