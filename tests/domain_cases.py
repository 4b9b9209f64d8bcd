"""What the tests know of each built-in domain: one row here, and all of them cover it.

A row is written by hand from the definition of the domain, and shares nothing with the library:
random tokens, the dimension of what the features span, all tokens where they are finitely many,
and tokens of two coordinates from elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import comb

import numpy as np

from polyattn import domains


@dataclass(frozen=True)
class DomainCase:
    #: (rng, n_tokens, n_dims) -> random tokens (n_tokens, n_dims)
    tokens: Callable[[np.random.Generator, int, int], np.ndarray]
    #: (n_dims, bias, only single tokens) -> the dimension
    dimension: Callable[[int, int, bool], int]
    #: n_dims -> every token there is
    alphabet: Callable[[int], list[np.ndarray]] | None
    foreign: list[list[float]]


def _real(n_dims, bias, single):
    D = n_dims + bias
    return comb(D + 2, 3) if single else D * D * (D + 1) // 2


def _boolean(n_dims, bias, single):
    D = n_dims + bias
    return D + comb(D, 3) if single else D + D * comb(D, 2)


DOMAIN_CASES = {
    "real": DomainCase(
        tokens=lambda rng, n, d: rng.integers(-3, 4, size=(n, d)).astype(float),
        dimension=_real,
        alphabet=None,
        foreign=[],
    ),
    "boolean": DomainCase(
        tokens=lambda rng, n, d: rng.choice([-1.0, 1.0], size=(n, d)),
        dimension=_boolean,
        alphabet=lambda d: [np.array(signs) for signs in product([-1.0, 1.0], repeat=d)],
        foreign=[[0.5, 1.0], [0.0, 1.0]],
    ),
    "one_hot": DomainCase(
        tokens=lambda rng, n, d: np.eye(d)[rng.integers(d, size=n)],
        dimension=lambda n_dims, _, single: n_dims if single else n_dims**2,
        alphabet=lambda d: list(np.eye(d)),
        foreign=[[1.0, 1.0], [0.0, 0.0], [0.5, 0.0]],
    ),
}

#: The domains themselves; a domain without a row above fails here.
BUILT_IN = {kind: DOMAIN_CASES[name] for name, kind in domains.BUILT_IN.items()}
