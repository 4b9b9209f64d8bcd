"""Pages and the site: links lead somewhere, everything public is documented, nothing is fetched.

The site is the one that ``make docs`` builds before it runs these tests, or another in the folder
that SITE names; without one they are skipped.
"""

import os
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

import polyattn as pa
from browser import check_page
from pages import PAGES, ROOT, name_of, read
from polyattn.cli.main import cli

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
MODULE = re.compile(r"`([\w/]+\.py)`")  # that a page names: `solve/ridge.py`

SOURCES = [
    p for f in ("src", "tests", "benchmarks", "examples", "docs") for p in (ROOT / f).rglob("*.py")
]


def dead_ends(text, folder):
    """Relative links that lead nowhere, and modules that are named and are nowhere."""
    links = [target for target in LINK.findall(text) if ":" not in target]
    there = [f"/{path}" for path in SOURCES]
    lost = [one for one in MODULE.findall(text) if not any(p.endswith(f"/{one}") for p in there)]
    return [target for target in links if not (folder / target).exists()] + lost


def test_links_of_pages_lead_somewhere_and_modules_that_are_named_exist(tmp_path):
    found = {name_of(page): dead_ends(read(page), page.parent) for page in PAGES}
    assert {name: ends for name, ends in found.items() if ends} == {}
    (tmp_path / "there.md").touch()  # negative control
    text = "[a](there.md) [b](gone.md#part) [c](https://example.org/x) `polyattn/errors.py`"
    assert dead_ends(f"{text} `no/errors.py`", tmp_path) == ["gone.md", "no/errors.py"]


@pytest.fixture(scope="module")
def site():
    folder = Path(os.environ.get("SITE", ROOT / "docs" / "_build" / "html"))
    if not (folder / "index.html").is_file():
        pytest.skip("make docs builds the site")
    return folder


# What a browser fetches by itself; links of these kinds are only described.
FETCHED = re.compile("script|img|link|iframe|source|video|audio|object|embed|image")
DESCRIBED = {"canonical", "alternate", "search", "next", "prev", "index", "genindex"}


class Page(HTMLParser):
    """Addresses of a page, those that a browser fetches by itself, places that one can link to."""

    def __init__(self, html):
        super().__init__()
        self.addresses, self.fetched, self.places = [], [], set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = {name: value for name, value in attrs if value is not None}
        own = [given[name] for name in ("href", "src", "data", "poster", "action") if name in given]
        self.addresses += own
        self.places |= {given.get("id"), given.get("name")}
        if FETCHED.fullmatch(tag) and not set(given.get("rel", "").split()) & DESCRIBED:
            self.fetched += own
        self.fetched += re.findall(r"url\(['\"]?([^)'\"]+)", given.get("style", ""))


LOCAL = re.compile(r"file://|\b(?:localhost|127\.0\.0\.1)\b|[\"'(=](?:/home/|/root/|/tmp/|C:\\)")


def faults(folder):
    """All that keeps a folder of pages from being published as it is, by page.

    Addresses that begin at a root or lead out of the folder, to no file or to no place in it, what
    is fetched from elsewhere, and names of places on this machine.
    """
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    found = {}
    for path, page in pages.items():
        wrong = [each for each in page.addresses if leads_nowhere(folder, path, each, pages)]
        wrong += [each for each in page.fetched if re.match(r"(?:[a-z]+:)?//", each)]
        wrong += LOCAL.findall(path.read_text(encoding="utf-8"))
        if wrong:
            found[str(path.relative_to(folder))] = wrong
    return found


def leads_nowhere(folder, page, address, pages):
    parts = urlparse(address)
    if parts.scheme in ("https", "http", "mailto", "data"):
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    outside = parts.scheme or parts.netloc or address.startswith("/")
    if outside or not target.is_relative_to(folder) or not target.is_file():
        return True
    place = unquote(parts.fragment)
    return bool(place) and target in pages and place not in pages[target].places


@pytest.mark.slow
def test_the_site_can_be_published_anywhere_and_fetches_nothing(site):
    assert len(list(site.rglob("*.html"))) > 40
    assert faults(site.resolve()) == {}
    assert (site / ".nojekyll").is_file()
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import\s+)['\"]?(?:[a-z]+:)?//", style.read_text("utf-8"))


def test_a_page_that_cannot_be_published_is_found(tmp_path):
    """Negative control, beside links that are fine."""
    home = tmp_path / "html"
    (home / "sub").mkdir(parents=True)
    (home / "other.html").write_text('<p id="here">x</p>', "utf-8")
    fine = '<a href="other.html#here">a</a><a href="https://a.b/c">b</a><a href="#top" id="top">'
    for bad in (
        "", '<a href="/index.html">', '<a href="missing.html">', '<a href="#nowhere">',
        '<a href="../outside.html">', '<a href="file:///x.html">', '<a href="sub">',
        '<img src="//a.b/i.png">', '<link rel="stylesheet" href="https://a.b/font.css">',
        '<p style="background: url(https://a.b/x.png)">',
    ):  # fmt: skip
        (home / "index.html").write_text(fine + bad, "utf-8")
        assert bool(faults(home)) == bool(bad), bad


def text_of(site, page):
    html = (site / page).read_text(encoding="utf-8")
    article = html[html.index("<article") : html.index("</article>")]
    plain = unescape(re.sub(r"<[^>]+>", "", article))
    return " ".join(re.sub("[\"'“”‘’]", "", plain).split())


@pytest.mark.slow
def test_everything_public_is_documented(site):
    """Each name of a module once, each verb, each outcome of results that are made here."""
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, name: base + name)
    kinds = ("py:function", "py:class", "py:exception", "py:data", "py:module")
    known = [name for kind in kinds for name in inventory.get(kind, {})]
    names = {}
    for path, module in {
        "polyattn": pa, "polyattn.programs.machines": pa.programs.machines,
        **{f"polyattn.{name}": getattr(pa, name) for name in (
            "data", "domains", "heads", "interop", "maps", "programs", "softmax", "solve")},
    }.items():  # fmt: skip
        for name in module.__all__:
            names.setdefault(id(getattr(module, name)), set()).add(f"{path}.{name}")
    counts = {min(each): sum(map(known.count, each)) for each in names.values()}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    shown = text_of(site, "api/command_line.html")
    for name, verb in cli.commands.items():
        for words in (name, *(f"{name} {inner}" for inner in getattr(verb, "commands", {}))):
            assert f"Usage: polyattn {words} " in shown
    outcomes, X = text_of(site, "outcomes.html"), pa.data.planted(40, 4, 2, mode="last").X
    for result in (pa.fit(X, X[:, -1]), pa.fit(X[:2], X[:2, -1]), pa.certify(X), pa.certify(X[:2])):
        assert result.outcome.name in outcomes


@pytest.mark.slow
def test_pages_in_a_browser(site, browser):
    """No console message, no request, pictures present, no horizontal scroll on a phone."""
    # Files of the site lie beside a page or above it; icons of the theme are hidden parts of it.
    fine = (f"request: {site.resolve().as_uri()}/", "picture without size: <svg")
    for page in sorted(site.resolve().rglob("*.html")):
        assert [one for one in check_page(browser, page) if not one.startswith(fine)] == [], page
