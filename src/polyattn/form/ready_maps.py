"""The maps behind ``pa.maps``: what each makes of tokens, how it is compared, shown and stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.quoting import counted

# No map makes more numbers of one token.
MOST_NUMBERS = 1_000_000

# No map draws more frequencies: 256 MB, and some times that while they are drawn.
MOST_FREQUENCIES = 1 << 25


class ReadyMap(ABC):
    """A map of tokens that is known by its name and its arguments."""

    name: ClassVar[str]

    def __call__(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """What is seen of tokens (..., d): an array (..., r).

        Raises OutOfRange where a number of it is larger than float64 holds.
        """
        given = real_array(tokens, "tokens")
        if given.ndim == 0 or given.shape[-1] == 0:
            raise InvalidInput(
                "tokens must have shape (..., d) with at least one coordinate; got shape "
                f"{given.shape}."
            )
        flat = given.reshape(-1, given.shape[-1]).astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            seen = self._seen(flat)
        if not np.isfinite(seen).all():
            require_finite(flat, "tokens")
            raise OutOfRange(
                f"{self!r} makes numbers of these tokens that float64 cannot hold: coordinates "
                f"reach {np.abs(flat).max():.3g}. Divide the tokens by a constant first."
            )
        return seen.reshape(*given.shape[:-1], seen.shape[1])

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the function that makes this map, as plain data."""
        return dict(vars(self))

    @abstractmethod
    def _seen(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """What is seen of tokens (n, d): (n, r)."""

    def to_dict(self) -> dict[str, Any]:
        """Name and arguments as plain data; ``ready_map`` is the inverse."""
        return {"name": self.name, **self.arguments}

    def __repr__(self) -> str:
        words = ", ".join(f"{argument}={value!r}" for argument, value in self.arguments.items())
        return f"{self.name}({words})"


@dataclass(frozen=True, repr=False)
class Polynomial(ReadyMap):
    """All monomials up to a degree, or of exactly that degree."""

    degree: int
    include_lower: bool
    name = "polynomial"

    def _seen(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        # By mantissas and exponents: no product of a part leaves the range of float64.
        factors, powers = np.frexp(tokens)
        products, exponents = np.ones((len(tokens), 1)), np.zeros((len(tokens), 1), dtype=np.intc)
        found = [products]
        for before, factor in monomials(tokens.shape[1], self.degree, self.include_lower):
            products = products[:, before] * factors[:, factor]
            exponents = exponents[:, before] + powers[:, factor]
            found.append(np.ldexp(products, exponents))
        return np.concatenate(found, axis=1) if self.include_lower else found[-1]


@dataclass(frozen=True, repr=False)
class Elu1(ReadyMap):
    """elu(x) + 1 of each coordinate."""

    name = "elu1"

    def _seen(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(tokens > 0.0, tokens + 1.0, np.exp(np.minimum(tokens, 0.0)))


@dataclass(frozen=True, repr=False)
class RandomFourier(ReadyMap):
    """Random waves of the token."""

    n_features: int
    scale: float
    random_state: int
    name = "random_fourier"

    def _seen(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        frequencies, phases = waves(tokens.shape[1], self.n_features, self.random_state)
        return np.sqrt(2.0 / self.n_features) * np.cos(tokens @ frequencies / self.scale + phases)


@dataclass(frozen=True, repr=False, eq=False)
class Hedgehog(ReadyMap):
    """softmax of [x W, -x W]."""

    weights: NDArray[np.float64] | None
    name = "hedgehog"

    def _seen(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.weights is not None and len(self.weights) != tokens.shape[1]:
            raise InvalidInput(
                f"the weights of this hedgehog map have {counted(len(self.weights), 'row')}, one "
                "for each coordinate of a token, but tokens have "
                f"{counted(tokens.shape[1], 'coordinate')}."
            )
        logits = tokens if self.weights is None else tokens @ self.weights
        both = np.concatenate([logits, -logits], axis=1)
        exponentials = np.exp(both - both.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    @property
    def arguments(self) -> dict[str, Any]:
        return {"weights": None if self.weights is None else self.weights.tolist()}

    def __repr__(self) -> str:
        if self.weights is None:
            return "hedgehog()"
        return f"hedgehog(weights={'x'.join(map(str, self.weights.shape))} matrix)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hedgehog):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> object:
        return None if self.weights is None else (self.weights.shape, self.weights.tobytes())


@dataclass(frozen=True, repr=False)
class Normalised(ReadyMap):
    """Tokens of norm one, and the zero token."""

    name = "normalised"

    def _seen(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        # Powers of two taken out first: squares of the numbers as they are could overflow.
        exponents = np.frexp(np.abs(tokens).max(axis=1, keepdims=True))[1]
        scaled = np.ldexp(tokens, -exponents)
        norms = np.linalg.norm(scaled, axis=1, keepdims=True)
        return scaled / np.where(norms == 0.0, 1.0, norms)


def as_matrix(given: object, name: str) -> NDArray[np.float64]:
    """A matrix (d, r) as it is kept: a copy that is read-only, without -0.0."""
    array = real_array(given, name)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInput(
            f"{name} as a matrix must have shape (d, r), one column for each number that is seen "
            f"of a token; got shape {array.shape}."
        )
    require_finite(array, name)
    matrix = np.ascontiguousarray(array.astype(np.float64) + 0.0)
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=64)
def monomials(
    n_dims: int, degree: int, include_lower: bool
) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]:
    """For each degree: which monomial before is multiplied by which coordinate."""
    count = comb(n_dims + degree, degree) if include_lower else comb(n_dims + degree - 1, degree)
    if count > MOST_NUMBERS:
        raise InvalidInput(
            f"a polynomial of degree {degree} makes {count:,} numbers of a token of "
            f"{counted(n_dims, 'coordinate')}, and at most {MOST_NUMBERS:,} are possible; choose a "
            "smaller degree or fewer coordinates."
        )
    steps, last = [], [0]
    for _ in range(degree):
        step = [(at, j) for at, least in enumerate(last) for j in range(least, n_dims)]
        before, factor = np.array(step, dtype=np.intp).T
        steps.append((before, factor))
        last = factor.tolist()
    return tuple(steps)


@lru_cache(maxsize=64)
def waves(
    n_dims: int, n_features: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies (d, n), standard normal, and phases (n,), uniform on a circle.

    From the bits of PCG64, which numpy promises never to change, and not from its distributions,
    which it may change: so a seed is enough for a file.
    """
    if n_dims * n_features > MOST_FREQUENCIES:
        raise InvalidInput(
            f"{n_features:,} random waves of tokens of {counted(n_dims, 'coordinate')} need "
            f"{n_dims * n_features:,} frequencies, and at most {MOST_FREQUENCIES:,} are possible; "
            "choose fewer waves."
        )
    bits = np.random.PCG64(np.random.SeedSequence([seed, n_dims]))
    raw = bits.random_raw((2 * n_dims + 1) * n_features).reshape(-1, n_features)
    uniform = ((raw >> np.uint64(11)) + 0.5) * 2.0**-53  # above 0 and up to 1
    radius, angle = uniform[:n_dims], uniform[n_dims:-1]
    frequencies = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
    phases = 2.0 * np.pi * uniform[-1]
    for array in (frequencies, phases):
        array.setflags(write=False)
    return frequencies, phases
