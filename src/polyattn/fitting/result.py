"""FitResult: the optimum, what is known of it, and the layer with few heads, made on request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, Reported, Result, head_matrices, sizes_in_words
from polyattn.features.pairs import n_features, n_pairs
from polyattn.files import fields
from polyattn.files.fields import array, entries, nullable, number, one_of, require, text
from polyattn.files.records import Record
from polyattn.fitting.outcomes import FIT_OUTCOMES, FitName
from polyattn.heads import Compression, GramScale, compress, factor
from polyattn.heads.data_scale import DataScale, SampleScale
from polyattn.model.layer import shaped_outputs
from polyattn.model.linear import LinearAttention, coef_forward
from polyattn.numerics.parallel import computed_once
from polyattn.numerics.scaling import exponent_for, largest_magnitude, scaled
from polyattn.outcome import Outcome
from polyattn.sequences import MODES, SequenceBatch, Sequences
from polyattn.solve.ridge import RULES, RidgePath
from polyattn.stats import Moments, TriangularFactor

# Up to this many coefficients few heads are looked for even where data leave them open.
SEARCHED_COEFFICIENTS = 1 << 15

# Attributes that are stored as they are.
PLAIN = {
    "mode": one_of(MODES), "bias": fields.flag, "n_dims": fields.integer(1), "risk": number(),
    "optimal_risk": number(), "ridge": number(0), "rank": nullable(fields.integer(0)),
    "n_features": fields.integer(1), "condition": nullable(number(0)), "solver": text(100),
    "head_tolerance": number(0), "random_state": fields.integer(0, None),
}  # fmt: skip

FACTS = ("risk", "optimal_risk", "gap", "ridge", "rank", "n_features", "condition", "solver")

STATISTICS = {kind.kind: kind for kind in (Moments, TriangularFactor)}

FIELDS = entries(
    PLAIN | {"outcome": FIT_OUTCOMES.check},
    {
        # Heads that were known when the result was saved.
        "heads": entries(
            {"lost": number(0), "risk_gap": nullable(number()), "sentence": text()},
            {"output_error": nullable(number(0))},
        ),
        "ridge_path": one_of(RULES),
        "statistics": entries({
            "kind": one_of(tuple(STATISTICS)), "metadata": fields.any_object,
        }),
    },
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class FitResult(Reported, Result):
    """What ``fit`` returns.

    Attributes
    ----------
    coef : array (e, q, d)
        Folded coefficients of the fitted layer; with ``n_heads=None`` the global optimum.
    outcome : Outcome
        What was found: "unique", "minimum_norm", "regularised", "iterative" or "limited_heads",
        and a sentence (``str(result.outcome)``).
    risk : float
        Weighted mean over predicted positions of ||y - F(X)||^2 on the training data.
    optimal_risk : float
        The same for the optimum over any number of heads; ``gap`` is the difference.
    solver, ridge, rank, n_features, condition
        The solver taken, the penalty used, and what was learnt about the features on the way.
        Solver "exact": a sample of the rows determines the layer and all others agree with it;
        the condition number is that of the sample.
    statistics : Moments | TriangularFactor | None
        The sums behind the fit, where the solver made them; they merge, save and refit.
    ridge_path : RidgePath | None
        Errors over the grid, when the ridge was chosen by the data.
    sample : SampleScale | None
        Summaries of some of the training positions, by which heads are judged.
    """

    kind: ClassVar = "fit_result"

    coef: NDArray[np.float64]
    outcome: Outcome[FitName]
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
        """risk - optimal_risk: what the limit on the number of heads costs.

        Without a ridge no layer can do better than ``optimal_risk``.  With one, ``optimal_risk``
        is that of the penalised minimiser, and the gap bounds nothing else.
        """
        return self.risk - self.optimal_risk

    @computed_once
    def heads(self) -> Compression:
        """Heads that compute ``coef``: as few as were found (on first use: a short search).

        They are looked for in units in which the data are of size one; ``heads.output_error``
        is what they change in the outputs on the data, beside each output.  Large coefficients
        that the data leave open are factored without a search: the minimum norm needs all heads.
        """
        if self.known_heads is not None:
            return self.known_heads
        left_open = self.rank is not None and self.rank < self.n_features
        if left_open and self.coef.size > SEARCHED_COEFFICIENTS:
            return factor(self.coef, self.data_scale)
        return compress(self.coef, self.head_tolerance, self.random_state, self.data_scale)

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
        """The fitted layer."""
        return LinearAttention(self.heads.attn, self.heads.value, self.mode, self.bias)

    def predict(self, X: Sequences) -> Any:
        """Outputs for sequences X from the coefficients, in the form of X (as a layer's)."""
        exponent = exponent_for(largest_magnitude(self.coef)) or 0
        coef = scaled(self.coef, -exponent)

        def compute(batch: SequenceBatch) -> NDArray[np.float64]:
            return coef_forward(batch, coef, self.mode, self.bias, exponent)

        return shaped_outputs(X, self.n_dims, self.mode, compute)

    def describe(self) -> Description:
        heads = self.found_heads
        sizes: dict[str, Any] = {"n_dims": self.n_dims, "n_outputs": len(self.coef)}
        sizes |= {"mode": self.mode, "bias": self.bias}
        facts = {name: getattr(self, name) for name in FACTS}
        facts["n_heads"] = None if heads is None else heads.n_heads
        facts["heads"] = "Looked for when layer is asked for." if heads is None else heads.sentence
        return self._described(
            "A fitted attention layer", f"Linear attention, {sizes_in_words(**sizes)}", facts,
            sizes=sizes, matrices={} if heads is None else head_matrices(heads.attn, heads.value),
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """The coefficients, and the heads where they are known."""
        heads = self.found_heads
        known = {} if heads is None else {"attn": heads.attn, "value": heads.value}
        return {"coef": self.coef, **known}

    def __repr__(self) -> str:
        return (
            f"FitResult({self.n_dims} -> {len(self.coef)}, mode {self.mode!r}, "
            f"risk {self.risk:.3g}, {self.outcome.name}, solver {self.solver!r})"
        )

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata.

        Starts no search: without heads, what they will be judged by is stored.
        """
        heads, arrays = self.found_heads, self.arrays()
        metadata: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        metadata["outcome"] = self.outcome.to_dict()
        if heads is not None:
            metadata["heads"] = {
                "lost": heads.lost, "risk_gap": heads.risk_gap, "sentence": heads.sentence,
                "output_error": heads.output_error,
            }  # fmt: skip
        elif self.sample is not None:
            arrays |= {"pairs": self.sample.pairs, "queries": self.sample.queries}
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
        FIELDS(metadata, "metadata")
        prefix = "statistics."
        inner = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
        own = {name: each for name, each in arrays.items() if not name.startswith(prefix)}
        _check_arrays(own, metadata)
        statistics = _statistics(inner, metadata)
        path, heads, sample = None, None, None
        if "ridge_path" in metadata:
            path = RidgePath(arrays["ridges"], arrays["errors"], metadata["ridge_path"])
        if "heads" in metadata:
            heads = Compression(arrays["attn"], arrays["value"], **metadata["heads"])
        elif "pairs" in arrays:
            sample = SampleScale(arrays["pairs"], arrays["queries"])
        arrays["coef"].setflags(write=False)
        return cls(
            coef=arrays["coef"],
            outcome=FIT_OUTCOMES.from_dict(metadata["outcome"]),
            statistics=statistics,
            ridge_path=path,
            known_heads=heads,
            sample=sample,
            **{name: metadata[name] for name in PLAIN},
        )


def _check_arrays(arrays: dict[str, NDArray], metadata: dict[str, Any]) -> None:
    """Refuse arrays of a file that do not have the sizes that its metadata name."""
    d = metadata["n_dims"] + metadata["bias"]
    p, rank = metadata["n_features"], metadata["rank"]
    require(p == n_features(d), "metadata.n_features", f"{n_features(d)}, as n_dims says", p)
    require(rank is None or rank <= p, "metadata.rank", f"at most {p}", rank)
    # Arrays share the lengths of the first of them, and none is empty.
    outputs, heads, rows = (
        max(1, arrays[name].shape[axis]) if name in arrays and arrays[name].ndim > axis else 1
        for name, axis in (("coef", 0), ("attn", 0), ("pairs", 1))
    )
    checks = {"coef": array((outputs, n_pairs(d), d))}
    if "heads" in metadata:
        checks |= {"attn": array((heads, d, d)), "value": array((heads, d, outputs))}
    elif "pairs" in arrays:
        checks |= {"pairs": array((n_pairs(d), rows)), "queries": array((d, rows))}
    if "ridge_path" in metadata:
        checks["ridges"] = checks["errors"] = array((None,), least=0.0, finite=False)
    entries(checks)(arrays, "arrays")
    if "ridge_path" in metadata:
        fits, count = len(arrays["errors"]) == len(arrays["ridges"]) > 0, len(arrays["errors"])
        require(fits, "arrays.errors", "as many as ridges, at least one", count)


def _statistics(
    arrays: dict[str, NDArray], metadata: dict[str, Any]
) -> Moments | TriangularFactor | None:
    """The statistics in the file of a fit, if there are any: those of the same layer."""
    if "statistics" not in metadata:
        require(not arrays, "arrays", "those of the fit alone", list(arrays))
        return None
    stored = metadata["statistics"]
    record = Record(stored["kind"], arrays, stored["metadata"])
    made = STATISTICS[record.kind].from_record(record)
    for name in ("n_dims", "mode", "bias"):
        own, wanted = getattr(made, name), metadata[name]
        require(own == wanted, f"metadata.statistics.{name}", f"that of the fit, {wanted}", own)
    return made
