"""Every example in the documentation runs, and every link inside the repository leads somewhere.

The blocks marked ``python`` of one page run in order, in one namespace, in an empty folder.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def name_of(path):
    return str(path.relative_to(ROOT))


def blocks(text):
    """The Python blocks of a page with the lines they start at."""
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in BLOCK.finditer(text)]


def run_page(text, name):
    """Run the blocks of a page; errors carry the name of the page and its line numbers."""
    namespace = {"__name__": "__main__"}
    for line, source in blocks(text):
        exec(compile("\n" * line + source, name, "exec"), namespace)  # noqa: S102 – our own pages


def broken_links(text, folder):
    """Relative links that lead nowhere."""
    targets = [target for target in LINK.findall(text) if ":" not in target]
    return [target for target in targets if not (folder / target).exists()]


PAGES_WITH_CODE = [page for page in PAGES if blocks(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name_of)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page.read_text(encoding="utf-8"), str(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    assert broken_links(page.read_text(encoding="utf-8"), page.parent) == []


def test_a_broken_example_is_found():
    """Negative control, with the line of the page in the traceback."""
    page = "text\n\n```python\na = 1\n```\n\n```python\nassert a == 2\n```\n"
    with pytest.raises(AssertionError) as failure:
        run_page(page, "page.md")
    assert failure.traceback[-1].lineno + 1 == 8
    run_page(page.replace("== 2", "== 1"), "page.md")


def test_a_broken_link_is_found(tmp_path):
    """Negative control."""
    (tmp_path / "there.md").touch()
    text = "[a](there.md) [b](gone.md#part) [c](https://example.org/x)"
    assert broken_links(text, tmp_path) == ["gone.md"]
