"""Runs of Turing machines as people see them: the tape, the head, the state and the rule."""

from __future__ import annotations

from typing import Any

from polyattn.programs.library.runs import RunOptions, broken
from polyattn.programs.machines import NamedMachine, TuringRun, TuringStep
from polyattn.programs.machines.tape import MOVES, TapeView, view_of
from polyattn.programs.running.shown import RunStep, ShownRun, WatchedRun

# One token comes before the first step; then each step is looked at and acted on.
LAYOUT = 1, 2

RING = (
    "the head has been around the tape, which is a ring: on an endless tape it would have found "
    "blanks"
)


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
