"""What estimators share: sequences as input, a result behind; fitting and streaming of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from polyattn.certify import Certificate, certify
from polyattn.certify.digest import digest_sequences
from polyattn.certify.domains import as_domain
from polyattn.certify.minimiser import excess_risk
from polyattn.certify.outcomes import NOT_IDENTIFIABLE
from polyattn.errors import InvalidInput, require_choice, require_flag, require_head_count
from polyattn.fitting.fit import fit
from polyattn.fitting.result import FitResult
from polyattn.numerics.parallel import computed_once
from polyattn.numerics.random_state import RandomState
from polyattn.outcome import Outcome
from polyattn.sequences import MODES, SequenceBatch, Sequences
from polyattn.solve.ridge import require_ridge
from polyattn.solve.solvers import SOLVERS
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

# Where a fit made no sums, moments of up to so many features (134 MB) are made for certificates.
MOST_FEATURES = 4096


class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: sequences in, and a result with its layer and its outcome."""

    result_: Any
    _plain: bool

    @property
    def layer_(self) -> Any:
        """The layer that was found; its heads are searched for on first access."""
        check_is_fitted(self)
        return self.result_.layer

    @property
    def outcome_(self) -> Outcome:
        """What was found, as a sentence."""
        check_is_fitted(self)
        return self.result_.outcome

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _fitted(self) -> Any:
        """What predicts, with mode, bias and n_dims: the layer, or a fit, which needs no heads."""
        check_is_fitted(self)
        return self.result_ if isinstance(self.result_, FitResult) else self.result_.layer

    def _outputs(self, X: Sequences) -> Any:
        """Outputs with their last axis of length e, in the form of X."""
        fitted = self._fitted()
        refuse_table(X)
        return fitted.predict(X) if isinstance(fitted, FitResult) else fitted(X)

    def _note_form(self, y: Any) -> None:
        """Remember whether y has one number per predicted position rather than a vector."""
        of_tokens = self.mode != "last"
        if of_tokens and isinstance(y, list | tuple):
            self._plain = np.ndim(y[0]) == 1
        else:
            self._plain = not isinstance(y, SequenceBatch) and np.ndim(y) == 1 + of_tokens

    def _shaped(self, outputs: Any) -> Any:
        """Outputs in the form of the y that was fitted."""
        return on_each(lambda each: each[..., 0], outputs) if self._plain else outputs

    def _scored(
        self, X: Sequences, targets: Targets, sample_weight: ArrayLike | None, n_outputs: int
    ) -> tuple[Rows, NDArray[np.float64]]:
        """Targets and weights, one row per predicted position, and the outputs (n_rows, e)."""
        fitted = self._fitted()
        refuse_table(X)
        known = (fitted.n_dims, n_outputs)
        rows = Rows.build(X, targets, fitted.mode, fitted.bias, sample_weight, *known)
        outputs = self._outputs(rows.batch)
        return rows, np.concatenate(outputs) if isinstance(outputs, list) else outputs


