"""The universal Turing machine that writes its whole tape again at every step.

[yau2024: Algorithms 6, 7] for the construction of [yau2024: Lemma B.1], as a program of ours.  What
is printed there does not run as it stands; what was mended is listed in the derivations
(docs/derivations/programs.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

from numpy.random import Generator

from polyattn.errors import InvalidInput, require_choice, require_integer
from polyattn.programs.language.attributes import Attribute, Field, Pattern, variables
from polyattn.programs.language.instructions import Copy, IfThen, Lookup
from polyattn.programs.language.program import Instruction, Program
from polyattn.programs.language.schema import Arguments, Decoded, Schema, Task, Token
from polyattn.programs.language.sorts import circle, line, names, symbols
from polyattn.programs.language.terms import Unequal
from polyattn.programs.library import runs
from polyattn.programs.library.runs import PlannedRun, Range
from polyattn.programs.library.turing_runs import show_turing
from polyattn.programs.library.universal_turing_machine import MOVE_NAMES, MOVES, TapeEncoding
from polyattn.programs.machines import TuringMachine, TuringRun, TuringStep
from polyattn.programs.machines.automata import END_NAMES, finished

# Tokens of a block: what is copied, what is looked up, what is chosen, what is written.
BLOCK = 4

_ENDINGS = {name: ending for ending, name in END_NAMES.items()}


def tape_rewriting_turing_machine(
    n_states: int, n_letters: int, n_cells: int, n_steps: int
) -> Program:
    """Runs any Turing machine by writing the tape again at every step, as Yau et al. do.

    ``run(machine, tape, max_steps=n_steps, position=0)`` gives the TuringRun that
    ``universal_turing_machine`` gives; ``n_steps`` is the longest run.  The tape is a circle.

    Tokens: mstate(q) with next, write and move for every letter (a token for each state), the tape
    as place(0, p) letter(x) and state(q) at the head.  Then a block of four tokens for each cell p
    of each step s, with coordinates of its own:

        load     the letters and states of the cell and its neighbours in the row before
        found    the row of the table for the state among them, and on which side the head was
        chosen   of that row, what goes with the letter that was under the head
        place    the cell's letter, and the state if the head is here now

    4 P tokens per step on P cells.  There are P S blocks for S steps, each with coordinates and
    heads of its own:

        coordinates    P S (A^2 + A Q + 13 A + 4 Q + 15) + P (S + 1) + A^2 + A Q + 7 A + 2 Q + 4
        heads          P S (A + 12) + 4
    """
    encoding = RewritingEncoding(n_states, n_letters, n_cells, n_steps)
    instructions = (
        *_copies(encoding),
        *_lookups(encoding),
        *_choices(encoding),
        *_writes(encoding),
    )
    return Program(encoding.schema, instructions, "Turing machine that rewrites its tape")


S, C, Q, R, X, M = variables("s c q r x m")


def _copies(encoding: RewritingEncoding) -> list[Instruction]:
    """place -> load of the next cell: the row before, at the cell and beside it (Algorithm 6)."""
    schema, last = encoding.schema, encoding.n_cells - 1
    found: list[Instruction] = []
    inside = (Unequal(C, last),)

    def copy(cell: Any, near: dict[str, Any], query: Pattern, where: Any) -> None:
        for side, place in near.items():
            state, letter = getattr(schema, f"state_{side}"), getattr(schema, f"letter_{side}")
            fields = [state(S, cell, Q) << schema.state(Q), letter(S, cell, X) << schema.letter(X)]
            found.append(Copy(fields, schema.place(S, place), query, where))

    copy(C + 1, {"left": C, "here": C + 1, "right": C + 2}, schema.place(S + 1, C), inside)
    copy(0, {"left": last, "here": 0, "right": 1}, schema.place(S, last), ())
    found.append(IfThen(schema.load(S, C + 1), when=schema.place(S + 1, C), where=inside))
    found.append(IfThen(schema.load(S, 0), when=schema.place(S, last)))
    # After the row in which the machine has ended there is one token more, the last.
    for name in _ENDINGS:
        over = [schema.over() << schema.state(name)]
        found.append(Lookup(over, match=schema.state(name), query=schema.place(S, last)))
    return found


def _lookups(encoding: RewritingEncoding) -> list[Instruction]:
    """load -> found: the row of the table for the state that was copied, if there is one.

    The three branches of Algorithm 7: a head that was here, or left or right of here.
    """
    schema = encoding.schema
    found: list[Instruction] = [IfThen(schema.found(S, C), when=schema.load(S, C))]
    kept = schema.kept(S, C, X) << schema.letter_here(S, C, X)
    found.append(Lookup(kept, match=schema.load(S, C), query=schema.load(S, C)))
    for side, move in SIDES.items():
        state, letter = getattr(schema, f"state_{side}"), getattr(schema, f"letter_{side}")
        asked, fields = state(S, C, Q), list[Field]()
        for a in range(encoding.n_letters):
            fields += [
                getattr(schema, f"row_{what}{a}")(S, C, R) << getattr(schema, f"{what}{a}")(R)
                for what in WHAT
            ]
        found.append(Lookup(fields, match=schema.mstate(Q), query=asked))
        under = [schema.under(S, C, X) << letter(S, C, X)]
        if side == "here":
            # What stands under the head is not kept.
            under.append(-kept)
        found.append(Lookup(under, match=asked, query=asked))
        found.append(IfThen(schema.side(S, C, move), when=asked))
    return found


def _choices(encoding: RewritingEncoding) -> list[Instruction]:
    """found -> chosen: if the letter under the head is a, what the row says of a."""
    schema = encoding.schema
    tag = schema.found(S, C)
    carried = [schema.side_then(S, C, M) << schema.side(S, C, M)]
    carried.append(schema.kept_then(S, C, X) << schema.kept(S, C, X))
    found: list[Instruction] = [
        IfThen(schema.chosen(S, C), when=tag),
        Lookup(carried, match=tag, query=tag),
    ]
    for a in range(encoding.n_letters):
        fields = [
            getattr(schema, f"the_{what}")(S, C, R) << getattr(schema, f"row_{what}{a}")(S, C, R)
            for what in WHAT
        ]
        under = schema.under(S, C, a)
        found.append(Lookup(fields, match=under, query=under))
    return found


def _writes(encoding: RewritingEncoding) -> list[Instruction]:
    """chosen -> place: the letter, and the state if the head moves here."""
    schema = encoding.schema
    tag, stays = schema.chosen(S, C), schema.side_then(S, C, SIDES["here"])
    return [
        IfThen(schema.place(S + 1, C), when=tag),
        Lookup(schema.letter(X) << schema.kept_then(S, C, X), match=tag, query=tag),
        Lookup(schema.letter(X) << schema.the_write(S, C, X), match=stays, query=stays),
        # The move is the one that leads from where the head was to here.
        Lookup(
            schema.state(R) << schema.the_next(S, C, R),
            match=schema.the_move(S, C, M),
            query=schema.side_then(S, C, M),
        ),
    ]


# Where the head was, and the move that brings it here.
SIDES = {"left": MOVE_NAMES[1], "here": MOVE_NAMES[0], "right": MOVE_NAMES[-1]}

# What a rule says.
WHAT = ("next", "write", "move")


@dataclass(frozen=True)
class RewritingEncoding(TapeEncoding):
    """A token for each state of the table and each cell; runs are read from rows of cells."""

    name = "rewriting_turing_machine"
    # Left and right of the head must be two cells, and none of them its own.
    least: ClassVar[Mapping[str, int]] = {"n_cells": 3}

    n_states: int
    n_letters: int
    n_cells: int
    n_steps: int

    @cached_property
    def schema(self) -> Schema:
        state, letter = symbols("state", self.n_states), symbols("letter", self.n_letters)
        after, move = state.plus(*_ENDINGS), names("move", *MOVES)
        # The tape that is given is row 0; block (s, c) writes cell c of row s + 1.
        cell = circle("cell", self.n_cells)
        place, block = ((line("step", rows), cell) for rows in (self.n_steps + 1, self.n_steps))
        said = {"next": after, "write": letter, "move": move}
        each_letter = range(self.n_letters)
        attributes = [
            Attribute("mstate", (state,)),
            *(Attribute(f"{what}{a}", (said[what],)) for a in each_letter for what in WHAT),
            Attribute("place", place),
            Attribute("letter", (letter,)),
            Attribute("state", (after,)),
            Attribute("over"),
            Attribute("load", block),
        ]
        for side in SIDES:
            attributes.append(Attribute(f"state_{side}", (*block, state)))
            attributes.append(Attribute(f"letter_{side}", (*block, letter)))
        attributes += [
            Attribute("found", block),
            Attribute("side", (*block, move)),
            Attribute("under", (*block, letter)),
            Attribute("kept", (*block, letter)),
            *(
                Attribute(f"row_{what}{a}", (*block, said[what]))
                for a in each_letter
                for what in WHAT
            ),
            Attribute("chosen", block),
            Attribute("side_then", (*block, move)),
            Attribute("kept_then", (*block, letter)),
            *(Attribute(f"the_{what}", (*block, said[what])) for what in WHAT),
        ]
        found = Schema(tuple(attributes))
        return Schema(found.attributes, stop=(found.over(),), encoding=self)

    def task(
        self,
        machine: TuringMachine,
        tape: Iterable[int] = (),
        max_steps: int | None = None,
        position: int = 0,
        state: int = 0,
        overflow: str = "wrap",
    ) -> Task:
        """The run of a machine: on a circle (``overflow="wrap"``), or never around it ("error")."""
        steps = self.n_steps if max_steps is None else max_steps
        require_choice("overflow", overflow, ("wrap", "error"))
        if require_integer("max_steps", steps, least=0) > self.n_steps:
            raise InvalidInput(
                f"max_steps is {steps}; this program was made for up to {self.n_steps} steps "
                "(n_steps)."
            )
        cells = self.cells_of(machine, tape, position, state)
        token = self.schema.token
        prompt = [_table_token(self.schema, machine, q) for q in range(machine.n_states)]
        for p, letter in enumerate(cells):
            head = {"state": state} if p == position else {}
            prompt.append(token(place=(0, p), letter=letter, **head))

        def read(decoded: Decoded) -> TuringRun:
            run = _read(decoded.tokens, cells, position, state)
            return self.require_no_wrap(run) if overflow == "error" else run

        return Task(prompt, limit=BLOCK * self.n_cells * steps, read=read, endless=True)

    def sample(
        self, rng: Generator, machine: Any = None, given: Any = None, steps: Range | None = None
    ) -> Arguments:
        """Random rules, halting rarely to often, on a random tape, for so many steps at most."""
        return self.sample_run(rng, machine, given, steps or (0, self.n_steps), self.n_steps)

    def plan_run(self, machine: Any, given: Any, max_steps: int) -> PlannedRun:
        show = partial(show_turing, layout=(0, BLOCK * self.n_cells))
        return self.plan(machine, given, min(max_steps, self.n_steps), show)


def _table_token(schema: Schema, machine: TuringMachine, state: int) -> Token:
    """What a machine does in a state, for all letters: a column of Definition F.2."""
    content: dict[str, Any] = {"mstate": state}
    for letter in range(machine.n_letters):
        after, write, move = machine.rules[state, letter]
        content[f"next{letter}"] = END_NAMES.get(after, after)
        content[f"write{letter}"], content[f"move{letter}"] = write, MOVE_NAMES[move]
    return schema.token(**content)


def _read(tokens: list[Token], cells: list[int], position: int, state: int) -> TuringRun:
    """The run of these rows of cells; every fourth token is a cell."""
    tape, n_cells, history = list(cells), len(cells), list[TuringStep]()
    written = tokens[BLOCK - 1 :: BLOCK]
    for start in range(0, len(written), n_cells):
        row = written[start : start + n_cells]
        numbers = [BLOCK * (start + p + 1) - 1 for p in range(n_cells)]
        if len(row) < n_cells:
            raise runs.BrokenTrace(f"the row of step {len(history) + 1} breaks off.")
        letters = [
            int(runs.held(each, "letter", number)[0])
            for each, number in zip(row, numbers, strict=True)
        ]
        heads = [(p, value[0]) for p, each in enumerate(row) for (name, value) in each
                 if name == "state"]  # fmt: skip
        moves = {(p - position) % n_cells: p for p, _ in heads}
        move = next((step for step in MOVES.values() if step % n_cells in moves), None)
        if len(heads) != 1 or move is None:
            raise runs.BrokenTrace(f"after step {len(history) + 1} heads are at {heads}.")
        [(place, after)] = heads
        following = _ENDINGS[after] if isinstance(after, str) else int(after)
        history.append(
            TuringStep(state, position, tape[position], letters[position], move, following)
        )
        tape, position, state = letters, place, following
    return finished(cells, tape, position, state, history)
