"""``polyattn``: the group of verbs, and the rule that errors are one line and exit code 1."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from polyattn._version import __version__
from polyattn.cli.certify import audit, certify
from polyattn.cli.command_words import in_command_words
from polyattn.cli.fit import fit, learn_softmax
from polyattn.cli.help_lines import Group
from polyattn.cli.learning_curve import learning_curve
from polyattn.cli.merge import merge
from polyattn.cli.predict import predict
from polyattn.cli.program import program
from polyattn.cli.report import report
from polyattn.cli.show import show
from polyattn.errors import PolyattnError
from polyattn.quoting import printable, shortened
from polyattn_papers.commands import bench, demo, reproduce


class Verbs(Group):
    """A group whose verbs turn expected errors into one line on stderr and exit code 1."""

    def make_context(self, *given: Any, **options: Any) -> click.Context:
        """The context of a command line, or what is wrong with it."""
        with _escaped():
            return super().make_context(*given, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; only mistakes in the program itself end in a traceback."""
        try:
            with _escaped():
                return super().invoke(ctx)
        except (PolyattnError, OSError, MemoryError) as error:
            # A reader that went away (`polyattn ... | head`) is no error; click knows it.
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            verb = self.get_command(ctx, ctx.invoked_subcommand or "")
            raise click.ClickException(_message(error, verb)) from error


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="polyattn")
def cli() -> None:
    """Fit attention layers like ridge regression: globally, in closed form.

    Every verb takes --json: one JSON object on standard output and nothing else there.
    Exit codes: 0 done, 1 error, 2 wrong usage; of certify and audit also 3 where the data do not
    determine the layer and 4 where that is undecided; of learn-softmax and program learn 4 where
    what was found was not confirmed.
    """


OWN = (fit, predict, certify, audit, merge, learning_curve, show, learn_softmax, program, report)
OF_EXPERIMENTS = (demo, reproduce, bench)
for verb in (*OWN, *OF_EXPERIMENTS):
    cli.add_command(verb)


def main() -> None:
    """The entry point."""
    cli(prog_name="polyattn")


@contextmanager
def _escaped() -> Iterator[None]:
    """Messages about arguments quote them: what a terminal would obey is escaped."""
    try:
        yield
    except click.ClickException as error:
        vars(error)["message"] = shortened(printable(error.message))
        raise


def _message(error: BaseException, verb: click.Command | None) -> str:
    """The message on one line in the words of the command line, what a terminal obeys escaped."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = "there is not enough memory; polyattn fit --explain says what was needed."
    elif isinstance(error, OSError) and error.strerror and error.filename:
        text = f"{error.filename}: {error.strerror}."
    return shortened(printable(" ".join(in_command_words(text, verb).split())))
