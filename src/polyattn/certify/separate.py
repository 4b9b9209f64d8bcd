"""A short sequence on which a given direction of coefficients shows.

For a query x, direction v and context tokens y the output is

    <v, psi> = x M(x) x + sum_y y M(x) y,      M(x) = sum_l x[l] sym(v[., l]),

so good contexts are eigenvectors of M(x), or their counterparts inside a discrete domain.  A
non-zero polynomial of degree three vanishes on few points: some of many queries will do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains.tokens import TokenDomain
from polyattn.features.pairs import unfold_coef


def separating_sequence(
    domain: TokenDomain, direction: NDArray[np.float64], n_dims: int, bias: bool, size: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:  # fmt: skip
    """The sequence (n, d) of the domain with the largest |<direction, psi>| found.

    As short as the domain allows: two tokens, the query last.
    """
    width = n_dims + bias
    forms = unfold_coef(direction.reshape(1, -1, width))[0]  # (width, width, l)
    n_contexts = max(domain.shortest, 1 if domain.only_single else 2) - 1
    best, best_value = None, -1.0
    for query in domain.some_tokens(rng, n_dims, size):
        x = _extended(query, bias)
        form = forms @ x
        contexts = domain.best_contexts(form[:n_dims, :n_dims], rng, size)
        extended = np.concatenate([contexts, np.ones((len(contexts), int(bias)))], axis=1)
        values = n_contexts * np.einsum("cj,jk,ck->c", extended, form, extended) + x @ form @ x
        at = int(np.argmax(np.abs(values)))
        if abs(values[at]) > best_value:
            best_value = abs(values[at])
            best = np.concatenate([np.repeat(contexts[at][None], n_contexts, axis=0), query[None]])
    assert best is not None  # noqa: S101 - every domain offers at least one token
    return best


def _extended(token: NDArray, bias: bool) -> NDArray:
    return np.append(token, 1.0) if bias else token
