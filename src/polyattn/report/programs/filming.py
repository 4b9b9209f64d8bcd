"""Filming: a program is run, watched, and made into a film by what it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs import DFA, TuringMachine
from polyattn.programs.compile import Compiled
from polyattn.programs.language.encoding import Decoded, Encoding, Task, decode
from polyattn.programs.learning import Learned
from polyattn.programs.library.arguments import BrokenTrace, require_kind
from polyattn.programs.library.fixed_dfa import FixedDFAEncoding
from polyattn.programs.library.memory import MemoryEncoding
from polyattn.programs.library.universal_dfa import DFAEncoding
from polyattn.programs.library.universal_turing import TuringEncoding
from polyattn.programs.machines import NamedMachine
from polyattn.programs.machines.dfa import check_letters
from polyattn.programs.running.runnable import MarginKeeper
from polyattn.report.programs.automata import film_automaton
from polyattn.report.programs.film import Film
from polyattn.report.programs.tokens import Watched, film_tokens
from polyattn.report.programs.turing import film_turing

Machine = TypeVar("Machine", DFA, TuringMachine)


def film(
    program: Compiled | Learned, machine: Any, given: Any, max_steps: int
) -> tuple[Film | None, NamedMachine | None]:
    """The run of a program and the machine that it runs, with names; no film without a prompt.

    Machines and inputs that are not given are drawn at random, and the film says so.
    """
    encoding = program.schema.encoding
    if isinstance(encoding, TuringEncoding):
        found, named = _turing(program, encoding, machine, given, max_steps)
        return _noted(found, machine is None, machine is None and given is None), named
    if isinstance(encoding, DFAEncoding | FixedDFAEncoding):
        found, named = _automaton(program, encoding, machine, given, max_steps)
        drawn = machine is None and isinstance(encoding, DFAEncoding)
        return _noted(found, drawn, given is None and named.input is None), named
    if encoding is None and given is None:
        return None, None
    if encoding is None:
        if machine is not None:
            raise InvalidInput(
                "machine must be left out for a program whose schema has no encoding of machines; "
                "inputs is its prompt, a list of tokens."
            )
        watched = _watch(program, Task(list(given), max_steps, lambda decoded: decoded))
        return film_tokens(watched, max_steps), None
    found = _encoded(program, encoding, machine, given, max_steps)
    return _noted(found, machine is None, given is None), None


def _turing(
    program: Compiled | Learned, encoding: TuringEncoding, machine: Any, given: Any, max_steps: int
) -> tuple[Film, NamedMachine]:
    if machine is None:
        (machine, drawn), _ = encoding.sample(np.random.default_rng(0))
        given = drawn if given is None else given
    named, rules = _named(machine, TuringMachine)
    tape = list(named.input or ()) if given is None else _letters(named, given)
    start = named.start(tape)
    _require_room(tape, start, encoding.n_cells)
    limit = max_steps if named.max_steps is None else min(max_steps, named.max_steps)
    options: dict[str, Any] = {"max_steps": limit, "position": start % encoding.n_cells}
    task = encoding.task(rules, tape, **options)
    watched = replace(_watch(program, task), named=named)
    try:
        run = task.read(watched.decoded)
    except BrokenTrace as error:
        return _broken(watched, max_steps, str(error)), named
    padded = [*tape, *([0] * (encoding.n_cells - len(tape)))]
    found = film_turing(watched, run, tape, start, rules.run(padded, **options))
    reason = (
        "they break off, or tell of a head that jumps, or of states and letters that there are not."
    )
    return found or _broken(watched, max_steps, reason), named


def _automaton(
    program: Compiled | Learned, encoding: Encoding, machine: Any, given: Any, max_steps: int
) -> tuple[Film, NamedMachine]:
    fixed = encoding.dfa if isinstance(encoding, FixedDFAEncoding) else None
    machine = fixed if machine is None else machine
    if machine is None:
        (machine, drawn), _ = encoding.sample(np.random.default_rng(0))
        given = drawn if given is None else given
    named, automaton = _named(machine, DFA)
    if fixed is not None and automaton != fixed:
        raise InvalidInput(
            "machine must be the automaton that this program has built in; leave it out, or give "
            "the same with names."
        )
    word = _letters(named, given) if given is not None else _word(named, encoding, fixed)
    task = encoding.task(*(() if fixed is not None else (automaton,)), word)
    watched = replace(_watch(program, task), named=named)
    try:
        states = task.read(watched.decoded)
    except BrokenTrace as error:
        return _broken(watched, max_steps, str(error)), named
    found = film_automaton(watched, word, states, max_steps)
    reason = "they tell of states that there are not, or of too few."
    return found or _broken(watched, max_steps, reason), named


def _encoded(
    program: Compiled | Learned, encoding: Encoding, machine: Any, given: Any, max_steps: int
) -> Film:
    """A program whose runs are seen token by token: a memory, or what users have made."""
    if isinstance(encoding, MemoryEncoding) and isinstance(given, str) and given.isdecimal():
        given = int(given)  # a key from the command line
    if machine is None or (given is None and isinstance(encoding, MemoryEncoding)):
        arguments, options = encoding.sample(np.random.default_rng(0), machine, given)
    else:
        arguments, options = tuple(each for each in (machine, given) if each is not None), {}
    task = encoding.task(*arguments, **options)
    watched = _watch(program, replace(task, limit=min(task.limit, max_steps)))
    try:
        answer = task.read(watched.decoded)
    except BrokenTrace as error:
        return _broken(watched, max_steps, str(error))
    if not isinstance(encoding, MemoryEncoding):
        return film_tokens(watched, max_steps, [f"What was read from it: {answer}."])
    table, key = arguments
    said = f"Asked for key {key}, the memory answers {answer}; the table says {table[key]}."
    return film_tokens(watched, max_steps, [said], answer == table[key], "table itself")


def _watch(program: Compiled | Learned, task: Task) -> Watched:
    keeper = MarginKeeper(program.schema, program.predictor())
    decoded: Decoded = decode(program.schema, keeper, task.prompt, task.limit)
    return Watched(program.schema, task.prompt, decoded, keeper.margins)


def _broken(watched: Watched, max_steps: int, reason: str) -> Film:
    """What was written, where it is no run of a machine."""
    said = f"The tokens that the layer wrote are no run of this machine: {reason}"
    return film_tokens(watched, max_steps, [said], agrees=False)


def _noted(found: Film, machine: bool, given: bool) -> Film:
    """The film with a sentence about what was drawn at random."""
    drawn = [name for name, random in (("machine", machine), ("input", given)) if random]
    if not drawn:
        return found
    said = f"The {' and the '.join(drawn)} of this run {'was' if len(drawn) == 1 else 'were'}"
    return replace(found, findings=[f"{said} drawn at random.", *found.findings])


def _named(machine: Any, kind: type[Machine]) -> tuple[NamedMachine, Machine]:
    """The machine with names and alone, if it is of the kind that the program runs."""
    found = machine.machine if isinstance(machine, NamedMachine) else machine
    require_kind(found, kind, f"machine={kind.__name__}(...), or a NamedMachine of one")
    assert isinstance(found, kind)  # noqa: S101 - it has just been required
    return machine if isinstance(machine, NamedMachine) else NamedMachine.plain(found), found


def _letters(named: NamedMachine, given: Any) -> list[int]:
    """Letters by name in a text or a list, or by number in a list."""
    if not isinstance(given, Iterable):
        raise InvalidType(
            f"inputs must be a text or a list of letters for this program; got {given!r}."
        )
    listed = list(given)
    if isinstance(given, str) or any(isinstance(each, str) for each in listed):
        return named.read(given if isinstance(given, str) else listed, "inputs")
    return check_letters(listed, len(named.letters), "inputs")


def _require_room(tape: list[int], start: int, n_cells: int) -> None:
    needed = max(len(tape), start + 1) - min(0, start)
    if needed > n_cells:
        raise InvalidInput(
            f"inputs with {len(tape)} letters and the head at {start} need {needed} cells; this "
            f"program has {n_cells} (n_cells)."
        )


def _word(named: NamedMachine, encoding: Encoding, fixed: DFA | None) -> list[int]:
    """The word of the machine's file, or a random one."""
    if named.input is not None:
        return list(named.input)
    machine = None if fixed is not None else named.machine
    arguments, _ = encoding.sample(np.random.default_rng(0), machine)
    return list(arguments[-1])
