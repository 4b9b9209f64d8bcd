"""FitResult: the optimum, what is known of it, and the layer with few heads, made on request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.display import Description, Reported, Result, head_matrices
from polyattn.errors import InvalidInput, require_confidence
from polyattn.files.records import Record
from polyattn.fitting.fit_file import HEAD_ARRAYS, fit_record, stored_fit
from polyattn.fitting.generalisation import Generalisation
from polyattn.fitting.outcomes import FitName
from polyattn.fitting.proportion import r2_of
from polyattn.fitting.training_data import generalise, kept_or_given
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.form.layout import Layout
from polyattn.form.of_layout import OfLayout
from polyattn.heads import Compression, GramScale, compress, factor, split_ranks
from polyattn.heads.data_scale import DataScale, SampleScale
from polyattn.model.forward import coef_forward
from polyattn.model.layer import outputs_with_context
from polyattn.model.linear import LinearAttention
from polyattn.numerics.parallel import computed_once, single_threaded_blas
from polyattn.numerics.scaling import exponent_for, largest_magnitude, scaled
from polyattn.outcome import Outcome
from polyattn.sequences import SequenceBatch, Sequences, names_of, require_same_names
from polyattn.sequences.coordinate_names import in_description
from polyattn.sizes_in_words import sizes_in_words
from polyattn.solve.decay import DecayPath
from polyattn.solve.log_loss import PER_OUTPUT, probabilities
from polyattn.solve.ridge import RidgePath
from polyattn.sources.source import Source
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

# Up to this many coefficients few heads are looked for even where data leave them open.
SEARCHED_COEFFICIENTS = 1 << 15

# With a ridge no figure is the least risk of any layer, and none is called optimal.
WITH_RIDGE = {
    "optimal_risk": "risk with this ridge and any heads",
    "gap": "difference of the two",
}

FACTS = (
    "risk", "baseline_risk", "r2", "optimal_risk", "gap", "ridge", "rank", "n_features",
    "condition", "solver", "data_sizes",
)  # fmt: skip

# What log-loss is held against.
OF_CLASSES = {"baseline_risk": "risk of predicting class shares"}


@dataclass(frozen=True, eq=False)
class FitResult(OfLayout, Reported, Result):
    """What ``fit`` returns.

    Attributes
    ----------
    coef : array (e, m, r)
        Folded coefficients of the fitted layer; with ``n_heads=None`` the global optimum.  Of the
        papers' layer m = d(d+1)/2 and r = d.
    form : Form
        The layer that was fitted; ``mode`` and ``bias`` are parts of it.
    layout : Layout
        Which features the form has for these tokens, and where their coefficients stand.
    outcome : Outcome
        What was found: "unique", "minimum_norm", "regularised", "iterative", "limited_heads",
        "separable", "partly_separable" or "not_converged", and a sentence
        (``str(result.outcome)``).
    loss : "squared" | "logistic" | "logistic_per_output"
    risk : float
        Weighted mean over predicted positions of ||y - F(X)||^2, or of the log-loss, on the
        training data.
    baseline_risk : float | None
        The same for the best constant: the weighted mean of the targets, or with log-loss the
        shares of the classes as probabilities.  None: sums of older releases do not know it, or it
        is beyond float64.
    r2 : float | None
        1 - risk / baseline_risk: the share that the layer explains, 0 or less where predicting the
        mean would do as well.  Of targets that are all the same 1 where the layer computes them
        up to rounding, else minus infinity.  None where the baseline is unknown, or rounding hides
        it.
    risk_rounding : float | None
        How far rounding may have moved ``risk`` where only moments were known, of which it is a
        difference; None elsewhere: residuals were computed.
    zero_risk : float | None
        The same for outputs that are all zero: the mean of ||y||^2, or log K of K classes.
    data_sizes : str | None
        What it was fitted to: "300 sequences, 4 tokens of 50 coordinates"; None in files of older
        releases.
    accuracy, majority_share : float | None
        Of the result of a classifier: the share of its data that it labels rightly, and that which
        always naming the most frequent class would.
    optimal_risk : float
        The same for the minimiser over any number of heads, with the same ridge; ``gap`` is the
        difference.  Without a ridge it is the least risk of any layer; with one it is not, and no
        ``optimal_risk`` for ``Certificate.bound``: ``audit`` finds the least.
    solver, ridge, rank, n_features, condition
        The solver taken, the penalty used, and what was learnt about the features on the way.
        Solver "exact": a sample of the rows determines the layer and all others agree with it;
        the condition number is that of the sample.
    statistics : Moments | TriangularFactor | None
        The sums behind the fit, where the solver made them; they merge, save and refit.  Of
        log-loss they are those of the features alone.
    ridge_path : RidgePath | None
        Errors over the grid, when the ridge was chosen by the data.
    decay_path : DecayPath | None
        Errors of the decays that were tried, when the data chose it, and its error bar.
    sample : SampleScale | None
        Summaries of some of the training positions, by which heads are judged.
    objective_bound : float | None
        The sum of the losses plus the penalty is proved to be at most so much above its infimum:
        of log-loss, and of squared error where it was approached iteratively (without a ridge but
        for one chance in a million, that a random test is wrong).  None: not examined; other
        solvers err by rounding alone.
    coordinate_names : tuple of str | None, of data with names: ``predict`` then refuses others
    training : Rows | None
        The data, if they are small (64 MB) and were given as arrays: what ``generalisation`` looks
        at.  Files and copies of the result are without them.
    """

    kind: ClassVar = "fit_result"

    coef: NDArray[np.float64]
    outcome: Outcome[FitName]
    layout: Layout
    risk: float
    optimal_risk: float
    ridge: float
    rank: int | None
    condition: float | None
    solver: str
    head_tolerance: float
    random_state: int
    statistics: Moments | TriangularFactor | None = field(default=None, repr=False)
    ridge_path: RidgePath | None = field(default=None, repr=False)
    known_heads: Compression | None = field(default=None, repr=False)
    sample: SampleScale | None = field(default=None, repr=False)
    decay_path: DecayPath | None = field(default=None, repr=False)
    head_rank: int | None = None
    loss: str = "squared"
    objective_bound: float | None = None
    training: Rows | None = field(default=None, repr=False)
    baseline_risk: float | None = None
    zero_risk: float | None = None
    data_sizes: str | None = None
    risk_rounding: float | None = None
    accuracy: float | None = None
    majority_share: float | None = None
    coordinate_names: tuple[str, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A result that is sent or stored does not take the data along.
        return {**vars(self), "training": None}

    @property
    def n_outputs(self) -> int:
        """e, the target coordinates."""
        return len(self.coef)

    @property
    def r2(self) -> float | None:
        """1 - risk / baseline_risk, without NaN: see the attributes."""
        return r2_of(self.risk, self.baseline_risk, self.zero_risk, self.risk_rounding)

    @property
    def gap(self) -> float:
        """risk - optimal_risk: what the limit on the number of heads costs.

        Without a ridge no layer can do better than ``optimal_risk``.  With one, ``optimal_risk``
        is that of the penalised minimiser, and the gap bounds nothing else.
        """
        return self.risk - self.optimal_risk

    @computed_once
    def heads(self) -> Compression:
        """Heads of the fitted function: as few as were found (on first use: a short search).

        They compute ``coef``.  Where a form sees one number twice, coefficients are not unique, and
        those of the heads may be others, of the same function.
        They are looked for in units in which the data are of size one; ``heads.output_error``
        is what they change in the outputs on the data, beside each output.  Large coefficients
        that the data leave open are factored without a search: the minimum norm needs all heads.
        """
        if self.known_heads is not None:
            return self.known_heads
        left_open = self.rank is not None and self.rank < self.n_features
        if left_open and self.coef.size > SEARCHED_COEFFICIENTS:
            found = factor(self.coef, self.data_scale, self.layout)
        else:
            found = compress(
                self.coef, self.head_tolerance, self.random_state, self.data_scale, self.layout
            )
        return split_ranks(found, self.head_rank)

    @property
    def found_heads(self) -> Compression | None:
        """The heads if they are known already; starts no search."""
        return self.known_heads or vars(self).get("heads")

    @property
    def data_scale(self) -> DataScale | None:
        """What is known of the data: a sample of the rows, or else their sums."""
        if self.sample is None and self.statistics is not None:
            return GramScale.of(self.statistics)
        return self.sample

    @computed_once
    def layer(self) -> LinearAttention:
        """The fitted layer, of ``heads``: the function of ``coef``."""
        return self.layer_of(self.heads)

    def layer_of(self, heads: Compression) -> LinearAttention:
        """The layer of these heads, in the form that was fitted."""
        return LinearAttention(
            heads.attn, heads.value, form=self.form, n_dims=self.n_dims,
            n_context_dims=self.n_context_dims, head_scales=heads.head_scales, skip=heads.skip,
            intercept=heads.intercept,
        )  # fmt: skip

    def predict(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Outputs for sequences X from the coefficients, in the form of X (as a layer's)."""
        require_same_names(names_of(X), self.coordinate_names)
        exponent = exponent_for(largest_magnitude(self.coef)) or 0
        coef = scaled(self.coef, -exponent)

        def compute(batch: SequenceBatch, attended: SequenceBatch | None) -> NDArray[np.float64]:
            return coef_forward(batch, coef, self.layout, attended, exponent)

        return outputs_with_context(X, context, self.layout, compute)

    def predict_proba(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Probabilities of the K classes for sequences X, (..., K), of a fit by log-loss.

        Of several labels at once (``loss="logistic_per_output"``) those of each label by itself.
        """
        if self.loss == "squared":
            raise InvalidInput(
                "predict_proba needs a fit with loss='logistic': outputs of least squares are "
                "scores, not probabilities."
            )
        return probabilities(self.predict(X, context), each=self.loss == PER_OUTPUT)

    @single_threaded_blas()
    def generalisation(
        self,
        confidence: float = 0.95,
        X: Sequences | Source | None = None,
        Y: Targets | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        context: Sequences | None = None,
    ) -> Generalisation:
        """How far the fit is from the best layer on fresh sequences, as far as the data tell.

        Parameters
        ----------
        confidence : float
            The probability with which each bound holds, between 0 and 1.
        X, Y, sample_weight, context : as they were given to ``fit``
            Needed where the result does not keep them: of large data, sources, sums and files.

        Guarantee: none without assumptions, since a rare and huge sequence may be unseen; under
        the conditions that the answer lists, calibrated by asymptotics and by simulations
        (docs/derivations/generalisation.md).  Targets need not come from a layer; ridges and
        limits on heads count as distance from the best layer.  Made computable from
        [yau2024: Theorem 2.2].
        Cost: about five times the flops of the moments, and e p^3.

        >>> import polyattn as pa
        >>> task = pa.data.planted(400, 12, 3, n_heads=2, mode="last", noise=0.1, random_state=0)
        >>> found = pa.fit(task.X, task.Y).generalisation(0.95)
        >>> found.promised, found.excess_risk < 0.01, found.risk < 0.05
        (True, True, True)
        """
        if self.loss != "squared":
            raise InvalidInput(
                "generalisation is about squared error; this fit is by log-loss. Judge it on "
                "sequences that were held out."
            )
        require_same_names(names_of(X), self.coordinate_names)
        chance = require_confidence(confidence)
        given = (X, Y, sample_weight, context)
        rows = kept_or_given(self.training, *given, self.layout, len(self.coef))
        tried = 0 if self.decay_path is None else len(self.decay_path.decays)
        return generalise(rows, self.coef, self.layout, self.risk, chance, tried)

    def describe(self) -> Description:
        heads = self.found_heads
        sizes: dict[str, Any] = {"n_dims": self.n_dims, "n_outputs": len(self.coef)}
        sizes |= {"mode": self.mode, "bias": self.bias}
        facts = {name: getattr(self, name) for name in FACTS}
        if self.loss != "squared":
            facts["loss"] = self.loss
        if self.loss != "squared" or self.objective_bound is not None:
            facts["objective_bound"] = self.objective_bound
        if self.accuracy is not None:
            facts |= {name: getattr(self, name) for name in ("accuracy", "majority_share")}
        facts["n_heads"] = None if heads is None else heads.n_heads
        facts["heads"] = "Looked for when layer is asked for." if heads is None else heads.sentence
        words = sizes_in_words(**sizes, form=form_in_words(self.layout))
        sizes |= form_sizes(self.layout)
        named = in_description(self.coordinate_names)
        return self._described(
            "A fitted attention layer", f"Linear attention, {words}", facts | named, sizes=sizes,
            matrices={} if heads is None else head_matrices(heads.attn, heads.value),
            labels=(WITH_RIDGE if self.ridge > 0 else {})
            | (OF_CLASSES if self.loss != "squared" else {}),
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """The coefficients, and the heads where they are known."""
        heads = self.found_heads
        known = {} if heads is None else {name: getattr(heads, name) for name in HEAD_ARRAYS}
        return {"coef": self.coef, **{n: each for n, each in known.items() if each is not None}}

    def __repr__(self) -> str:
        return (
            f"FitResult({self.n_dims} -> {len(self.coef)}, mode {self.mode!r}, "
            f"risk {self.risk:.3g}, {self.outcome.name}, solver {self.solver!r})"
        )

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata.

        Starts no search: without heads, what they will be judged by is stored.
        """
        return fit_record(self)

    @classmethod
    def from_record(cls, record: Record) -> FitResult:
        """The inverse of ``to_record``."""
        return cls(**stored_fit(record))
