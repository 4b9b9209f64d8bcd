"""Domains: where layers have to agree.

>>> from polyattn import domains
>>> print(domains.Boolean(lengths=(2, 5)))
boolean (2 to 5 tokens)
"""

from __future__ import annotations

from typing import Any

from polyattn.certify.domains.custom import CustomDomain, Finite, Sampled, StoredDomain
from polyattn.certify.domains.tokens import Boolean, OneHot, Real, TokenDomain
from polyattn.errors import require_choice

__all__ = ["Boolean", "Domain", "Finite", "OneHot", "Real", "Sampled", "as_domain"]

Domain = TokenDomain | CustomDomain

# The names that ``certify(domain=...)``, the command line and files take.
BUILT_IN: dict[str, type[TokenDomain]] = {
    Real.name: Real,
    Boolean.name: Boolean,
    OneHot.name: OneHot,
}


def as_domain(domain: object) -> Domain:
    """A domain by its name, or as it is."""
    if isinstance(domain, TokenDomain | CustomDomain):
        return domain
    return BUILT_IN[require_choice("domain", domain, tuple(BUILT_IN))]()


def domain_from_dict(content: dict[str, Any]) -> Domain:
    """The domain that ``to_dict`` described: built-in ones whole, custom ones by their digest."""
    if "lengths" not in content:
        return StoredDomain(**content)
    least, most = content["lengths"]
    lengths = None if (least, most) == (1, None) else least if least == most else (least, most)
    return BUILT_IN[content["name"]](lengths)
