"""Certificates of token ids as JSON documents: of directions what is not zero."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from polyattn._version import __version__
from polyattn.certify.document import ENTRIES, LENGTHS, OF_IDS, OPTIONAL, seal, stated_lengths
from polyattn.certify.domains import domain_from_dict
from polyattn.certify.one_hot.certificate import OneHotCertificate, UnseenFeatures
from polyattn.certify.structure import Structure
from polyattn.display import plain
from polyattn.errors import FileFormatError
from polyattn.files import fields as checks
from polyattn.form.pairs import n_features

VERSION = 1
LEFT_OUT = ("direction", "schema", "versions")

_INTEGER = checks.check_that(
    lambda value: isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 4000,
    "an integer as text",
)
_UNSEEN = checks.entries(
    {
        "features": checks.listed(checks.listed(checks.integer(0), 3, 3), 1),
        "integers": checks.listed(_INTEGER, 1),
    }
)
CONTENT: dict[str, checks.Check] = {
    **{name: check for name, check in ENTRIES.items() if name not in LEFT_OUT},
    "release": checks.text(100),
    "n_occurring": checks.integer(0, None),
    "unseen": checks.nullable(_UNSEEN),
}


def to_document(certificate: OneHotCertificate) -> dict[str, Any]:
    """The certificate in plain types, sealed."""
    names = {field.name for field in fields(certificate)} & set(CONTENT)
    held = {name: getattr(certificate, name) for name in names}
    document: dict[str, Any] = {
        "format": OF_IDS, "version": VERSION, "release": __version__,
        **plain(held | {"domain": certificate.domain.to_dict()}), "unseen": None,
    }  # fmt: skip
    if certificate.unseen is not None:
        document["unseen"] = {
            "features": [list(each) for each in certificate.unseen.features],
            "integers": [str(each) for each in certificate.unseen.integers],
        }
    if certificate.structure is not None:
        document["structure"] = certificate.structure.to_dict()
    document |= stated_lengths(certificate)
    document["sentence"] = _certificate(document).sentence
    document["seal"] = seal(document)
    return document


def from_document(document: dict[str, Any]) -> OneHotCertificate:
    """The certificate of a document, without the data behind it; refused where it was changed."""
    version = document.get("version")
    checks.require(version == VERSION, "the certificate.version", str(VERSION), version)
    beside = {"structure": OPTIONAL["structure"], **LENGTHS}
    checks.entries(CONTENT, beside)(document, "the certificate")
    d, claimed = document["n_dims"], document["n_features"]
    wanted = n_features(d)
    checks.require(claimed == wanted, "the certificate.n_features", str(wanted), claimed)
    unseen = document["unseen"]
    if unseen is not None:
        inside = all(entry < d for each in unseen["features"] for entry in each)
        inside = inside and all(j <= k for j, k, _ in unseen["features"])
        fits = inside and len(unseen["features"]) == len(unseen["integers"])
        checks.require(fits, "the certificate.unseen", f"features of {d} symbols", "others")
    if document["seal"] != seal(document):
        raise FileFormatError(
            "the certificate is damaged or was changed after it was written: its seal does not "
            "match its content. Certify the data again."
        )
    certificate = _certificate(document)
    if document["release"] == __version__ and document["sentence"] != certificate.sentence:
        raise FileFormatError(
            "the sentence of the certificate does not say what its figures do: one of them was "
            "changed after it was written. Certify the data again."
        )
    return certificate


def _certificate(document: dict[str, Any]) -> OneHotCertificate:
    names = {field.name for field in fields(OneHotCertificate)} & set(document)
    rounding, unseen = document["rounding"], document["unseen"]
    structure = document.get("structure")
    given = None
    if unseen is not None:
        features = tuple((j, k, query) for j, k, query in unseen["features"])
        given = UnseenFeatures(features, tuple(int(each) for each in unseen["integers"]))
    return OneHotCertificate(
        **{name: document[name] for name in names - {"domain", "rounding", "structure"}},
        domain=domain_from_dict(document["domain"]),
        structure=None if structure is None else Structure.from_dict(structure),
        rounding=math.inf if rounding is None else float(rounding),
        given_unseen=given,
    )
