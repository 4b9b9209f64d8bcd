"""Verbs whose help shows options by what they are about."""

from __future__ import annotations

import click

from polyattn.cli import data, form

# Options by the names of their parameters; all others are those of the verb.
SECTIONS = {"Options of tables": data.NAMES, "Options of the layer": form.NAMES}


class SectionedCommand(click.Command):
    """A verb whose help shows the options of tables and of a form apart from its own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A list for the verb, and one for each section that it has options of."""
        records: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            **{each: [] for each in SECTIONS},
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                titles = (each for each, names in SECTIONS.items() if parameter.name in names)
                records[next(titles, "Options")].append(record)
        for title, rows in records.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
