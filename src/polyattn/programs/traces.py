"""traces: what machines wrote, token by token; all that learning gets to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, InvalidType, require_integer
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.programs.language.program import Interpreter, Program
from polyattn.programs.language.schema import Encoding, Predictor, Schema, Task, decode
from polyattn.progress import report


@dataclass(frozen=True, eq=False)
class Trace:
    """One history: the tokens that were given and those that followed.

    prompt : array (n, d) of integers, the machine and its input as tokens
    completion : array (m, d) of integers, what came after; token t is to be predicted from the
        prompt and completion[:t]
    source : the machine and the input, if they are known
    labels : array (m, d), what to learn instead of the completion: the same with noise
    cut : whether the run was cut off; it would have gone on
    """

    schema: Schema
    prompt: NDArray[np.int64]
    completion: NDArray[np.int64]
    source: Any = None
    labels: NDArray | None = None
    cut: bool = False

    @classmethod
    def of(cls, schema: Schema, predictor: Predictor, task: Task, source: Any = None) -> Trace:
        """The trace of a task, written by the interpreter or a layer."""
        found = decode(schema, predictor, task.prompt, task.limit)
        prompt, completion = schema.encode(task.prompt), schema.encode(found.tokens)
        return cls(schema, prompt, completion, source, cut=task.endless and not found.stopped)

    @property
    def n_rows(self) -> int:
        """m, the predicted tokens."""
        return len(self.completion)

    @property
    def targets(self) -> NDArray:
        """What is to be predicted (m, d): the completion, unless there are other labels."""
        return self.completion if self.labels is None else self.labels

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Prompt and completion (n + m, d)."""
        return np.concatenate([self.prompt, self.completion])

    def show(self) -> str:
        """The completion for a person to read, one token per line."""
        return "\n".join(self.schema.show(self.schema.decode(row)) for row in self.completion)


@dataclass(frozen=True, eq=False)
class TraceRows:
    """The rows of a trace, in order: what a layer sees before each token, and the token.

    grams : array (m, d, d), the token Gram matrix G of everything before the row's token
    queries : array (m, d), the token before it
    targets : array (m, d), the token itself
    """

    grams: NDArray[np.float64]
    queries: NDArray[np.float64]
    targets: NDArray[np.float64]

    @classmethod
    def of(cls, trace: Trace) -> TraceRows:
        """The m rows of a trace with m predicted tokens."""
        prompt = trace.prompt.astype(np.float64)
        followed = trace.completion.astype(np.float64)
        queries = np.concatenate([prompt[-1:], followed[:-1]])[: len(followed)]
        steps = np.einsum("tj,tk->tjk", queries, queries)
        steps[:1] = prompt.T @ prompt
        return cls(np.cumsum(steps, axis=0), queries, trace.targets.astype(np.float64))

    @classmethod
    def joined(cls, parts: Sequence[TraceRows]) -> TraceRows:
        """The rows of several traces as one block."""
        return cls(
            np.concatenate([part.grams for part in parts]),
            np.concatenate([part.queries for part in parts]),
            np.concatenate([part.targets for part in parts]),
        )


def traces(
    program: Program,
    n_traces: int | None = None,
    random_state: RandomState = 0,
    machines: Iterable[Any] | None = None,
    inputs: Iterable[Any] | None = None,
    **options: Any,
) -> list[Trace]:
    """Histories of a program, token by token, written by its interpreter.

    Parameters
    ----------
    program : Program
    n_traces : int
        How many; 25 unless machines or inputs are given, then as many as those.
    random_state : int or Generator
        Machines and inputs that are not given are random, with inputs of mixed lengths.
    machines, inputs : sequence
        Taken in turn, from the start again when there are fewer than ``n_traces``.
    options
        What the program can draw: ``lengths=(least, most)`` of words, ``steps=(least, most)`` of
        Turing machines.
    """
    encoding = _encoding_of(program, "traces")
    _require_known(encoding.sample, options)
    given_machines, given_inputs = _listed("machines", machines), _listed("inputs", inputs)
    n_given = max(len(given_machines), len(given_inputs))
    count = require_integer("n_traces", n_traces if n_traces is not None else n_given or 25)
    rng = require_generator(random_state)
    found = []
    # From the start again when they end; None for each without any.
    turns = zip(cycle(given_machines or [None]), cycle(given_inputs or [None]), strict=False)
    for machine, given in islice(turns, count):
        arguments, chosen = encoding.sample(rng, machine, given, **options)
        task = encoding.task(*arguments, **chosen)
        found.append(Trace.of(program.schema, Interpreter(program), task, arguments))
        report(len(found), count)
    return found


def all_traces(program: Program, **options: Any) -> Iterator[Trace]:
    """The histories of every machine on every input, one after the other.

    ``lengths=(least, most)`` restricts the words of automata.
    """
    encoding = _encoding_of(program, "all_traces")
    _require_known(encoding.everything, options)
    everything, meaning = encoding.everything(**options), Interpreter(program)
    return (Trace.of(program.schema, meaning, encoding.task(*each), each) for each in everything)


def _encoding_of(program: Program, name: str) -> Encoding:
    if not isinstance(program, Program):
        raise InvalidType(f"{name} needs a Program; got {type(program).__name__}.")
    if program.schema.encoding is None:
        raise InvalidInput(f"{name} needs a program whose schema has an encoding.")
    return program.schema.encoding


def _require_known(draw: Callable[..., Any], options: Iterable[str]) -> None:
    own = ("rng", "machine", "given")
    known = [name for name in signature(draw).parameters if name not in own]
    for name in options:
        if name not in known:
            raise InvalidType(
                f"this program has the options {', '.join(known) or '(none)'}; got {name!r}."
            )


def _listed(name: str, items: Iterable[Any] | None) -> list[Any]:
    """The items as a list that is not empty, or nothing if they are not given."""
    if items is None:
        return []
    try:
        listed = list(items)
    except TypeError:
        raise InvalidType(f"{name} must be a list; got {type(items).__name__}.") from None
    if not listed:
        raise InvalidInput(f"{name} must not be empty; leave it out for random ones.")
    return listed
