"""Runs of Turing machines as people see them: the tape, the head, the state and the rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyattn.programs.library.runs import RunOptions, broken
from polyattn.programs.machines import NamedMachine, TuringRun, TuringStep
from polyattn.programs.machines.turing import HALT
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun, cells_line

# One token comes before the first step; then each step is looked at and acted on.
LAYOUT = 1, 2

MOVES = {-1: "left", 0: "stay", 1: "right"}

RING = (
    "the head has been around the tape, which is a ring: on an endless tape it would have found "
    "blanks"
)


@dataclass(frozen=True)
class TapeView:
    """A run on the cells from ``first`` on; 0 is the first letter of the tape.

    endless : whether an endless tape would have shown the same: the cells that the head has seen
        and those of the input do not overlap around the ring
    places : the cell before each step, and at the end
    n_given : how many letters the input had
    """

    named: NamedMachine
    run: TuringRun
    endless: bool
    first: int
    before: list[int]
    places: list[int]
    n_given: int

    @property
    def final(self) -> list[int]:
        """The letters at the end."""
        cells = len(self.run.tape)
        return [self.run.tape[(self.first + i) % cells] for i in range(len(self.before))]

    @property
    def position(self) -> int:
        """Where the head is at the end."""
        return self.places[-1]

    @property
    def state(self) -> str:
        """The state at the end, or the name of the end."""
        if self.run.history:
            return self.after(self.run.history[-1])
        return self.named.states[self.run.state]

    def after(self, step: TuringStep) -> str:
        """The state after a step, by its name."""
        if step.next_state == HALT:
            return self.named.halts.get((step.state, step.read), "HALT")
        return self.named.states[step.next_state]

    def written(self) -> str:
        """The letters at the end: those of the input's cells, and all others but outer blanks."""
        used = [at for at, letter in enumerate(self.final) if letter]
        used += [at - self.first for at in range(self.n_given)]
        return self.named.written(self.final[min(used) : max(used) + 1]) if used else ""

    def lines(self, steps: int) -> list[str]:
        """The tape before each step, the head in brackets, and what the step does."""
        tape, letters = list(self.before), self.named.letters
        found = []
        for number, step in enumerate(self.run.history[:steps]):
            place = self.places[number]
            done = (
                f"read {letters[step.read]}, write {letters[step.write]}, "
                f"{MOVES[step.move]}, {self.after(step)}"
            )
            state = self.named.states[step.state]
            found.append(f"{number:5d}  {self._cells(tape, place)}  {state}: {done}")
            tape[place - self.first] = step.write
        if self.run.steps > steps:
            found.append(f"       ... {self.run.steps - steps} steps more (--steps)")
        end = f"halted in {self.state}" if self.run.halted else f"{self.state} ..."
        return [*found, f"{self.run.steps:5d}  {self._cells(self.final, self.position)}  {end}"]

    def _cells(self, tape: list[int], place: int) -> str:
        width = max(map(len, self.named.letters))
        return cells_line([f"{self.named.letters[x]:^{width}}" for x in tape], place - self.first)


def show_turing(
    watched: WatchedRun,
    run: TuringRun,
    tape: list[int],
    start: int,
    by_rules: TuringRun,
    max_steps: int,
    wanted: RunOptions,
) -> ShownRun:
    """The run of at most so many steps; as tokens if the steps do not follow on one tape."""
    named = watched.named
    assert named is not None  # noqa: S101 - the caller has named the machine
    breaks_off = watched.decoded.stopped and not run.halted
    if breaks_off or not _is_coherent(named, run, tape, start):
        return broken(
            watched, wanted,
            "they break off, or tell of a head that jumps, or of states and letters that there "
            "are not.",
        )  # fmt: skip
    view, n_shown = view_of(named, run, tape, start), wanted.n_shown
    steps, changed = [], None
    for number, step in enumerate(run.history[:n_shown]):
        at = view.places[number] - view.first
        written = watched.of_step(number, LAYOUT, last=False)
        text, state = _said(named, view, step), named.states[step.state]
        steps.append(RunStep(state, text, at, changed, (step.state, step.read), written))
        changed = (at, named.letters[step.write])
    if run.steps <= n_shown:
        head, rest = view.position - view.first, watched.of_step(run.steps, LAYOUT, last=True)
        limit = "The limit of steps ended the run."
        end = f"It has halted in {view.state}." if run.halted else limit
        steps.append(RunStep(view.state, end, head, changed, None, rest))
    return ShownRun(
        watched.decoded.tokens, steps, run.steps, _findings(watched, run, view), run == by_rules,
        cells=[named.letters[x] for x in view.before], first=view.first, named=named, result=run,
        lines=view.lines(n_shown), facts=_facts(run, view),
        content=_content(run, view, max_steps, n_shown),
    )  # fmt: skip


