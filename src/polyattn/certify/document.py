"""Certificates as JSON documents; ``certificate.schema.json`` beside this file describes them.

The seal, a SHA-256 over everything else, finds accidents and careless edits when a document is
read.  Whoever changes a claim and seals it again is found by ``verify``, which recomputes it.
"""

from __future__ import annotations

import math
import os
import platform
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from polyattn._version import __version__
from polyattn.certify.certificate import Certificate
from polyattn.certify.domains import BUILT_IN, domain_from_dict
from polyattn.certify.domains.spaces import Direction
from polyattn.certify.outcomes import CERTIFICATE_OUTCOMES
from polyattn.certify.structure import Structure
from polyattn.display import plain
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files import fields as checks
from polyattn.files.strict_json import json_digest, parse_json, read_text
from polyattn.form.pairs import n_features
from polyattn.form.stored import FORM_FIELDS, form_fields, stored_layout
from polyattn.quoting import shown
from polyattn.sequences import MODES

FORMAT = "polyattn certificate"
OF_IDS = "polyattn one-hot certificate"
VERSION = 1
SCHEMA = "urn:polyattn:certificate:1"

METHODS = ("count", "exact", "gram", "triangular", "span", "structure")

# Numbers of a direction as text.  Python writes and reads longer ones in hexadecimal only.
FORMS = {
    "integers": re.compile(r"-?([0-9]{1,4000}|0x[0-9a-f]+)"),
    "floats": re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+"),
}
MOST_DECIMAL_BITS = 10_000

# Coordinates of tokens of other forms.
MOST_DIMS = 2048


def read_document(path: str | os.PathLike[str]) -> Certificate:
    """The certificate that a file holds; its claims are checked by ``verify``, not here."""
    source = Path(path)
    try:
        document = parse_json(read_text(source))
    except (InvalidInput, FileFormatError) as error:
        raise FileFormatError(
            f"{str(source)!r} is not a certificate, or it is truncated: {error}"
        ) from None
    try:
        return from_document(document)
    except FileFormatError as error:
        raise FileFormatError(f"{str(source)!r}: {error}") from None


def to_document(certificate: Certificate) -> dict[str, Any]:
    """The certificate in plain types, sealed."""
    if not isinstance(certificate, Certificate):
        raise InvalidType(f"expected a Certificate; got {type(certificate).__name__}.")
    names = {field.name for field in fields(certificate)} & set(ENTRIES)
    held = {name: getattr(certificate, name) for name in names}
    document: dict[str, Any] = {
        "format": FORMAT, "version": VERSION, "schema": SCHEMA,
        "versions": {
            "polyattn": __version__, "numpy": np.__version__, "scipy": scipy.__version__,
            "python": platform.python_version(),
        },
        **plain(held | {"domain": certificate.domain.to_dict()}),
        "direction": None,
    }  # fmt: skip
    direction = certificate.direction
    if isinstance(direction, tuple):
        writers = [str if n.bit_length() < MOST_DECIMAL_BITS else hex for n in direction]
        written = [write(n) for write, n in zip(writers, direction, strict=True)]
        document["direction"] = {"integers": written}
    elif direction is not None:
        document["direction"] = {"floats": [float(entry).hex() for entry in direction]}
    if certificate.structure is not None:
        document["structure"] = certificate.structure.to_dict()
    if certificate.given_form is not None or certificate.n_context_dims is not None:
        document |= form_fields(certificate.layout)
    document |= stated_lengths(certificate)
    # The sentence of the certificate that a reader will hold, to the letter.
    document["sentence"] = _certificate(document).sentence
    document["seal"] = seal(document)
    return {name: document[name] for name in (ENTRIES | OPTIONAL) if name in document}


def from_document(document: object) -> Certificate:
    """The certificate of a document, without the data behind it.

    Refuses what does not fit the schema, does not match its seal, or has a sentence that its
    figures do not say.
    """
    if isinstance(document, dict) and document.get("format") == OF_IDS:
        from polyattn.certify.one_hot import document as of_ids

        return of_ids.from_document(document)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f"this is not a {FORMAT}: there is no such format entry in it.")
    version = document.get("version")
    if version != VERSION:
        raise FileFormatError(
            f"the certificate has format version {shown(version)}; this release reads version "
            f"{VERSION}. Upgrade polyattn to read it."
        )
    checks.entries(ENTRIES, OPTIONAL)(document, "the certificate")
    wanted, claimed = _n_features(document), document["n_features"]
    said = f"{wanted}, as n_dims says"
    checks.require(claimed == wanted, "the certificate.n_features", said, claimed)
    for numbers in (document["direction"] or {}).values():
        if len(numbers) != claimed:
            raise FileFormatError(
                f"the direction must have {claimed} entries, one per feature; got {len(numbers)}."
            )
    _require_structure(document)
    if document["seal"] != seal(document):
        raise FileFormatError(
            "the certificate is damaged or was changed after it was written: its seal does not "
            "match its content. Certify the data again."
        )
    certificate = _certificate(document)
    # Another release may use other words; what is shown after loading is ours in any case.
    ours = document["versions"]["polyattn"] == __version__
    if ours and document["sentence"] != certificate.sentence:
        raise FileFormatError(
            "the sentence of the certificate does not say what its figures do: one of them was "
            "changed after it was written. Certify the data again."
        )
    return certificate


def stated_lengths(certificate: Certificate) -> dict[str, int]:
    """How many tokens the shortest and the longest sequence have, as far as that is known."""
    ends = {name: getattr(certificate, name) for name in LENGTHS}
    return {name: end for name, end in ends.items() if end is not None}


