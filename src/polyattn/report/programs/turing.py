"""Runs of Turing machines: the tape, the head, the state and the rule."""

from __future__ import annotations

from polyattn.programs.machines import NamedMachine, TuringRun, TuringStep
from polyattn.programs.machines.tape import MOVES, TapeView, view_of
from polyattn.report.programs.film import Film, Frame
from polyattn.report.programs.tokens import Watched

# One token sets the scene; then each step is looked at and acted on.
LEAD, EACH = 1, 2


def film_turing(
    watched: Watched, run: TuringRun, tape: list[int], start: int, by_rules: TuringRun
) -> Film | None:
    """The film of a run; None if its steps do not follow each other on one tape."""
    named = watched.named
    assert named is not None  # noqa: S101 - the caller has named the machine
    breaks_off = watched.decoded.stopped and not run.halted
    if breaks_off or not _is_coherent(named, run, tape, start):
        return None
    view = view_of(named, run, tape, start)
    frames, changed = [], None
    for number, step in enumerate(run.history):
        at = view.places[number] - view.first
        written = watched.of_step(number, LEAD, EACH, last=False)
        text, state = _said(named, view, step), named.states[step.state]
        frames.append(Frame(state, text, at, changed, (step.state, step.read), written))
        changed = (at, named.letters[step.write])
    head, rest = view.position - view.first, watched.of_step(run.steps, LEAD, EACH, last=True)
    end = f"It has halted in {view.state}." if run.halted else "The limit of steps ended the run."
    frames.append(Frame(view.state, end, head, changed, None, rest))
    return Film(
        frames, run.steps, _findings(watched, run, view), run == by_rules,
        cells=[named.letters[x] for x in view.before], first=view.first,
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


def _findings(watched: Watched, run: TuringRun, view: TapeView) -> list[str]:
    steps = f"{run.steps:,} step{'' if run.steps == 1 else 's'}"
    end = f"halts in {view.state}" if run.halted else f"is still in state {view.state}"
    found = [f"It {end} after {steps}; on the tape is {view.written() or 'nothing but blanks'}."]
    if not view.endless:
        found.append(
            "The head has been around the tape, which is a ring: on an endless tape it would have "
            "found blanks."
        )
    return [*found, watched.sureness]


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
