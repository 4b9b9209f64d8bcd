"""Next data: which sequences to collect so that the data become identifiable.

Greedy: of the directions that the data do not see, each step takes the sequence that shows most
of them, and goes on with those that are still unseen (a pivoted orthogonal factorisation, row by
row).  Once every direction is seen, steps raise the smallest eigenvalue instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from polyattn.certify.domains import BUILT_IN
from polyattn.certify.domains.tokens import TokenDomain
from polyattn.certify.evidence import Evidence
from polyattn.certify.outcomes import UNDECIDED
from polyattn.certify.verified.spectrum import second_moment
from polyattn.errors import InvalidInput, require_integer
from polyattn.numerics.arrays import require_float64
from polyattn.sequences import SequenceBatch, Sequences, as_batch

if TYPE_CHECKING:
    from polyattn.certify.certificate import Certificate

# A sequence that shows less than this share of an unseen direction shows rounding errors.
LEAST_SHARE = 1e-9

# Directions that are tried at each step of a construction.
TRIED_DIRECTIONS = 4


@dataclass(frozen=True, eq=False)
class NextData:
    """Sequences worth collecting, in order.

    Attributes
    ----------
    sequences : list of arrays (n_i, d)
    indices : list of int | None
        Their numbers among the candidates; None if they were built.
    ranks : list of int
        The rank of the features after each of them.
    lambda_min : list of float
        The smallest eigenvalue of Lambda_D on the domain after each of them (an estimate; it is
        of sixth degree in the tokens, and infinite or zero beyond the range of float64).
    complete : bool
        Whether the features then span those of the domain.
    needed : bool
        Whether anything was missing; otherwise more data only raise the smallest eigenvalue.
    undecided : bool
        Whether the certificate leaves it open that anything is missing.
    """

    sequences: list[NDArray[np.float64]] = field(repr=False)
    indices: list[int] | None
    ranks: list[int]
    lambda_min: list[float]
    complete: bool
    needed: bool = True
    undecided: bool = False

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def sentence(self) -> str:
        """What to do, in words."""
        if not self.sequences:
            return "No candidate adds anything."
        noun = "sequence" if len(self) == 1 else "sequences"
        proposed = f"the {len(self)} proposed {noun} (.sequences)"
        if not self.needed:
            state = "The data determine the layer already."
            if self.undecided:
                state = "Rounding hides whether the data determine the layer already."
            lambda_min = self.lambda_min[-1]
            return f"{state} With {proposed} lambda_min would be {lambda_min:.3g}."
        goal = "then the data determine the layer"
        if not self.complete:
            goal = f"that raises the rank to {self.ranks[-1]}, and more are needed"
        return f"Collect {proposed}: {goal}."


def next_data(
    certificate: Certificate, candidates: Sequences | None, n_sequences: int | None
) -> NextData:
    """The greedy choice, from candidates or by construction inside the domain."""
    if n_sequences is not None:
        require_integer("n_sequences", n_sequences)
    domain = certificate.domain
    if not isinstance(domain, TokenDomain):
        raise InvalidInput(f"next_data needs a built-in domain: one of {', '.join(BUILT_IN)}.")
    if certificate.n_context_dims is not None:
        raise InvalidInput(
            "next_data looks for sequences that attend to themselves, and these attend to a "
            "context; certify the data together with candidates of yours, and compare the ranks."
        )
    evidence = certificate.require_evidence("next_data")
    if evidence.rows is not None:
        require_float64(evidence.rows.batch.values, "next_data computes in float64; X")
    search, pool = _Search(certificate, domain, evidence), None
    if candidates is not None:
        pool = as_batch(candidates, "candidates", certificate.n_dims)
        domain.require_inside(pool)
    missing = search.deficit
    most = n_sequences or max(missing, 1)
    chosen: list[NDArray[np.float64]] = []
    indices: list[int] = []
    while len(chosen) < most:
        if pool is None:
            sequence = search.build()
        else:
            at = search.best(pool, indices)
            if at is None:
                break
            indices.append(at)
            sequence = np.asarray(pool[at], dtype=np.float64)
        chosen.append(sequence)
        search.take(sequence)
        if search.deficit == 0 and n_sequences is None:
            break
    return NextData(
        chosen, None if pool is None else indices, search.ranks, search.smallest,
        complete=search.deficit == 0, needed=missing > 0,
        undecided=certificate.verdict == UNDECIDED,
    )  # fmt: skip


class _Search:
    """The directions still unseen, and the second moment so far."""

    def __init__(self, certificate: Certificate, domain: TokenDomain, evidence: Evidence) -> None:
        self.certificate, self.domain, self.evidence = certificate, domain, evidence
        size, rank = evidence.space.dimension, certificate.rank
        if certificate.identifiable:
            self.unseen = np.zeros((size, 0))
        elif certificate.method == "exact" and rank is not None:
            # How many directions are unseen is known, whatever rounding makes of them.
            self.unseen = evidence.least_seen(size - rank)
        else:
            self.unseen = evidence.null_basis
        self.gram = evidence.gram.matrix.copy()
        self.weight = evidence.gram.total_weight
        self.rng = np.random.default_rng(0)
        self.ranks: list[int] = []
        self.smallest: list[float] = []

    @property
    def deficit(self) -> int:
        """How many directions are unseen."""
        return self.unseen.shape[1]

    def features(self, sequences: SequenceBatch | NDArray) -> NDArray[np.float64]:
        """Features (m, rows) of some sequences, or of one."""
        if not isinstance(sequences, SequenceBatch):
            sequences = SequenceBatch.from_sequences([sequences])
        return np.concatenate(list(self.evidence.features_of(sequences)), axis=1)

    def build(self) -> NDArray[np.float64]:
        """A sequence of the domain that shows much of what is unseen (or seen least)."""
        evidence, certificate, made = self.evidence, self.certificate, []
        for direction in self._wanted().T[:TRIED_DIRECTIONS]:
            sequence, _ = self.domain.separating_input(
                evidence.space.embed(direction), certificate.layout, evidence.token_size,
                evidence.token_exponent, self.rng,
            )  # fmt: skip
            made.append(sequence)
        return max(made, key=self._worth)

    def best(self, pool: SequenceBatch, taken: list[int]) -> int | None:
        """The candidate that shows most of what is unseen; None when none shows any."""
        rows = self.features(pool)
        borders = np.arange(len(pool)) if self.certificate.mode == "last" else pool.offsets[:-1]
        shown = np.add.reduceat(np.sum((self._wanted().T @ rows) ** 2, axis=0), borders)
        sizes = np.add.reduceat(np.sum(rows**2, axis=0), borders)
        shown[taken] = -1.0
        if not self.deficit:
            # Of eight candidates the effect on the smallest eigenvalue is computed.
            short_list = [int(at) for at in np.argsort(shown)[::-1][:8] if shown[at] > 0]
            return max(short_list, key=lambda at: self._worth(pool[at]), default=None)
        at = int(np.argmax(shown))
        return at if shown[at] > LEAST_SHARE**2 * sizes[at] else None

    def take(self, sequence: NDArray) -> None:
        """Go on as if the sequence had been collected."""
        rows = self.features(sequence)
        self.gram += rows @ rows.T
        self.weight += rows.shape[1]
        if self.deficit:
            shown = self.unseen.T @ rows
            size = float(np.linalg.norm(rows))
            self.unseen = self.unseen @ null_space(shown.T / size, rcond=LEAST_SHARE)
        self.ranks.append(self.evidence.space.dimension - self.deficit)
        self.smallest.append(0.0 if self.deficit else self._smallest(self.gram, self.weight))

    def _wanted(self) -> NDArray[np.float64]:
        """The unseen directions; if there are none, those of the smallest eigenvalues."""
        return self.unseen if self.deficit else np.linalg.eigh(self.gram)[1][:, :TRIED_DIRECTIONS]

    def _worth(self, sequence: NDArray) -> float:
        """How much of the unseen it shows, for its size; or the smallest eigenvalue with it."""
        rows = self.features(sequence)
        if self.deficit:
            return float(np.linalg.norm(self.unseen.T @ rows) / np.linalg.norm(rows))
        return self._smallest(self.gram + rows @ rows.T, self.weight + rows.shape[1])

    def _smallest(self, gram: NDArray, weight: float) -> float:
        """lambda_min of Lambda_D on the domain, tokens as they are: as certificates state it."""
        known = self.evidence
        sums = replace(known.gram, matrix=gram, total_weight=weight)
        # Rounding may show one below zero.
        smallest = max(0.0, float(np.linalg.eigvalsh(second_moment(sums, known.space))[0]))
        with np.errstate(over="ignore", under="ignore"):
            return float(np.ldexp(smallest, 6 * self.evidence.token_exponent))
