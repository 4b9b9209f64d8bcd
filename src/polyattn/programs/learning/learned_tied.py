"""Programs learned by relation: a few terms that hold at every size."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polyattn.model import LinearAttention
from polyattn.programs.compiled import Compiled
from polyattn.programs.language.schema import Atom, Schema
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.doubt import doubt_of
from polyattn.programs.learning.learned import Learned
from polyattn.programs.learning.tied.learn_tied import TiedFit
from polyattn.programs.learning.tied.span import SizedSpan
from polyattn.programs.running.batch import BatchEngine
from polyattn.programs.running.engine import Engine
from polyattn.programs.traces import Trace


class LearnedTied(Learned):
    """A program of terms, at the sizes of ``schema``; ``fit`` has the details."""

    def __init__(self, schema: Schema, fit: TiedFit) -> None:
        super().__init__(schema, fit.outcome, fit.traces)
        self.fit = fit

    @cached_property
    def compiled(self) -> Compiled:
        """The terms as the compiler takes them; this can be saved."""
        return Compiled(self.schema, self.fit.terms_at(self.schema), "learned program")

    @property
    def terms(self) -> list[Term]:
        return list(self.compiled.terms)

    @property
    def layer(self) -> LinearAttention:
        return self.compiled.layer

    @cached_property
    def span(self) -> SizedSpan:
        return self.fit.span_at(self.schema)

    def predictor(self) -> Engine:
        return self.compiled.predictor()

    def resize(self, **sizes: int) -> LearnedTied:
        return LearnedTied(self.schema.resize(**sizes), self.fit)

    @cached_property
    def _doubt(self) -> str:
        engines: dict[tuple[Atom, ...], BatchEngine] = {}

        def outputs(trace: Trace) -> NDArray[np.float64]:
            schema = trace.schema
            if schema.atoms not in engines:
                heads = Compiled(schema, self.fit.terms_at(schema)).heads
                engines[schema.atoms] = BatchEngine(schema, heads)
            return _outputs(engines[schema.atoms], trace)

        return doubt_of(self.traces, outputs)


def _outputs(engine: BatchEngine, trace: Trace) -> NDArray[np.float64]:
    """The outputs (m, d) for each token of a trace, given all that was before it."""
    tokens = trace.tokens
    grams = np.cumsum(tokens[:, engine.match] * tokens[:, engine.read], axis=0, dtype=np.float64)
    before = slice(len(trace.prompt) - 1, -1)
    return engine.outputs(grams[before], tokens[before])
