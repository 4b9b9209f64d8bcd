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
    evidence: Moments | Certificate | None = None

    @computed_once
    def result(self) -> FitResult:
        """The result; on first use after ``partial_fit`` this solves."""
        return self.given or fit(statistics=self.statistics, **self.options)

    @computed_once
    def certificate(self) -> Certificate:
        """Whether the data so far determine the layer on real inputs; made on first use."""
        if isinstance(self.evidence, Certificate):
            return self.evidence
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
        if sums is None or isinstance(sums, Certificate):
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


def evidence_of(rows: Rows) -> Moments | Certificate | None:
    """What a certificate will need of data that were fitted without sums; or the certificate.

    Cost: a digest for few rows, the pass of ``Moments`` for many.
    """
    if rows.n_positive >= rows.n_features:
        return Moments.of(rows) if rows.n_features <= MOST_FEATURES else None
    # N equations never fix more than N unknowns.
    return Certificate(
        verdict=NOT_IDENTIFIABLE, verdict_on_real_inputs=NOT_IDENTIFIABLE,
        domain=as_domain("real"), mode=rows.mode, bias=rows.bias, n_dims=rows.n_dims,
        n_sequences=len(rows.batch), n_rows=rows.n_positive, n_features=rows.n_features,
        dimension=rows.n_features, rank=None, lambda_min=0.0, lambda_max=None,
        method="count", rounding=0.0, digest=digest_sequences(rows.batch),
    )  # fmt: skip
