"""Sums and a domain: what sums can say about whether their sequences lie in it.

Data are looked at token by token.  Sums know the longest sequence, and whether the relations of
the domain's features hold over all rows: sum (psi_f - sum of its representatives)^2 is zero iff
they do, and it is made of entries of the Gram.  Rounding may hide a small violation, so what
passes remains a premise, and the certificate says so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.domains.tokens import Real, TokenDomain
from polyattn.certify.verified.gram import whole_matrix
from polyattn.certify.verified.rounding import accumulation_depth, gamma
from polyattn.errors import InvalidInput
from polyattn.stats import Moments, TriangularFactor

# Violations within so many roundings of all features are not seen.
ROUNDINGS = 16.0


def premise_of_sums(
    statistics: Moments | TriangularFactor, domain: TokenDomain, space: FeatureSpace
) -> str:
    """What has to be believed of the sums, in words; empty if nothing.

    Sums that contradict the domain are refused.
    """
    longest = domain.longest
    if longest is not None and statistics.max_length > longest:
        raise InvalidInput(
            f"the sums hold a sequence of {statistics.max_length} tokens, more than the domain "
            f"{domain} allows; choose a domain that holds your data."
        )
    if space.is_whole or isinstance(domain, Real):
        return ""  # every token is real, and the longest sequence is known
    whole = whole_matrix(statistics)
    depth = accumulation_depth(statistics.n_rows, statistics.max_length) + len(whole)
    if np.max(_violations(whole, space)) > ROUNDINGS * gamma(depth) * np.trace(whole):
        raise InvalidInput(
            f"the sums are not those of sequences of the domain {domain.name!r}: features that are "
            "equal on it differ; choose a domain that holds your data, such as 'real'."
        )
    return "Sums cannot show that every token lies in the domain: that is taken from you."


def _violations(whole: NDArray[np.float64], space: FeatureSpace) -> NDArray[np.float64]:
    """sum (psi_f - (E phi)_f)^2 over rows, for each of the p features."""
    E, with_kept = space.expansion, whole[:, space.columns]
    kept = with_kept[space.columns]
    mixed = np.asarray(E.multiply(with_kept).sum(axis=1)).ravel()
    expanded = np.asarray(E.multiply(E @ kept).sum(axis=1)).ravel()
    return whole.diagonal() - 2.0 * mixed + expanded
