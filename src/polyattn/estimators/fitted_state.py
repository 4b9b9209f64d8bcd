"""What an estimator keeps of its data: sums, the result, and what its certificate needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyattn.certify import Certificate, certify
from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import as_domain
from polyattn.certify.minimiser import excess_risk
from polyattn.certify.outcomes import NOT_IDENTIFIABLE
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
    """Sums, the options to solve them with, and a result that may be there already; no sequences.

    ``partial_fit`` only adds to the sums; a long stream is solved once, on first use.
    evidence : what is known of the data where the fit made no sums, for the certificate
    """

    statistics: Moments | TriangularFactor | None
    options: dict[str, Any] = field(default_factory=dict)
    evidence: Moments | Certificate | None = None

    @computed_once
    def result(self) -> FitResult:
        """The result; on first use after ``partial_fit`` this solves."""
        return fit(statistics=self.statistics, **self.options)

    @computed_once
    def certificate(self) -> Certificate:
        """Whether the data so far determine the layer on real inputs; made on first use."""
        if isinstance(self.evidence, Certificate):
            return self.evidence
        sums = self.statistics or self.evidence
        if sums is None:
            raise InvalidInput(
                "the fit kept no sums, and of so many features none are made for a certificate; "
                "call polyattn.certify(X), or fit with solver='primal'."
            )
        return certify(statistics=sums)

    @computed_once
    def excess(self) -> float:
        """By how much the training risk exceeds the least of any layer (ridge, few heads)."""
        sums = self.statistics or self.evidence
        if sums is None or isinstance(sums, Certificate):
            return np.inf
        return excess_risk(self.result.coef, sums)

    def __getstate__(self) -> dict[str, Any]:
        # A certificate refers to matrices that are made again on its next use.
        return {name: value for name, value in vars(self).items() if name != "certificate"}


def evidence_of(rows: Rows) -> Moments | Certificate | None:
    """What a certificate will need of data that were fitted without sums; or the certificate.

    Cost: a digest for few rows, the pass of ``Moments`` for many.
    """
    layout, real, dimension = rows.layout, as_domain("real"), rows.n_features
    if rows.n_positive < dimension:
        try:
            # Features of a form can depend on each other wherever they are looked at.
            dimension = real.space(layout).dimension
        except InvalidInput:
            # There are too many of them to say which do.
            return None
    if rows.n_positive >= dimension:
        return Moments.of(rows) if rows.n_features <= MOST_FEATURES else None
    # N equations never fix more than N unknowns.
    return Certificate(
        verdict=NOT_IDENTIFIABLE, verdict_on_real_inputs=NOT_IDENTIFIABLE,
        domain=real, mode=rows.mode, bias=rows.bias, n_dims=rows.n_dims,
        n_sequences=len(rows.batch), n_rows=rows.n_positive, n_features=rows.n_features,
        dimension=dimension, rank=None, lambda_min=0.0, lambda_max=None,
        method="count", rounding=0.0, digest=digest_sequences(rows.batch, rows.context),
        given_form=None if rows.form.is_plain else rows.form,
        n_context_dims=layout.n_context_dims,
        min_length=rows.min_length, max_length=rows.max_length,
    )  # fmt: skip
