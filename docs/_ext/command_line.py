"""``{command-line}``: every verb of a click group with its usage, help and options."""

import os

import click
from docutils.parsers.rst import Directive
from plain_nodes import block, section

WIDTH = 78


class CommandLine(Directive):
    """One section per verb, made from what ``--help`` prints, so it cannot go stale."""

    def run(self):
        """The sections, groups before their verbs."""
        from polyattn.cli.main import cli

        found = verbs(cli, "polyattn")
        return [section(path, block(help_text(path, command))) for path, command in found]


def verbs(command, path):
    """All commands below a group with their full names, in the order of ``--help``."""
    if path != "polyattn" or not isinstance(command, click.Group):
        yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from verbs(command.get_command(click.Context(command), name), f"{path} {name}")


def help_text(path, command):
    """What ``--help`` prints, without colours and at one width wherever the site is built."""
    parent = None
    for word in path.split()[:-1]:
        parent = click.Context(click.Group(word), info_name=word, parent=parent)
    context = click.Context(
        command, info_name=path.split()[-1], parent=parent, max_content_width=WIDTH,
        terminal_width=WIDTH, help_option_names=["-h", "--help"],
    )  # fmt: skip
    return command.get_help(context)


def setup(app):
    """Called by Sphinx."""
    # Click reads it where a context does not say; pages must not depend on the terminal.
    os.environ.setdefault("NO_COLOR", "1")
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
