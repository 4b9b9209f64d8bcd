"""Every example and every command of the documentation runs as printed, page by page.

The Python blocks of a page make the files that its commands name.  What cannot be run here is
listed with the reason, and still has to name what exists.
"""

import re
import tomllib
from importlib.metadata import entry_points
from importlib.util import find_spec

import click
import pytest

from pages import OPTIONAL, PAGES, ROOT, blocks, commands, commands_of, name_of, read, run_page
from polyattn.cli.main import cli, main

LEFT_OUT = {
    "make demo": "tests/test_demo.py runs the demo",
    "make test": "it would run this test again",
    "make test-slow": "it takes 40 minutes",
    ".venv/bin/pytest -q tests/test_ridge.py": "it is a test itself",
    ".venv/bin/pytest -q tests/test_ridge.py -k grid": "it is a test itself",
    "make docs": "it builds the site and runs this test",
    "make bench": "it takes hours",
    "make mutants": "it takes an hour",
    "polyattn fit 'shard-*.npz' --workers 2": "tests/test_cli_gathering.py starts workers",
    "polyattn certify 'shard-*.npz' --dask tcp://scheduler:8786 --checkpoint run.safetensors": (
        "there is no such scheduler; tests/test_cli_gathering.py has one"
    ),
    "pip install .": "it would change the environment of the tests",
    "python benchmarks/fit_vs_ridge.py": "it takes minutes",
    "python benchmarks/capacity.py --rounds 2 --out docs/capacity": "it takes a quarter of an hour",
    "polyattn bench": "tests/test_cli.py runs it",
    "polyattn reproduce yau2024-fig1": "tests/test_reproduce_smoke.py runs it",
    "polyattn reproduce all --profile full --jobs 2": "it takes hours",
}
WITH_CODE = [page for page in PAGES if blocks(read(page)) and page not in OPTIONAL]
INLINE = re.compile(r"`((?:polyattn|make|pip|python) [^`\n]+)`")

TARGETS = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))
EXTRAS = set(
    tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["optional-dependencies"],
)


def nowhere(words):
    """What a command names and does not exist: targets, scripts, extras, verbs, options."""
    program, *arguments = words
    if program == "make":
        return [target for target in arguments if target not in TARGETS]
    if program == "python" and arguments[0] == "-m":
        return [] if find_spec(arguments[1]) else [arguments[1]]
    if program == "python":
        return [] if (ROOT / arguments[0]).is_file() else [arguments[0]]
    if program == ".venv/bin/pytest":
        return [word for word in arguments if "/" in word and not (ROOT / word).is_file()]
    if program == "pip":
        named = {name for word in arguments for name in re.findall(r"\[([\w,]+)\]", word)}
        return sorted({extra for name in named for extra in name.split(",")} - EXTRAS)
    return unknown_to_click(cli, arguments)


def unknown_to_click(group, arguments):
    """Verbs and options that a group of commands does not have."""
    command, rest = group, list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        verb = rest.pop(0)
        if verb.isupper():  # VERB stands for any of them
            return []
        if verb not in command.commands:
            return [verb]
        command = command.commands[verb]
    options = {"-h", "--help"}
    for parameter in command.params:
        options |= {*parameter.opts, *parameter.secondary_opts}
    return [word for word in rest if re.match(r"--?[a-z]", word) and word not in options]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(read(page), str(page), left_out=LEFT_OUT)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_commands_name_exists(page):
    text = read(page)
    printed = [command.words for command in commands_of(text)]
    printed += [found.split() for found in INLINE.findall(text)]
    assert [(words, nowhere(words)) for words in printed if nowhere(words)] == []


def test_pages_of_the_optional_environment_have_examples():
    assert all(page in PAGES and blocks(read(page)) for page in OPTIONAL)


def test_what_is_left_out_is_printed():
    printed = {command.text for page in PAGES for command in commands_of(read(page))}
    assert set(LEFT_OUT) - printed == set()
    assert all(LEFT_OUT.values())


def test_the_script_is_what_is_run_here():
    [script] = entry_points(group="console_scripts", name="polyattn")
    assert script.load() is main


def test_many_commands_are_run():
    run = [c for p in WITH_CODE for c in commands_of(read(p)) if c.text not in LEFT_OUT]
    assert len(run) >= 30


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("polyattn show nothing.safetensors", "page.md:4: polyattn show nothing.safetensors: 1"),
        ("polyattn program list  # exit code 3", "page.md:4: polyattn program list: 0"),
        ("polyattn program list --no-such-option", "page.md:4: .*: 2"),
        ("curl https://example.org", "page.md:4: .* only polyattn is run"),
    ],
)
def test_a_command_that_fails_is_found(line, message, tmp_path, monkeypatch):
    """Negative control, with the line of the page."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=message):
        run_page(f"# Title\n\n```sh\n{line}\n```\n", "page.md")


def test_a_page_is_one_run(tmp_path, monkeypatch):
    """What Python wrote, a command reads; a failure may be what the page says."""
    monkeypatch.chdir(tmp_path)
    page = "```python\nfrom pathlib import Path\n\nPath('a.json').write_text('{}')\n```\n"
    page += "```sh\n# a comment\npolyattn show a.json  # exit code 1\n```\n"
    run_page(page, "page.md")
    with pytest.raises(AssertionError, match=r"page.md:8: polyattn show a.json: 1"):
        run_page(page.replace("exit code 1", ""), "page.md")


def test_a_broken_example_is_found():
    """Negative control, with the line of the page in the traceback."""
    page = "text\n\n```python\na = 1\n```\n\n```python\nassert a == 2\n```\n"
    with pytest.raises(AssertionError) as failure:
        run_page(page, "page.md")
    assert failure.traceback[-1].lineno + 1 == 8
    run_page(page.replace("== 2", "== 1"), "page.md")


def test_words_are_those_of_a_shell():
    [block] = blocks("```console\n$ polyattn fit 'my data.npz'  # first\n```\n")
    assert [command.words for command in commands(block)] == [("polyattn", "fit", "my data.npz")]


def test_what_does_not_exist_is_found():
    """Negative control."""
    assert nowhere(["make", "test", "nothing"]) == ["nothing"]
    assert nowhere(["python", "benchmarks/nothing.py"]) == ["benchmarks/nothing.py"]
    assert nowhere(["pip", "install", "polyattn[yaml,nothing]"]) == ["nothing"]
    assert nowhere(["polyattn", "nothing"]) == ["nothing"]
    assert nowhere(["polyattn", "program", "nothing"]) == ["nothing"]
    assert nowhere(["polyattn", "fit", "data.npz", "--nothing"]) == ["--nothing"]
    assert nowhere(["polyattn", "program", "run", "FILE", "--check"]) == []
