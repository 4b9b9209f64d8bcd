"""Certificate: do the data determine the layer?  A verdict, its figures, and a sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar

from polyattn.certify.bounds import disagreement_bound
from polyattn.certify.domains import Domain
from polyattn.certify.domains.spaces import Direction
from polyattn.certify.evidence import Evidence
from polyattn.certify.next_data import NextData, next_data
from polyattn.certify.noise import Noise
from polyattn.certify.outcomes import (
    IDENTIFIABLE,
    NOT_IDENTIFIABLE,
    Verdict,
    certificate_outcome,
    rank_at_most,
)
from polyattn.certify.structure import FeatureRelations, Structure
from polyattn.certify.witness import Witness, find_witness
from polyattn.display import Description, Reported, Result
from polyattn.errors import InvalidInput, InvalidType, require_confidence
from polyattn.files.atomic import refuse_other_format, write_atomically
from polyattn.form import Form, Layout
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.model import LinearAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.outcome import Outcome
from polyattn.quoting import shown
from polyattn.sequences import Sequences
from polyattn.sizes_in_words import data_in_words, data_sizes_in_words


@dataclass(frozen=True, eq=False)
class Certificate(Reported, Result):
    """What ``certify`` returns.

    Attributes
    ----------
    verdict : "identifiable" | "not_identifiable" | "undecided"
        Whether every empirical risk minimiser is the same function on every sequence of
        ``domain``; the name of ``outcome``.
    verdict_on_real_inputs
        The same for all real inputs, of any length.
    lambda_min, lambda_max : float | None
        Ends of the spectrum of Lambda_D on the features of the domain; estimates, None where
        float64 cannot hold them, or where counting a few rows of wide tokens was enough.
    rank, dimension, n_features : int
        Rank of the data's features, dimension of the domain's, and p.
    method : "count" | "exact" | "gram" | "triangular" | "span" | "structure"
        How the verdict was reached.
    structure : Structure | None
        Features that are always zero or multiples of others in the data, if there are such, and
        whether the data determine all others.
    form : Form
        The layer that it is about; ``mode`` and ``bias`` are its own.
    rounding : float
        The rounding bound that the proof overcame, relative to features of size one.
    direction : integers or floats | None
        A difference of coefficients (p,) that the training data do not see.
    digest : str
        SHA-256 of the data (or sums) the certificate is about.
    """

    kind: ClassVar = "certificate"

    verdict: str
    verdict_on_real_inputs: str
    domain: Domain
    mode: str
    bias: bool
    n_dims: int
    n_sequences: int
    n_rows: int
    n_features: int
    dimension: int | None
    rank: int | None
    lambda_min: float | None
    lambda_max: float | None
    method: str
    rounding: float
    digest: str
    note: str = ""
    prime: int | None = None
    structure: Structure | None = None
    given_form: Form | None = field(default=None, repr=False)  # None for the papers' layer
    n_context_dims: int | None = None
    min_length: int | None = None  # tokens of the shortest sequence; None: unknown
    max_length: int | None = None
    given_direction: Direction | None = field(default=None, repr=False)
    evidence: Evidence | None = field(default=None, repr=False)
    relations: FeatureRelations | None = field(default=None, repr=False)  # behind ``structure``

    @property
    def identifiable(self) -> bool:
        """Whether the verdict is "identifiable"."""
        return self.verdict == IDENTIFIABLE

    @property
    def form(self) -> Form:
        """The layer that the certificate is about."""
        return self.given_form or Form(mode=self.mode, bias=self.bias)

    @property
    def layout(self) -> Layout:
        """Its form for tokens of this width."""
        return Layout.of(self.form, self.n_dims, self.n_context_dims)

    @property
    def data_sizes(self) -> str:
        """The data: "300 sequences, 4 tokens of 50 coordinates"; older files lack the lengths."""
        ends = (self.min_length, self.max_length)
        return data_sizes_in_words(self.n_sequences, self.n_dims, *ends)

    @cached_property
    def direction(self) -> Direction | None:
        """Coefficients (p,) that the training data do not see; None unless not identifiable."""
        if self.verdict != NOT_IDENTIFIABLE or self.given_direction is not None:
            return self.given_direction
        if self.evidence is None:
            return None
        return self.evidence.space.embed(self.evidence.unseen_direction())

    @property
    def outcome(self) -> Outcome[Verdict]:
        """The verdict by name and in words, with the figures it rests on."""
        return certificate_outcome(self)

    def describe(self) -> Description:
        names = (
            "verdict_on_real_inputs", "domain", "n_sequences", "n_rows", "rank", "dimension",
            "n_features", "lambda_min", "lambda_max", "method", "rounding", "prime", "digest",
        )  # fmt: skip
        facts = {name: getattr(self, name) for name in names} | {"domain": str(self.domain)}
        if self.prime is None:
            del facts["prime"]
        sizes = {name: getattr(self, name) for name in ("verdict", "n_dims", "mode", "bias")}
        if self.rank is None:
            # In tables stands what is known of it.
            sizes["rank"] = facts.pop("rank")
            facts["rank_at_most"] = rank_at_most(self)
        if self.structure is not None:
            facts["structure"] = self.structure.to_dict()
        sizes |= form_sizes(self.layout)
        words = form_in_words(self.layout)
        data = data_in_words(self.data_sizes, self.mode, words)
        return self._described("A certificate", f"A certificate of {data}", facts, sizes=sizes)

    def to_full_dict(self) -> dict[str, Any]:
        """The document that ``save`` writes."""
        from polyattn.certify.document import to_document

        return to_document(self)

    @single_threaded_blas()
    def witness(self, layer: LinearAttention | None = None) -> Witness:
        """Two layers of equal training loss, and a short input of the domain where they differ.

        ``layer``: one of the two, if you like; by default both are made from the direction.
        """
        if self.verdict == NOT_IDENTIFIABLE and self.direction is None:
            self.require_evidence("a witness")
        if self.verdict != NOT_IDENTIFIABLE or self.direction is None:
            raise InvalidInput(
                f"there is no witness: the verdict is {self.verdict!r}. "
                + ("All minimisers agree on the domain." if self.identifiable else self.note)
            )
        if not (layer is None or isinstance(layer, LinearAttention)):
            raise InvalidType(f"layer must be a LinearAttention; got {shown(layer)}.")
        return find_witness(self, self.direction, layer)

    @single_threaded_blas()
    def bound(
        self,
        X: Sequences,
        risk: float,
        optimal_risk: float = 0.0,
        kind: str = "leverage",
        context: Sequences | None = None,
        *,
        noise_power: float | None = None,
        noise_bound: float | None = None,
        noise: float | None = None,
        n_outputs: int | None = None,
        confidence: float = 0.99,
    ) -> Any:
        """How far two layers of training risk at most ``risk`` can be apart on each input.

        Parameters
        ----------
        X : sequences, as for a layer
        context : sequences, optional
            What they attend to, where these are others.
        risk : float
            Mean over predicted positions of ||y - F(X)||^2 on the training data, for both.
        optimal_risk : float
            The least risk of any layer on these data, without a ridge; 0 for data that come from a
            layer.  A fit without a ridge and ``audit`` return it; the ``optimal_risk`` of a fit
            with a ridge is larger, and the bound would be too small.
        kind : "leverage" | "worst_case"
            2 sqrt(excess psi^T Lambda^-1 psi), or 2 sqrt(excess / lambda_min) ||psi||.
        noise_power, noise_bound : float, optional
            Instead of ``optimal_risk``, for targets that a layer computes but for noise: the mean
            of ||noise||^2 over the predicted positions, and a number that ||noise|| never exceeds.
        noise, n_outputs : float and int, optional
            The same for Gaussian noise: its standard deviation, and how many outputs have it.
        confidence : float
            The probability, over the noise, with which the bound then holds on all inputs at once.

        Returns
        -------
        array
            A bound of ||F(X) - F'(X)||, shaped like the outputs of a layer without their last
            axis.  Infinite unless the verdict is "identifiable".

        Guarantee: with ``optimal_risk`` a theorem about the data [yau2024: Lemma A.7], corrected.
        With noise [yau2024: Lemma E.2], corrected: noise that is independent from position to
        position and of mean zero, given the sequences (docs/derivations/bounds.md).
        """
        known = Noise(noise_power, noise_bound, noise, n_outputs, require_confidence(confidence))
        return disagreement_bound(self, X, risk, optimal_risk, kind, context, known)

    @single_threaded_blas()
    def next_data(
        self, candidates: Sequences | None = None, n_sequences: int | None = None
    ) -> NextData:
        """Sequences to collect so that the data become identifiable.

        From ``candidates``, or built inside the domain; each raises the rank, and once that is
        full, the smallest eigenvalue.  ``n_sequences``: how many at most.
        """
        return next_data(self, candidates, n_sequences)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the certificate as a JSON document: complete, or not at all."""
        refuse_other_format(path, ".json")
        written = json.dumps(self.to_full_dict(), indent=2, allow_nan=False)
        write_atomically(path, lambda file: file.write(written.encode() + b"\n"))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Certificate:
        """Read what ``save`` wrote; ``polyattn.verify`` says whether it is true of your data."""
        from polyattn.certify.document import read_document

        return read_document(path)

    def require_evidence(self, what: str) -> Evidence:
        """The data behind the certificate; a certificate from a file has none."""
        if self.evidence is None:
            raise InvalidInput(
                f"{what} needs the data behind the certificate, and a file or an estimator of few "
                "rows holds only the verdict; certify the data again."
            )
        return self.evidence

    def __repr__(self) -> str:
        smallest = "unknown" if self.lambda_min is None else f"{self.lambda_min:.3g}"
        rank = f"at most {rank_at_most(self)}" if self.rank is None else self.rank
        return (
            f"Certificate({self.verdict}, domain {str(self.domain)!r}, rank {rank} of "
            f"{self.dimension}, lambda_min {smallest}, method {self.method!r})"
        )
