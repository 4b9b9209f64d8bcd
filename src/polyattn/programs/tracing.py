"""traces: histories of random machines on random inputs, by the meaning of a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np

from polyattn.errors import InvalidInput, require_integer
from polyattn.programs.encoding import Task
from polyattn.programs.language.interpreter import Interpreter
from polyattn.programs.language.program import Program
from polyattn.programs.running.decode import decode
from polyattn.programs.traces import Trace
from polyattn.progress import report


def traces(
    program: Program,
    n_traces: int | None = None,
    random_state: int | np.random.Generator = 0,
    machines: Sequence[Any] | None = None,
    inputs: Sequence[Any] | None = None,
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
    encoding = program.schema.encoding
    if encoding is None:
        raise InvalidInput("traces needs a program whose schema has an encoding.")
    n_given = max(len(each) for each in (machines or (), inputs or ()))
    count = require_integer("n_traces", n_traces if n_traces is not None else n_given or 25)
    rng = np.random.default_rng(random_state)
    found = []
    for machine, given in zip(_turns(machines, count), _turns(inputs, count), strict=True):
        arguments, chosen = encoding.sample(rng, machine, given, **options)
        found.append(trace_of(program, encoding.task(*arguments, **chosen), arguments))
        report(len(found), count)
    return found


def all_traces(program: Program, **options: Any) -> Iterable[Trace]:
    """The histories of every machine on every input, one after the other.

    ``lengths=(least, most)`` restricts the words of automata.
    """
    encoding = program.schema.encoding
    if encoding is None:
        raise InvalidInput("all_traces needs a program whose schema has an encoding.")
    for arguments in encoding.everything(**options):
        yield trace_of(program, encoding.task(*arguments), arguments)


def trace_of(program: Program, task: Task, source: Any = None) -> Trace:
    """The history of one task."""
    tokens = decode(program.schema, Interpreter(program), task.prompt, task.limit).tokens
    encode = program.schema.encode
    return Trace(program.schema, encode(task.prompt), encode(tokens), source)


def _turns(items: Sequence[Any] | None, count: int) -> list[Any]:
    """``count`` of the items, from the start again when they end; None for each without any."""
    return list(islice(cycle(items), count)) if items else [None] * count
