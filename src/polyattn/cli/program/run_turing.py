"""Runs of Turing machines, on a tape that is as long as the run needs."""

from __future__ import annotations

from typing import Any

from polyattn.cli.program.running import Ran, execute
from polyattn.errors import InvalidInput
from polyattn.programs import TuringMachine, TuringRun, universal_turing_machine
from polyattn.programs.machines import NamedMachine
from polyattn.programs.machines.named import start_cell
from polyattn.programs.machines.tape import TapeView, view_of

MAX_STEPS = 1000

# A longer tape is more often a slip than a wish.
MOST_CELLS = 4096

# The tape begins with so many cells, and grows to so many, if nobody says how long it is.
_FIRST_CELLS, _LAST_CELLS = 32, 1024


def run_turing(
    named: NamedMachine, given: str | None, cells: int | None, max_steps: int | None,
    position: int | str | None, no_wrap: bool, steps: int, check: bool,
) -> Ran:  # fmt: skip
    """Run a machine by the universal Turing machine of its size."""
    tape = named.read(given, "tape") if given is not None else list(named.input or ())
    start = named.start(tape) if position is None else start_cell(position, len(tape))
    if max_steps is None:
        max_steps = MAX_STEPS if named.max_steps is None else named.max_steps
    needed = max(len(tape), start + 1) - min(0, start)
    if needed > (cells or MOST_CELLS):
        raise InvalidInput(
            f"the tape with position {start} needs {needed} cells; there are at most "
            f"{cells or MOST_CELLS}."
        )
    n_cells = cells or max(_FIRST_CELLS, 2 * needed)
    while True:
        program, ran, view, result = _run(named, tape, n_cells, max_steps, start)
        if view.endless or cells or n_cells >= _LAST_CELLS:
            break
        n_cells *= 2
    if no_wrap and not view.endless:
        raise InvalidInput(
            f"the head leaves the tape of {n_cells} cells; give more with --cells, or leave "
            "--no-wrap out for a tape that is a ring."
        )
    checks = {}
    if check:
        padded = [*tape, *([0] * (n_cells - len(tape)))]
        options = {"max_steps": max_steps, "position": start % n_cells}
        checks = {
            "interpreter": program.interpret(named.machine, tape, **options) == result,
            "rules": _machine(named).run(padded, **options) == result,
        }
    compiled, tokens = ran
    content = _content(named, result, view, max_steps, steps)
    rows = _rows(named, result, view)
    return Ran(named, compiled, tokens, content, [*view.lines(steps)], rows, checks)


def _run(
    named: NamedMachine, tape: list[int], n_cells: int, max_steps: int, start: int
) -> tuple[Any, Any, TapeView, TuringRun]:
    machine = _machine(named)
    program = universal_turing_machine(machine.n_states, machine.n_letters, n_cells)
    options = {"max_steps": max_steps, "position": start % n_cells}
    compiled, result, tokens = execute(program, machine, tape, **options)
    return program, (compiled, tokens), view_of(named, result, tape, start), result


def _machine(named: NamedMachine) -> TuringMachine:
    assert isinstance(named.machine, TuringMachine)  # noqa: S101 - the caller has looked
    return named.machine


def _content(
    named: NamedMachine, result: TuringRun, view: TapeView, max_steps: int, steps: int
) -> dict[str, Any]:
    letters = named.letters
    history = [
        {
            "state": named.states[step.state], "position": place, "read": letters[step.read],
            "write": letters[step.write], "move": step.move, "next": view.after(step),
        }
        for place, step in zip(view.places, result.history[:steps], strict=False)
    ]  # fmt: skip
    return {
        "kind": "turing",
        "machine": named.name,
        "tape": [letters[x] for x in result.tape],
        "n_cells": len(result.tape),
        "part": {"first": view.first, "letters": [letters[x] for x in view.final]},
        "state": view.state,
        "position": view.position,
        "cell": result.position,
        "steps": result.steps,
        "max_steps": max_steps,
        "halted": result.halted,
        "endless": view.endless,
        "history": history,
    }


def _rows(named: NamedMachine, result: TuringRun, view: TapeView) -> dict[str, object]:
    halted = "yes" if result.halted else "no: the limit of steps (--max-steps) ended the run"
    rows: dict[str, object] = {
        "machine": named.title,
        "tape": view.written() or "(blank)",
        "state": view.state,
        "position": view.position,
        "steps": result.steps,
        "halted": halted,
        "cells": len(result.tape),
    }
    if not view.endless:
        rows["ring"] = (
            "the head has been around the tape, which is a ring: on an endless tape it would have "
            "found blanks (--cells)"
        )
    return rows
