"""Certificates as JSON documents; ``certificate.schema.json`` beside this file describes them.

The seal, a SHA-256 over everything else, finds accidents and careless edits when a document is
read.  Whoever changes a claim and seals it again is found by ``verify``, which recomputes it.
"""

from __future__ import annotations

import json
import math
import os
import platform
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from polyattn._version import __version__
from polyattn.certify.certificate import Certificate
from polyattn.certify.document.schema import ENTRIES, check_document
from polyattn.certify.domains import domain_from_dict
from polyattn.certify.verdict import Direction
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.atomic import write_atomically
from polyattn.files.strict_json import json_digest, parse_json, read_text
from polyattn.quoting import shown

FORMAT = "polyattn certificate"
VERSION = 1
SCHEMA = "urn:polyattn:certificate:1"

# Python writes and reads longer numbers in hexadecimal only.
MOST_DECIMAL_BITS = 10_000


def save_certificate(certificate: Certificate, path: str | os.PathLike[str]) -> None:
    """Write the certificate as a JSON document: complete, or not at all."""
    text = json.dumps(to_document(certificate), indent=2, allow_nan=False)
    write_atomically(path, lambda file: file.write(text.encode() + b"\n"))


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read what ``save_certificate`` wrote; the claims are checked by ``verify``, not here."""
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
    described = ("domain", "rounding", "given_direction", "evidence")
    names = [field.name for field in fields(certificate) if field.name not in described]
    document: dict[str, Any] = {
        "format": FORMAT, "version": VERSION, "schema": SCHEMA,
        "versions": {
            "polyattn": __version__, "numpy": np.__version__, "scipy": scipy.__version__,
            "python": platform.python_version(),
        },
        **{name: _plain(getattr(certificate, name)) for name in names},
        "domain": certificate.domain.to_dict(),
        "rounding": float(certificate.rounding) if math.isfinite(certificate.rounding) else None,
        "direction": _direction_to_json(certificate.direction),
    }  # fmt: skip
    # The sentence of the certificate that a reader will hold, to the letter.
    document["sentence"] = _certificate(document).sentence
    document["seal"] = seal(document)
    return {name: document[name] for name in ENTRIES}


def from_document(document: object) -> Certificate:
    """The certificate of a document, without the data behind it.

    Refuses what does not fit the schema, does not match its seal, or has a sentence that its
    figures do not say.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FileFormatError(f"this is not a {FORMAT}: there is no such format entry in it.")
    version = document.get("version")
    if version != VERSION:
        raise FileFormatError(
            f"the certificate has format version {shown(version)}; this release reads version "
            f"{VERSION}. Upgrade polyattn to read it."
        )
    check_document(document)
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


def seal(document: dict[str, Any]) -> str:
    """SHA-256 over everything but the seal, as JSON with sorted keys and no spaces."""
    content = {name: entry for name, entry in document.items() if name != "seal"}
    return json_digest(content)


def _certificate(document: dict[str, Any]) -> Certificate:
    plain = {field.name for field in fields(Certificate)} & set(document)
    rounding = document["rounding"]
    return Certificate(
        **{name: document[name] for name in plain - {"domain", "rounding"}},
        domain=domain_from_dict(document["domain"]),
        rounding=math.inf if rounding is None else float(rounding),
        given_direction=_direction_from_json(document["direction"]),
    )


def _plain(entry: Any) -> Any:
    """A number of numpy as one of Python."""
    return entry.item() if isinstance(entry, np.generic) else entry


def _direction_to_json(direction: Direction | None) -> dict[str, list[str]] | None:
    if direction is None:
        return None
    if isinstance(direction, tuple):
        short = [entry.bit_length() < MOST_DECIMAL_BITS for entry in direction]
        pairs = zip(direction, short, strict=True)
        return {"integers": [str(entry) if fits else hex(entry) for entry, fits in pairs]}
    return {"floats": [float(entry).hex() for entry in direction]}


def _direction_from_json(direction: dict[str, list[str]] | None) -> Direction | None:
    if direction is None:
        return None
    if "integers" in direction:
        return tuple(int(text, 16 if "x" in text else 10) for text in direction["integers"])
    floats = np.array([float.fromhex(text) for text in direction["floats"]])
    floats.setflags(write=False)
    return floats
