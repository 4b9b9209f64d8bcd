"""``polyattn program learn``: a program from traces of random machines, and a test of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from polyattn import programs
from polyattn.cli import console, tables
from polyattn.cli.program.library import STYLES, make_program, option_name, program_option
from polyattn.cli.tables import Grid
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.files.atomic import write_atomically
from polyattn.programs.learning.learn import METHODS, RULES
from polyattn.programs.library import PROGRAMS

# What is learned from, unless it is given: small machines teach rules everything.
SIZES = {name: each.learned_at for name, each in PROGRAMS.items() if each.learned_at}
_ALL_SIZES = tuple(dict.fromkeys(size for sizes in SIZES.values() for size in sizes))


def _sizes(command: Any) -> Any:
    """The sizes to learn at, and those to test at."""
    for size in reversed(_ALL_SIZES):
        name, least = option_name(size), click.IntRange(1)
        later = click.option(
            f"--test-{name}", f"test_{size}", type=least, help=f"Test at another size (--{name})."
        )
        option = click.option(f"--{name}", size, type=least, help="Of what is learned from.")
        command = option(later(command))
    return command


@click.command()
@click.argument("kind", type=click.Choice(tuple(SIZES)))
@click.option(
    "--method", type=click.Choice(METHODS), default=RULES, show_default=True,
    help="A few rules for all states and letters, or each coefficient on its own.",
)  # fmt: skip
@click.option(
    "--traces", "n_traces", type=click.IntRange(1), help="How many [default: 40, or 500]."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the traces.")
@click.option("--style", type=click.Choice(STYLES), help="Of the tokens of dfa [default: one-hot].")
@_sizes
@click.option(
    "--test", type=click.IntRange(0), default=100, show_default=True,
    help="Fresh machines to test on.",
)  # fmt: skip
@click.option(
    "--certify", "fresh", type=click.IntRange(0), default=0, show_default=True,
    help="Fresh traces to certify with: do they stay where the traces determine the answer?",
)  # fmt: skip
@console.output_option("The layer (.safetensors), or the program in words (.json).")
@program_option
@console.json_option
def learn(
    kind: str, method: str, n_traces: int | None, seed: int, style: str | None, test: int,
    fresh: int, output: Path | None, kept: Path | None, as_json: bool, **given: Any,
) -> None:  # fmt: skip
    """Learn to run any automaton (dfa) or Turing machine (turing) from traces alone.

    Traces of random machines on random inputs are all that is seen.  The program is read back
    from what was learned, and tested on machines that were not.

    Exit codes: 0 learned, 4 if what was found did not hold on traces that were left out.
    """
    if output is not None and output.suffix not in (".safetensors", ".json"):
        raise InvalidInput(
            f"the output must be a .safetensors file (the layer) or a .json file (the program in "
            f"words); got {str(output)!r}."
        )
    sizes = {name: given[name] or size for name, size in SIZES[kind].items()}
    larger = {size: given[f"test_{size}"] for size in SIZES[kind] if given[f"test_{size}"]}
    if larger and method != RULES:
        raise click.UsageError("only rules run at other sizes; leave --test-... out.")
    _refuse_others(kind, style, given)
    chosen = {"style": style or "one-hot"} if kind == "dfa" else {}
    program = make_program(kind, sizes | chosen)
    with console.passes("writing traces"):
        wanted = n_traces or (40 if method == RULES else 500)
        seen = programs.traces(program, wanted, random_state=seed)
    with console.passes("learning"):
        learned = programs.learn(program.schema, seen, method)
    content: dict[str, Any] = {
        "kind": kind,
        "method": method,
        "sizes": {option_name(size): number for size, number in sizes.items()},
        "n_traces": len(seen),
        "n_rows": sum(trace.n_rows for trace in seen),
        "seed": seed,
        "outcome": learned.outcome.to_dict(),
        "terms": [str(term) for term in learned.terms] if method == RULES else None,
    }
    if fresh:
        with console.passes("certifying"):
            # Not a seed that the traces or the tested machines were drawn with.
            others = programs.traces(program, fresh, random_state=np.random.default_rng([seed, 2]))
            content["certificate"] = learned.certify(fresh=others).to_dict()
    if test:
        content["test"] = _test(learned, program.schema, larger, test, seed)
    if output is not None and output.suffix == ".json":
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        write_atomically(output, lambda file: file.write(text.encode()))
        content["output"] = str(output)
    elif output is not None:
        console.saved(learned.layer, output, content, "output")
    console.saved(learned, kept, content, "saved_program")
    exit_code = 0 if learned.succeeded else console.UNCONFIRMED
    console.emit(content, _text(learned, content), as_json, exit_code)


def _test(
    learned: Any, schema: programs.Schema, larger: dict[str, int], n_machines: int, seed: int
) -> dict[str, Any]:
    """Runs of fresh machines, each held against the machine's own rules."""
    subject = learned.resize(**larger) if larger else learned
    encoding = (schema.resize(**larger) if larger else schema).encoding
    assert encoding is not None  # noqa: S101 - programs of the library have one
    # Not a seed that any traces were drawn with.
    rng = np.random.default_rng([seed, 1])
    counts = {"exact": 0, "wrong": 0, "refused": 0}
    with console.progress("testing", n_machines) as move:
        for done in range(n_machines):
            (machine, given), options = encoding.sample(rng)
            try:
                same = subject.run(machine, given, **options) == machine.run(given, **options)
                counts["exact" if same else "wrong"] += 1
            except PolyattnError:
                counts["refused"] += 1
            move(done + 1)
    return {"sizes": encoding.sizes, "n_machines": n_machines} | counts


def _text(learned: Any, content: dict[str, Any]) -> list[str | Grid]:
    rows: dict[str, object] = {
        "learned from": f"{content['n_traces']} traces, {content['n_rows']} tokens to predict",
        "sizes": console.sizes_text(content["sizes"]),
    }
    if content["terms"] is not None:
        rows["terms"] = len(content["terms"])
    if "test" in content:
        test = content["test"]
        rows["test"] = (
            f"{test['exact']} of {test['n_machines']} fresh machines exact, {test['wrong']} wrong, "
            f"{test['refused']} refused ({console.sizes_text(test['sizes'])})"
        )
    files = {"output": "saved to", "saved_program": "program saved to"}
    rows |= {said: content[key] for key, said in files.items() if key in content}
    text: list[str | Grid] = [str(learned.outcome)]
    if "certificate" in content:
        text.append(content["certificate"]["sentence"])
    if content["terms"]:
        text += ["the program that was learned:", *console.numbered(content["terms"])]
    return [*text, tables.facts("learned", rows)]


def _refuse_others(kind: str, style: str | None, given: dict[str, Any]) -> None:
    for size in _ALL_SIZES:
        for prefix in ("", "test_"):
            if size not in SIZES[kind] and given[f"{prefix}{size}"]:
                name = f"{prefix.replace('_', '-')}{option_name(size)}"
                raise click.UsageError(f"--{name} says nothing about {kind}.")
    if style and kind != "dfa":
        raise click.UsageError(f"--style says nothing about {kind}.")