def seal(document: dict[str, Any]) -> str:
    """SHA-256 over everything but the seal, as JSON with sorted keys and no spaces."""
    return json_digest({name: entry for name, entry in document.items() if name != "seal"})


def _certificate(document: dict[str, Any]) -> Certificate:
    names = {field.name for field in fields(Certificate)} & set(document)
    rounding, written = document["rounding"], document["direction"]
    structure = document.get("structure")
    return Certificate(
        **{name: document[name] for name in names - {"domain", "rounding", "structure"}},
        domain=domain_from_dict(document["domain"]),
        structure=None if structure is None else Structure.from_dict(structure),
        given_form=stored_layout(document).form if "form" in document else None,
        rounding=math.inf if rounding is None else float(rounding),
        given_direction=None if written is None else _read_direction(written),
    )


def _n_features(document: dict[str, Any]) -> int:
    """The number of features that the sizes of a document make."""
    if "form" not in document and "n_context_dims" not in document:
        return n_features(document["n_dims"] + document["bias"])
    # The layout of a form takes memory; no certificate is about so many features.
    for name in ("n_dims", "n_context_dims"):
        size = document.get(name, 1)
        checks.require(size <= MOST_DIMS, f"the certificate.{name}", f"at most {MOST_DIMS}", size)
    return stored_layout(document).n_features


def _require_structure(document: dict[str, Any]) -> None:
    """Refuse a structure that names what is not there, or no direction."""
    held = document.get("structure")
    if held is None:
        return
    where = "the certificate.structure"
    checks.require(document["direction"] is not None, where, "with a direction", None)
    layout = stored_layout(document)
    sizes = {"queries": layout.n_queries, "columns": layout.pair_columns.n_columns}
    for name, size in sizes.items():
        fits = all(each < size for each in held[name])
        checks.require(fits, f"{where}.{name}", f"numbers below {size}", held[name])


def _versions(value: Any, where: str) -> None:
    checks.require(isinstance(value, dict), where, "the versions of packages", value)
    known = dict.fromkeys(("polyattn", "numpy", "scipy", "python"), checks.text(100))
    checks.entries(known, dict.fromkeys(value, checks.text(100)))(value, where)


def _domain(value: Any, where: str) -> None:
    """A built-in domain with its lengths, or a custom one by its digest."""
    known = {
        "name": checks.text(), "exhaustive": checks.flag, "n_sequences": checks.integer(1),
        "digest": checks.digest,
    }  # fmt: skip
    if isinstance(value, dict) and "lengths" in value:
        known = {"name": checks.one_of(tuple(BUILT_IN)), "lengths": _RANGE}
    checks.entries(known)(value, where)


def _is_range(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or type(value[0]) is not int:
        return False
    least, most = value
    return least >= 1 and (most is None or (type(most) is int and most >= least))


def _is_direction(entry: Any) -> bool:
    if not isinstance(entry, dict) or len(entry) != 1:
        return False
    ((kind, numbers),) = entry.items()
    if kind not in FORMS or not isinstance(numbers, list):
        return False
    if not all(isinstance(text, str) and FORMS[kind].fullmatch(text) for text in numbers):
        return False
    try:
        _read_direction(entry)
    except OverflowError:
        return False
    return True


def _read_direction(written: dict[str, list[str]]) -> Direction:
    if "integers" in written:
        return tuple(int(text, 16 if "x" in text else 10) for text in written["integers"])
    direction = np.array([float.fromhex(text) for text in written["floats"]])
    direction.setflags(write=False)
    return direction


_RANGE = checks.check_that(_is_range, "the least and the largest number of tokens, or null")
_SIZE = checks.nullable(checks.number(0))

ENTRIES: dict[str, checks.Check] = {
    "format": checks.text(),
    "version": checks.integer(1),
    "schema": checks.text(),
    "versions": _versions,
    "verdict": checks.one_of(CERTIFICATE_OUTCOMES.names),
    "verdict_on_real_inputs": checks.one_of(CERTIFICATE_OUTCOMES.names),
    "domain": _domain,
    "mode": checks.one_of(MODES),
    "bias": checks.flag,
    "n_dims": checks.integer(1),
    "n_sequences": checks.integer(1),
    "n_rows": checks.integer(1),
    "n_features": checks.integer(1, None),
    "dimension": checks.nullable(checks.integer(1, None)),
    "rank": checks.nullable(checks.integer(0, None)),
    "lambda_min": _SIZE,
    "lambda_max": _SIZE,
    "method": checks.one_of(METHODS),
    "rounding": _SIZE,
    "digest": checks.digest,
    "note": checks.text(),
    "prime": checks.nullable(checks.integer(2)),
    "direction": checks.nullable(
        checks.check_that(_is_direction, "null, or a list of integers or floats as text")
    ),
    "sentence": checks.text(),
    "seal": checks.digest,
}

# Older releases wrote none, and sums that they wrote do not know the shortest.
LENGTHS = dict.fromkeys(("min_length", "max_length"), checks.integer(1))

# Entries that certificates of other forms, or of data with structure, have beside these.
OPTIONAL: dict[str, checks.Check] = {
    **FORM_FIELDS,
    **LENGTHS,
    "structure": checks.entries(
        {
            "n_zero": checks.integer(0, None),
            "n_multiples": checks.integer(0, None),
            "rest": checks.one_of(CERTIFICATE_OUTCOMES.names),
            "queries": checks.listed(checks.integer(0)),
            "columns": checks.listed(checks.integer(0)),
        }
    ),
}
