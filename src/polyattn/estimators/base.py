"""What estimators share: sequences as input, a result behind; fitting and streaming of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from polyattn.certify import Certificate
from polyattn.errors import InvalidInput, require_choice, require_flag, require_head_count
from polyattn.estimators.arguments import require_targets, tokens_first
from polyattn.estimators.description import DescribedEstimator
from polyattn.estimators.feature_names import NamesOfFeatures
from polyattn.estimators.fitted_state import FittedState, evidence_of
from polyattn.estimators.reported import ReportedEstimator
from polyattn.fitting.fit import fit
from polyattn.fitting.one_hot.result import OneHotFit
from polyattn.fitting.result import FitResult
from polyattn.form.form import PARTS, Form, require_form
from polyattn.form.layout import Layout
from polyattn.form.unknown import answers_unknown
from polyattn.numerics.random_state import RandomState
from polyattn.numerics.tensors import without_tensors
from polyattn.outcome import Outcome
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.solve.ridge import require_ridge
from polyattn.solve.solvers import SOLVERS
from polyattn.sources.source import Source, require_alone
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows
from polyattn.targets import Targets


class SequenceEstimator(
    ReportedEstimator,
    BaseEstimator,  # type: ignore[misc]
    DescribedEstimator,
    NamesOfFeatures,
):
    """Base of all estimators: sequences in, and a result with its layer and its outcome."""

    result_: Any
    layout: str
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

    def _outputs(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Outputs with their last axis of length e, in the form of X but for its layout."""
        fitted = self._fitted()
        return self._computed(fitted, *self._taken(X, context))

    @staticmethod
    def _computed(fitted: Any, X: Any, context: Any) -> Any:
        return fitted.predict(X, context) if isinstance(fitted, FitResult) else fitted(X)

    def _note_shape(self, y: Any, mode: str, source: Any = None) -> None:
        """Remember whether y has one number per predicted position rather than a vector.

        Of a source that is not known: one output is taken for a number.
        """
        of_tokens = mode != "last"
        if isinstance(source, Source):
            self._plain = source.n_outputs_in(mode) == 1
            return
        if of_tokens and isinstance(y, list | tuple):
            self._plain = n_axes(y[0]) == 1
        else:
            self._plain = not isinstance(y, SequenceBatch) and n_axes(y) == 1 + of_tokens

    def _shaped(self, outputs: Any) -> Any:
        """Outputs in the form of the y that was fitted."""
        return on_each(lambda each: each[..., 0], outputs) if self._plain else outputs

    def _scored(
        self,
        X: Sequences | Source,
        targets: Targets | None,
        sample_weight: ArrayLike | None,
        n_outputs: int,
        context: Sequences | None = None,
    ) -> tuple[Rows, NDArray[np.float64]]:
        """Targets and weights, one row per predicted position, and the outputs (n_rows, e)."""
        require_targets(X, targets)
        fitted = self._fitted()
        X, context = self._taken(X, context)
        layout = (
            fitted.layout
            if isinstance(fitted, FitResult)
            else Layout.plain(fitted.n_dims, fitted.mode, fitted.bias)
        )
        rows = Rows.build(
            X, targets, layout.form, sample_weight, context, layout=layout, n_outputs=n_outputs
        )
        outputs = self._computed(fitted, rows.batch, rows.context)
        return rows, np.concatenate(outputs) if isinstance(outputs, list) else outputs


