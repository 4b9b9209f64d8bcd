"""What a certificate must hold: the essentials of ``certificate.schema.json``."""

from __future__ import annotations

import re
from typing import Any

from polyattn.certify.domains import BUILT_IN
from polyattn.certify.verdict import VERDICTS
from polyattn.errors import FileFormatError
from polyattn.features.pairs import n_features
from polyattn.files.fields import (
    Check,
    check_that,
    digest,
    entries,
    flag,
    integer,
    nullable,
    number,
    one_of,
    require,
    text,
)
from polyattn.sequences import MODES

METHODS = ("count", "exact", "gram", "triangular", "span")

INTEGER = re.compile(r"-?([0-9]+|0x[0-9a-f]+)")
FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+")

# Python reads no longer decimal numbers.
MOST_DIGITS = 4000


def check_document(document: dict[str, Any]) -> None:
    """Refuse a document that does not fit the schema, naming what is wrong with it."""
    entries(ENTRIES)(document, "the certificate")
    wanted = n_features(document["n_dims"] + document["bias"])
    claimed = document["n_features"]
    require(claimed == wanted, "the certificate.n_features", f"{wanted}, as n_dims says", claimed)
    direction = document["direction"]
    if direction is not None:
        (numbers,) = direction.values()
        if len(numbers) != document["n_features"]:
            raise FileFormatError(
                f"the direction must have {document['n_features']} entries, one per feature; got "
                f"{len(numbers)}."
            )


def _versions(value: Any, where: str) -> None:
    require(isinstance(value, dict), where, "the versions of packages", value)
    known = dict.fromkeys(("polyattn", "numpy", "scipy", "python"), text(100))
    entries(known, dict.fromkeys(value, text(100)))(value, where)


def _domain(value: Any, where: str) -> None:
    """A built-in domain with its lengths, or a custom one by its digest."""
    if isinstance(value, dict) and "lengths" in value:
        entries({"name": one_of(tuple(BUILT_IN)), "lengths": _RANGE})(value, where)
        return
    entries({
        "name": text(), "exhaustive": flag, "n_sequences": integer(1), "digest": digest,
    })(value, where)  # fmt: skip


def _is_range(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or type(value[0]) is not int:
        return False
    least, most = value
    return least >= 1 and (most is None or (type(most) is int and most >= least))


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


_RANGE = check_that(_is_range, "the least and the largest number of tokens, or null")
_SIZE = nullable(number(0))

ENTRIES: dict[str, Check] = {
    "format": text(),
    "version": integer(1),
    "schema": text(),
    "versions": _versions,
    "verdict": one_of(VERDICTS),
    "verdict_on_real_inputs": one_of(VERDICTS),
    "domain": _domain,
    "mode": one_of(MODES),
    "bias": flag,
    "n_dims": integer(1),
    "n_sequences": integer(1),
    "n_rows": integer(1),
    "n_features": integer(1, None),
    "dimension": nullable(integer(1, None)),
    "rank": nullable(integer(0, None)),
    "lambda_min": _SIZE,
    "lambda_max": _SIZE,
    "method": one_of(METHODS),
    "rounding": _SIZE,
    "digest": digest,
    "note": text(),
    "prime": nullable(integer(2)),
    "direction": nullable(
        check_that(_is_direction, "null, or a list of integers or floats as text")
    ),
    "sentence": text(),
    "seal": digest,
}
