"""The tape of a run as people see it: unrolled, where the run has not been around the ring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyattn.programs.machines.named import NamedMachine
from polyattn.programs.machines.turing import HALT, TuringRun, TuringStep

# Cells on a line; longer tapes are cut around the head.
_WIDTH = 31

MOVES = {-1: "left", 0: "stay", 1: "right"}


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


def cells_line(cells: Sequence[str], head: int | None) -> str:
    """Cells on one line, the head in brackets; long tapes are cut around it."""
    start = min(max(0, (head or 0) - _WIDTH // 2), max(0, len(cells) - _WIDTH))
    end = min(len(cells), start + _WIDTH)
    shown = [f"[{cells[at]}]" if at == head else f" {cells[at]} " for at in range(start, end)]
    return f"{'..' if start else ''}{''.join(shown)}{'..' if end < len(cells) else ''}"


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