@answers_unknown(PARTS)
class LinearEstimator(SequenceEstimator):
    """Base of the linear estimators: parameters, fitting, streaming, what is known afterwards."""

    def __init__(
        self,
        mode: str = "last",
        ridge: float | str | None = 0.0,
        n_heads: int | str | None = None,
        solver: str = "auto",
        bias: bool = False,
        random_state: RandomState = 0,
        ridge_grid: ArrayLike | None = None,
        form: Form | None = None,
        head_rank: int | None = None,
        layout: str = "tokens_first",
    ) -> None:
        self.mode = mode
        self.ridge = ridge
        self.n_heads = n_heads
        self.solver = solver
        self.bias = bias
        self.random_state = random_state
        self.ridge_grid = ridge_grid
        self.form = form
        self.head_rank = head_rank
        self.layout = layout

    @property
    def result_(self) -> FitResult:
        """What ``polyattn.fit`` returned; after ``partial_fit`` the first access solves."""
        check_is_fitted(self)
        return self._state.result

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Folded coefficients (e, m, r) of the fitted layer."""
        return self.result_.coef

    @property
    def certificate_(self) -> Certificate:
        """Whether the training data determine the layer; certified on first access.

        It is about the features and squared error, also of a classifier fitted by log-loss, which
        has no minimiser where the data are separable.
        """
        check_is_fitted(self)
        return self._state.certificate

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_state")

    def _form(self) -> Form:
        """The form that the parameters ask for; what contradicts a given one is refused."""
        return require_form(self.form, self.mode, self.bias)

    def _learn(
        self,
        X: Sequences | Source,
        targets: Targets | None,
        sample_weight: ArrayLike | None,
        context: Sequences | None,
        **options: str,
    ) -> Self:
        """From scratch; with other options of ``fit`` than the parameters say."""
        require_targets(X, targets)
        X, context = tokens_first(X, context, self.layout)
        result = fit(
            X, targets, form=self._form(), sample_weight=sample_weight, context=context,
            try_exact=False,  # partial_fit goes on with the sums
            **(self._options() | options),
        )  # fmt: skip
        # Sums of the features alone, behind log-loss, cannot be gone on with.
        sums = result.statistics
        state = FittedState(sums if result.loss == "squared" else None)
        # Estimators keep what they learned, not the sequences.
        state.result = result if isinstance(result, OneHotFit) else replace(result, training=None)
        if isinstance(sums, Moments) and state.statistics is None:
            state.evidence = sums
        elif sums is None and not isinstance(result, OneHotFit):
            rows = Rows.build(X, targets, result.form, sample_weight, context)
            state.evidence = evidence_of(rows)
        self._state, self.n_features_in_, self.n_outputs_ = state, result.n_dims, result.n_outputs
        self._note_shape(targets, result.mode, X)
        self._remember_names(X)
        return self

    def _learn_more(
        self,
        X: Sequences | Source,
        targets: Targets | None,
        sample_weight: ArrayLike | None,
        context: Sequences | None,
    ) -> Self:
        """Add to the sums of all calls so far."""
        require_targets(X, targets)
        X, context = tokens_first(X, context, self.layout)
        kind = self._streaming_kind()
        sums = self._continued_sums(kind) if self.__sklearn_is_fitted__() else None
        if sums is not None:
            self._require_names(X)
        if isinstance(X, Source):
            require_alone(y=targets, sample_weight=sample_weight, context=context)
            return self._add_source(X, sums or self._empty_sums(kind, X), sums is None)
        rows = Rows.build(
            X, targets, self._form(), sample_weight, context,
            layout=None if sums is None else sums.layout,
            n_outputs=None if sums is None else sums.n_outputs,
        )  # fmt: skip
        if sums is None:
            own = rows.layout
            sums = kind(
                own.n_dims, rows.n_outputs, form=own.form, n_context_dims=own.n_context_dims
            )
            self._note_shape(targets, rows.mode)
            self._remember_names(rows.batch)
        sums.add_rows(rows)
        return self._with_sums(sums)

    def _with_sums(self, sums: Moments | TriangularFactor) -> Self:
        self._state = FittedState(sums, self._options())
        self.n_features_in_, self.n_outputs_ = sums.n_dims, sums.n_outputs
        return self

    def _empty_sums(
        self, kind: type[Moments] | type[TriangularFactor], source: Source
    ) -> Moments | TriangularFactor:
        """Sums over nothing, for sequences like those of a source."""
        form = self._form()
        if not source.n_outputs:
            raise InvalidInput("the source holds no targets y, which partial_fit needs.")
        self._note_shape(None, form.mode, source)
        n_outputs, of_context = source.n_outputs_in(form.mode), source.n_context_dims
        return kind(source.n_dims, n_outputs, form=form, n_context_dims=of_context)

    def _add_source(self, source: Source, sums: Moments | TriangularFactor, is_first: bool) -> Self:
        sums.update(source)
        if is_first:
            self._remember_names(source)
        return self._with_sums(sums)

    def _predicted(
        self, X: Sequences | Source, return_bound: bool, context: Sequences | None = None
    ) -> Any:
        """Outputs for X; with ``return_bound`` also how far layers of no more risk can be apart."""
        bounded = require_flag("return_bound", return_bound)
        fitted = self._fitted()
        X, context = self._taken(X, context)
        outputs = self._computed(fitted, X, context)
        shaped, state = self._shaped(outputs), self._state
        if not bounded:
            return shaped
        if state.certificate.identifiable:
            return shaped, state.certificate.bound(X, state.excess, context=context)
        return shaped, on_each(lambda each: np.full(each.shape[:-1], np.inf), outputs)

    def _options(self) -> dict[str, Any]:
        names = ("ridge", "n_heads", "solver", "random_state", "ridge_grid", "head_rank")
        return {name: getattr(self, name) for name in names}

    def _streaming_kind(self) -> type[Moments] | type[TriangularFactor]:
        """Which sums the parameters need; refuses at once what sums cannot do later."""
        if self._form().decay == "loo":
            raise InvalidInput(
                "partial_fit keeps sums, not sequences, so decay='loo' has nothing to leave out; "
                "give the decay as a number."
            )
        require_choice("solver", self.solver, ("auto", *SOLVERS))
        require_head_count(self.n_heads)
        ridge = self._options()["ridge"]
        if require_ridge(ridge, self.ridge_grid) == "loo":
            raise InvalidInput(
                "partial_fit keeps sums, not sequences, so ridge='loo' has nothing to leave out; "
                "set ridge='gcv' or a number."
            )
        if self.solver not in ("auto", "primal", "direct"):
            raise InvalidInput(
                f"partial_fit keeps sums, which solver={self.solver!r} does not use; set solver "
                "to 'auto', 'primal' or 'direct'."
            )
        if self.solver == "direct" and ridge == "gcv":
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
        if type(sums) is not kind or sums.form != self._form():
            raise InvalidInput(
                "mode, bias, form or solver changed since the sums were begun; start again with a "
                "fresh estimator (sklearn.base.clone)."
            )
        # A result and a certificate refer to the sums they were made of.
        return sums.copy() if vars(self._state).keys() & {"result", "certificate"} else sums


def on_each(function: Callable[[NDArray], NDArray], arrays: NDArray | list[NDArray]) -> Any:
    """A function of an array, or of every array of a list."""
    return [function(array) for array in arrays] if isinstance(arrays, list) else function(arrays)


def n_axes(y: Any) -> int:
    """How many axes targets have; tensors say so themselves, and need not become arrays."""
    return int(y.ndim) if hasattr(y, "ndim") else np.asarray(without_tensors(y, "y")).ndim
