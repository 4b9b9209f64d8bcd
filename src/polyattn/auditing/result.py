"""Audit: the figures of an audit, what they imply, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polyattn.certify import Certificate
from polyattn.certify.verdict import IDENTIFIABLE, NOT_IDENTIFIABLE, UNDECIDED
from polyattn.display import Reported
from polyattn.sequences import Sequences

# Outcomes of an audit, beside UNDECIDED.
OPTIMAL, IMPROVABLE, BETTER = "optimal", "improvable", "better"


@dataclass(frozen=True, eq=False)
class Implied:
    """What the certificate says of every linear attention layer with the risk of the audited one.

    ``distance``: a bound of its coefficient distance to the optimum, sqrt(gap / lambda_min);
    infinite where the data do not determine the layer on all real inputs.
    """

    distance: float
    certificate: Certificate = field(repr=False)
    excess: float = field(repr=False)

    def bound(self, X: Sequences) -> Any:
        """How far two such layers can be apart on each input; half of it: from the optimum.

        Shaped like outputs without their last axis.
        """
        return self.certificate.bound(X, self.excess)


@dataclass(frozen=True, eq=False)
class Audit(Reported):
    """What ``audit`` returns.

    Attributes
    ----------
    risk : float
        Mean over predicted positions of ||y - F(X)||^2 for the audited layer.
    optimal_risk : float
        The least risk of any linear attention layer on these data, with any number of heads.
    gap : float
        risk - optimal_risk; 0 where it is negative by no more than ``rounding``.
    rounding : float
        How far rounding may have moved the gap.
    distance : float | None
        Frobenius norm of the difference of folded coefficients to the optimum (of all optima the
        one of smallest norm); None for a black box.
    implied : Implied | None
        Bounds by the certificate; None for a black box that fits better than any linear
        attention layer, and so is none.
    consistent : bool
        Whether ``distance`` obeys ``implied.distance`` up to rounding.  If not, the outputs are
        not those of the coefficients, and one of the two is wrong.
    certificate : Certificate
        Whether the data determine the layer.
    hidden : bool
        Whether some positions are missed by more than their own rounding, and yet ``rounding``
        exceeds a hundredth of that risk, or the optimum was found without directions that the
        certificate proves to be there.  Then gaps within ``rounding`` say nothing.
    optimal_norm : float | None
        Frobenius norm of the optimum's folded coefficients; None for a black box.
    """

    risk: float
    optimal_risk: float
    gap: float
    rounding: float
    distance: float | None
    implied: Implied | None
    consistent: bool
    certificate: Certificate = field(repr=False)
    hidden: bool = False
    optimal_norm: float | None = None

    @property
    def outcome(self) -> str:
        """What was found: "optimal" up to rounding, "improvable", "better" or "undecided".

        "better": a black box that fits better than any linear attention layer can.
        """
        if self.implied is None:
            return BETTER
        if self.gap > self.rounding:
            return IMPROVABLE
        return UNDECIDED if self.hidden else OPTIMAL

    @property
    def relative_distance(self) -> float | None:
        """``distance`` as a share of ``optimal_norm``; None where one is unknown or that is 0."""
        if self.distance is None or not self.optimal_norm:
            return None
        return self.distance / self.optimal_norm

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        found = " that was found" if self.outcome == UNDECIDED else ""
        text = (
            f"The layer has risk {self.risk:.4g}; the best linear attention layer{found} has "
            f"{self.optimal_risk:.4g} on these data. {self._gap_in_words()} "
            f"{self._distance_in_words()}"
        )
        if self.consistent:
            return text
        return (
            f"{text} This breaks the bound that the certificate implies: the outputs of the layer "
            "are not those of its coefficients."
        )

    def __str__(self) -> str:
        return self.sentence

    def _gap_in_words(self) -> str:
        outcome = self.outcome
        if outcome == BETTER:
            return "It is a black box that fits better than any linear attention layer can."
        if outcome == UNDECIDED:
            return (
                "Rounding hides whether it is optimal: float64 does not resolve all that these "
                "data say; sequences and coordinates of similar size can help."
            )
        if outcome == OPTIMAL:
            return f"It is optimal up to rounding ({self.rounding:.1e})."
        if self.optimal_risk <= self.rounding:
            return f"It could be better by {self.gap:.4g}."
        share = self.gap / self.optimal_risk
        return f"It could be better by {self.gap:.4g}, {share:.2g} times the best risk."

    def _distance_in_words(self) -> str:
        verdict = self.certificate.verdict
        determined = {
            IDENTIFIABLE: "the data determine the layer",
            NOT_IDENTIFIABLE: "the data do not determine the layer, so other optima may be nearer",
        }.get(verdict, "whether the data determine the layer is undecided")
        if self.distance is None:
            return f"Its coefficients are unknown; {determined.split(',')[0]}."
        limit = "" if self.implied is None else self._limit_in_words(self.implied.distance)
        away = f"{self.distance:.4g} from the optimum{limit}{self._share_in_words()}"
        return f"Its coefficients are {away}; {determined}."

    def _share_in_words(self) -> str:
        share = self.relative_distance
        return f", {share:.2g} times its norm" if share else ""

    def _limit_in_words(self, limit: float) -> str:
        return f" (at most {limit:.4g} by the certificate)" if np.isfinite(limit) else ""
