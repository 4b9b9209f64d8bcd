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
from polyattn.certify.domains.independence import can_be_tried, has_functions
from polyattn.certify.domains.separating import largest_output
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.domains.tokens import Boolean, OneHot, Real, TokenDomain
from polyattn.errors import InvalidInput, InvalidType, require_choice
from polyattn.form.context import as_context
from polyattn.form.layout import Layout
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

    @property
    def attended(self) -> SequenceBatch | None:
        """What the sequences attend to, one for each of them, where that is not themselves."""
        return None

    def space(self, layout: Layout) -> FeatureSpace:
        """That of all real sequences: of further relations nothing is known."""
        if self.batch.n_dims != layout.n_dims:
            raise InvalidInput(
                f"the domain's tokens have {self.batch.n_dims} coordinates, those of the data "
                f"{layout.n_dims}; they must agree."
            )
        as_context(self.attended, self.batch, layout.form, layout, keep_integers=True)
        real = Real()
        known = layout.is_plain or has_functions(layout.form) or real.are_independent(layout)
        return real.space(layout) if known or can_be_tried(layout) else FeatureSpace.whole(layout)

    def spans_real_inputs(self, space: FeatureSpace) -> bool:  # noqa: ARG002
        """Whether a space of this domain is that of all real sequences."""
        return True

    def require_inside(self, batch: SequenceBatch, name: str = "X") -> None:  # noqa: B027
        """Refuse nothing: data need not lie in a custom domain."""

    def separating_input(
        self, direction: NDArray[np.float64], layout: Layout, exponent: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """The sequence (n, d) with the largest |<direction, psi>|, and its context, if any."""
        return largest_output(direction, layout, self.batch, self.attended, exponent)

    def to_dict(self) -> dict[str, Any]:
        """Name, size and digest as plain data."""
        return {
            "name": self.name, "exhaustive": self.exhaustive, "n_sequences": len(self.batch),
            "digest": digest_sequences(self.batch, self.attended),
        }  # fmt: skip

    def __str__(self) -> str:
        kind = "sequences" if self.exhaustive else "samples"
        return f"{self.name} ({len(self.batch)} {kind})"


@dataclass(frozen=True, eq=False)
class Finite(CustomDomain):
    """Exactly these sequences: an array, a list, a SequenceBatch, or any finite iterable.

    ``context``: the sequences that they attend to, one for each, where these are others.
    """

    sequences: Sequences | Iterable[ArrayLike] = field(repr=False)
    name: str = "finite"
    context: Sequences | None = field(default=None, repr=False)
    exhaustive = True

    @cached_property
    def batch(self) -> SequenceBatch:
        """The sequences, validated."""
        given = self.sequences
        if isinstance(given, Iterable) and not isinstance(given, SequenceBatch | list | np.ndarray):
            given = [np.asarray(sequence) for sequence in given]
        return as_batch(given, "the domain's sequences", keep_integers=True)

    @cached_property
    def attended(self) -> SequenceBatch | None:
        """The contexts, validated."""
        if self.context is None:
            return None
        return as_batch(self.context, "the domain's contexts", keep_integers=True)


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
