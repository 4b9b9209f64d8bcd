"""independent_entries: moments of one entry -> Lambda in blocks -> IndependentEntries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

from polyattn.certify.independent_entries.blocks import Block, blocks_of, eigenvalues
from polyattn.certify.independent_entries.expectations import (
    ProductExpectations,
    ways_to_choose_others,
)
from polyattn.certify.independent_entries.leverage import (
    leverage_moment,
    n_from_bound,
    n_from_leverage_moment,
)
from polyattn.certify.independent_entries.moments import EntryMoments
from polyattn.certify.independent_entries.permutations import extreme_eigenvalues
from polyattn.errors import (
    InvalidInput,
    require_choice,
    require_confidence,
    require_integer,
    require_number,
)
from polyattn.form.pairs import n_features
from polyattn.quoting import counted
from polyattn.sequences import MODES

# An eigenvalue below this share of the largest is rounding.
LOST = 1e-12


class Eigenvalue(NamedTuple):
    """An eigenvalue of Lambda, and how often it occurs."""

    value: float
    multiplicity: int


@dataclass(frozen=True, eq=False)
class IndependentEntries:
    """What ``independent_entries`` returns.

    Attributes
    ----------
    identifiable : bool
        Whether all minimisers of the population risk are one function: Lambda is definite.
    lambda_min, lambda_max : float | None
        Ends of the spectrum of Lambda = E[psi psi^T].  None for ``lambda_min`` where entries have
        odd moments and it is below rounding.
    spectrum : tuple of Eigenvalue (value, multiplicity) | None
        All eigenvalues, ascending; None where entries have odd moments.
    rank : int | None
        The rank of Lambda; None where it is deficient and entries have odd moments.
    n_features : int
        p.
    """

    n_dims: int
    n_tokens: int
    mode: str
    n_features: int
    identifiable: bool
    lambda_min: float | None
    lambda_max: float
    spectrum: tuple[Eigenvalue, ...] | None
    rank: int | None
    moments: EntryMoments = field(repr=False)
    blocks: tuple[Block, ...] = field(repr=False, default=())

    @property
    def sentence(self) -> str:
        """What independence of the entries says, in words."""
        tokens = f"{counted(self.n_tokens, 'token')} of {counted(self.n_dims, 'coordinate')}"
        of_them = f"Sequences of {tokens} with independent entries of these moments"
        if self.identifiable:
            smallest = "below rounding" if self.lambda_min is None else f"{self.lambda_min:.6g}"
            return (
                f"{of_them} determine the layer in the limit of many: all layers of least "
                "expected squared error are the same function on all real inputs. lambda_min of "
                f"the population is {smallest} (p = {self.n_features:,})."
            )
        if self.n_tokens == 1:
            why = "one token gives products x_j x_k x_l in which the order does not matter"
        else:
            why = "all entries have one magnitude, so that G[j, j] is the same for all j"
        rank = "" if self.rank is None else f" The rank is {self.rank:,} of {self.n_features:,}."
        return f"{of_them} do not determine the layer, however many there are: {why}.{rank}"

    def __str__(self) -> str:
        return self.sentence

    def n_samples(self, confidence: float = 0.99, largest_entry: float | None = None) -> int:
        """How many sequences give Lambda_D at least half of Lambda, and of lambda_min.

        Parameters
        ----------
        confidence : float
            The probability with which that holds, between 0 and 1.
        largest_entry : float, optional
            A number that no entry exceeds in magnitude; needed unless six even moments are known
            and all odd ones are zero.

        Guarantee: for N independent sequences, N at least this, Lambda_D - Lambda / 2 is positive
        semidefinite with probability at least ``confidence``
        (docs/derivations/independent_entries.md).  Enough, not necessary: in simulations of
        Gaussian and uniform entries a quarter of it was.
        """
        chance = 1.0 - require_confidence(confidence)
        if not self.identifiable:
            raise InvalidInput(f"no number of sequences is enough. {self.sentence}")
        try:
            needed = min(self._sufficient(chance, largest_entry), default=None)
        except OverflowError:
            needed = math.inf
        if needed is None:
            raise InvalidInput(
                "how many sequences are needed depends on how large entries can be: give "
                "largest_entry, or the moments up to m_12 of entries without odd moments."
            )
        if not math.isfinite(needed):
            raise InvalidInput(
                "entries of these moments need more sequences than float64 can count."
            )
        return max(self.n_features, math.ceil(needed))

    def _sufficient(self, chance: float, largest_entry: float | None) -> Iterator[float]:
        """Numbers of sequences that are enough, one for each theorem whose premises are known."""
        if len(self.moments.even) == 6 and not self.moments.odd:
            yield n_from_leverage_moment(self._leverage_moment, self.n_features, chance)
        if largest_entry is not None:
            leverage = self._largest_leverage(require_number("largest_entry", largest_entry))
            yield n_from_bound(leverage, self.n_features, chance)

    @cached_property
    def _leverage_moment(self) -> float:
        others = ways_to_choose_others(self.n_tokens, self.mode, 4)
        return leverage_moment(self.blocks, self.n_dims, self.moments.of_unit_entries, others)

    def _largest_leverage(self, largest: float) -> float:
        """A bound of psi^T Lambda^-1 psi where no entry exceeds ``largest``.

        Every feature is at most n b^3, and classes of features are apart in Lambda.
        """
        self.moments.require_within(largest)
        relative = Fraction(largest) ** 2 / self.moments.even[0]
        feature = self.n_tokens**2 * float(relative) ** 3
        if not self.blocks:
            if self.lambda_min is None:
                raise InvalidInput("lambda_min is below rounding, and no bound follows from it.")
            least = self.lambda_min - 0.01 * LOST * self.lambda_max  # its rounding
            return feature * self.n_features * self.moments.unit / least
        smallest = {each.name: float(eigenvalues(each)[0]) for each in self.blocks}
        triples = [smallest.pop(name) for name in list(smallest) if name.startswith("triple")]
        d = self.n_dims
        singles = d * (2 * d - 1) / min(smallest.values())
        return feature * (singles + (3 * math.comb(d, 3) / min(triples) if triples else 0.0))


def independent_entries(
    n_dims: int,
    n_tokens: int,
    moments: str | Sequence[Any],
    odd_moments: Sequence[Any] | None = None,
    mode: str = "last",
) -> IndependentEntries:
    """lambda_min of the population for sequences whose entries are independent and alike.

    Parameters
    ----------
    n_dims : int
        Coordinates per token.
    n_tokens : int
        Tokens per sequence.
    moments : "gaussian" | "uniform" | "boolean" | numbers
        The even moments m_2, m_4, m_6 of an entry, or those up to m_12; integers and fractions
        count exactly, and floats as the fractions they are.  By name: standard normal, uniform on
        [-1, 1], or -1 and 1 with equal chance.
    odd_moments : numbers, optional
        m_1, m_3, m_5, where they are not all zero.
    mode : "last" | "causal" | "full"
        Which positions are predicted; Lambda is the mean over them.

    Guarantee: Lambda is definite exactly if d = 1, or n >= 2 and m_4 > m_2^2, whatever the other
    moments.  That is [yau2024: Lemma A.5], which leaves out n >= 2 and is false without it
    (docs/derivations/independent_entries.md).  ``identifiable`` is decided exactly; without odd
    moments lambda_min is right to about 1e-14 of itself, with them of lambda_max.

    Cost: milliseconds, whatever n_dims and n_tokens.

    >>> found = independent_entries(3, 4, "gaussian")
    >>> found.lambda_min, found.n_samples(confidence=0.99)
    (3.0, 5629)
    >>> independent_entries(3, 1, "gaussian").rank
    10
    """
    d, n = require_integer("n_dims", n_dims), require_integer("n_tokens", n_tokens)
    require_choice("mode", mode, MODES)
    known = EntryMoments.read(moments, odd_moments)
    p, identifiable = n_features(d), d == 1 or (n >= 2 and not known.of_one_size)
    if known.odd:
        expected = ProductExpectations(
            known.in_floats(), [*map(float, ways_to_choose_others(n, mode, 2))], 2
        )
        least, most = (end * known.unit for end in extreme_eigenvalues(expected, d))
        smallest = (least if least > LOST * most else None) if identifiable else 0.0
        rank = p if identifiable else None
        return IndependentEntries(d, n, mode, p, identifiable, smallest, most, None, rank, known)
    blocks = tuple(_blocks(d, n, mode, known))
    spectrum = sorted(
        Eigenvalue(float(value) * known.unit, block.multiplicity)
        for block in blocks
        for value in eigenvalues(block)
    )
    rank = sum(each.multiplicity for each in spectrum if each.value > 0)
    return IndependentEntries(
        d, n, mode, p, identifiable, spectrum[0].value, spectrum[-1].value, tuple(spectrum), rank,
        known, blocks,
    )  # fmt: skip


def _blocks(n_dims: int, n_tokens: int, mode: str, known: EntryMoments) -> list[Block]:
    """Lambda of entries without odd moments, for m_2 = 1."""
    fourth, sixth = known.of_unit_entries[4:7:2]
    one, two = ways_to_choose_others(n_tokens, mode, 2)[1:]
    same = fourth + one  # E[G[a,a] x[a]^2]
    squares = (1 + one) * fourth + two + 2 * one  # E[G[b,b]^2]
    values = {
        "squares of a": sixth + 3 * one * fourth + two,
        "a with square of b": squares,
        "a with product": same,
        "square of b": squares,
        "squares of b and c": two + 3 * one + 1,
        "square and product of b": same,
        "square of b, product of c": 1 + one,
        "product of b": same,
        "products of b and c": Fraction(1),
        "same of a triple": 1 + one,
        "two of a triple": Fraction(1),
    }
    return blocks_of(values, n_dims)
