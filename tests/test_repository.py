"""The repository speaks of the project alone, and of finished work."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

# All of them in one worker, where a file is parsed once.
pytestmark = pytest.mark.xdist_group("repository")

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs", ".ci")
TEXT = {".py", ".md", ".toml", ".txt", ".cff", ".yaml", ".yml", ".html", ".j2", ".svg", ""}
MAX_LINES = 340

# Metaphors that names had; a stranger's words are method, arguments, reference, interface, given.
RETIRED = {"house", "room", "road", "door", "law", "face", "told", "hear", "twin", "film"}

# Written so that they do not find themselves.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.~])/(?:home|root|opt|mnt|tmp|work|var|Users|data)/[\w.]",
    "where packages come from": r"index[-]url|find[-]links|pythonhost[e]d",
    "unfinished work": r"\b(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b",
}
UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}


def files():
    """All files of the project that hold text."""
    top = [path for path in ROOT.iterdir() if path.is_file()]
    inside = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file()]
    return sorted(
        path for path in top + inside if path.suffix in TEXT and "__pycache__" not in path.parts
    )


def python_files():
    return [path for path in files() if path.suffix == ".py"]


def name_of(path):
    return str(path.relative_to(ROOT))


def findings(text):
    """What must not be in a file, as (kind, line number)."""
    return [
        (kind, number)
        for number, line in enumerate(text.splitlines(), start=1)
        for kind, pattern in FORBIDDEN.items()
        if re.search(pattern, line)
    ]


def unsafe_imports(tree):
    """Imports of modules that execute what they load, and calls that allow it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            UNSAFE_MODULES
        ):
            found.append(node.module)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found += [] if getattr(node.value, "value", None) is False else ["allow_pickle"]
    return found


def test_there_are_files():
    names = {name_of(path) for path in files()}
    assert {"pyproject.toml", "Makefile", "LICENSE", ".ci/run", "src/polyattn/errors.py"} <= names


def test_the_repository_speaks_of_the_project_alone():
    found = {name_of(path): findings(path.read_text(encoding="utf-8")) for path in files()}
    assert {name: places for name, places in found.items() if places} == {}


class Parsed(NamedTuple):
    """What tests look at in a file of Python."""

    unsafe: list
    names: set
    classes: list


@cache
def parsed(path):
    """What is in a file, which is parsed once; its tree is not kept."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    return Parsed(unsafe_imports(tree), names_in(tree), classes)


def test_nothing_is_unpickled():
    found = {name_of(path): parsed(path).unsafe for path in python_files()}
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_modules_are_short():
    modules = (path for path in python_files() if path.is_relative_to(ROOT / "src"))
    lines = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in modules}
    assert {name: count for name, count in lines.items() if count >= MAX_LINES} == {}


def names_in(tree):
    """Names of classes, functions, arguments and variables that a module defines."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def retired(name):
    """The words of a name that are not to be used."""
    words = {word.removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+", name)}
    return {word.lower() for word in words} & RETIRED


def test_names_say_what_is_inside():
    modules = [path for path in python_files() if path.is_relative_to(ROOT / "src")]
    names = {path.stem for path in modules}
    for path in modules:
        names |= parsed(path).names
    assert {name for name in names if retired(name)} == set()


def test_retired_words_are_found():
    """Negative control."""
    assert names_in(ast.parse("def road(told):\n    door_of = 1")) == {"road", "told", "door_of"}
    assert [retired(name) for name in ("roads", "ByRoad", "door_of", "flaw", "interface")] == [
        {"road"}, {"road"}, {"door"}, set(), set(),
    ]  # fmt: skip


def test_no_two_classes_have_one_name():
    found = {}
    for path in python_files():
        if path.is_relative_to(ROOT / "src"):
            for name in parsed(path).classes:
                found.setdefault(name, []).append(name_of(path))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def test_pins_cover_the_declared_dependencies():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    extras = project["optional-dependencies"].values()
    declared = project["dependencies"] + [entry for extra in extras for entry in extra]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in declared} - {"polyattn"}
    assert names <= set(pins)
    assert pins["torch"] == "2.13.0"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("see /" + "home/someone/file", "a path of one machine"),
        ("pip --index" + "-url x", "where packages come from"),
        ("# TO" + "DO: later", "unfinished work"),
    ],
)
def test_the_search_finds(text, kind):
    """Negative control."""
    assert findings("fine\n" + text) == [(kind, 2)]
    assert findings("#!/usr/bin/env bash\nhttps://example.org/data/x\n./work/x") == []


def test_unsafe_imports_are_found():
    """Negative control."""
    assert unsafe_imports(ast.parse("import pickle")) == ["pickle"]
    assert unsafe_imports(ast.parse("from dill import loads")) == ["dill"]
    assert unsafe_imports(ast.parse("numpy.load(p, allow_pickle=True)")) == ["allow_pickle"]
    assert unsafe_imports(ast.parse("numpy.load(p, allow_pickle=False)")) == []
