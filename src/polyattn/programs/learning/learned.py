"""Learned programs: they run, say what they learned, and know where they would be guessing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyattn.display import Description, ReportedProgram, Result
from polyattn.errors import InvalidInput, require_flag
from polyattn.model import LinearAttention
from polyattn.numerics.arrays import require_float64
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.outcome import Outcome
from polyattn.programs.certificates import ProgramCertificate, RowSpan
from polyattn.programs.certificates.certify_traces import (
    INSIDE,
    OUTSIDE,
    certify_domain,
    certify_fresh,
    certify_training,
)
from polyattn.programs.language.schema import Schema, Token, run_encoded
from polyattn.programs.language.terms import Term
from polyattn.programs.learning.training_traces import require_traces
from polyattn.programs.running.runnable import Runnable
from polyattn.programs.traces import Trace, TraceRows


class Learned(Result, ReportedProgram, Runnable):
    """A program that was learned from traces.

    Attributes
    ----------
    schema : Schema
    outcome : Outcome
        What was found and whether it held on traces that were left out (``str`` says it).
    traces : tuple of Trace
        What it was learned from.
    method : str
        How it was learned: "rules" or "coefficients".
    """

    method: ClassVar[str]
    about: ClassVar[str]
    outcome: Outcome[Any]

    def __init__(self, schema: Schema, outcome: Outcome[Any], traces: Sequence[Trace]) -> None:
        self.schema, self.outcome, self.traces = schema, outcome, tuple(traces)

    @property
    def n_traces(self) -> int:
        """How many traces it was learned from."""
        return len(self.traces)

    @property
    def n_rows(self) -> int:
        """How many tokens these have to predict."""
        return sum(trace.n_rows for trace in self.traces)

    @property
    @abstractmethod
    def layer(self) -> LinearAttention:
        """The layer: X (n, d), prompt and what followed, to the next token before rounding."""

    @property
    @abstractmethod
    def terms(self) -> list[Term]:
        """The program, read back: ``print`` them."""

    @property
    @abstractmethod
    def span(self) -> RowSpan:
        """The span of the training rows, in which predictions are determined."""

    @abstractmethod
    def resize(self, **sizes: int) -> Learned:
        """The same program for other sizes, such as ``resize(n_states=5, n_letters=4)``."""

    @property
    def succeeded(self) -> bool:
        """Whether what was learned held wherever it was checked.

        Rules are held against every trace, without having seen it; coefficients only against the
        traces they were learned from, each of which the others determine.
        """
        return self.outcome.ok

    @cached_property
    @single_threaded_blas()
    def certificate(self) -> ProgramCertificate:
        """What the training traces say by themselves; ``certify`` can say more."""
        return certify_training(self.span, self.n_rows, self.n_traces, self._n_innovative())

    @single_threaded_blas()
    def certify(
        self,
        fresh: Iterable[Trace] | None = None,
        domain: Iterable[Trace] | None = None,
        delta: float = 0.05,
        exact: bool = False,
    ) -> ProgramCertificate:
        """Whether the training traces determine the program on other traces, too.

        Parameters
        ----------
        fresh : traces
            Drawn independently of those it was learned from; their labels are not used.  If
            none leaves the span, that bounds how often others do.
        domain : traces
            All there are (``all_traces``): if none leaves the span, none ever will.
        delta : float
            One minus the confidence of the bound.
        exact : bool
            False: the span is judged in floating point, and rows too near to its border leave
            the verdict undecided.  True, for coefficients: fresh traces modulo a prime, and a
            domain in integers, which makes the verdict a theorem.
        """
        if (fresh is None) == (domain is None):
            raise InvalidInput("certify takes fresh traces, or all traces of a domain.")
        name, given = ("fresh", fresh) if domain is None else ("domain", domain)
        looked_at = require_traces(name, given, self.schema)
        exact = require_flag("exact", exact)
        if exact and fresh is None:
            return self._prove_domain(looked_at)
        span = self._exact_span() if exact else self.span
        if fresh is None:
            return certify_domain(span, self.n_rows, self.n_traces, looked_at)
        return certify_fresh(span, self.n_rows, self.n_traces, looked_at, delta)

    def run(self, *given: Any, abstain: bool = False, **options: Any) -> Any:
        """Run on a machine and its input; the result is that of the compiled program.

        With ``abstain=True`` a step that the training traces do not determine is not taken: what
        comes back is ``Abstained``, with the reason and the tokens so far.

        Guarantee: if some layer of the learned kind computes the program, and labels are right,
        a run that does not abstain gives what that layer gives (up to rounding in the span).
        """
        if not require_flag("abstain", abstain):
            return super().run(*given, **options)
        try:
            return run_encoded(self.schema, CautiousPredictor(self), given, options)
        except Undetermined as stopped:
            abstained: Abstained = stopped.args[0]
            return abstained

    def describe(self) -> Description:
        own, lines = self._figures()
        facts = {
            "method": self.method, "n_dims": self.n_dims, "n_traces": self.n_traces,
            "n_rows": self.n_rows, **own,
        }  # fmt: skip
        about = f"{self.about}, from {self.n_traces} traces"
        return self._described("A learned program", about, facts, lines=lines)

    @abstractmethod
    def _figures(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Facts that only this method has, and the terms where they are few."""

    def _exact_span(self) -> RowSpan:
        """The span in exact arithmetic."""
        raise InvalidInput(
            "only programs learned by coefficients have an exact span; leave exact out."
        )

    def _prove_domain(self, domain: Iterable[Trace]) -> ProgramCertificate:
        return certify_domain(self._exact_span(), self.n_rows, self.n_traces, domain)

    @property
    @abstractmethod
    def _doubt(self) -> str:
        """Why it is not right on the traces it was learned from; empty if it is."""

    def _n_innovative(self) -> int | None:
        """How many training traces are not in the span of the others, if that is known."""
        return None

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.outcome.name}, {self.n_traces} traces, {self.n_rows} rows)"


