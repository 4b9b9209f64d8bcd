"""``polyattn program run``: a machine, run by a compiled layer of attention."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType

from polyattn.cli.console import NumberOr, emit, facts, json_option, working
from polyattn.cli.program.machines import find_machine
from polyattn.cli.program.programs import STYLES, program_facts
from polyattn.cli.program.run_dfa import run_dfa
from polyattn.cli.program.run_turing import MOST_CELLS, run_turing
from polyattn.cli.program.running import Ran, token_lines
from polyattn.programs.machines.named import FIRST, LAST

MOST_STEPS = 1_000_000

_TURING = ("cells", "max_steps", "position", "no_wrap")


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
    "--position", type=NumberOr(int, (FIRST, LAST)),
    help="Where to start: 0 is the first letter of the tape [default: the file's, or first].",
)  # fmt: skip
@click.option("--no-wrap", is_flag=True, help="An error if the head goes around the whole tape.")
@click.option(
    "--steps", type=click.IntRange(0), default=50, show_default=True, help="Most steps to print."
)
@click.option("--tokens", is_flag=True, help="Print the tokens that the layer wrote.")
@click.option("--check", is_flag=True, help="Run in two other ways; exit code 1 if they differ.")
@json_option
@click.pass_context
def run(
    ctx: click.Context, /, machine: str, given: str | None, steps: int, tokens: bool, check: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Run MACHINE on INPUT by a layer of attention, compiled to fit.

    MACHINE is a .json or .yaml file, a ready name (polyattn program list), or a text such as
    1RB1LB_1LA1RH.  INPUT is a word or tape: letters side by side (1101), or with commas or spaces
    between them; without it the input of the file is taken, or a blank tape.

    A run that reaches the limit of steps says so; that is no error.
    """
    named = find_machine(machine)
    _refuse_others(named.kind, options)
    with working("running"):
        if named.kind == "dfa":
            ran = run_dfa(named, given, options["style"], steps, check)
        else:
            chosen = {key: options[key] for key in _TURING}
            ran = run_turing(named, given, steps=steps, check=check, **chosen)
    emit(_content(ran, steps if tokens else None), _text(ran, steps if tokens else None), as_json)
    ctx.exit(0 if ran.agrees else 1)


def _refuse_others(kind: str, options: dict[str, Any]) -> None:
    """Options that say nothing about this kind of machine are a mistake."""
    others = _TURING if kind == "dfa" else ("style",)
    name = "a DFA" if kind == "dfa" else "a Turing machine"
    for key in others:
        if options[key] is not None and options[key] is not False:
            raise click.UsageError(f"--{key.replace('_', '-')} says nothing about {name}.")


def _content(ran: Ran, steps: int | None) -> dict[str, Any]:
    content = ran.content | {"n_tokens": len(ran.tokens), "layer": program_facts(ran.compiled)}
    if steps is not None:
        content["tokens"] = token_lines(ran, steps)
    return content | ({"check": ran.checks} if ran.checks else {})


def _text(ran: Ran, steps: int | None) -> list[RenderableType]:
    text = [*ran.text]
    if steps is not None:
        shown = token_lines(ran, steps)
        text += ["tokens:", *(f"  {line}" for line in shown)]
        if len(shown) < len(ran.tokens):
            text.append(f"  ... {len(ran.tokens) - len(shown)} more (--steps)")
    layer = f"{ran.compiled.name}: {ran.compiled.n_heads} heads, "
    layer += f"{ran.compiled.n_dims} coordinates; {len(ran.tokens)} tokens written"
    text.append(facts("run", ran.rows | {"layer": layer}))
    if ran.checks:
        text.append(_checked(ran))
    return text


def _checked(ran: Ran) -> str:
    names = {"interpreter": "the interpreter", "rules": "the machine's own rules"}
    wrong = [names[key] for key, same in ran.checks.items() if not same]
    if wrong:
        return f"CHECK FAILED: the layer differs from {' and from '.join(wrong)}."
    return "checked: the layer, the interpreter and the machine's own rules agree."
