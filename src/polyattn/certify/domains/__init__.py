"""Domains: where layers have to agree.

>>> from polyattn import domains
>>> print(domains.Boolean(lengths=(2, 5)))
boolean (2 to 5 tokens)

Built-in domains are in ``tokens.py``.  Those of your own are here: an explicit finite set of
sequences, or a sampler of them.  Training data determine a layer on such a domain iff the domain's
features lie in the span of the data's.  For a finite set of integer sequences that is decided
exactly; a sampler can show that they do not, and otherwise how often they do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.domains.tokens import Boolean, OneHot, Real, TokenDomain
from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.features.cubic import apply_coef
from polyattn.features.summaries import Tokens, summary_blocks
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.sequences import SequenceBatch, Sequences, as_batch

__all__ = ["Boolean", "Domain", "Finite", "OneHot", "Real", "Sampled"]


class CustomDomain(ABC):
    """What all kinds share: sequences to look at, and whether they are all there are."""

    name: str
    exhaustive: bool

    @property
    @abstractmethod
    def batch(self) -> SequenceBatch:
        """The sequences."""

    def space(self, n_dims: int, bias: bool) -> FeatureSpace:
        """All features: of relations among them nothing is known."""
        if self.batch.n_dims != n_dims:
            raise InvalidInput(
                f"the domain's tokens have {self.batch.n_dims} coordinates, those of the data "
                f"{n_dims}; they must agree."
            )
        return FeatureSpace.whole(n_dims + bias)

    def require_inside(self, batch: SequenceBatch) -> None:  # noqa: B027 - any data will do
        """Refuse nothing: data need not lie in a custom domain."""

    def separating_input(
        self, direction: NDArray[np.float64], mode: str, bias: bool, exponent: int
    ) -> NDArray[np.float64]:
        """The sequence (n, d) with the largest |<direction, psi>|, divided by 2**exponent."""
        coef = direction.reshape(1, -1, self.batch.n_dims + bias)
        tokens = Tokens(self.batch, bias, exponent)
        values = [
            np.abs(apply_coef(coef, block.pairs, block.queries)[0])
            for block in summary_blocks(tokens, mode)
        ]
        row = int(np.argmax(np.concatenate(values)))
        at = row if mode == "last" else int(np.searchsorted(self.batch.offsets, row, "right")) - 1
        return np.ldexp(np.asarray(self.batch[at], dtype=np.float64), -exponent)

    def to_dict(self) -> dict[str, Any]:
        """Name, size and digest as plain data."""
        return {
            "name": self.name, "exhaustive": self.exhaustive, "n_sequences": len(self.batch),
            "digest": digest_sequences(self.batch),
        }  # fmt: skip

    def __str__(self) -> str:
        kind = "sequences" if self.exhaustive else "samples"
        return f"{self.name} ({len(self.batch)} {kind})"


@dataclass(frozen=True, eq=False)
class Finite(CustomDomain):
    """Exactly these sequences: an array, a list, a SequenceBatch, or any finite iterable."""

    sequences: Sequences | Iterable[ArrayLike] = field(repr=False)
    name: str = "finite"
    exhaustive = True

    @cached_property
    def batch(self) -> SequenceBatch:
        """The sequences, validated."""
        given = self.sequences
        if isinstance(given, Iterable) and not isinstance(given, SequenceBatch | list | np.ndarray):
            given = [np.asarray(sequence) for sequence in given]
        return as_batch(given, "the domain's sequences", keep_integers=True)


@dataclass(frozen=True, eq=False)
class Sampled(CustomDomain):
    """Whatever ``draw`` can return: ``draw(rng)`` gives one random sequence (n, d).

    ``n_samples`` of them are drawn when they are first needed, and kept.  ``random_state`` is an
    int, Generator or None; an int always gives the same samples.
    """

    draw: Callable[[np.random.Generator], ArrayLike]
    n_samples: int = 1000
    random_state: RandomState = 0
    name: str = "sampled"
    exhaustive = False

    def __post_init__(self) -> None:
        if not callable(self.draw):
            raise InvalidType(f"draw must be a function of a generator; got {self.draw!r}.")
        if self.n_samples < 1:
            raise InvalidInput(f"n_samples must be at least 1; got {self.n_samples!r}.")

    @cached_property
    def batch(self) -> SequenceBatch:
        """The samples, drawn on first use."""
        rng = require_generator(self.random_state)
        drawn = [np.asarray(self.draw(rng)) for _ in range(self.n_samples)]
        return as_batch(drawn, "the samples of the domain", keep_integers=True)

    def covered(self, confidence: float = 0.99) -> float:
        """The share of the sampler's sequences that are like all samples, with this confidence.

        If a share eps were different, all n samples would be alike with probability
        (1 - eps)^n.
        """
        return float((1.0 - confidence) ** (1.0 / self.n_samples))


@dataclass(frozen=True)
class StoredDomain(CustomDomain):
    """A custom domain of which a file kept name, size and digest, but not the sequences."""

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
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.name} ({self.n_sequences} {'sequences' if self.exhaustive else 'samples'})"


Domain = TokenDomain | CustomDomain

# The names that ``certify(domain=...)``, the command line and files take.
BUILT_IN: dict[str, type[TokenDomain]] = {each.name: each for each in (Real, Boolean, OneHot)}


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
