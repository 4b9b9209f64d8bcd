"""Links and files that pages name are there; ``test_commands.py`` runs what pages print."""

import re

import pytest

from pages import PAGES, ROOT, name_of, read

# A module that a page names: `solve/ridge.py`.
MODULE = re.compile(r"`([\w/]+\.py)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def broken_links(text, folder):
    """Relative links that lead nowhere."""
    targets = [target for target in LINK.findall(text) if ":" not in target]
    return [target for target in targets if not (folder / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    assert broken_links(read(page), page.parent) == []


def test_a_broken_link_is_found(tmp_path):
    """Negative control."""
    (tmp_path / "there.md").touch()
    text = "[a](there.md) [b](gone.md#part) [c](https://example.org/x)"
    assert broken_links(text, tmp_path) == ["gone.md"]


def missing_modules(text):
    """Modules that a page names by the end of their path, and that are nowhere."""
    folders = ("src", "tests", "benchmarks", "examples", "docs")
    there = [f"/{path}" for folder in folders for path in map(str, (ROOT / folder).rglob("*.py"))]
    return [
        name
        for name in MODULE.findall(text)
        if not any(path.endswith(f"/{name}") for path in there)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_that_are_named_exist(page):
    assert missing_modules(read(page)) == []


def test_a_missing_module_is_found():
    """Negative control."""
    assert missing_modules("`polyattn/errors.py`, `outcome.py` and `no/outcome.py`") == [
        "no/outcome.py"
    ]
