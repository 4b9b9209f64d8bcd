"""The table of equivalent mutants names lines that exist: a changed line is judged anew."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "mutants" / "equivalent.toml"


def entries():
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))["equivalent"]


def lines_of(file, function):
    """The source of a function, given by its dotted name, or of a file, on one line."""
    source = (ROOT / file).read_text(encoding="utf-8")
    node = ast.parse(source)
    for name in filter(None, function.split(".")):
        node = next(inner for inner in node.body if getattr(inner, "name", None) == name)
    text = ast.get_source_segment(source, node) if function else source
    return " ".join(text.split())


def is_current(entry):
    before, after = (" ".join(entry[key].split()) for key in ("before", "after"))
    return before != after and before in lines_of(entry["file"], entry["function"])


def test_every_equivalent_mutant_is_one_of_the_present_source():
    assert [entry for entry in entries() if not is_current(entry)] == []


def test_every_equivalent_mutant_has_a_reason_and_is_named_once():
    names = [(e["file"], e["function"], e["before"], e["after"]) for e in entries()]
    assert len(set(names)) == len(names)
    assert all(len(entry["reason"].split()) >= 4 for entry in entries())


@pytest.mark.parametrize(
    ("function", "before", "current"),
    [
        ("n_pairs", "return width * (width + 1) // 2", True),
        ("", "return width * (width + 1) // 2", True),
        ("n_features", "return width * (width + 1) // 2", False),
        ("n_pairs", "return n_dims * (n_dims - 1) // 2", False),
    ],
)
def test_an_outdated_entry_is_found(function, before, current):
    """Negative control."""
    entry = {"file": "src/polyattn/form/pairs.py", "function": function, "before": before}
    assert is_current(entry | {"after": "return 0"}) is current