def view_of(named: NamedMachine, run: TuringRun, tape: list[int], start: int) -> TapeView:
    """The run on cells that are unrolled from the ring, if it can be."""
    places = [start]
    for step in run.history:
        places.append(places[-1] + step.move)
    # Cells that were only passed to, and not read, count as well: the head stands there.
    first, last = min(0, *places), max(len(tape) - 1, *places)
    cells = len(run.tape)
    endless = last - first < cells
    if not endless:
        first, last = 0, cells - 1
        places = [place % cells for place in places]
    padded = [*tape, *([0] * (cells - len(tape)))]
    before = [padded[at % cells] for at in range(first, last + 1)]
    return TapeView(named, run, endless, first, before, places, len(tape))


def _said(named: NamedMachine, view: TapeView, step: TuringStep) -> str:
    letters, state = named.letters, named.states[step.state]
    move = "stays" if step.move == 0 else f"moves {MOVES[step.move]}"
    after = view.after(step)
    then = "halts in" if step.next_state < 0 else "stays in" if after == state else "goes on in"
    return (
        f"In state {state} it reads {letters[step.read]}, writes {letters[step.write]}, {move} "
        f"and {then} {after}."
    )


def _findings(watched: WatchedRun, run: TuringRun, view: TapeView) -> list[str]:
    steps = f"{run.steps:,} step{'' if run.steps == 1 else 's'}"
    end = f"halts in {view.state}" if run.halted else f"is still in state {view.state}"
    found = [f"It {end} after {steps}; on the tape is {view.written() or 'nothing but blanks'}."]
    ring = [] if view.endless else [f"{RING[0].upper()}{RING[1:]}."]
    return [*found, *ring, *watched.sureness]


def _facts(run: TuringRun, view: TapeView) -> dict[str, object]:
    """What a terminal shows as a table."""
    facts: dict[str, object] = {
        "machine": view.named.title,
        "tape": view.written() or "(blank)",
        "state": view.state,
        "position": view.position,
        "steps": run.steps,
        "halted": "yes" if run.halted else "no: the limit of steps (--max-steps) ended the run",
        "cells": len(run.tape),
    }
    return facts if view.endless else facts | {"ring": f"{RING} (--cells)"}


def _content(run: TuringRun, view: TapeView, max_steps: int, n_shown: int) -> dict[str, Any]:
    """The run in JSON types."""
    named, letters = view.named, view.named.letters
    history = [
        {
            "state": named.states[step.state], "position": place, "read": letters[step.read],
            "write": letters[step.write], "move": step.move, "next": view.after(step),
        }
        for place, step in zip(view.places, run.history[:n_shown], strict=False)
    ]  # fmt: skip
    return {
        "kind": "turing",
        "machine": named.name,
        "tape": [letters[x] for x in run.tape],
        "n_cells": len(run.tape),
        "part": {"first": view.first, "letters": [letters[x] for x in view.final]},
        "state": view.state,
        "position": view.position,
        "cell": run.position,
        "steps": run.steps,
        "max_steps": max_steps,
        "halted": run.halted,
        "endless": view.endless,
        "history": history,
    }


def _is_coherent(named: NamedMachine, run: TuringRun, tape: list[int], start: int) -> bool:
    """Whether each step is where the one before has led, reads what is there, and has names."""
    cells = [*tape, *([0] * (len(run.tape) - len(tape)))]
    place, state = start % len(cells), 0
    n_states, n_letters = len(named.states), len(named.letters)
    for step in run.history:
        expected = (step.position, step.state, step.read) == (place, state, cells[place])
        if not expected or step.write >= n_letters or step.next_state >= n_states:
            return False
        cells[place] = step.write
        place, state = (place + step.move) % len(cells), step.next_state
    return True
