"""The fitted state of an estimator: a result or sums to be solved, and what a certificate needs.

The sequences themselves are never kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyattn.certify import Certificate, certify
from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import as_domain
from polyattn.certify.minimiser import excess_risk
from polyattn.certify.verdict import NOT_IDENTIFIABLE
from polyattn.errors import InvalidInput
from polyattn.fitting.fit import fit
from polyattn.fitting.result import FitResult
from polyattn.numerics.parallel import computed_once
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# Where a fit made no sums, moments of up to so many features (134 MB) are made for certificates.
MOST_FEATURES = 4096


@dataclass(eq=False)
class FittedState:
    """Sums and the options to solve them with, or a result that is there already.

    ``partial_fit`` only adds to the sums; the solution waits here for the first question, so a
    stream of a thousand pieces is solved once.

    evidence : what is known of the data where the fit made no sums, for the certificate
    """

    statistics: Moments | TriangularFactor | None
    options: dict[str, Any] = field(default_factory=dict)
    given: FitResult | None = None
    evidence: Moments | RowCounts | None = None

    @computed_once
    def result(self) -> FitResult:
        """The result; on first use after ``partial_fit`` this solves."""
        return self.given or fit(statistics=self.statistics, **self.options)

    @computed_once
    def certificate(self) -> Certificate:
        """Whether the data so far determine the layer on real inputs; made on first use."""
        if isinstance(self.evidence, RowCounts):
            return self.evidence.certificate()
        sums = self.statistics or self.evidence
        if sums is None:
            raise InvalidInput(
                f"the fit kept no sums, and of more than {MOST_FEATURES} features none are made "
                "for a certificate; call polyattn.certify(X), or fit with solver='primal'."
            )
        return certify(statistics=sums)

    @computed_once
    def excess(self) -> float:
        """By how much the training risk exceeds the least of any layer (ridge, few heads)."""
        sums = self.statistics or self.evidence
        if sums is None or isinstance(sums, RowCounts):
            return np.inf
        return excess_risk(self.result.coef, sums)

    def sums_to_extend(self) -> Moments | TriangularFactor | None:
        """The sums; a copy of them where something that was handed out refers to them."""
        asked = vars(self).keys() & {"result", "certificate"}
        handed_out = self.given is not None or bool(asked)
        return self.statistics.copy() if handed_out and self.statistics else self.statistics

    def __getstate__(self) -> dict[str, Any]:
        # A certificate refers to matrices that are made again when it is asked for.
        return {name: value for name, value in vars(self).items() if name != "certificate"}


def evidence_of(rows: Rows) -> Moments | RowCounts | None:
    """What a certificate will need of data that were fitted without sums.

    Cost: a digest for few rows, the pass of ``Moments`` for many.
    """
    if rows.n_positive < rows.n_features:
        return RowCounts.of(rows)
    return Moments.of(rows) if rows.n_features <= MOST_FEATURES else None


@dataclass(frozen=True)
class RowCounts:
    """Data of fewer predicted positions than features: numbers that suffice for a verdict."""

    n_dims: int
    mode: str
    bias: bool
    n_sequences: int
    n_rows: int  # of positive weight
    n_features: int
    digest: str

    @classmethod
    def of(cls, rows: Rows) -> RowCounts:
        """The counts, and the digest that says which data they are about."""
        return cls(
            rows.n_dims, rows.mode, rows.bias, len(rows.batch), rows.n_positive, rows.n_features,
            digest_sequences(rows.batch),
        )  # fmt: skip

    def certificate(self) -> Certificate:
        """N equations never fix more than N unknowns."""
        return Certificate(
            verdict=NOT_IDENTIFIABLE, verdict_on_real_inputs=NOT_IDENTIFIABLE,
            domain=as_domain("real"), mode=self.mode, bias=self.bias, n_dims=self.n_dims,
            n_sequences=self.n_sequences, n_rows=self.n_rows, n_features=self.n_features,
            dimension=self.n_features, rank=None, lambda_min=0.0, lambda_max=None,
            method="count", rounding=0.0, digest=self.digest,
        )  # fmt: skip
