"""Audit: the figures of an audit, what they imply, and the outcome in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from polyattn.certify import Certificate
from polyattn.certify.document import from_document
from polyattn.certify.outcomes import IDENTIFIABLE, NOT_IDENTIFIABLE
from polyattn.display import Description, Reported, Result, plain
from polyattn.errors import FileFormatError
from polyattn.files.fields import any_object, entries, flag, nullable, number
from polyattn.files.records import Record
from polyattn.form.in_words import form_in_words
from polyattn.outcome import Meaning, Outcome, OutcomeSet
from polyattn.sequences import Sequences
from polyattn.sizes_in_words import data_in_words

AuditName = Literal["optimal", "improvable", "better", "undecided", "inconsistent"]

AUDIT_OUTCOMES = OutcomeSet[AuditName](
    "Audit",
    {
        "optimal": Meaning(True, "No linear attention layer is better, up to rounding."),
        "improvable": Meaning(False, "Another linear attention layer is better on these data."),
        "better": Meaning(True, "A black box, better than any linear attention layer can be."),
        "undecided": Meaning(False, "Rounding hides whether the layer is optimal."),
        "inconsistent": Meaning(
            False, "The outputs of the layer are not those of its coefficients: one is wrong."
        ),
    },
)

# What a file holds as it is, beside the certificate and the bounds it implies.
PLAIN = {
    "risk": number(0), "optimal_risk": number(0), "gap": number(), "rounding": number(0),
    "distance": nullable(number(0)), "consistent": flag, "hidden": flag,
    "optimal_norm": nullable(number(0)),
}  # fmt: skip

# Files of older releases lack them.
OF_OUTPUTS = dict.fromkeys(("output_distance", "optimal_output"), nullable(number(0)))

FIELDS = entries(
    PLAIN | {
        "certificate": any_object,
        # No distance: there is no bound.
        "implied": nullable(entries({"distance": nullable(number(0)), "excess": number(0)})),
    },
    OF_OUTPUTS,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Implied:
    """What the certificate says of every linear attention layer with the risk of the audited one.

    ``distance``: a bound of its coefficient distance to the optimum, sqrt(gap / lambda_min);
    infinite where the data do not determine the layer on all real inputs.
    """

    distance: float
    certificate: Certificate = field(repr=False)
    excess: float = field(repr=False)

    def bound(self, X: Sequences, context: Sequences | None = None) -> Any:
        """How far two such layers can be apart on each input; half of it: from the optimum.

        context : what the sequences of X attend to, where these are others
        Shaped like outputs without their last axis.  An audit from a file is without the data
        that this needs; audit the layer again.
        """
        return self.certificate.bound(X, self.excess, context=context)


@dataclass(frozen=True, eq=False)
class Audit(Reported, Result):
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
        Frobenius norm of the difference of folded coefficients to the optimum, as far as the data
        see them: each of the two layers is replaced by the one of smallest norm with the same
        outputs on the data.  None for a black box.
    output_distance, optimal_output : float | None
        Root mean square over the data of the difference of its outputs to those of the optimum,
        and of these themselves; ``relative_output_distance`` is their ratio, in which no unit of
        tokens or targets counts.  Of black boxes too; None in files of older releases.
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

    kind: ClassVar = "audit"

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
    output_distance: float | None = None
    optimal_output: float | None = None

    @property
    def outcome(self) -> Outcome[AuditName]:
        """What was found, by a name of ``AuditName``, and in words."""
        name, gap, advice = self._gap_in_words()
        found = " that was found" if name == "undecided" else ""
        text = (
            f"Its risk is {self.risk:.4g}, that of the best linear attention layer{found} "
            f"{self.optimal_risk:.4g}. {gap} {self._distance_in_words()}"
        )
        return AUDIT_OUTCOMES(name, text, advice)

    @property
    def relative_distance(self) -> float | None:
        """``distance`` as a share of ``optimal_norm``; None where one is unknown or that is 0."""
        if self.distance is None or not self.optimal_norm:
            return None
        return self.distance / self.optimal_norm

    @property
    def relative_output_distance(self) -> float | None:
        """``output_distance`` beside ``optimal_output``; None where one is unknown or that is 0."""
        if self.output_distance is None or not self.optimal_output:
            return None
        return self.output_distance / self.optimal_output

    def describe(self) -> Description:
        names = (
            "risk", "optimal_risk", "gap", "rounding", "output_distance",
            "relative_output_distance", "distance", "relative_distance",
        )  # fmt: skip
        facts = {name: getattr(self, name) for name in names} | {
            "implied_distance": None if self.implied is None else self.implied.distance,
            "consistent": self.consistent,
            "certificate": self.certificate.to_dict(),
        }
        own = self.certificate
        words = form_in_words(own.layout)
        about = f"An audit on {data_in_words(own.data_sizes, own.mode, words)}"
        return self._described("An audited layer", about, facts)

    def to_full_dict(self) -> dict[str, Any]:
        """All figures, and the certificate as the document that can be checked."""
        return self.to_dict() | {"certificate": self.certificate.to_full_dict()}

    def to_record(self) -> Record:
        """The content as plain metadata, the certificate as its document."""
        metadata: dict[str, Any] = {name: getattr(self, name) for name in PLAIN | OF_OUTPUTS}
        metadata["certificate"] = self.certificate.to_full_dict()
        metadata["implied"] = None
        if self.implied is not None:
            bounds = {"distance": self.implied.distance, "excess": self.implied.excess}
            metadata["implied"] = plain(bounds)
        return Record("audit", {}, metadata)

    @classmethod
    def from_record(cls, record: Record) -> Audit:
        """The inverse of ``to_record``; the certificate comes without its data."""
        held = record.metadata
        entries({})(record.arrays, "arrays")
        FIELDS(held, "metadata")
        try:
            certificate = from_document(held["certificate"])
        except FileFormatError as error:
            raise FileFormatError(f"metadata.certificate: {error}") from None
        implied = None
        if held["implied"] is not None:
            distance, excess = held["implied"]["distance"], held["implied"]["excess"]
            implied = Implied(np.inf if distance is None else distance, certificate, excess)
        return cls(**{**held, "implied": implied, "certificate": certificate})

    def __repr__(self) -> str:
        return f"Audit({self.outcome.name}, risk {self.risk:.3g}, gap {self.gap:.3g})"

    def _gap_in_words(self) -> tuple[AuditName, str, str]:
        """The name of the outcome, what the gap says, and what to do about it."""
        if not self.consistent:
            text = "Its outputs are not those of its coefficients, by the certificate's bound."
            return "inconsistent", text, "Audit its outputs alone, as a function, or correct one."
        if self.implied is None:
            text = "A black box, it fits better than any linear attention layer can."
            return "better", text, ""
        if self.gap <= self.rounding and self.hidden:
            advice = "Sequences and coordinates of similar size can help."
            return "undecided", "Rounding hides whether it is optimal.", advice
        if self.gap <= self.rounding:
            return "optimal", f"It is optimal up to rounding ({self.rounding:.1e}).", ""
        return "improvable", f"It could be better by {self.gap:.4g}.", "pa.fit finds that layer."

    def _distance_in_words(self) -> str:
        """How far its outputs are from those of the optimum, and what the data determine."""
        determined = {
            IDENTIFIABLE: "The data determine the layer.",
            NOT_IDENTIFIABLE: "The data do not determine the layer.",
        }.get(self.certificate.verdict, "Whether the data determine the layer is open.")
        if self.relative_output_distance is None:
            return determined
        away = f"Its outputs are off by {self.relative_output_distance:.2g} of the optimum's size."
        return f"{away} {determined}"
