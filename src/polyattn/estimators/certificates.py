"""Certificates of fitted estimators, which keep sums or counts and never the sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.certify import Certificate, certify
from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import as_domain
from polyattn.certify.verdict import NOT_IDENTIFIABLE
from polyattn.errors import InvalidInput
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

# Where a fit made no sums, moments of up to so many features (134 MB) are made for certificates.
MOST_FEATURES = 4096


@dataclass(frozen=True)
class Counts:
    """Data of fewer predicted positions than features: numbers that suffice for a verdict."""

    n_dims: int
    mode: str
    bias: bool
    n_sequences: int
    n_rows: int  # of positive weight
    n_features: int
    digest: str

    @classmethod
    def of(cls, rows: Rows) -> Counts:
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


Evidence = Moments | TriangularFactor | Counts


def evidence_of(rows: Rows) -> Moments | Counts | None:
    """What a certificate will need of data that were fitted without sums.

    Cost: a digest for few rows, the pass of ``Moments`` for many.
    """
    if rows.n_positive < rows.n_features:
        return Counts.of(rows)
    return Moments.of(rows) if rows.n_features <= MOST_FEATURES else None


def certificate_of(evidence: Evidence | None) -> Certificate:
    """The certificate for all real inputs."""
    if evidence is None:
        raise InvalidInput(
            f"the fit kept no sums, and of more than {MOST_FEATURES} features none are made for a "
            "certificate; call polyattn.certify(X), or fit with solver='primal'."
        )
    if isinstance(evidence, Counts):
        return evidence.certificate()
    return certify(statistics=evidence)


def infinite_bounds(outputs: NDArray | list[NDArray]) -> Any:
    """Infinity for each predicted position of outputs (..., e)."""
    if isinstance(outputs, list):
        return [infinite_bounds(array) for array in outputs]
    return np.full(outputs.shape[:-1], np.inf)
