"""The pages of the documentation: what they print, and how it is run.

The blocks of a page run in order, in one folder: ``python`` in one namespace, ``sh`` line by line.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from polyattn.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
PAGES = [page for page in PAGES if not {"_build", "gallery"} & set(page.relative_to(ROOT).parts)]

# Pages whose examples need packages of the optional environment; tests/optional runs them there.
OPTIONAL = {
    ROOT / "docs" / "guides" / "service.md": ("fastapi", "httpx", "pandas"),
    ROOT / "docs" / "guides" / "time_series.md": ("aeon", "sktime"),
}

FENCE = re.compile(r"^```(python|sh|bash|console|shell)\b[^\n]*\n(.*?)^```", re.M | re.S)
EXIT_CODE = re.compile(r"#.*\bexit code (\d+)")


class Command(NamedTuple):
    """A line of a shell block: its words, its line on the page, the exit code it must have."""

    words: tuple[str, ...]
    line: int
    exit_code: int

    @property
    def text(self):
        return shlex.join(self.words)


def name_of(path):
    return str(path.relative_to(ROOT))


def read(path):
    return path.read_text(encoding="utf-8")


def blocks(text):
    """The language, the number of lines above, and the content of each fenced block."""
    found = FENCE.finditer(text)
    return [(each[1], text.count("\n", 0, each.start(2)), each[2]) for each in found]


def commands(language, above, source):
    """The commands of a shell block; a comment may say ``exit code 3``."""
    if language == "python":
        return []
    found = []
    for number, line in enumerate(source.splitlines(), start=above + 1):
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words:
            code = EXIT_CODE.search(line)
            found.append(Command(tuple(words), number, int(code[1]) if code else 0))
    return found


def commands_of(text):
    return [command for block in blocks(text) for command in commands(*block)]


def run_page(text, name, left_out=()):
    """Run the blocks of a page; errors carry the name of the page and its line numbers.

    Commands that are ``left_out`` (their texts) are not run.
    """
    namespace = {"__name__": "__main__"}
    for language, above, source in blocks(text):
        if language == "python":
            code = compile("\n" * above + source, name, "exec")
            exec(code, namespace)  # noqa: S102 – our own pages
        for command in commands(language, above, source):
            if command.text not in left_out:
                run_command(command, name)


def run_command(command, name):
    """Run ``polyattn ...`` as the installed script would, and compare its exit code."""
    where = f"{name}:{command.line}: {command.text}"
    program, *arguments = command.words
    assert program == "polyattn", f"{where}: only polyattn is run; give a reason to leave it out"
    result = CliRunner().invoke(cli, arguments, prog_name="polyattn")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(where) from result.exception
    assert result.exit_code == command.exit_code, f"{where}: {result.exit_code}\n{result.output}"
