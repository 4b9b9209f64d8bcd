"""The universal Turing machine on a circular tape that is never rewritten, only changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from polyattn.errors import InvalidInput, require_choice, require_integer
from polyattn.programs.language.attributes import INTEGER, Attribute, variables
from polyattn.programs.language.instructions import Lookup, Register
from polyattn.programs.language.program import Instruction, Program
from polyattn.programs.language.schema import Arguments, Decoded, Schema, Task, Token
from polyattn.programs.language.sorts import circle, names, symbols
from polyattn.programs.language.terms import Unequal
from polyattn.programs.library import runs
from polyattn.programs.library.runs import LibraryEncoding, PlannedRun, Range
from polyattn.programs.library.turing_runs import show_turing
from polyattn.programs.machines import TuringMachine, TuringRun, TuringStep
from polyattn.programs.machines.automata import HALT, check_letters, finished, require_place


def universal_turing_machine(n_states: int, n_letters: int, n_cells: int) -> Program:
    """Runs any Turing machine: ``run(machine, tape, max_steps=1000, position=0)``.

    The tape is a circle of ``n_cells``; a shorter one is filled with blanks.  The result is a
    TuringRun: tape, state, position, steps, halted, history.

    Tokens: key(q, x) mq(move, r) letter(+new - old) for each rule, cell(p) letter(x) for the
    tape, mq with the start state under key(START).  Then two per step:

        look     flag, key(q, x): state and letter read; dp: how the head's position changed
        act      flag, cell(p), letter: what is written there; mq: where to go and in which
                 state; N: how the letters left of, under and right of the head changed

    so that the sums of dp and N are the position and the neighbourhood of the head: two
    registers.  Two tokens per step, 2 P + 4 A + Q A + 3 Q + 5 coordinates, 3 Q + 5 heads.
    """
    schema = TuringEncoding(n_states, n_letters, n_cells).schema
    flag, cell, dp, letter = schema.flag, schema.cell, schema.dp, schema.letter
    N, key, mq = schema.N, schema.key, schema.mq
    p, q, r, m, x, y = variables("p q r m x y")
    found = [mq(m, r) << mq(m, r), letter(x) << letter(x), N("0", x) << letter(x)]
    place = [cell(p) << dp(p), flag() << dp(p)]
    going_on = (Unequal(r, "HALT"),)
    instructions: list[Instruction] = [
        Lookup(found, match=key(q, y), query=key(q, y)),
        Lookup(found, match=key("START"), query=key("START")),
        Register(place, flag=flag(), given=key(q, y)),
        Register(place, flag=flag(), given=key("START")),
    ]
    for name, step in MOVES.items():
        move = [dp(p + step) << dp(p), -(dp(p) << dp(p)), flag() << dp(p)]
        instructions += [
            Lookup(N(name, x) << letter(x), match=cell(p + step), query=dp(p)),
            Register(key(r, x) << N(name, x), flag=flag(), given=mq(name, r)),
            Register(move, flag=flag(), given=mq(name, r), where=going_on),
        ]
    return Program(schema, tuple(instructions), "universal Turing machine")


# Moves by name; the same names tell left of, under and right of the head.
MOVES = {"-1": -1, "0": 0, "+1": 1}
MOVE_NAMES = {step: name for name, step in MOVES.items()}


class TapeEncoding(LibraryEncoding):
    """What programs that run Turing machines on a circular tape share: checks, random machines."""

    n_states: int
    n_letters: int
    n_cells: int

    def cells_of(
        self, machine: TuringMachine, tape: Iterable[int], position: int, state: int
    ) -> list[int]:
        """The letters of all cells, if the machine, its tape, head and state fit the program."""
        runs.require_kind(machine, TuringMachine, "run(machine, tape)")
        runs.require_fit(machine, self.n_states, self.n_letters)
        cells = check_letters(tape, machine.n_letters, "tape")
        if len(cells) > self.n_cells:
            raise InvalidInput(
                f"the tape has {len(cells)} letters; this program has {self.n_cells} cells "
                "(n_cells)."
            )
        require_place("position", position, self.n_cells)
        require_place("state", state, machine.n_states)
        return cells + [0] * (self.n_cells - len(cells))

    def require_no_wrap(self, run: TuringRun) -> TuringRun:
        """The run, unless its head has come around the tape."""
        if run.wrapped_at is not None:
            raise InvalidInput(
                f"the head leaves the tape of {self.n_cells} cells at step {run.wrapped_at}: "
                "a larger n_cells is needed, or overflow='wrap' for a circular tape."
            )
        return run

    def sample_run(
        self, rng: Generator, machine: Any, given: Any, steps: Range, longest: int | None = None
    ) -> Arguments:
        """Random rules, halting rarely to often, on a random tape, for so many steps at most."""
        least, most = runs.require_range("steps", steps, 0, longest)
        if machine is None:
            halting = rng.choice([0.02, 0.1, 0.4])
            rules = {
                pair: (
                    HALT if rng.random() < halting else int(rng.integers(self.n_states)),
                    int(rng.integers(self.n_letters)),
                    int(rng.integers(-1, 2)),
                )
                for pair in product(range(self.n_states), range(self.n_letters))
            }
            machine = TuringMachine(rules, self.n_states, self.n_letters)
        runs.require_kind(machine, TuringMachine, "traces(program, machines=[machine])")
        if given is None:
            given = rng.integers(machine.n_letters, size=self.n_cells).tolist()
        return (machine, given), {
            "max_steps": int(rng.integers(least, most + 1)),
            "position": int(rng.integers(self.n_cells)),
            "state": int(rng.integers(machine.n_states)),
        }

    def plan(self, machine: Any, given: Any, max_steps: int, show: Any) -> PlannedRun:
        """What ``show_run`` runs: a machine with names, placed on the tape."""
        drawn = machine is None, machine is None and given is None
        if machine is None:
            (machine, tape), _ = self.sample(np.random.default_rng(0))
            given = tape if given is None else given
        named, rules = runs.named_machine(machine, TuringMachine)
        tape = list(named.input or ()) if given is None else runs.letters_of(named, given)
        start = named.start(tape)
        needed = max(len(tape), start + 1) - min(0, start)
        if needed > self.n_cells:
            raise InvalidInput(
                f"inputs with {len(tape)} letters and the head at {start} need {needed} cells; "
                f"this program has {self.n_cells} (n_cells)."
            )
        limit = max_steps if named.max_steps is None else min(max_steps, named.max_steps)
        task = self.task(rules, tape, max_steps=limit, position=start % self.n_cells)
        placed = replace(named, input=tuple(tape), position=start, max_steps=limit)
        return PlannedRun(task, show, placed, drawn)


@dataclass(frozen=True)
class TuringEncoding(TapeEncoding):
    """Rules and cells as tokens; the run is read back from what was looked at and done."""

    name = "turing_machine"
    # On a single cell, left of the head would be the head itself.
    least: ClassVar[Mapping[str, int]] = {"n_cells": 2}

    n_states: int
    n_letters: int
    n_cells: int

    @cached_property
    def schema(self) -> Schema:
        state, letter = symbols("state", self.n_states), symbols("letter", self.n_letters)
        cells, move = circle("cell", self.n_cells), names("move", *MOVES)
        mq = Attribute("mq", (move, state.plus("HALT")))
        attributes = (
            Attribute("flag"),
            Attribute("cell", (cells,)),
            Attribute("dp", (cells,), rounding=INTEGER),
            Attribute("letter", (letter,), rounding=INTEGER),
            Attribute("N", (move, letter), rounding=INTEGER),
            Attribute("key", (state, letter), whole=("START",)),
            mq,
        )
        stop = tuple(mq(name, "HALT") for name in MOVES)
        return Schema(attributes, stop=stop, encoding=self)

    def task(
        self,
        machine: TuringMachine,
        tape: Iterable[int] = (),
        max_steps: int = 1000,
        position: int = 0,
        state: int = 0,
        overflow: str = "wrap",
    ) -> Task:
        """The run of a machine: on a circle (``overflow="wrap"``), or never around it ("error")."""
        require_choice("overflow", overflow, ("wrap", "error"))
        require_integer("max_steps", max_steps, least=0)
        cells = self.cells_of(machine, tape, position, state)
        token = self.schema.token
        prompt = [token(key="START", mq=(MOVE_NAMES[0], state))]
        for (before, letter), (after, write, move) in machine.rules.items():
            target = "HALT" if after < 0 else after
            change = {} if write == letter else {write: 1, letter: -1}
            prompt.append(token(key=(before, letter), mq=(MOVE_NAMES[move], target), letter=change))
        prompt += [token(cell=p, letter=x) for p, x in enumerate(cells)]
        prompt.append(token(flag=(), key="START", dp=position))

        def read(decoded: Decoded) -> TuringRun:
            run = _read(machine, decoded.tokens, cells, position, state)
            return self.require_no_wrap(run) if overflow == "error" else run

        return Task(prompt, limit=1 + 2 * max_steps, read=read, endless=True)

    def sample(
        self, rng: Generator, machine: Any = None, given: Any = None, steps: Range = (2, 25)
    ) -> Arguments:
        """Random rules, halting rarely to often, on a random tape, for so many steps at most."""
        return self.sample_run(rng, machine, given, steps)

    def plan_run(self, machine: Any, given: Any, max_steps: int) -> PlannedRun:
        return self.plan(machine, given, max_steps, show_turing)


def _read(
    machine: TuringMachine, tokens: list[Token], cells: list[int], position: int, state: int
) -> TuringRun:
    """The run of these look and act tokens; the first act token comes before all steps.

    Tokens say that the machine halts, and by which rule; that says whether it accepts.
    """
    tape, history = list(cells), []
    runs.held(tokens[0] if tokens else {}, "mq", 0)
    for number in range(1, len(tokens) - 1, 2):
        look, act = tokens[number], tokens[number + 1]
        key, cell = runs.held(look, "key", number), runs.held(act, "cell", number + 1)
        if isinstance(key, str):
            raise runs.BrokenTrace(f"token {number} looks at {key}: no state and letter.")
        before, read, at = int(key[0]), int(key[1]), int(cell[0])
        mq = runs.held(act, "mq", number + 1)
        move = MOVES[str(mq[0])]
        state = machine.ending(before, read) if mq[1] == "HALT" else int(mq[1])
        written = [value for (name, value), n in act.items() if name == "letter" and n > 0]
        write = int(written[0][0]) if written else read
        history.append(TuringStep(before, at, read, write, move, state))
        tape[at], position = write, (at + move) % len(tape)
    return finished(cells, tape, position, state, history)
