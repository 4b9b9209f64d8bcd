"""Runs of Turing machines as people see them: the tape, the head, the state and the rule."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from polyattn.programs.library.runs import BrokenTrace
from polyattn.programs.machines import NamedMachine, TuringRun, TuringStep
from polyattn.programs.machines.automata import ACCEPT, END_NAMES, MOVE_WORDS, REJECT
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun, cells_line
from polyattn.quoting import counted

# One token comes before the first step; then each step is looked at and acted on.
LAYOUT = 1, 2

RING = (
    "the head has been around the tape, which is a ring: on an endless tape it would have found "
    "blanks"
)


def show_turing(
    watched: WatchedRun, run: TuringRun, n_shown: int, layout: tuple[int, int] = LAYOUT
) -> ShownRun:
    """The run of at most so many steps; BrokenTrace if the steps do not follow on one tape.

    ``watched.named`` has the tape, the place of the head and the limit of steps, too; ``layout``
    how many tokens come before the first step, and how many there are for each.
    """
    named: Any = watched.named
    letters, given, start, n_cells = named.letters, named.input, named.position, len(run.tape)
    tape = [*given, *([0] * (n_cells - len(given)))]
    breaks_off = watched.decoded.stopped and not run.halted
    if breaks_off or not _is_coherent(named, run, tape, start % n_cells):
        raise BrokenTrace(
            "they break off, or have a head that jumps, or states and letters that there are not."
        )
    # On cells of an endless tape, 0 the first letter of the input: the place before each step and
    # at the end.  Cells that the head has not read count as well, if it stands there.
    places = list(accumulate((step.move for step in run.history), initial=start))
    first, last = min(0, *places), max(len(given) - 1, *places)
    endless = last - first < n_cells
    if not endless:
        first, last = 0, n_cells - 1
        places = [place % n_cells for place in places]
    before, final = ([on[at % n_cells] for at in range(first, last + 1)] for on in (tape, run.tape))
    end = _after(named, run.history[-1]) if run.history else named.states[run.state]
    steps, lines, history, changed = [], [], [], None
    cells, width = list(before), max(map(len, letters))

    def on_tape(tape: list[int], place: int) -> str:
        return cells_line([f"{letters[x]:^{width}}" for x in tape], place - first)

    for number, step in enumerate(run.history[:n_shown]):
        at, state, after = places[number] - first, named.states[step.state], _after(named, step)
        read, write, move = letters[step.read], letters[step.write], MOVE_WORDS[step.move]
        moves = "stays" if step.move == 0 else f"moves {move}"
        then = "halts in" if step.next_state < 0 else "stays in" if after == state else "goes on in"
        text = f"In state {state} it reads {read}, writes {write}, {moves} and {then} {after}."
        written = watched.of_step(number, layout, last=False)
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
        rest = watched.of_step(run.steps, layout, last=True)
        steps.append(RunStep(end, text, head - first, changed, None, rest))
    else:
        lines.append(f"       ... {run.steps - n_shown} steps more (--steps)")
    ending = f"halted in {end}" if run.halted else f"{end} ..."
    lines.append(f"{run.steps:5d}  {on_tape(final, head)}  {ending}")
    # What is on the tape: the cells of the input, and all others but outer blanks.
    used = [at for at, letter in enumerate(final) if letter or 0 <= at + first < len(given)]
    on_it = named.written(final[min(used) : max(used) + 1]) if used else ""
    # Around a ring a machine reads what it wrote, where an endless tape is blank.
    where = "" if endless else " on this ring"
    findings = _findings(run, end, on_it, where)
    halted = "yes" if run.halted else "no: the limit of steps (--max-steps) ended the run"
    facts = {"machine": named.title, "tape": on_it or "(blank)", "state": end, "position": head}
    facts |= {
        "steps": run.steps,
        "halted": halted,
        "verdict": f"{run.verdict}{where}",
        "cells": n_cells,
    }
    if not endless:
        findings.append(f"{RING[0].upper()}{RING[1:]}.")
        facts["ring"] = f"{RING} (--cells)"
    by_rules = named.machine.run(tape, named.max_steps, start % n_cells)
    return ShownRun(
        watched.decoded.tokens, steps, run.steps, [*findings, *watched.sureness], run == by_rules,
        cells=[letters[x] for x in before], first=first, named=named, result=run,
        lines=lines, facts=facts,
        content={
            "kind": "turing", "machine": named.name, "tape": [letters[x] for x in run.tape],
            "n_cells": n_cells, "part": {"first": first, "letters": [letters[x] for x in final]},
            "state": end, "position": head, "cell": run.position, "steps": run.steps,
            "max_steps": named.max_steps, "halted": run.halted, "verdict": run.verdict,
            "endless": endless,
            "history": history,
        },
    )  # fmt: skip


def _findings(run: TuringRun, end: str, on_tape: str, where: str) -> list[str]:
    """How the run ended, what is on the tape, and what was decided."""
    ended = f"halts in {end}" if run.halted else f"is still in state {end}"
    count = counted(run.steps, "step")
    said = [f"It {ended} after {count}; on the tape is {on_tape or 'nothing but blanks'}."]
    return said + ([f"The input is {run.verdict}{where}."] if run.state in (ACCEPT, REJECT) else [])


def _after(named: NamedMachine, step: TuringStep) -> str:
    """The state after a step, by its name."""
    if step.next_state < 0:
        return named.halts.get((step.state, step.read), END_NAMES[step.next_state])
    return named.states[step.next_state]


def _is_coherent(named: NamedMachine, run: TuringRun, tape: list[int], place: int) -> bool:
    """Whether each step is where the one before has led, reads what is there, and has names."""
    cells, state = list(tape), 0
    n_states, n_letters = len(named.states), len(named.letters)
    for step in run.history:
        expected = (step.position, step.state, step.read) == (place, state, cells[place])
        if not expected or step.write >= n_letters or step.next_state >= n_states:
            return False
        cells[place] = step.write
        place, state = (place + step.move) % len(cells), step.next_state
    return True
