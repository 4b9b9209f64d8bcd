"""Domains from their JSON: built-in ones as they were, custom ones by their digest alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyattn.certify.domains import BUILT_IN, Domain
from polyattn.certify.domains.custom import CustomDomain
from polyattn.errors import InvalidInput
from polyattn.sequences import SequenceBatch


@dataclass(frozen=True)
class StoredDomain(CustomDomain):
    """A custom domain of which a document kept name, size and digest, but not the sequences."""

    name: str
    exhaustive: bool
    n_sequences: int
    digest: str

    @property
    def batch(self) -> SequenceBatch:
        """Not there."""
        raise InvalidInput(
            f"the certificate was read from a file, which keeps only the digest of its domain "
            f"{self.name!r}; give the domain again (verify(..., domain=...)), or certify anew."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "exhaustive": self.exhaustive, "n_sequences": self.n_sequences,
            "digest": self.digest,
        }  # fmt: skip

    def __str__(self) -> str:
        kind = "sequences" if self.exhaustive else "samples"
        return f"{self.name} ({self.n_sequences} {kind})"


def domain_from_json(content: dict[str, Any]) -> Domain:
    """The domain that ``to_dict`` described."""
    if "lengths" not in content:
        return StoredDomain(**content)
    least, most = content["lengths"]
    lengths = None if (least, most) == (1, None) else least if least == most else (least, most)
    return BUILT_IN[content["name"]](lengths)
