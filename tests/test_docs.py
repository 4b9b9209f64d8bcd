"""Every link inside the repository leads somewhere; ``test_commands.py`` runs what pages print."""

import re

import pytest

from pages import PAGES, name_of, read

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
