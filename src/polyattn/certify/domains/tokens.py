"""Built-in domains: all sequences of certain tokens, and what their features span.

The rank of the features depends on which tokens can occur, however many samples there are.  "The
same function on all real inputs" and "the same on every sequence of the domain" are two
statements; a certificate carries the domain it is about.

Dimensions, for tokens of D coordinates (the constant of ``bias`` counts as one) and sequences of
which some attend to at least two tokens; in brackets: only sequences of one token.

In other forms of a layer they are derived, or found by trying (``independence``).

    real      p = D^2 (D+1)/2       [C(D+2, 3)]
    boolean   D + D C(D, 2)         [D + C(D, 3)]
    one_hot   d^2                   [d]            d: coordinates without the constant
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, combinations_with_replacement
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.domains.independence import (
    has_functions,
    independent_on_real,
    random_sequences,
    space_by_trying,
)
from polyattn.certify.domains.separating import separating_pair
from polyattn.certify.domains.spaces import Feature, FeatureSpace
from polyattn.errors import InvalidInput, InvalidType
from polyattn.form.layout import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.numerics.arrays import pieces
from polyattn.sequences import SequenceBatch

Lengths = int | tuple[int, int | None] | None

# Random tokens of all real ones are integers below this: any residue can come.
LARGE = 1 << 22


@dataclass(frozen=True)
class TokenDomain(ABC):
    """All sequences of certain tokens, of certain lengths.

    ``lengths``: None for any, an integer for exactly that many tokens, (least, most) for a
    range, (least, None) for at least so many.  ``length_range``: the same as (least, most).
    """

    lengths: Lengths = None
    length_range: tuple[int, int | None] = field(init=False, repr=False, compare=False)

    name: ClassVar[str]

    def __post_init__(self) -> None:
        given = (1, None) if self.lengths is None else self.lengths
        least, most = given if isinstance(given, tuple) else (given, given)
        for bound in (least, most):
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
                raise InvalidType(
                    f"lengths must be an integer or a pair of integers; got {given!r}."
                )
        if least < 1 or (most is not None and most < least):
            raise InvalidInput(f"lengths must satisfy 1 <= least <= most; got {given!r}.")
        object.__setattr__(self, "length_range", (least, most))

    def space(self, layout: Layout) -> FeatureSpace:
        """What the features of all sequences of the domain span.

        Of functions of tokens nothing is known: their features count as independent, and a
        certificate is about the coefficients [yau2024: Lemma E.1].
        """
        if layout.is_plain:
            return self.plain_space(layout)
        if has_functions(layout.form) or self.are_independent(layout):
            return FeatureSpace.whole(layout)
        rng, size = np.random.default_rng(0), float(LARGE) if self.name == "real" else 1.0
        draw = partial(self.draw, rng)
        sample = partial(random_sequences, layout, self.length_range, draw, rng)
        return space_by_trying(layout, sample, self.name, size)

    @abstractmethod
    def plain_space(self, layout: Layout) -> FeatureSpace:
        """The same for the papers' layer, by its formula."""

    def are_independent(self, layout: Layout) -> bool:
        """Whether all features of another form are known to be independent."""
        return False

    def spans_real_inputs(self, space: FeatureSpace) -> bool:
        """Whether a space of this domain is that of all real sequences, of any length."""
        if space.is_whole or (self.name == "real" and self.length_range == (1, None)):
            return True
        return not space.layout.is_plain and Real().space(space.layout).dimension == space.dimension

    @abstractmethod
    def draw(self, rng: np.random.Generator, n_tokens: int, n_dims: int) -> NDArray:
        """Random tokens (n_tokens, d) of the domain; integers."""

    @abstractmethod
    def foreign(self, tokens: NDArray) -> NDArray[np.bool_]:
        """Which of the tokens (n, d) do not belong to the domain."""

    @abstractmethod
    def some_tokens(self, rng: np.random.Generator, n_dims: int, size: float) -> NDArray:
        """Tokens (count, d) to try as queries; real ones of about this size."""

    def best_contexts(self, form: NDArray, rng: np.random.Generator, size: float) -> NDArray:
        """Tokens y (count, d) that make y form y large or small; ``form`` (d, d) is symmetric."""
        return self.some_tokens(rng, form.shape[0], size)

    @property
    def only_single(self) -> bool:
        """Whether no position ever attends to a second token."""
        return self.length_range[1] == 1

    def require_lengths(self, batch: SequenceBatch) -> None:
        """Refuse sequences that are shorter or longer than those of the domain."""
        lengths, (least, most) = batch.lengths, self.length_range
        outside = (lengths < least) | (lengths > (most or np.inf))
        if np.any(outside):
            i = int(np.argmax(outside))
            raise InvalidInput(
                f"sequence {i} of X has {lengths[i]} tokens, but the domain {self} allows "
                f"{self._lengths_in_words()}; choose a domain that holds your data."
            )

    def require_inside(self, batch: SequenceBatch, name: str = "X") -> None:
        """Refuse data that are not of the domain: the certificate would be about nothing.

        A context may be of any length.
        """
        if name == "X":
            self.require_lengths(batch)
        start = 0
        for piece in pieces(batch.values):
            foreign = self.foreign(piece)
            if np.any(foreign):
                at = int(np.argmax(foreign))
                raise InvalidInput(
                    f"token {start + at} of {name}, {piece[at][:8].tolist()}, does not belong to "
                    f"the domain {self.name!r}; choose one that holds your data, such as 'real'."
                )
            start += len(piece)

    def separating_input(
        self, direction: NDArray[np.float64], layout: Layout, size: float, exponent: int,
        rng: np.random.Generator,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:  # fmt: skip
        """A sequence (n, d) with a large |<direction, psi>|, and its context, if any.

        size : of tokens divided by 2**exponent, as they enter the features
        """
        if layout.is_plain:
            found = self.separating_sequence(direction, layout, size, rng)
            return np.ldexp(found, exponent), None

        def draw(n_tokens: int, n_dims: int) -> NDArray[np.float64]:
            if self.name != "real":
                return self.draw(rng, n_tokens, n_dims).astype(np.float64)
            return np.ldexp(size * rng.standard_normal((n_tokens, n_dims)), exponent)

        return separating_pair(direction, layout, self.length_range, draw, exponent, rng)

    def separating_sequence(
        self, direction: NDArray[np.float64], layout: Layout, size: float, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """The same for the papers' layer, by its algebra.

        As short as the domain allows: two tokens, the query last.  For a query x, the direction
        v (p,) and context tokens y the output is

            <v, psi> = x M(x) x + sum_y y M(x) y,      M(x) = sum_l x[l] sym(v[., l]),

        so good contexts are eigenvectors of M(x), or their counterparts inside a discrete domain.
        A non-zero polynomial of degree three vanishes on few points: some of many queries will do.
        """
        n_dims, bias = layout.n_dims, layout.form.bias
        forms = unfold_coef(direction.reshape(1, -1, n_dims + bias))[0]  # (width, width, l)
        n_contexts = max(self.length_range[0], 1 if self.only_single else 2) - 1
        found = []
        for query in self.some_tokens(rng, n_dims, size):
            x = np.append(query, 1.0) if bias else query
            form = forms @ x
            contexts = self.best_contexts(form[:n_dims, :n_dims], rng, size)
            extended = np.concatenate([contexts, np.ones((len(contexts), int(bias)))], axis=1)
            values = n_contexts * np.einsum("cj,jk,ck->c", extended, form, extended) + x @ form @ x
            at = int(np.argmax(np.abs(values)))
            found.append((abs(values[at]), contexts[at], query))
        _, context, query = max(found, key=lambda each: each[0])
        return np.concatenate([np.repeat(context[None], n_contexts, axis=0), [query]])

    def to_dict(self) -> dict[str, Any]:
        """Name and lengths as plain data."""
        return {"name": self.name, "lengths": list(self.length_range)}

    def __str__(self) -> str:
        plain = self.lengths is None
        return self.name if plain else f"{self.name} ({self._lengths_in_words()})"

    def _lengths_in_words(self) -> str:
        least, most = self.length_range
        if most is None:
            return f"at least {least} tokens"
        return f"{most} token{'s' * (most > 1)}" if least == most else f"{least} to {most} tokens"


@dataclass(frozen=True)
class Real(TokenDomain):
    """Tokens with any real coordinates."""

    name: ClassVar[str] = "real"

    def plain_space(self, layout: Layout) -> FeatureSpace:
        if not self.only_single:
            return FeatureSpace.whole(layout)
        # psi = x_j x_k x_l is symmetric in all three.
        triples = list(combinations_with_replacement(range(layout.n_queries), 3))
        return FeatureSpace.of(layout, triples, lambda *jkl: [_sorted(*jkl)])

    def are_independent(self, layout: Layout) -> bool:
        return independent_on_real(layout, self.length_range)

    def draw(self, rng: np.random.Generator, n_tokens: int, n_dims: int) -> NDArray:
        return rng.integers(-LARGE, LARGE, (n_tokens, n_dims))

    def foreign(self, tokens: NDArray) -> NDArray[np.bool_]:
        return np.zeros(len(tokens), dtype=bool)

    def require_inside(self, batch: SequenceBatch, name: str = "X") -> None:
        # Every token belongs to it: none has to be read, which of a source is a pass.
        if name == "X":
            self.require_lengths(batch)

    def some_tokens(self, rng: np.random.Generator, n_dims: int, size: float) -> NDArray:
        return size * rng.standard_normal((64, n_dims))

    def best_contexts(self, form: NDArray, rng: np.random.Generator, size: float) -> NDArray:
        n_dims = form.shape[0]
        _, vectors = np.linalg.eigh(form)
        ends = vectors[:, [0, -1]].T * (size * np.sqrt(n_dims))
        return np.concatenate([ends, -ends, size * rng.standard_normal((2, n_dims))])


@dataclass(frozen=True)
class Boolean(TokenDomain):
    """Tokens with coordinates -1 and 1."""

    name: ClassVar[str] = "boolean"

    def plain_space(self, layout: Layout) -> FeatureSpace:
        # A constant 1 is a Boolean coordinate like any other: it removes no monomial of a
        # second token, and with one token x_c only renames the products of two.
        width = layout.n_queries
        kept: list[Feature] = [(0, 0, i) for i in range(width)]
        if not self.only_single:
            # G_jj = n for every j.
            kept += [(j, k, i) for j, k in combinations(range(width), 2) for i in range(width)]
            return FeatureSpace.of(
                layout, kept, lambda j, k, i: [(0, 0, i) if j == k else (j, k, i)]
            )
        # One token of +-1: psi = x_j x_k x_l, and equal factors cancel.
        kept += list(combinations(range(width), 3))

        def relation(j: int, k: int, query: int) -> list[Feature]:
            odd = [i for i in {j, k, query} if (j, k, query).count(i) % 2]
            return [(0, 0, odd[0]) if len(odd) == 1 else _sorted(*odd)]

        return FeatureSpace.of(layout, kept, relation)

    def draw(self, rng: np.random.Generator, n_tokens: int, n_dims: int) -> NDArray:
        return rng.choice(np.array([-1, 1]), (n_tokens, n_dims))

    def foreign(self, tokens: NDArray) -> NDArray[np.bool_]:
        return np.any((tokens != 1) & (tokens != -1), axis=1)

    def some_tokens(self, rng: np.random.Generator, n_dims: int, size: float) -> NDArray:
        return rng.choice([-1.0, 1.0], size=(64, n_dims))

    def best_contexts(self, form: NDArray, rng: np.random.Generator, size: float) -> NDArray:
        starts = rng.choice([-1.0, 1.0], size=(6, form.shape[0]))
        climbed = [_climb(sign * form, start) for sign in (1, -1) for start in starts[:3]]
        return np.concatenate([starts, climbed])


@dataclass(frozen=True)
class OneHot(TokenDomain):
    """Tokens with one coordinate 1 and all others 0."""

    name: ClassVar[str] = "one_hot"

    def plain_space(self, layout: Layout) -> FeatureSpace:
        # psi = (how often symbol j occurs) [the query is symbol l].
        n_dims = layout.n_dims
        symbols = range(n_dims)
        kept = [(j, j, i) for j in symbols for i in symbols if j == i or not self.only_single]
        known = set(kept)

        def relation(j: int, k: int, query: int) -> Iterator[Feature]:
            # The constant stands for all symbols at once.
            counted = symbols if j == n_dims else [j] if k in (j, n_dims) else []
            asked = symbols if query == n_dims else [query]
            return (f for f in ((s, s, i) for s in counted for i in asked) if f in known)

        return FeatureSpace.of(layout, kept, relation)

    def draw(self, rng: np.random.Generator, n_tokens: int, n_dims: int) -> NDArray:
        return np.eye(n_dims, dtype=np.int64)[rng.integers(n_dims, size=n_tokens)]

    def foreign(self, tokens: NDArray) -> NDArray[np.bool_]:
        binary = np.all((tokens == 0) | (tokens == 1), axis=1)
        return ~(binary & (np.count_nonzero(tokens, axis=1) == 1))

    def some_tokens(self, rng: np.random.Generator, n_dims: int, size: float) -> NDArray:
        return np.eye(n_dims)


def _climb(form: NDArray, start: NDArray) -> NDArray:
    """Flip signs one after the other while that raises y form y."""
    y = start.copy()
    for _ in range(4):
        for j in range(len(y)):
            slope = 2.0 * y[j] * (form[j] @ y - form[j, j] * y[j])
            if slope < 0:
                y[j] = -y[j]
    return y


def _sorted(*triple: int) -> Feature:
    first, second, third = sorted(triple)
    return first, second, third
