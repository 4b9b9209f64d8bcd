"""OneHotFit: the optimum for one-hot tokens, and the coefficients of symbols that occur."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, head_matrices
from polyattn.errors import InvalidInput
from polyattn.files import fields
from polyattn.files.fields import array, entries, nullable, number, one_of, require
from polyattn.files.records import Record
from polyattn.fitting.fit_file import PROPORTION
from polyattn.fitting.outcomes import FIT_OUTCOMES, FitName
from polyattn.fitting.result import FACTS, FitResult
from polyattn.form.in_words import form_in_words, form_sizes
from polyattn.form.layout import Layout
from polyattn.form.stored import FORM_FIELDS, form_fields, stored_layout
from polyattn.heads import Compression
from polyattn.model.layer import shaped_outputs
from polyattn.model.symbol_table import SymbolTable
from polyattn.numerics.one_hot_tokens import OneHotTokens
from polyattn.numerics.parallel import computed_once
from polyattn.outcome import Outcome
from polyattn.sequences import MODES, SequenceBatch, Sequences
from polyattn.sizes_in_words import sizes_in_words
from polyattn.sources.source import Source

# What a file holds beside the table.
FIELDS = entries(
    {
        "mode": one_of(MODES), "bias": fields.flag, "n_dims": fields.integer(1),
        "risk": number(0), "ridge": number(0), "rank": nullable(fields.integer(0)),
        "condition": nullable(number(0)), "outcome": FIT_OUTCOMES.check,
    },
    FORM_FIELDS | PROPORTION,
)  # fmt: skip

HEADS = (
    "One head for each {}: on one-hot tokens they compute the coefficients, to the last bit but "
    "for the order of sums. On other tokens they are another function."
)


class OneHotFit(FitResult):
    """What ``fit`` returns for token ids of many symbols: a FitResult that stays sparse.

    Attributes
    ----------
    table : SymbolTable
        theta[a, b], the coefficients of pairs of symbols that occur; ``table.matrices()`` are
        sparse matrices (symbols that ask, symbols attended to), one for each output.
    coef : array (e, m, r)
        The same as folded coefficients, while these are not too many to be made dense.
    layer : LinearAttention
        One head for each output (or for each symbol, if these are fewer), while these are not too
        large: the same function on one-hot tokens.
    rank : int | None
        The rank of the features; None with a ridge.
    Everything else as of a ``FitResult``; there are no statistics.
    """

    kind: ClassVar = "one_hot_fit"

    table: SymbolTable

    def __init__(
        self,
        table: SymbolTable,
        layout: Layout,
        outcome: Outcome[FitName],
        *,
        risk: float,
        ridge: float,
        rank: int | None,
        condition: float | None,
        baseline_risk: float | None = None,
        zero_risk: float | None = None,
        data_sizes: str | None = None,
        accuracy: float | None = None,
        majority_share: float | None = None,
        risk_rounding: float | None = None,
    ) -> None:
        vars(self).update(
            table=table, layout=layout, outcome=outcome, risk=risk, optimal_risk=risk,
            ridge=ridge, rank=rank, condition=condition, solver="one_hot", head_tolerance=1e-10,
            random_state=0, baseline_risk=baseline_risk, zero_risk=zero_risk,
            data_sizes=data_sizes, accuracy=accuracy, majority_share=majority_share,
            risk_rounding=risk_rounding,
        )  # fmt: skip

    @property
    def coef(self) -> NDArray[np.float64]:
        """The folded coefficients P (e, m, r), dense; refused where they are too many."""
        return self._coef

    @computed_once
    def _coef(self) -> NDArray[np.float64]:
        return self.table.coef(self.layout)

    @property
    def n_outputs(self) -> int:
        """e, the target coordinates."""
        return self.table.n_outputs

    @property
    def n_occurring(self) -> int:
        """How many features occur in the data: pairs of symbols."""
        return self.table.n_pairs

    @computed_once
    def heads(self) -> Compression:
        """Heads of the fitted function on one-hot tokens, without a search."""
        attn, value = self.table.heads()
        of = "output" if self.table.n_outputs <= self.n_dims else "symbol that asks"
        return Compression(attn, value, 0.0, None, HEADS.format(of))

    def predict(self, X: Sequences | Source, context: Sequences | None = None) -> Any:
        """Outputs for one-hot sequences X, given as ids (``SequenceBatch.from_ids``) or dense."""
        if context is not None:
            raise InvalidInput("a fit of token ids attends to no context; leave it out.")

        def compute(batch: SequenceBatch) -> NDArray[np.float64]:
            return self.table.forward(_as_symbols(batch), self.form)

        return shaped_outputs(X, self.n_dims, self.mode, compute)

    def describe(self) -> Description:
        heads = self.found_heads
        sizes: dict[str, Any] = {"n_dims": self.n_dims, "n_outputs": self.table.n_outputs}
        sizes |= {"mode": self.mode, "bias": self.bias}
        facts = {name: getattr(self, name) for name in FACTS}
        if self.accuracy is not None:
            facts |= {name: getattr(self, name) for name in ("accuracy", "majority_share")}
        facts["n_occurring"] = self.n_occurring
        facts["n_heads"] = None if heads is None else heads.n_heads
        words = sizes_in_words(**sizes, form=form_in_words(self.layout))
        sizes |= form_sizes(self.layout)
        return self._described(
            "A layer fitted to one-hot tokens", f"Linear attention, {words}", facts, sizes=sizes,
            matrices={} if heads is None else head_matrices(heads.attn, heads.value),
            labels={"n_occurring": "features that occur"},
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray]:
        """The table."""
        table = self.table
        return {
            "queries": table.queries, "borders": table.borders, "symbols": table.symbols,
            "values": table.values,
        }  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"OneHotFit({self.n_dims} symbols -> {self.table.n_outputs}, mode {self.mode!r}, "
            f"risk {self.risk:.3g}, {self.outcome.name}, {self.n_occurring} pairs)"
        )

    def to_record(self) -> Record:
        """The content as named arrays and plain metadata."""
        plain = ("mode", "bias", "n_dims", "risk", "ridge", "rank", "condition", *PROPORTION)
        metadata = {name: getattr(self, name) for name in plain} | form_fields(self.layout)
        metadata["outcome"] = self.outcome.to_dict()
        return Record(self.kind, self.arrays(), metadata)

    @classmethod
    def from_record(cls, record: Record) -> OneHotFit:
        """The inverse of ``to_record``."""
        metadata = record.metadata
        FIELDS(metadata, "metadata")
        layout = stored_layout(metadata)
        table = _stored_table(record.arrays, layout.n_dims)
        rank = metadata["rank"]
        fits = rank is None or rank <= table.n_pairs
        require(fits, "metadata.rank", f"at most {table.n_pairs}", rank)
        figures = {name: metadata[name] for name in ("risk", "ridge", "rank", "condition")}
        figures |= {name: metadata.get(name) for name in PROPORTION}
        return cls(table, layout, FIT_OUTCOMES.from_dict(metadata["outcome"]), **figures)


def _stored_table(arrays: dict[str, NDArray], n_symbols: int) -> SymbolTable:
    """The table of a file; refused unless its pairs are in order and inside the symbols."""
    symbols = array((None,), least=0, most=n_symbols - 1, dtype="int64")
    checks = {
        "queries": symbols, "symbols": symbols, "values": array((None, None)),
        "borders": array((None,), least=0, dtype="int64"),
    }  # fmt: skip
    entries(checks)(arrays, "arrays")
    queries, borders, seen, values = (
        arrays[name] for name in ("queries", "borders", "symbols", "values")
    )
    right = len(borders) == len(queries) + 1 > 1 and borders[0] == 0
    # Checked before lengths are made of borders, which a file could forge.
    right = right and borders[-1] == len(seen) == len(values) and values.shape[1] > 0
    right = right and bool(np.all(np.diff(borders) >= 0) and np.all(np.diff(queries) > 0))
    if right:
        pairs = np.repeat(queries, np.diff(borders)) * n_symbols + seen
        right = bool(np.all(np.diff(pairs) > 0))
    require(right, "arrays", "pairs of symbols in ascending order, with a value each", "others")
    for each in (queries, borders, seen, values):
        each.setflags(write=False)
    return SymbolTable(n_symbols, queries, borders, seen, values)


def _as_symbols(batch: SequenceBatch) -> SequenceBatch:
    """The batch as numbers of symbols; refused unless its tokens are one-hot."""
    if isinstance(batch.values, OneHotTokens):
        return batch
    ids = np.argmax(batch.values, axis=1)
    rest = np.count_nonzero(batch.values, axis=1) != 1
    foreign = rest | (batch.values[np.arange(len(ids)), ids] != 1)
    if np.any(foreign):
        at = int(np.argmax(foreign))
        raise InvalidInput(
            f"this fit is about one-hot tokens; got another as {batch.place((at,))}. Give ids by "
            "SequenceBatch.from_ids, or fit dense tokens."
        )
    return SequenceBatch.from_ids((ids, batch.offsets), batch.n_dims)
