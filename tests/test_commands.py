"""Every example and every command of the documentation runs as printed, page by page.

The Python blocks of a page make the files that its commands name.  What cannot be run here is
listed with the reason, and still has to name what exists.  Pages but README.md are run by
``make docs`` and ``make test-slow``.
"""

import json
import re
import sys
import tomllib
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from oracle import parsed, printed
from pages import OPTIONAL, PAGES, ROOT, blocks, commands_of, name_of, read, run_page
from polyattn.cli.main import cli, main
from read_page import Page

LEFT_OUT = {
    "make demo": "a test below runs the demo",
    "make test": "it would run this test again",
    "make test-slow": "it takes 25 minutes",
    ".venv/bin/pytest -q tests/test_ridge.py": "it is a test itself",
    ".venv/bin/pytest -q tests/test_ridge.py -k gcv": "it is a test itself",
    "make docs": "it builds the site and runs this test",
    "make bench": "it takes hours",
    "make mutants": "it takes an hour",
    "make compare BASE=b475fbd": "it builds another commit and takes minutes",
    "polyattn fit 'shard-*.npz' --workers 2": "tests/test_cli_data.py starts workers",
    "polyattn certify 'shard-*.npz' --dask tcp://scheduler:8786 --checkpoint run.safetensors": (
        "there is no such scheduler; tests/test_cli_data.py has one"
    ),
    "pip install .": "it would change the environment of the tests",
    "python benchmarks/fit_vs_ridge.py": "it takes minutes",
    "python benchmarks/capacity.py --rounds 2 --out docs/capacity": "it takes a quarter of an hour",
    "polyattn bench": "a test below runs it",
    "polyattn reproduce yau2024-fig1": "tests of the reproductions run it",
    "polyattn reproduce all --profile full --jobs 2": "it takes hours",
}
INLINE = re.compile(r"`((?:polyattn|make|pip|python) [^`\n]+)`")
TARGETS = set(re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE))
EXTRAS = set(tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["optional-dependencies"])


# README.md in every run of the tests; the others take a minute together.
RUN = [
    pytest.param(page, id=name_of(page), marks=[] if page.name == "README.md" else pytest.mark.slow)
    for page in PAGES
    if blocks(read(page)) and page not in OPTIONAL
]


def nowhere(words):
    """What a command names and does not exist: targets, scripts, extras, verbs, options."""
    program, *arguments = words
    if program == "make":
        # BASE=COMMIT sets a variable.
        return [word for word in arguments if "=" not in word and word not in TARGETS]
    if program == "pip":
        named = re.findall(r"(?<=[\[,])\w+(?=[\],])", " ".join(arguments))
        return [extra for extra in named if extra not in EXTRAS]
    if program == "polyattn":
        # VERB stands for any of them; with --help nothing is done.
        words = ["fit" if word == "VERB" else word for word in arguments]
        return re.findall("No such .*", CliRunner().invoke(cli, [*words, "--help"]).output)
    if arguments[:1] == ["-m"]:
        return [] if find_spec(arguments[1]) else [arguments[1]]
    files = [word for word in arguments if "/" in word and not word.startswith("docs/")]
    return [word for word in files if not (ROOT / word).is_file()]


@pytest.mark.parametrize("page", RUN)
def test_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(read(page), str(page), left_out=LEFT_OUT)


def test_what_commands_name_exists_and_what_is_left_out_is_printed():
    every = set()
    for page in PAGES:
        text = read(page)
        every |= {command.text for command in commands_of(text)}
        named = [command.words for command in commands_of(text)]
        named += [found.split() for found in INLINE.findall(text)]
        assert [(words, nowhere(words)) for words in named if nowhere(words)] == [], page
    assert set(LEFT_OUT) - every == set()
    assert len(every - set(LEFT_OUT)) >= 30
    # Negative control.
    for command in (
        "make nothing", "python benchmarks/nothing.py", "pip install polyattn[yaml,nothing]",
        "polyattn nothing", "polyattn program nothing", "polyattn fit data.npz --nothing",
    ):  # fmt: skip
        [missing] = nowhere(command.split())
        assert "nothing" in missing
    assert nowhere(["polyattn", "program", "run", "FILE", "--check"]) == []
    [script] = entry_points(group="console_scripts", name="polyattn")
    assert script.load() is main


def test_the_demo_finds_the_planted_layer_and_its_page_stands_alone(run):
    figures = parsed(run("demo", "--no-adam", "-o", "page.html", "--json"))
    assert figures["closed_form"]["n_heads"] == 1
    assert figures["closed_form"]["validation_error"] < 1e-25
    assert figures["closed_form"]["distance"] < 1e-9
    assert figures["certificate"]["verdict"] == "identifiable"
    assert figures["adam"] is None
    page = Page(Path("page.html").read_text(encoding="utf-8"))
    assert page.requests() == []
    assert "script" not in page.tags
    assert page.holds(figures["closed_form"]["validation_error"])
    assert "Identifiable" in page.text


@pytest.mark.slow
@pytest.mark.parametrize(("package", "extra"), [("torch", "torch"), ("matplotlib", "plots")])
def test_the_demo_runs_without_what_is_optional(package, extra, run, monkeypatch):
    """The figures are printed; Adam needs torch, and the page matplotlib."""
    for name in list(sys.modules):
        if name.split(".")[0] == package or name.startswith("polyattn_papers.baselines"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    more = () if package == "torch" else ("--no-adam",)
    printed(run("demo", *more, "-o", "page.html"), "Identifiable", f"polyattn[{extra}]")
    assert Path("page.html").exists() == (package == "torch")


def test_the_bench_compares_answers_and_times(run):
    found = json.loads(run("bench", "--scale", "0.01", "--json").stdout)["comparisons"]
    assert len(found) == 3
    for one in found:
        assert one["agrees"]
        assert one["ratio"] == pytest.approx(one["other_seconds"] / one["seconds"])
