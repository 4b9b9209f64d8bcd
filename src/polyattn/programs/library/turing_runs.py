"""Runs of Turing machines as people see them: the tape, the head, the state and the rule."""

from __future__ import annotations

from itertools import accumulate

from polyattn.programs.library.runs import BrokenTrace
from polyattn.programs.machines import NamedMachine, TuringRun, TuringStep
from polyattn.programs.machines.automata import HALT
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun, cells_line

# One token comes before the first step; then each step is looked at and acted on.
LAYOUT = 1, 2

MOVES = {-1: "left", 0: "stay", 1: "right"}

RING = (
    "the head has been around the tape, which is a ring: on an endless tape it would have found "
    "blanks"
)


def show_turing(
    watched: WatchedRun,
    named: NamedMachine,
    run: TuringRun,
    tape: list[int],
    start: int,
    by_rules: TuringRun,
    max_steps: int,
    n_shown: int,
) -> ShownRun:
    """The run of at most so many steps; BrokenTrace if the steps do not follow on one tape."""
    breaks_off = watched.decoded.stopped and not run.halted
    if breaks_off or not _is_coherent(named, run, tape, start):
        raise BrokenTrace(
            "they break off, or tell of a head that jumps, or of states and letters that there "
            "are not."
        )
    letters, n_cells = named.letters, len(run.tape)
    endless, first, before, places = _unrolled(run, tape, start)
    final = [run.tape[(first + i) % n_cells] for i in range(len(before))]
    end = _after(named, run.history[-1]) if run.history else named.states[run.state]
    steps, lines, history, changed = [], [], [], None
    cells, width = list(before), max(map(len, letters))

    def on_tape(tape: list[int], place: int) -> str:
        return cells_line([f"{letters[x]:^{width}}" for x in tape], place - first)

    for number, step in enumerate(run.history[:n_shown]):
        at, state, after = places[number] - first, named.states[step.state], _after(named, step)
        read, write, move = letters[step.read], letters[step.write], MOVES[step.move]
        moves = "stays" if step.move == 0 else f"moves {move}"
        then = "halts in" if step.next_state < 0 else "stays in" if after == state else "goes on in"
        text = f"In state {state} it reads {read}, writes {write}, {moves} and {then} {after}."
        written = watched.of_step(number, LAYOUT, last=False)
        steps.append(RunStep(state, text, at, changed, (step.state, step.read), written))
        done = f"read {read}, write {write}, {move}, {after}"
        lines.append(f"{number:5d}  {on_tape(cells, places[number])}  {state}: {done}")
        history.append({
            "state": state, "position": places[number], "read": read, "write": write,
            "move": step.move, "next": after,
        })  # fmt: skip
        changed, cells[at] = (at, write), step.write
    head = places[-1]
    if run.steps <= n_shown:
        text = f"It has halted in {end}." if run.halted else "The limit of steps ended the run."
        rest = watched.of_step(run.steps, LAYOUT, last=True)
        steps.append(RunStep(end, text, head - first, changed, None, rest))
    else:
        lines.append(f"       ... {run.steps - n_shown} steps more (--steps)")
    last = f"halted in {end}" if run.halted else f"{end} ..."
    lines.append(f"{run.steps:5d}  {on_tape(final, head)}  {last}")
    # What is on the tape: the cells of the input, and all others but outer blanks.
    used = [at for at, letter in enumerate(final) if letter]
    used += [at - first for at in range(len(tape))]
    on_it = named.written(final[min(used) : max(used) + 1]) if used else ""
    ended = f"halts in {end}" if run.halted else f"is still in state {end}"
    count = f"{run.steps:,} step{'' if run.steps == 1 else 's'}"
    findings = [f"It {ended} after {count}; on the tape is {on_it or 'nothing but blanks'}."]
    facts: dict[str, object] = {
        "machine": named.title,
        "tape": on_it or "(blank)",
        "state": end,
        "position": head,
        "steps": run.steps,
        "halted": "yes" if run.halted else "no: the limit of steps (--max-steps) ended the run",
        "cells": n_cells,
    }
    if not endless:
        findings.append(f"{RING[0].upper()}{RING[1:]}.")
        facts["ring"] = f"{RING} (--cells)"
    return ShownRun(
        watched.decoded.tokens, steps, run.steps, [*findings, *watched.sureness], run == by_rules,
        cells=[letters[x] for x in before], first=first, named=named, result=run,
        lines=lines, facts=facts,
        content={
            "kind": "turing", "machine": named.name, "tape": [letters[x] for x in run.tape],
            "n_cells": n_cells, "part": {"first": first, "letters": [letters[x] for x in final]},
            "state": end, "position": head, "cell": run.position, "steps": run.steps,
            "max_steps": max_steps, "halted": run.halted, "endless": endless, "history": history,
        },
    )  # fmt: skip


def _unrolled(
    run: TuringRun, tape: list[int], start: int
) -> tuple[bool, int, list[int], list[int]]:
    """The run on cells of an endless tape, if it can be: 0 is the first letter of the tape.

    Returns whether an endless tape would have shown the same (the cells that the head has seen
    and those of the input do not overlap around the ring), the first cell, the letters before the
    run, and the cell before each step and at the end.
    """
    places = list(accumulate((step.move for step in run.history), initial=start))
    # Cells that were only passed to, and not read, count as well: the head stands there.
    first, last = min(0, *places), max(len(tape) - 1, *places)
    n_cells = len(run.tape)
    endless = last - first < n_cells
    if not endless:
        first, last = 0, n_cells - 1
        places = [place % n_cells for place in places]
    padded = [*tape, *([0] * (n_cells - len(tape)))]
    return endless, first, [padded[at % n_cells] for at in range(first, last + 1)], places


def _after(named: NamedMachine, step: TuringStep) -> str:
    """The state after a step, by its name."""
    if step.next_state == HALT:
        return named.halts.get((step.state, step.read), "HALT")
    return named.states[step.next_state]


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