@dataclass(frozen=True)
class Abstained:
    """A run that stopped before a token that the traces do not determine.

    reason : what is missing, as a sentence
    number : the number of the token that was not written
    tokens : those before it, which are determined
    """

    reason: str
    number: int
    tokens: list[Token]

    def __str__(self) -> str:
        return self.reason


class Undetermined(Exception):
    """Raised with ``Abstained`` by a cautious predictor, and caught by the run that it stops."""


class History:
    """Tokens as a layer sees them: their Gram matrix (d, d), and the last of them (d,)."""

    schema: Schema
    gram: NDArray[np.float64]
    last: NDArray[np.float64]

    def start(self, prompt: list[Token]) -> None:
        """Begin with the tokens of a prompt; counts that float64 cannot hold are refused."""
        encoded = self.schema.encode(prompt)
        require_float64(encoded, "the prompt of a learned layer")
        tokens = encoded.astype(np.float64)
        self.gram, self.last = tokens.T @ tokens, tokens[-1]

    def append(self, token: NDArray) -> None:
        """Go on with a token (d,)."""
        self.last = token.astype(np.float64)
        self.gram += np.outer(self.last, self.last)


class CautiousPredictor(History):
    """A predictor that looks at the span of the training rows before each token.

    If the program is not right on those rows themselves, their span says nothing about it, and
    no token is written.
    Cost: that of the span's test, beside the predictor's own.
    """

    def __init__(self, program: Learned) -> None:
        self.schema, self._predictor = program.schema, program.predictor()
        self._span, self._doubt = program.span, program._doubt
        self._written = list[Token]()

    def start(self, prompt: list[Token]) -> None:
        super().start(prompt)
        self._written = []
        self._predictor.start(prompt)

    def next_token(self) -> Token:
        """The token that comes next, if the training rows determine it."""
        if self._doubt:
            raise Undetermined(Abstained(f"Stopped before token 0: {self._doubt}", 0, []))
        # What is seen before the next token; there is no target.
        row = TraceRows(self.gram[None], self.last[None], np.zeros((1, self.schema.n_dims)))
        status = str(self._span.inside(row)[0])
        if status != INSIDE:
            why = (
                "no combination of training rows gives it"
                if status == OUTSIDE
                else "whether training rows determine it is too close to call"
            )
            number, last = len(self._written), self.schema.decode(self.last)
            reason = (
                f"Stopped before token {number}, after '{self.schema.show(last)}': what comes "
                f"next was not learned, since {why}. More traces that lead there would help."
            )
            raise Undetermined(Abstained(reason, number, list(self._written)))
        token = self._predictor.next_token()
        self.append(self.schema.encode([token])[0])
        self._written.append(token)
        return token
