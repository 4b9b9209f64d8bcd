"""Help that is never cut: whole sentences about verbs, and no word broken at its hyphens."""

from __future__ import annotations

from collections.abc import Iterable

import click

# Stands for a hyphen while lines are wrapped, which would break names such as --test-data at it.
_UNBROKEN = "\N{NON-BREAKING HYPHEN}"


class WholeWords(click.HelpFormatter):
    """Help whose lines break at spaces alone."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """How the verb is called."""
        super().write_usage(prog, args.replace("-", _UNBROKEN), prefix)

    def write_text(self, text: str) -> None:
        """A paragraph, or several."""
        super().write_text(text.replace("-", _UNBROKEN))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Names, and beside each of them what it is."""
        whole = [(name, text.replace("-", _UNBROKEN)) for name, text in rows]
        super().write_dl(whole, col_max, col_spacing)

    def getvalue(self) -> str:
        """The help as text."""
        return super().getvalue().replace(_UNBROKEN, "-")


class WholeWordsContext(click.Context):
    """The context of a verb with such help."""

    formatter_class = WholeWords


class Group(click.Group):
    """Verbs under one name, each listed with the first sentence of its help, whole."""

    context_class = WholeWordsContext

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a verb, whose help is then whole, too."""
        cmd.context_class = WholeWordsContext
        super().add_command(cmd, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(limit=1000))
            for name, command in found.items()
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
