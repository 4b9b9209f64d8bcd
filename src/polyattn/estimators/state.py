"""The fitted state of an estimator: a result, or sums that are still to be solved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyattn.certify import Certificate
from polyattn.certify.minimiser import excess_risk
from polyattn.estimators.certificates import Counts, Evidence, certificate_of
from polyattn.fitting.fit import fit
from polyattn.fitting.result import FitResult
from polyattn.numerics.parallel import computed_once
from polyattn.stats import Moments, TriangularFactor


@dataclass(eq=False)
class FittedState:
    """Sums and the options to solve them with, or a result that is there already.

    ``partial_fit`` only adds to the sums; the solution waits here for the first question, so a
    stream of a thousand pieces is solved once.
    """

    statistics: Moments | TriangularFactor | None
    options: dict[str, Any] = field(default_factory=dict)
    given: FitResult | None = None
    beside: Evidence | None = None  # for the certificate, where the fit made no sums

    @computed_once
    def result(self) -> FitResult:
        """The result; on first use after ``partial_fit`` this solves."""
        return self.given or fit(statistics=self.statistics, **self.options)

    @computed_once
    def certificate(self) -> Certificate:
        """Whether the data seen so far determine the layer, computed on first use."""
        return certificate_of(self._evidence)

    @computed_once
    def excess(self) -> float:
        """By how much the training risk exceeds the least of any layer (ridge, few heads)."""
        evidence = self._evidence
        if evidence is None or isinstance(evidence, Counts):
            return np.inf
        return excess_risk(self.result.coef, evidence)

    def sums_to_extend(self) -> Moments | TriangularFactor | None:
        """The sums; a copy of them where something that was handed out refers to them."""
        asked = vars(self).keys() & {"result", "certificate"}
        handed_out = self.given is not None or bool(asked)
        return self.statistics.copy() if handed_out and self.statistics else self.statistics

    @property
    def _evidence(self) -> Evidence | None:
        return self.beside if self.statistics is None else self.statistics

    def __getstate__(self) -> dict[str, Any]:
        # A certificate refers to matrices that are made again when it is asked for.
        return {name: value for name, value in vars(self).items() if name != "certificate"}
