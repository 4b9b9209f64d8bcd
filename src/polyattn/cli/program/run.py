"""``polyattn program run``: a machine, run by a compiled layer of attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import click

from polyattn import programs
from polyattn.cli import console, tables
from polyattn.cli.program.library import STYLES, program_facts
from polyattn.cli.tables import Grid
from polyattn.errors import InvalidInput
from polyattn.programs.library import show_run
from polyattn.programs.machines import NamedMachine
from polyattn.programs.machines.named import FIRST, LAST
from polyattn.programs.machines.ready import find_machine
from polyattn.programs.running.shown import ShownRun, token_line

# The limit of steps unless another is given, and the most that can be.
MAX_STEPS, MOST_STEPS = 1000, 1_000_000

# A longer tape is more often a slip than a wish.
MOST_CELLS = 4096

# The tape begins with so many cells, and grows to so many, if nobody says how long it is.
_FIRST_CELLS, _LAST_CELLS = 32, 1024

# With registers, tables of many states and long words take long to compile.
_REGISTERS_UP_TO = {"states": 50, "letters": 100}

_TURING = ("cells", "max_steps", "position", "no_wrap")

# A run: the layer that made it, what is shown of it, and which of two others came to the same.
CheckedRun: TypeAlias = tuple[programs.Compiled, ShownRun, dict[str, bool]]


@click.command()
@click.argument("machine")
@click.argument("given", metavar="[INPUT]", required=False)
@click.option("--style", type=click.Choice(STYLES), help="Of the program that runs a DFA.")
@click.option(
    "--cells", type=click.IntRange(2, MOST_CELLS), help="Of the tape [default: enough for the run]."
)
@click.option(
    "--max-steps", type=click.IntRange(0, MOST_STEPS),
    help="Limit of steps [default: the file's, or 1000].",
)  # fmt: skip
@click.option(
    "--position", type=console.number_or(int, (FIRST, LAST)),
    help="Where to start: 0 is the first letter of the tape [default: the file's, or first].",
)  # fmt: skip
@click.option("--no-wrap", is_flag=True, help="An error if the head goes around the whole tape.")
@click.option(
    "--steps", type=click.IntRange(0), default=50, show_default=True, help="Most steps to print."
)
@click.option(
    "--show-tokens", "--tokens", "show_tokens", is_flag=True,
    help="Print the tokens that the layer wrote.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Run in two other ways; exit code 1 if they differ.")
@console.json_option
def run(
    machine: str, given: str | None, steps: int, show_tokens: bool, check: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Run MACHINE on INPUT by a layer of attention, compiled to fit.

    MACHINE is a .json or .yaml file, a ready name (polyattn program list), or a text such as
    1RB1LB_1LA1RH.  INPUT is a word or tape: letters side by side (1101), or with commas or spaces
    between them; without it the input of the file is taken, or a blank tape.

    A run that reaches the limit of steps says so; that is no error.
    """
    named = find_machine(machine)
    # Options that say nothing about this kind of machine are a mistake.
    kind, others = ("a DFA", _TURING) if named.kind == "dfa" else ("a Turing machine", ("style",))
    for key in others:
        if options[key] is not None and options[key] is not False:
            raise click.UsageError(f"--{key.replace('_', '-')} says nothing about {kind}.")
    with console.working("running"):
        if named.kind == "dfa":
            compiled, done, checks = _run_dfa(named, given, options["style"], steps, check)
        else:
            chosen = {key: options[key] for key in _TURING}
            compiled, done, checks = _run_turing(named, given, steps=steps, check=check, **chosen)
    n_tokens, layer = len(done.tokens), program_facts(compiled)
    content = done.content | {"n_tokens": n_tokens, "layer": layer}
    text: list[str | Grid] = [*done.lines]
    if show_tokens:
        shown = done.tokens[: 2 * steps + 1]
        content["tokens"] = [token_line(compiled.schema, token, named) for token in shown]
        text += ["tokens:", *(f"  {line}" for line in content["tokens"])]
        if len(shown) < n_tokens:
            text.append(f"  ... {n_tokens - len(shown)} more (--steps)")
    said = f"{compiled.name}: {compiled.n_heads} heads, {compiled.n_dims} coordinates"
    text.append(tables.facts("run", done.facts | {"layer": f"{said}; {n_tokens} tokens written"}))
    if checks:
        content["check"] = checks
        names = {"interpreter": "the interpreter", "rules": "the machine's own rules"}
        wrong = [names[key] for key, same in checks.items() if not same]
        failed = f"CHECK FAILED: the layer differs from {' and from '.join(wrong)}."
        agreed = "checked: the layer, the interpreter and the machine's own rules agree."
        text.append(failed if wrong else agreed)
    console.emit(content, text, as_json, 0 if all(checks.values()) else 1)


