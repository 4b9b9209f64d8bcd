"""``polyattn program``: machines and programs as attention, and the group of its subcommands."""

from __future__ import annotations

import click

from polyattn.cli.help_lines import Group
from polyattn.cli.program.learn import learn
from polyattn.cli.program.library import compile_program, list_programs, show
from polyattn.cli.program.run import run


@click.group(cls=Group)
def program() -> None:
    """Computations as one layer of attention: list, show, compile, run, learn.

    A program is compiled to a layer; the layer runs a machine, a finite automaton or a Turing
    machine, token after token.  Machines come from a JSON or YAML file, by the name of a ready
    one (polyattn program list), or as a text such as 1RB1LB_1LA1RH.
    """


for command in (list_programs, show, compile_program, run, learn):
    program.add_command(command)
