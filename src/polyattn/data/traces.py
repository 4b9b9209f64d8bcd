"""Traces of random machines on random inputs, with or without wrong labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidType, require_integer, require_number
from polyattn.numerics.random_state import RandomState, require_generator
from polyattn.programs import Schema, Trace, traces, universal_dfa, universal_turing_machine


def automaton_traces(
    n_traces: int,
    n_states: int = 4,
    n_letters: int = 4,
    max_length: int = 8,
    style: str = "registers",
    random_state: RandomState = 0,
    lengths: tuple[int, int] | None = None,
) -> list[Trace]:
    """Runs of random automata on random words, as the universal automaton writes them.

    Parameters
    ----------
    n_traces : int
    n_states, n_letters, max_length, style : as for ``programs.universal_dfa``
    random_state : int, Generator or None
    lengths : (least, most), optional
        Letters of the words; 1 to ``max_length`` unless given.
    """
    program = universal_dfa(n_states, n_letters, max_length, style)
    return traces(program, require_integer("n_traces", n_traces), random_state, lengths=lengths)


def turing_traces(
    n_traces: int,
    n_states: int = 3,
    n_letters: int = 2,
    n_cells: int = 16,
    random_state: RandomState = 0,
    steps: tuple[int, int] | None = None,
) -> list[Trace]:
    """Runs of random Turing machines on random tapes, as the universal machine writes them.

    Rules halt with a probability of 2, 10 or 40 %, so that both long and short runs occur.

    Parameters
    ----------
    n_traces : int
    n_states, n_letters, n_cells : as for ``programs.universal_turing_machine``
    random_state : int, Generator or None
    steps : (least, most), optional
        Where runs are cut off; 2 to 25 unless given.
    """
    program = universal_turing_machine(n_states, n_letters, n_cells)
    options = {} if steps is None else {"steps": steps}
    return traces(program, require_integer("n_traces", n_traces), random_state, **options)


def with_wrong_labels(
    clean: Iterable[Trace], noise: float = 0.0, flips: float = 0.0, random_state: RandomState = 0
) -> list[Trace]:
    """The same traces with labels that are not quite right; what was seen before stays right.

    Parameters
    ----------
    clean : iterable of Trace
    noise : float
        Standard deviation of normal noise on every number of every label.
    flips : float
        Part of the labels in which one attribute says something else than it should.
    random_state : int, Generator or None
    """
    noise, flips = require_number("noise", noise), require_number("flips", flips, most=1.0)
    rng = require_generator(random_state)
    if not isinstance(clean, Iterable):
        raise InvalidType(f"clean must be a list of traces; got {type(clean).__name__}.")
    found = []
    for place, trace in enumerate(clean):
        if not isinstance(trace, Trace):
            raise InvalidType(f"clean[{place}] must be a Trace; got {type(trace).__name__}.")
        labels = np.array(trace.targets, dtype=np.float64)
        for number in np.flatnonzero(rng.random(len(labels)) < flips):
            labels[number] = _flipped(labels[number], trace.schema, rng)
        labels += noise * rng.standard_normal(labels.shape)
        found.append(replace(trace, labels=labels))
    return found


def _flipped(label: NDArray, schema: Schema, rng: np.random.Generator) -> NDArray:
    """A label in which the numbers of one attribute that it holds stand elsewhere."""
    choices = []
    for block in schema.blocks.values():
        # The numbers of an attribute moved on, in all ways that change something.
        held = label[block]
        moved = [np.roll(held, step) for step in range(1, len(held))]
        if others := [each for each in moved if np.any(each != held)]:
            choices.append((block, others))
    changed = label.copy()
    if choices:
        block, others = choices[rng.integers(len(choices))]
        changed[block] = others[rng.integers(len(others))]
    else:
        # Nothing that could stand elsewhere: one number that should be there is not, or is.
        at = rng.integers(len(label))
        changed[at] = 0.0 if label[at] else 1.0
    return changed
