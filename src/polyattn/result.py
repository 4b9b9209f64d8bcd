"""FitResult: the optimum, what is known of it, and the layer with few heads, made on request."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.files import Record
from polyattn.heads import Compression, DataScale, GramScale, SampleScale, compress, factor
from polyattn.model.forward import coef_forward
from polyattn.model.layer import shape_rows, single_or_batch
from polyattn.model.linear import LinearAttention
from polyattn.scaling import exponent_for, largest_magnitude, scaled
from polyattn.sequences import SequenceBatch, Sequences
from polyattn.shown import Shown
from polyattn.solve.outcome import Outcome
from polyattn.solve.ridge_path import RidgePath
from polyattn.stats import Moments, TriangularFactor

# Up to this many coefficients few heads are looked for even where data leave them open.
SEARCHED_COEFFICIENTS = 1 << 15

PLAIN = (
    "mode", "bias", "n_dims", "risk", "optimal_risk", "ridge", "rank", "n_features",
    "condition", "solver", "head_tolerance", "random_state",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class FitResult(Shown):
    """What ``fit`` returns.

    Attributes
    ----------
    coef : array (e, q, d)
        Folded coefficients of the fitted layer; with ``n_heads=None`` the global optimum.
    outcome : Outcome
        What was found, as a sentence (``str(result.outcome)``).
    risk : float
        Weighted mean over predicted positions of ||y - F(X)||^2 on the training data.
    optimal_risk : float
        The same for the optimum over any number of heads; ``gap`` is the difference.
    solver, ridge, rank, n_features, condition
        The road taken, the penalty used, and what was learnt about the features on the way.
        Solver "exact": a sample of the rows determines the layer and all others agree with it;
        the condition number is that of the sample.
    statistics : Moments | TriangularFactor | None
        The sums behind the fit, where the road made them; they merge, save and refit.
    ridge_path : RidgePath | None
        Errors over the grid, when the ridge was chosen by the data.
    sample : SampleScale | None
        Summaries of some of the training positions, by which heads are judged.
    """

    coef: NDArray[np.float64]
    outcome: Outcome
    mode: str
    bias: bool
    n_dims: int
    risk: float
    optimal_risk: float
    ridge: float
    rank: int | None
    n_features: int
    condition: float | None
    solver: str
    head_tolerance: float
    random_state: int
    statistics: Moments | TriangularFactor | None = field(default=None, repr=False)
    ridge_path: RidgePath | None = field(default=None, repr=False)
    known_heads: Compression | None = field(default=None, repr=False)
    sample: SampleScale | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        """risk - optimal_risk: what the limit on the number of heads costs."""
        return self.risk - self.optimal_risk

    @cached_property
    def heads(self) -> Compression:
        """Heads that compute ``coef``: as few as were found (on first use: a short search).

        They are looked for in units in which the data are of size one; ``heads.output_error``
        is what they change in the outputs on the data, beside each output.

        Large coefficients that the data leave open are factored without a search: the minimum
        norm spreads over all heads, and looking for few would be in vain.
        """
        if self.known_heads is not None:
            return self.known_heads
        left_open = self.rank is not None and self.rank < self.n_features
        if left_open and self.coef.size > SEARCHED_COEFFICIENTS:
            return factor(self.coef, self._data_scale)
        return compress(self.coef, self.head_tolerance, self.random_state, self._data_scale)

    @property
    def _data_scale(self) -> DataScale | None:
        """What is known of the data: a sample of the rows, or else their sums."""
        if self.sample is None and self.statistics is not None:
            return GramScale.of(self.statistics)
        return self.sample

    @cached_property
    def layer(self) -> LinearAttention:
        """The fitted layer."""
        return LinearAttention(self.heads.attn, self.heads.value, self.mode, self.bias)

    def predict(self, X: Sequences) -> Any:
        """Outputs for sequences X from the coefficients, in the form of X (as a layer's)."""
        batch, single = single_or_batch(X, self.n_dims)
        exponent = exponent_for(largest_magnitude([self.coef])) or 0
        rows = coef_forward(batch, scaled(self.coef, -exponent), self.mode, self.bias, exponent)
        shaped = shape_rows(
            rows, batch, self.mode, as_list=isinstance(X, list | tuple | SequenceBatch)
        )
        return shaped[0] if single else shaped

    def __repr__(self) -> str:
        return (
            f"FitResult({self.n_dims} -> {len(self.coef)}, mode {self.mode!r}, "
            f"risk {self.risk:.3g}, {self.outcome.name}, solver {self.solver!r})"
        )

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata; the heads are computed first."""
        arrays = {"coef": self.coef, "attn": self.heads.attn, "value": self.heads.value}
        metadata: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        metadata["outcome"] = self.outcome.to_json()
        metadata["heads"] = {
            "lost": self.heads.lost, "risk_gap": self.heads.risk_gap,
            "sentence": self.heads.sentence, "output_error": self.heads.output_error,
        }  # fmt: skip
        if self.ridge_path is not None:
            arrays |= {"ridges": self.ridge_path.ridges, "errors": self.ridge_path.errors}
            metadata["ridge_path"] = self.ridge_path.kind
        if self.statistics is not None:
            inner = self.statistics.to_record()
            arrays |= {f"statistics.{name}": array for name, array in inner.arrays.items()}
            metadata["statistics"] = {"kind": inner.kind, "metadata": inner.metadata}
        return Record("fit_result", arrays, metadata)

    @classmethod
    def from_record(cls, record: Record) -> FitResult:
        """The inverse of ``to_record``."""
        arrays, metadata = record.arrays, record.metadata
        path = None
        if "ridge_path" in metadata:
            path = RidgePath(arrays["ridges"], arrays["errors"], metadata["ridge_path"])
        statistics: Moments | TriangularFactor | None = None
        if "statistics" in metadata:
            kind = metadata["statistics"]["kind"]
            prefix = "statistics."
            inner = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            made = Moments if kind == Moments.kind else TriangularFactor
            statistics = made.from_record(Record(kind, inner, metadata["statistics"]["metadata"]))
        arrays["coef"].setflags(write=False)
        return cls(
            coef=arrays["coef"],
            outcome=Outcome(**metadata["outcome"]),
            statistics=statistics,
            ridge_path=path,
            known_heads=Compression(arrays["attn"], arrays["value"], **metadata["heads"]),
            **{name: metadata[name] for name in PLAIN},
        )
