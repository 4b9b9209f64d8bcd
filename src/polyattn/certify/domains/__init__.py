"""Domains: where layers have to agree.

>>> from polyattn import domains
>>> print(domains.Boolean(lengths=(2, 5)))
boolean (2 to 5 tokens)
"""

from __future__ import annotations

from polyattn.certify.domains.custom import CustomDomain, Finite, Sampled
from polyattn.certify.domains.tokens import Boolean, OneHot, Real, TokenDomain
from polyattn.errors import require_choice

__all__ = ["Boolean", "Domain", "Finite", "OneHot", "Real", "Sampled", "as_domain"]

Domain = TokenDomain | CustomDomain

BUILT_IN: dict[str, type[TokenDomain]] = {kind.name: kind for kind in (Real, Boolean, OneHot)}


def as_domain(domain: object) -> Domain:
    """A domain by its name, or as it is."""
    if isinstance(domain, TokenDomain | CustomDomain):
        return domain
    return BUILT_IN[require_choice("domain", domain, tuple(BUILT_IN))]()
