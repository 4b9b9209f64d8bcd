"""One page has every parameter with its one meaning: docs/parameters.md.

Public signatures are those that the API reference shows (that it shows every public name is a test
of the site), and those of the commands.
"""

import functools
import importlib
import inspect
import re
from pathlib import Path

import click

import polyattn
from polyattn.cli.main import cli

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = (DOCS / "parameters.md").read_text(encoding="utf-8")
API = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md")))

HEADINGS = ["word", "type", "default", "meaning", "command line"]
# An entry of the reference: a class with () is made by the library, so that only its methods are
# called; what :members: and :special-members: name is shown with it.
ENTRY = re.compile(
    r"^\.\. auto(?:function|class|exception):: (polyattn[\w.]+)(\(\))?\n((?: +:.*\n)*)", re.M
)
MEMBERS = re.compile(r"members: (.*)")
# It takes any other argument, and refuses it with what to write in its place.
REFUSED = ("polyattn.fit", "unknown")


def read_rows(page):
    """The rows of all tables as lists of cells."""
    lines = [line.strip()[1:-1] for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [row for row in rows if row != HEADINGS and set(row[0]) != {"-"}]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def listed(page):
    """Words with their defaults, as text or None; options and arguments of commands."""
    words, commands = {}, []
    for row in read_rows(page):
        default = quoted(row[2])
        for word in quoted(row[0]):
            assert word not in words, f"{word} is explained twice"
            words[word] = default[0] if default else None
        commands += quoted(row[4])
    return words, commands


def find(name):
    """The object of a dotted name; a function hides the module of its name."""
    place, _, last = name.rpartition(".")
    try:
        return functools.reduce(getattr, name.split(".")[1:], polyattn)
    except AttributeError:
        return getattr(importlib.import_module(place), last)


def shown(reference):
    """Everything callable that the reference shows, by name."""
    found = {}
    for name, made_by_library, options in ENTRY.findall(reference):
        thing = find(name)
        if not made_by_library:
            found[name] = thing
        for line in MEMBERS.findall(options):
            for member in line.split(", "):
                found[f"{name}.{member}"] = getattr(thing, member)
    return {name: thing for name, thing in found.items() if callable(thing)}


def parameters(callables):
    """(where, parameter) for all signatures; errors are made with a message."""
    for where, thing in callables.items():
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue
        for parameter in inspect.signature(thing).parameters.values():
            if parameter.name != "self" and (where, parameter.name) != REFUSED:
                yield where, parameter


def command_words(command, path="polyattn"):
    """(where, word) for all options and arguments of a command and those below it."""
    for parameter in command.params:
        option = isinstance(parameter, click.Option)
        word = max(parameter.opts, key=len) if option else parameter.human_readable_name
        yield path, word.strip("[]")
    for name, below in getattr(command, "commands", {}).items():
        yield from command_words(below, f"{path} {name}")


WORDS, COMMANDS = listed(PAGE)
SIGNATURES = list(parameters(shown(API)))


def test_every_parameter_and_option_is_on_the_page_and_every_word_of_it_is_used():
    assert [(where, each.name) for where, each in SIGNATURES if each.name not in WORDS] == []
    of_commands = list(command_words(cli))
    assert [(where, word) for where, word in of_commands if word not in COMMANDS] == []
    assert {"polyattn.fit", "polyattn.Moments.load", "polyattn.data.planted"} <= shown(API).keys()
    only_commands = {word for row in read_rows(PAGE) if row[4] for word in quoted(row[0])}
    used = {each.name for _, each in SIGNATURES}
    assert WORDS.keys() - used - only_commands == set()
    assert sorted(COMMANDS) == sorted({word for _, word in of_commands})
    assert all(len(row) == len(HEADINGS) and row[1] and row[3] for row in read_rows(PAGE))


def test_a_default_of_the_page_is_the_default_everywhere():
    given = [(where, each) for where, each in SIGNATURES if each.default is not each.empty]
    known = {name: default for name, default in WORDS.items() if default is not None}
    for where, each in given:
        shown = repr(each.default).replace("'", '"')
        assert known.get(each.name, shown) == shown, (where, each.name)


def test_verbs_have_the_defaults_of_their_functions_and_all_parts_of_a_form():
    for verb in ("fit", "certify", "audit", "learn-softmax", "learning-curve"):
        known = inspect.signature(getattr(polyattn, verb.replace("-", "_"))).parameters
        options = {each.name.removeprefix("no_"): each for each in cli.commands[verb].params}
        parts = (
            set() if verb in ("audit", "learn-softmax") else {*polyattn.Form.__dataclass_fields__}
        )
        assert parts <= options.keys()
        for name in options.keys() & known.keys() - {"n_heads"}:
            if getattr(options[name], "show_default", False):
                assert options[name].default == known[name].default, (verb, name)
