"""What is printed fits every terminal: help is not cut, and names that are typed stay whole."""

import re
from functools import partial

import click
import pytest
from rich.console import Console

from polyattn.cli import console, tables
from polyattn.cli.help_lines import WholeWordsContext
from polyattn.cli.main import cli
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines.ready import READY


def commands(command=cli, path=("polyattn",)):
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


COMMANDS = {" ".join(path): command for path, command in commands()}


def help_of(name, width, context=WholeWordsContext):
    command = COMMANDS[name]
    made = context(command, info_name=name, terminal_width=width, max_content_width=width)
    return command.get_help(made)


def cut_lines(text):
    """Lines that end within a sentence or a word; how a command is called ends with dots."""
    _, _, described = text.partition("\n\n")
    return [line for line in described.splitlines() if re.search(r"\.\.\.$|\w-$|\W--?$", line)]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_of_help_is_cut(name, width):
    assert COMMANDS[name].context_class is WholeWordsContext
    text = help_of(name, width)
    assert cut_lines(text) == []
    assert max(map(len, text.splitlines())) <= width
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            for option in (*parameter.opts, *parameter.secondary_opts):
                assert re.search(rf"^  .*{option}(,| |/|$)", text, re.MULTILINE), option
            for word in re.findall(r"[\w-]*-[\w-]*\w", parameter.help or ""):
                assert word in text, word


def test_help_that_is_cut_is_found():
    """Negative control: the help of click itself."""

    class Plain(click.Group):
        pass

    plain = Plain("polyattn", commands=dict(cli.commands))
    text = plain.get_help(click.Context(plain, terminal_width=60))
    assert any("..." in line for line in cut_lines(text))
    assert cut_lines("Usage: x ...\n\n  --test-\n  data") == ["  --test-"]


def lines_at(width, run, monkeypatch, *arguments):
    terminal = partial(Console, force_terminal=True, color_system=None, width=width)
    monkeypatch.setattr(console, "Console", terminal)
    return [line.strip("│ ") for line in run(*arguments).stdout.splitlines()]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_names_of_programs_and_machines_are_never_broken(width, run, monkeypatch):
    lines = lines_at(width, run, monkeypatch, "program", "list")
    names = [name for name in PROGRAMS if not PROGRAMS[name].styles]
    names += [f"dfa --style {style}" for style in ("registers", "one-hot")]
    for name in (*names, *READY, "divisibility:N[,BASE]"):
        assert any(re.match(rf"{re.escape(name)}( |$)", line) for line in lines), name
    assert any("program run equal-blocks 1122" in line for line in lines)
    assert not any("…" in line for line in lines)


def test_a_pipe_gets_whole_rows(run):
    lines = run("program", "list").stdout.splitlines()
    [line] = [each for each in lines if "turing-rewriting" in each]
    assert "writes the tape anew at every step" in line


GRID = tables.table(
    "t", ("name", "about"), [("a-name-of-17-long", "some words to wrap")], whole=["name"]
)


@pytest.mark.parametrize("width", range(5, 60, 3))
def test_tables_break_no_word_at_any_width(width):
    output = Console(width=width, force_terminal=True, color_system=None)
    with output.capture() as captured:
        for part in GRID.fitted(width):
            output.print(part, soft_wrap=True)
    text = captured.get()
    assert "a-name-of-17-long" in text
    for word in ("some", "words", "wrap"):
        assert re.search(rf"\b{word}\b", text), (width, text)


def test_wide_and_narrow_tables_say_the_same():
    title, table = GRID.fitted(60)
    assert title.plain == "t"
    assert [column.width for column in table.columns] == [17, 18]
    assert [line.plain for line in GRID.fitted(20)] == [
        "t", "a-name-of-17-long", "  about: some words to wrap",
    ]  # fmt: skip
    # Seven more columns are borders; what is spare goes to the column that needs it.
    assert [column.width for column in GRID.fitted(32)[1].columns] == [17, 8]
    facts = tables.facts("", {"risk": 0.5, "tokens": "1 2\n3 4"})
    assert [line.plain for line in facts.fitted(5)] == ["risk: 0.5", "tokens:\n1 2\n3 4"]