def _run_dfa(
    named: NamedMachine, given: str | None, style: str | None, steps: int, check: bool
) -> CheckedRun:
    """Run an automaton on a word by the universal automaton of its size."""
    if given is None and named.input is None:
        raise InvalidInput(
            f"there is no word to run {named.name or 'the machine'} on: give one after it, of the "
            f"letters {', '.join(named.letters)}."
        )
    word = list(named.input or ()) if given is None else named.read(given, "word")
    n_states = len(named.states)
    if style is None:
        small = n_states <= _REGISTERS_UP_TO["states"]
        style = "registers" if small and len(word) <= _REGISTERS_UP_TO["letters"] else "one-hot"
    sizes = (n_states, len(named.letters), max(1, len(word)))
    program = programs.universal_dfa(*sizes, style=style.replace("-", "_"))
    compiled, shown = _run(program, named, word, steps)
    return compiled, shown, _checks(program, shown, word) if check else {}


def _run_turing(
    named: NamedMachine, given: str | None, cells: int | None, max_steps: int | None,
    position: int | str | None, no_wrap: bool, steps: int, check: bool,
) -> CheckedRun:  # fmt: skip
    """Run a machine by the universal Turing machine of its size, on a tape as long as it needs."""
    tape = named.read(given, "tape") if given is not None else list(named.input or ())
    if position is not None:
        named = replace(named, position=position)
    start = named.start(tape)
    if max_steps is None:
        max_steps = MAX_STEPS if named.max_steps is None else named.max_steps
    needed = max(len(tape), start + 1) - min(0, start)
    if needed > (cells or MOST_CELLS):
        raise InvalidInput(
            f"the tape with position {start} needs {needed} cells; there are at most "
            f"{cells or MOST_CELLS}."
        )
    placed = replace(named, position=start, max_steps=max_steps)
    n_cells = cells or max(_FIRST_CELLS, 2 * needed)
    while True:
        program = programs.universal_turing_machine(len(named.states), len(named.letters), n_cells)
        compiled, shown = _run(program, placed, tape, steps, max_steps)
        if shown.content["endless"] or cells or n_cells >= _LAST_CELLS:
            break
        n_cells *= 2
    if no_wrap and not shown.content["endless"]:
        raise InvalidInput(
            f"the head leaves the tape of {n_cells} cells; give more with --cells, or leave "
            "--no-wrap out for a tape that is a ring."
        )
    options = {"max_steps": max_steps, "position": start % n_cells}
    return compiled, shown, _checks(program, shown, tape, **options) if check else {}


def _run(
    program: programs.Program,
    named: NamedMachine,
    given: list[int],
    steps: int,
    max_steps: int = MAX_STEPS,
) -> tuple[programs.Compiled, ShownRun]:
    compiled = programs.compile(program)
    shown = show_run(compiled, named, given, max_steps, steps, margins=False)
    assert shown is not None  # noqa: S101 - there is an input
    return compiled, shown


def _checks(
    program: programs.Program, shown: ShownRun, given: list[int], **options: Any
) -> dict[str, bool]:
    assert shown.named is not None  # noqa: S101 - it was given
    by_meaning = program.interpret(shown.named.machine, given, **options)
    return {"interpreter": by_meaning == shown.result, "rules": bool(shown.agrees)}
