"""What a certificate claims about features, recomputed; each objection in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polyattn.certify.check.domains import CheckedDomain
from polyattn.certify.check.features import random_prime, rank_modulo, reduce
from polyattn.certify.check.form_table import FormTable
from polyattn.certify.check.forms import FormFeatures
from polyattn.certify.check.measure import UNIT, MeasuredTable, rounded_coordinates
from polyattn.certify.check.structure import about_relations
from polyattn.sequences import SequenceBatch

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate
    from polyattn.certify.structure import Structure

# A number of so many bits is divided by half of the primes at most, of which one is drawn.
MOST_BITS = 1 << 21


@dataclass(frozen=True, eq=False)
class Claims:
    """A certificate whose sizes are right, the data it is about, and its domain."""

    certificate: Certificate
    batch: SequenceBatch
    domain: CheckedDomain
    context: SequenceBatch | None = None
    seen: FormFeatures | None = None  # of a form that is not the papers'
    real: int | None = None  # what its features span on all real sequences, for custom domains
    # Fresh randomness: primes and combinations that could be foreseen could be forged.
    rng: np.random.Generator = field(default_factory=np.random.default_rng)

    @cached_property
    def table(self) -> MeasuredTable:
        return self._table_of(self.batch, self.context)

    @cached_property
    def rank(self) -> int:
        """The rank of the data's features, modulo a prime that the certificate did not use."""
        return self._rank_modulo(random_prime(self.rng, self.certificate.prime))

    @property
    def dimension(self) -> int:
        """No rank is larger."""
        return self.certificate.dimension or self.real or self.certificate.n_features

    @property
    def few(self) -> bool:
        """Whether the verdict is that there are fewer rows than dimensions."""
        return self.certificate.method == "count" and self.certificate.n_rows < self.dimension

    @property
    def coefficients(self) -> bool:
        """Whether the claim is about coefficients: of functions of tokens nothing is known."""
        form = self.certificate.form
        return any(map(callable, (form.query, form.key, form.value)))

    @property
    def must_show(self) -> bool:
        """Whether a direction has to show on sequences of the domain: not one of coefficients.

        Of a custom domain all sequences are there.
        """
        return not self.coefficients or self.domain.batch is not None

    @property
    def rested(self) -> bool:
        """Whether all but what is always zero or a multiple is claimed to be determined."""
        structure = self.certificate.structure
        return structure is not None and structure.rest == "identifiable"

    def objections(self) -> Iterator[str]:
        """All that does not hold."""
        yield from self._rank()
        if self.certificate.verdict == "identifiable":
            yield from self._identifiable()
        if self.certificate.verdict == "not_identifiable":
            yield from self._direction()
        if self.certificate.structure is not None:
            yield from self._structure(self.certificate.structure)
        yield from self._on_real_inputs()
        yield from self._spectrum()

    def _rank(self) -> Iterator[str]:
        claimed, certificate = self.certificate.rank, self.certificate
        most = min(certificate.n_rows, self.dimension)
        if claimed is None:
            return
        if not 0 <= claimed <= most:
            yield f"rank {claimed} is not possible: it is at most {most}."
        elif certificate.method == "exact" or certificate.verdict == "identifiable" or self.rested:
            if claimed != self.rank:
                yield f"the rank is {self.rank}, not {claimed}."
        elif certificate.verdict == "not_identifiable":
            least, most = self.table.rank_range()
            # Exact numbers may have a rank that floats do not show.
            if not least <= claimed <= most and (claimed != self.rank or self._moving().any()):
                yield f"the rank is {least}{f' to {most}' * (most > least)}, not {claimed}."

    def _identifiable(self) -> Iterator[str]:
        certificate = self.certificate
        if certificate.rank is None:
            yield "a certificate of identifiability must state the rank."
        if certificate.method == "exact" and certificate.prime is not None:
            modulo = self._rank_modulo(certificate.prime)
            if modulo != certificate.rank:
                yield f"modulo the prime {certificate.prime} the rank is {modulo}."
        if self.rank == self.dimension:
            yield from self._rounding_overcome()
        elif self.domain.batch is None:
            yield (
                f"the data do not determine the layer: their features have rank {self.rank} of "
                f"{self.dimension}."
            )
        else:
            together = self._rank_modulo(random_prime(self.rng), together=True)
            if together != self.rank:
                yield (
                    f"the features of the domain are not in the span of the data's: together they "
                    f"have rank {together}, the data alone {self.rank}."
                )

    def _rounding_overcome(self) -> Iterator[str]:
        """The bound of a proof in floating point lies between what is possible and what it beat."""
        certificate, most = self.certificate, 1.0
        if certificate.method == "exact":
            return
        if certificate.method == "gram":
            # Powers of two scale the features to sizes within sqrt(2) of one, for the prover.
            most = 2.0 * self.table.least_eigenvalue(self.dimension)
        least = 0.4 * UNIT * certificate.n_rows * (certificate.rank or 0)
        if not least <= certificate.rounding <= most:
            yield (
                f"a rounding bound of {certificate.rounding:.1e} proves nothing: it must lie "
                f"between {least:.1e} and {most:.1e}."
            )

    def _structure(self, structure: Structure) -> Iterator[str]:
        """What is said to be always zero or a multiple is, and the rank is that of the rest."""
        rank, left = self.rank, self.dimension - structure.n_zero - structure.n_multiples
        full, possible = rank == left, rank <= left
        if structure.rest == "identifiable":
            possible = full
        elif structure.rest == "not_identifiable" and full:
            # Exact numbers may be of full rank where rounding hides it.
            possible = bool(self._moving().any()) and self.table.rank_range()[0] < left
        if not possible:
            yield (
                f"the rank is {rank}, and {left} features would be neither zero nor multiples of "
                f"others, of which the verdict is said to be {structure.rest!r}."
            )
        if self.rested and self.certificate.method == "structure":
            yield from self._rounding_overcome()
        yield from about_relations(structure, self.table, random_prime(self.rng), self.rng)

    def _direction(self) -> Iterator[str]:
        certificate, direction = self.certificate, self.certificate.direction
        if certificate.method == "structure" and not isinstance(direction, tuple):
            yield "what is always zero or a multiple shows a direction of integers."
        if certificate.method == "count" and not (self.few or isinstance(direction, tuple)):
            yield f"{certificate.n_rows} rows are not fewer than {self.dimension} dimensions."
        if direction is None:
            # With fewer rows than dimensions there always is one.
            if not self.few:
                yield "there is no direction that the data do not see."
            return
        if len(direction) != certificate.n_features:
            yield f"the direction has {len(direction)} entries, not {certificate.n_features}."
        elif isinstance(direction, tuple):
            yield from self._integer_direction(direction)
        else:
            yield from self._float_direction(np.asarray(direction, dtype=np.float64))

    def _integer_direction(self, direction: tuple[int, ...]) -> Iterator[str]:
        chosen = [direction[column] for column in self.table.columns]
        bits = self.table.bits + sum(map(abs, chosen)).bit_length()
        if bits > MOST_BITS:
            yield f"the entries of the direction are too long to be checked: {bits} bits."
            return
        # Products are zero for certain once they vanish modulo primes of so many bits as they
        # have; of longer ones 48 random primes say so.
        for _ in range(min(bits // 22 + 1, 48)):
            if self._shows(self.table, chosen):
                yield "the direction has an effect on the data."
                return
        if self.must_show and not self._shows(self._elsewhere(), chosen):
            yield "the direction has no effect anywhere in the domain."

    def _float_direction(self, direction: NDArray[np.float64]) -> Iterator[str]:
        if not np.all(np.isfinite(direction)):
            yield "the direction is not finite."
            return
        chosen = direction[self.table.columns]
        effect, allowed = self.table.effect(chosen)
        if not effect <= allowed:
            yield (
                f"the direction has an effect of {effect:.1e} on the data, and rounding explains "
                f"no more than {allowed:.1e}."
            )
        yield from self._rounding_explains(chosen)
        rounding = self.certificate.rounding
        if self.certificate.method != "count" and not 0.5 * effect <= rounding <= allowed:
            yield (
                f"the direction moves the outputs by {effect:.1e}, of which the stated bound "
                f"{rounding:.1e} is none, or none that rounding explains."
            )
        # A direction shows if so much of it is left after cancellation.
        if self.must_show and not self._elsewhere().share(chosen) > 1e-8:
            yield "the direction has no effect anywhere in the domain."

    def _rounding_explains(self, direction: NDArray[np.float64]) -> Iterator[str]:
        """A direction of floats is unseen by exact numbers, or by rounding of rounded ones."""
        moving = self._moving()
        # So many rows must be explained by rounding, where exact numbers say the opposite.
        if self.few or (moving.any() and self.table.explained(direction, moving) >= 0.85):
            return
        for _ in range(2):
            # Whether nothing of the domain is beyond the data, modulo a random prime.
            prime = random_prime(self.rng)
            rank, custom = self._rank_modulo(prime), self.domain.batch is not None
            full = rank == self.dimension
            if full or (custom and self._rank_modulo(prime, together=True) == rank):
                yield (
                    "the numbers as they are determine the layer, in exact arithmetic, and no "
                    "rounding of theirs explains the direction."
                )
                return

    def _on_real_inputs(self) -> Iterator[str]:
        """For a custom domain; for others it follows from the verdict."""
        claimed = self.certificate.verdict_on_real_inputs
        if self.domain.batch is None or claimed == "undecided":
            return
        if (claimed == "identifiable") != (self.rank == self.dimension):
            # Exact numbers may be of full rank where rounding hides it.
            least, _ = self.table.rank_range()
            hidden = least < self.dimension and self._moving().any()
            if claimed == "identifiable" or not hidden:
                yield f"on real inputs the data are not {claimed}: the rank is {self.rank}."

    def _spectrum(self) -> Iterator[str]:
        """Eigenvalues that are stated; that none is below zero needs no computation."""
        certificate = self.certificate
        unseen = certificate.verdict == "not_identifiable"
        if unseen and certificate.lambda_min not in (None, 0.0):
            yield f"lambda_min is 0, not {certificate.lambda_min:.6g}."
        stated = {"lambda_max": certificate.lambda_max}
        if not unseen:
            stated["lambda_min"] = certificate.lambda_min
        claims = {name: claimed for name, claimed in stated.items() if claimed is not None}
        if not claims:
            return
        smallest, largest = self.table.spectrum(self.dimension)
        found = {"lambda_min": smallest, "lambda_max": largest}
        for name, claimed in claims.items():
            allowed = 1e-6 * found[name] + 1e-10 * largest
            if not abs(claimed - found[name]) <= allowed:
                yield f"{name} is {found[name]:.6g}, not {claimed:.6g}."

    def _moving(self) -> NDArray[np.bool_]:
        """Which coordinates, of tokens and context, hold floats that rounding may have made."""
        batches = [self.batch] if self.context is None else [self.batch, self.context]
        moving = np.concatenate([rounded_coordinates(each) for each in batches])
        return moving | self.coefficients

    def _table_of(
        self, batch: SequenceBatch, context: SequenceBatch | None = None
    ) -> MeasuredTable:
        certificate = self.certificate
        kind = (batch, certificate.mode, certificate.bias)
        if self.seen is not None:
            return FormTable(*kind, seen=self.seen, context=context)
        return MeasuredTable(*kind, self.domain.is_one_hot)

    def _elsewhere(self) -> MeasuredTable:
        if self.seen is not None:
            return self._table_of(*self.domain.sequences_for(self.seen, self.rng))
        return self._table_of(self.domain.some_sequences(self.batch.n_dims, self.rng))

    def _rank_modulo(self, prime: int, together: bool = False) -> int:
        """The rank of the features of the data; or together with those of a custom domain."""
        tables = [self.table]
        if together and self.domain.batch is not None:
            tables.append(self._table_of(self.domain.batch, self.domain.context))
        return rank_modulo(tables, prime, self.dimension, self.rng)

    def _shows(self, table: MeasuredTable, direction: list[int]) -> bool:
        """Whether <direction, psi> is not zero modulo a random prime, for some row."""
        prime = random_prime(self.rng)
        residues = reduce(np.array([float(entry % prime) for entry in direction]), prime)
        return any(np.any(values) for values in table.products(residues, prime))
