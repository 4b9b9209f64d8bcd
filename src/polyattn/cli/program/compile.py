"""``polyattn program compile``: a program as a layer, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from polyattn.cli.console import FILE, emit, facts, json_option, working
from polyattn.cli.io import require_output
from polyattn.cli.program.programs import make_program, program_facts, program_option, size_options
from polyattn.errors import InvalidInput
from polyattn.programs import compile as compile_layer
from polyattn.programs.library import PROGRAMS
from polyattn.storage import save

# Layers are stored with all their zeros.
MOST_BYTES = 2**31


@click.command(name="compile")
@click.argument("name", type=click.Choice(tuple(PROGRAMS)))
@size_options
@click.option("-o", "--output", type=FILE, help="Where to save the layer (.safetensors).")
@program_option
@json_option
def compile_program(
    name: str, output: Path | None, kept: Path | None, as_json: bool, **sizes: Any
) -> None:
    """Compile the program NAME to one layer of linear attention, and save it."""
    require_output(output, kept)
    program = make_program(name, sizes)
    with working("compiling"):
        compiled = compile_layer(program)
    content = program_facts(compiled)
    content["bytes"] = 2 * 8 * compiled.n_heads * compiled.n_dims**2
    if output is not None:
        if content["bytes"] > MOST_BYTES:
            raise InvalidInput(
                f"the layer has {compiled.n_heads} heads of {compiled.n_dims} coordinates, which "
                f"is {content['bytes'] / 2**30:.1f} GB in a file; choose smaller sizes."
            )
        with working("writing"):
            save(compiled.layer, output)
        content["layer"] = str(output)
    if kept is not None:
        save(compiled, kept)
        content["saved_program"] = str(kept)
    rows = {
        "program": content["program"],
        "sizes": ", ".join(f"{key} = {size}" for key, size in content["sizes"].items()),
        "coordinates": compiled.n_dims,
        "heads": compiled.n_heads,
        "terms": content["n_terms"],
        **({"layer saved to": output} if output is not None else {}),
        **({"program saved to": kept} if kept is not None else {}),
    }
    emit(content, [facts("compiled", rows)], as_json)