class LinearEstimator(SequenceEstimator):
    """Base of the linear estimators: parameters, fitting, streaming, what is known afterwards."""

    def __init__(
        self,
        mode: str = "last",
        ridge: float | str = 0.0,
        n_heads: int | str | None = None,
        solver: str = "auto",
        bias: bool = False,
        random_state: RandomState = 0,
        ridge_grid: ArrayLike | None = None,
    ) -> None:
        self.mode = mode
        self.ridge = ridge
        self.n_heads = n_heads
        self.solver = solver
        self.bias = bias
        self.random_state = random_state
        self.ridge_grid = ridge_grid

    @property
    def result_(self) -> FitResult:
        """What ``polyattn.fit`` returned; after ``partial_fit`` the first access solves."""
        check_is_fitted(self)
        return self._state.result

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Folded coefficients (e, q, d) of the fitted layer."""
        return self.result_.coef

    @property
    def certificate_(self) -> Certificate:
        """Whether the training data determine the layer; certified on first access."""
        check_is_fitted(self)
        return self._state.certificate

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def _learn(self, X: Sequences, targets: Targets, sample_weight: ArrayLike | None) -> Self:
        """From scratch."""
        refuse_table(X)
        result = fit(
            X, targets, mode=self.mode, bias=self.bias, sample_weight=sample_weight,
            try_exact=False,  # partial_fit goes on with the sums
            **self._options(),
        )  # fmt: skip
        state = FittedState(result.statistics)
        state.result = result
        if result.statistics is None:
            rows = Rows.build(X, targets, self.mode, result.bias, sample_weight)
            state.evidence = evidence_of(rows)
        self._state, self.n_features_in_, self.n_outputs_ = state, result.n_dims, len(result.coef)
        self._note_form(targets)
        return self

    def _learn_more(self, X: Sequences, targets: Targets, sample_weight: ArrayLike | None) -> Self:
        """Add to the sums of all calls so far."""
        refuse_table(X)
        kind = self._streaming_kind()
        sums = self._continued_sums(kind) if self.__sklearn_is_fitted__() else None
        known = (None, None) if sums is None else (sums.n_dims, sums.n_outputs)
        rows = Rows.build(X, targets, self.mode, bool(self.bias), sample_weight, *known)
        if sums is None:
            sums = kind(rows.n_dims, rows.n_outputs, self.mode, bool(self.bias))
            self._note_form(targets)
        sums.add_rows(rows)
        self._state = FittedState(sums, self._options())
        self.n_features_in_, self.n_outputs_ = sums.n_dims, sums.n_outputs
        return self

    def _predicted(self, X: Sequences, return_bound: bool) -> Any:
        """Outputs for X; with ``return_bound`` also how far layers of no more risk can be apart."""
        bounded = require_flag("return_bound", return_bound)
        outputs = self._outputs(X)
        shaped, state = self._shaped(outputs), self._state
        if not bounded:
            return shaped
        if state.certificate.identifiable:
            return shaped, state.certificate.bound(X, state.excess)
        return shaped, on_each(lambda each: np.full(each.shape[:-1], np.inf), outputs)

    def _options(self) -> dict[str, Any]:
        names = ("ridge", "n_heads", "solver", "random_state", "ridge_grid")
        return {name: getattr(self, name) for name in names}

    def _streaming_kind(self) -> type[Moments] | type[TriangularFactor]:
        """Which sums the parameters need; refuses at once what sums cannot do later."""
        require_choice("mode", self.mode, MODES)
        require_choice("solver", self.solver, ("auto", *SOLVERS))
        require_head_count(self.n_heads)
        if require_ridge(self.ridge, self.ridge_grid) == "loo":
            raise InvalidInput(
                "partial_fit keeps sums, not sequences, so ridge='loo' has nothing to leave out; "
                "set ridge='gcv' or a number."
            )
        if self.solver not in ("auto", "primal", "direct"):
            raise InvalidInput(
                f"partial_fit keeps sums, which solver={self.solver!r} does not use; set solver "
                "to 'auto', 'primal' or 'direct'."
            )
        if self.solver == "direct" and self.ridge == "gcv":
            raise InvalidInput(
                "ridge='gcv' needs moments, but solver='direct' keeps a triangular factor; set "
                "solver='primal' or ridge to a number."
            )
        return TriangularFactor if self.solver == "direct" else Moments

    def _continued_sums(
        self, kind: type[Moments] | type[TriangularFactor]
    ) -> Moments | TriangularFactor:
        """The sums to add to, refused where they cannot be continued."""
        sums = self._state.statistics
        if sums is None:
            raise InvalidInput(
                f"fit solved by {self._state.result.solver!r}, which keeps no sums to add to; "
                "give all data to partial_fit of a fresh estimator (sklearn.base.clone)."
            )
        if type(sums) is not kind or (sums.mode, sums.bias) != (self.mode, bool(self.bias)):
            raise InvalidInput(
                "mode, bias or solver changed since the sums were begun; start again with a "
                "fresh estimator (sklearn.base.clone)."
            )
        # A result and a certificate refer to the sums they were made of.
        return sums.copy() if vars(self._state).keys() & {"result", "certificate"} else sums


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

    def __getstate__(self) -> dict[str, Any]:
        # A certificate refers to matrices that are made again on its next use.
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


def refuse_table(X: Any) -> None:
    """Refuse a table (rows, columns), the usual mistake, and say how to make it sequences."""
    if getattr(X, "ndim", None) == 2:
        raise InvalidInput(
            f"X must have shape (n_sequences, n_tokens, n_dims) or be a list of arrays (n_tokens, "
            f"n_dims); got a table of shape {np.shape(X)}. X[None] makes it one sequence, "
            "X[:, None, :] sequences of one token each."
        )


def on_each(function: Callable[[NDArray], NDArray], arrays: NDArray | list[NDArray]) -> Any:
    """A function of an array, or of every array of a list."""
    return [function(array) for array in arrays] if isinstance(arrays, list) else function(arrays)
