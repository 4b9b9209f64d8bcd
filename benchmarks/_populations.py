"""Populations of sequences whose best layer and second moment are known, to judge fits by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

# Sequences of a population that is a list: drawing from it is independent, and its sums are exact.
N_LISTED = 40_000


@dataclass(frozen=True)
class Tokens:
    """How sequences are drawn; entries that are independent and symmetric have known moments."""

    draw: Callable[[np.random.Generator, int, int, int], np.ndarray]  # (rng, N, n, d)
    moments: tuple[float, float, float] | None = None  # m2, m4, m6 of one entry


def student(freedom: int) -> Tokens:
    v = freedom
    m2, m4 = v / (v - 2), 3 * v**2 / ((v - 2) * (v - 4))
    m6 = 15 * v**3 / ((v - 2) * (v - 4) * (v - 6))
    return Tokens(lambda rng, *size: rng.standard_t(v, size), (m2, m4, m6))


def rare(chance: float, size: float) -> Tokens:
    """Some whole sequences are larger."""
    return Tokens(
        lambda rng, N, n, d: (
            rng.standard_normal((N, n, d)) * np.where(rng.random((N, 1, 1)) < chance, size, 1.0)
        )
    )


def one_hot(rng: np.random.Generator, N: int, n: int, d: int, power: float) -> np.ndarray:
    weights = 1.0 / np.arange(1, d + 1) ** power
    return np.eye(d)[rng.choice(d, size=(N, n), p=weights / weights.sum())]


TOKENS = {
    "normal": Tokens(lambda rng, *size: rng.standard_normal(size), (1.0, 3.0, 15.0)),
    "Boolean": Tokens(lambda rng, *size: rng.choice([-1.0, 1.0], size), (1.0, 1.0, 1.0)),
    "uniform": Tokens(lambda rng, *size: rng.uniform(-1, 1, size), (1 / 3, 1 / 5, 1 / 7)),
    "Laplace": Tokens(lambda rng, *size: rng.laplace(size=size), (2.0, 24.0, 720.0)),
    "Student 8": student(8),
    "Student 10": student(10),
    "sparse": Tokens(
        lambda rng, *size: rng.standard_normal(size) * (rng.random(size) < 0.3), (0.3, 0.9, 4.5)
    ),
    "5 % large": rare(0.05, 3.0),
    "1 % large": rare(0.01, 3.0),
    "one-hot": Tokens(lambda rng, *size: one_hot(rng, *size, 0.0)),
    "Zipf": Tokens(lambda rng, *size: one_hot(rng, *size, 1.5)),
    "few": Tokens(lambda rng, N, n, d: rng.choice([-1.0, 1.0], (N, n, d))),
}


def features(X: np.ndarray, mode: str) -> np.ndarray:
    """G[j,k] x[l] with j <= k: (N, positions, p)."""
    j, k = np.triu_indices(X.shape[2])
    products = np.einsum("nta,ntb->ntab", X, X)
    grams = products.sum(1, keepdims=True) if mode == "last" else np.cumsum(products, axis=1)
    queries = X[:, -1:] if mode == "last" else X
    found = grams[:, :, j, k][..., None] * queries[:, :, None, :]
    return found.reshape(*queries.shape[:2], -1)


def exact_second_moment(
    moments: tuple[float, float, float], n: int, d: int, mode: str
) -> np.ndarray:
    """E psi psi^T of independent symmetric entries, (p, p); the mean over positions."""
    known = dict(zip((0, 2, 4, 6), (1.0, *moments), strict=True))

    def mean(*indices: int) -> float:
        """E of a product of entries of one token."""
        return float(np.prod([known.get(count, 0.0) for count in Counter(indices).values()]))

    def of_length(t: int) -> np.ndarray:
        labels = [(j, k, q) for j, k in zip(*np.triu_indices(d), strict=True) for q in range(d)]
        found = np.empty((len(labels), len(labels)))
        for (a, (j, k, q)), (b, (x, y, z)) in product(enumerate(labels), repeat=2):
            others = (t - 1) * mean(j, k, x, y) + (t - 1) * (t - 2) * mean(j, k) * mean(x, y)
            mixed = mean(j, k) * mean(x, y, q, z) + mean(x, y) * mean(j, k, q, z)
            found[a, b] = others * mean(q, z) + (t - 1) * mixed + mean(j, k, x, y, q, z)
        return found

    lengths = [n] if mode == "last" else range(1, n + 1)
    return np.mean([of_length(t) for t in lengths], axis=0)


def other_part(target: str, X: np.ndarray, mode: str) -> np.ndarray:
    """What targets have beside a layer; all but "fifth" are orthogonal to all features."""
    query = X[:, -1:] if mode == "last" else X
    size = np.sum(query**2, axis=-1, keepdims=True)
    return {
        "layer": lambda: 0.0 * size,
        "tanh": lambda: 0.5 * np.tanh(X[:, :1, :1]) + 0.0 * size,
        "even": lambda: 0.5 * query[..., :1] * query[..., -1:] * size,
        "fifth": lambda: 0.2 * query[..., :1] ** 3 * size,
    }[target]()


def noise_of(kind: str, rng: np.random.Generator, shape: tuple, psi: np.ndarray) -> np.ndarray:
    """Noise of a kind; "uneven" is larger where features are, "shared" one for each sequence."""
    return {
        "none": lambda: np.zeros(shape),
        "normal": lambda: rng.standard_normal(shape),
        "Student 3": lambda: rng.standard_t(3, shape),
        "uneven": lambda: rng.standard_normal(shape) * size_of(psi),
        "shared": lambda: np.broadcast_to(rng.standard_normal((shape[0], 1, 1)), shape),
    }[kind]()


def size_of(psi: np.ndarray) -> np.ndarray:
    powers = np.mean(psi**2, axis=-1, keepdims=True)
    return powers / powers.mean()


@dataclass(frozen=True)
class Population:
    """Sequences, their targets, and the least risk that a layer has on all of them."""

    tokens: str = "normal"
    n_dims: int = 3
    n_tokens: int = 5
    target: str = "layer"
    noise: str = "normal"
    n_outputs: int = 1
    mode: str = "last"
    n_listed: int = N_LISTED

    @cached_property
    def layer(self) -> np.ndarray:
        """Coefficients of the layer in the targets, (p, e)."""
        p = self.n_dims**2 * (self.n_dims + 1) // 2
        return np.random.default_rng(5).standard_normal((p, self.n_outputs)) / self.n_tokens

    @cached_property
    def listed(self) -> np.ndarray | None:
        """All sequences, of a population that is a list."""
        kind = TOKENS[self.tokens]
        if kind.moments is not None and self.target != "fifth":
            return None
        rng = np.random.default_rng(6)
        return kind.draw(rng, self.n_listed, self.n_tokens, self.n_dims)

    @cached_property
    def second_moment(self) -> np.ndarray:
        """E psi psi^T, (p, p)."""
        if self.listed is None:
            moments = TOKENS[self.tokens].moments
            return exact_second_moment(moments, self.n_tokens, self.n_dims, self.mode)
        psi = features(self.listed, self.mode).reshape(-1, len(self.layer))
        return psi.T @ psi / len(psi)

    @cached_property
    def best(self) -> np.ndarray:
        """Coefficients of the best layer, (p, e)."""
        if self.listed is None:
            return self.layer
        psi = features(self.listed, self.mode)
        other = other_part(self.target, self.listed, self.mode)
        cross = np.mean(psi * other, axis=(0, 1))
        away = np.linalg.pinv(self.second_moment, rcond=1e-10, hermitian=True) @ cross
        return self.layer + away[:, None]

    @cached_property
    def least_risk(self) -> float:
        """The risk of the best layer, on many fresh sequences."""
        X, Y = self.draw(np.random.default_rng(77), N_LISTED)
        psi = features(X, self.mode)
        away = Y.reshape(*psi.shape[:2], -1) - psi @ self.best
        return float(np.mean(np.sum(away**2, axis=-1)))

    @property
    def rank(self) -> int:
        """Dimensions that the features of all sequences span."""
        return int(np.linalg.matrix_rank(self.second_moment, tol=1e-9, hermitian=True))

    def draw(self, rng: np.random.Generator, N: int) -> tuple[np.ndarray, np.ndarray]:
        """Independent sequences and their targets, as ``fit`` takes them."""
        if self.listed is None:
            X = TOKENS[self.tokens].draw(rng, N, self.n_tokens, self.n_dims)
        else:
            X = self.listed[rng.integers(len(self.listed), size=N)]
        psi = features(X, self.mode)
        Y = psi @ self.layer + other_part(self.target, X, self.mode)
        Y = Y + noise_of(self.noise, rng, Y.shape, psi)
        return X, Y[:, 0] if self.mode == "last" else Y

    def excess(self, coef: np.ndarray) -> float:
        """Risk over the population beyond the least, of coefficients (e, m, r)."""
        away = coef.reshape(len(coef), -1).T - self.best
        return float(np.sum(away * (self.second_moment @ away)))
