"""The documentation site: it builds without a warning, nothing is missing, nothing is fetched.

The site is built once, from a copy, without running the gallery: examples run in test_examples.py.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

import polyattn as pa
from browser import check_page
from polyattn.cli.main import cli
from polyattn.outcome import OutcomeSet
from site_links import wrong_links

# One worker takes all of them, so that the site is built once.
pytestmark = pytest.mark.xdist_group("site")

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("docs", "examples", "benchmarks", "README.md")
GUIDES = (
    "fit", "tables", "service", "time_series", "forecast", "tokens", "determined", "forms",
    "certify", "audit", "programs", "softmax", "queries", "weights", "onnx", "files",
    "in_context_learning",
)  # fmt: skip
MODULES = {
    "polyattn": pa,
    "polyattn.data": pa.data,
    "polyattn.domains": pa.domains,
    "polyattn.heads": pa.heads,
    "polyattn.interop": pa.interop,
    "polyattn.maps": pa.maps,
    "polyattn.programs": pa.programs,
    "polyattn.programs.machines": pa.programs.machines,
    "polyattn.softmax": pa.softmax,
    "polyattn.solve": pa.solve,
}
# What a browser fetches by itself, by tag; a link is only followed by people.
FETCHED = {
    "script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src",
    "video": "src", "audio": "src", "object": "data", "embed": "src", "image": "href",
}  # fmt: skip
# Where these say so, an address is described and not fetched.
NOT_FETCHED = {"canonical", "alternate", "search", "next", "prev", "index", "genindex"}
OUTCOME = {
    "name": "yau2024-fig1",
    "title": "A title with *stars* & <signs>",
    "reference": "yau2024, figure 1",
    "claim": "What the paper says, |T| and x_ included.",
    "findings": ["First finding.", "Second finding."],
    "gates": [
        {"claim": "errors are small", "passed": True, "seen": "1e-30"},
        {"claim": "errors are zero", "passed": False, "seen": "1e-30, not 0"},
    ],
    "passed": False,
    "profile": "smoke",
    "seconds": 1.5,
    "surroundings": {"date": "2026-01-02", "numpy": "2.0.0"},
    "rows": [{"heads": 1, "error": 1.23456789e-30, "found": True, "note": None}],
}
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site; one experiment was run, the others were not."""
    home = tmp_path_factory.mktemp("site")
    skip = shutil.ignore_patterns("_build", "gallery", "__pycache__", "real_data")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, home / name, ignore=skip)
        else:
            shutil.copy(source, home / name)
    reproductions = home / "docs" / "reproduction"
    shutil.rmtree(reproductions, ignore_errors=True)
    made = reproductions / OUTCOME["name"]
    made.mkdir(parents=True)
    (made / "table.json").write_text(json.dumps(OUTCOME), encoding="utf-8")
    (made / "table.csv").write_text("heads,error\n1,1e-30\n", encoding="utf-8")
    (made / "figure.png").write_bytes(PIXEL)
    out = home / "html"
    done = subprocess.run(
        [
            sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-D", "plot_gallery=0",
            "-d", str(home / "doctrees"), "-b", "html", str(home / "docs"), str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out


def text_of(site, page):
    """The visible text of a page."""
    html = (site / page).read_text(encoding="utf-8")
    article = html[html.index("<article") : html.index("</article>")]
    plain = re.sub(r"<[^>]+>", "", article)
    for sign, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        plain = plain.replace(sign, character)
    return plain


def documented(site):
    """All names that the API reference describes."""
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, name: base + name)
    kinds = ("py:function", "py:class", "py:exception", "py:data", "py:module")
    return [name for kind in kinds for name in inventory.get(kind, {})]


def names_of(modules):
    """Public objects with all the names that they can be documented under."""
    found = {}
    for path, module in modules.items():
        for name in module.__all__:
            thing = getattr(module, name)
            found.setdefault(id(thing), set()).add(f"{path}.{name}")
    return {min(names): names for names in found.values()}


class Fetched(HTMLParser):
    """Collects what a browser would fetch for a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        address = given.get(FETCHED.get(tag, ""))
        if address and not set((given.get("rel") or "").split()) & NOT_FETCHED:
            self.addresses.append(address)
        self.addresses += re.findall(r"url\(['\"]?([^)'\"]+)", given.get("style") or "")


def fetched(html):
    """Addresses of scripts, styles, pictures and fonts on a page."""
    parser = Fetched()
    parser.feed(html)
    return parser.addresses


def from_elsewhere(addresses):
    return [one for one in addresses if re.match(r"(?:[a-z]+:)?//", one)]


def measuring_scripts():
    """The scripts that the table of all measurements names, one list per row."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = page.split("## All in one table")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [re.findall(r"`(benchmarks/\w+\.py)", row.split("|")[-2]) for row in rows]


@pytest.mark.parametrize("page", [f"guides/{name}.html" for name in GUIDES])
def test_there_is_a_guide(site, page):
    assert len(text_of(site, page)) > 1000


@pytest.mark.parametrize(
    "page",
    [
        "index.html", "notation.html", "guarantees.html", "benchmarks.html", "reproduction.html",
        "derivations/README.html", "decisions/README.html", "gallery/index.html",
        "api/index.html", "search.html",
        "parameters.html", "outcomes.html",
    ],
)  # fmt: skip
def test_there_is_a_page(site, page):
    assert (site / page).is_file()


@pytest.mark.parametrize("folder", ["derivations", "decisions"])
def test_every_page_is_in_the_index_of_its_folder(site, folder):
    pages = {path.stem for path in (ROOT / "docs" / folder).glob("[a-z]*.md")}
    html = (site / folder / "README.html").read_text(encoding="utf-8")
    listed = set(re.findall(r'href="(\w+)\.html"', html[html.index("<article") :]))
    assert pages <= listed


def test_every_example_is_in_the_gallery(site):
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert examples
    assert examples <= {path.stem for path in (site / "gallery").glob("*.html")}


def test_every_public_name_is_documented_once(site):
    known, public = documented(site), names_of(MODULES)
    counts = {name: sum(known.count(one) for one in names) for name, names in public.items()}
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_a_name_that_is_missing_is_found():
    """Negative control: aliases are one thing, and a thing of no page is none."""

    class Module:
        __all__ = ("one", "two")
        one = staticmethod(len)
        two = staticmethod(repr)

    class Other:
        __all__ = ("alias",)
        alias = staticmethod(len)

    assert names_of({"m": Module, "n": Other}) == {
        "m.one": {"m.one", "n.alias"},
        "m.two": {"m.two"},
    }


def test_every_verb_is_documented(site):
    shown = text_of(site, "api/command_line.html")
    for name, verb in cli.commands.items():
        below = getattr(verb, "commands", {})
        for words in (name, *(f"{name} {inner}" for inner in below)):
            assert f"Usage: polyattn {words} " in shown


def test_every_outcome_is_documented(site):
    shown = text_of(site, "outcomes.html")
    # Other tests make sets of their own, for results that there are not.
    real = [each for each in OutcomeSet.all if hasattr(pa, each.result)]
    assert {"FitResult", "LearnedSoftmax"} <= {each.result for each in real}
    for each in real:
        for name, meaning in each.meanings.items():
            assert name in shown
            assert meaning.text in shown


def test_every_row_of_the_readme_names_its_script():
    rows = measuring_scripts()
    assert len(rows) >= 10
    for row in rows:
        assert len(row) == 1
        assert (ROOT / row[0]).is_file()


def test_every_benchmark_is_on_its_page(site):
    shown = text_of(site, "benchmarks.html")
    listed = shown[shown.rindex("All scripts") :]
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        runs = 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
        assert (f"benchmarks/{path.name}" in listed) == runs


def test_nothing_is_fetched_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    found = {
        str(page.relative_to(site)): from_elsewhere(fetched(page.read_text(encoding="utf-8")))
        for page in pages
    }
    assert {page: addresses for page, addresses in found.items() if addresses} == {}
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert from_elsewhere(re.findall(r"url\(['\"]?([^)'\"]+)", text)) == []
        assert from_elsewhere(re.findall(r"@import\s+['\"]([^'\"]+)", text)) == []


def test_everything_that_is_fetched_is_there(site):
    for page in site.rglob("*.html"):
        for address in fetched(page.read_text(encoding="utf-8")):
            if not address.startswith("data:"):
                assert (page.parent / address.split("?")[0].split("#")[0]).exists(), (page, address)


def test_a_request_to_elsewhere_is_found():
    """Negative control."""
    html = '<a href="https://a.b/c">x</a><img src="//a.b/i.png"><script src="s.js"></script>'
    assert from_elsewhere(fetched(html)) == ["//a.b/i.png"]
    font = '<link rel="stylesheet" href="https://a.b/font.css"><p style="background: url(x.png)">'
    assert from_elsewhere(fetched(font)) == ["https://a.b/font.css"]


def test_pages_in_a_browser(site, browser):
    """No console message, no request, pictures present, no horizontal scroll on a phone."""
    # Files of the site lie beside a page or above it; icons of the theme are hidden parts of it.
    fine = (f"request: {site.as_uri()}/", "picture without size: <svg")
    found = {}
    for page in sorted(site.rglob("*.html")):
        complaints = [one for one in check_page(browser, page) if not one.startswith(fine)]
        if complaints:
            found[str(page.relative_to(site))] = complaints
    assert found == {}


def test_a_page_that_is_too_wide_is_found(site, browser):
    """Negative control: the same check, on a page with a line that does not break."""
    page = (site / "index.html").read_text(encoding="utf-8")
    wide = site / "wide.txt.html"
    wide.write_text(page.replace("<h1>", '<p style="width: 900px">x</p><h1>', 1), encoding="utf-8")
    try:
        assert any("too wide" in one for one in check_page(browser, wide))
    finally:
        wide.unlink()


def test_the_folder_can_be_published_anywhere(site):
    """Every link is relative and leads somewhere; what a web server would hide is said to stay."""
    assert wrong_links(site) == {}
    assert (site / ".nojekyll").is_file()
    assert not list(site.rglob("*.doctree"))


def test_notebooks_are_the_examples(site):
    """Examples run in test_examples.py; what is downloaded beside them is the same code."""
    notebooks = {path.stem: path for path in (site / "_downloads").rglob("*.ipynb")}
    scripts = sorted(
        path
        for path in (ROOT / "examples").rglob("*.py")
        if path.parent.name not in ("real_data", "real_layers")
    )
    assert {path.stem for path in scripts} == set(notebooks)
    for script in scripts:
        cells = json.loads(notebooks[script.stem].read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "code")
        _, *statements = ast.parse(script.read_text(encoding="utf-8")).body  # without the docstring
        assert ast.dump(ast.parse(code)) == ast.dump(ast.Module(statements, []))


def test_a_reproduction_is_shown(site):
    shown = text_of(site, f"reproduction/{OUTCOME['name']}.html")
    for part in (OUTCOME["title"], OUTCOME["claim"], *OUTCOME["findings"], "1.235e-30"):
        assert part in shown
    assert "holds" in shown
    assert "FAILS" in shown
    assert "2026-01-02" in shown
    html = (site / "reproduction" / f"{OUTCOME['name']}.html").read_text(encoding="utf-8")
    assert re.search(r'<img alt="A title with [^"]*First finding', html)
    assert re.search(r'href="[^"]*table\.csv"', html)
    assert "1 of 2 gates hold" in text_of(site, "reproduction.html")


def test_a_reproduction_that_was_not_run_says_so(site):
    assert "has not been run yet" in text_of(site, "reproduction/yau2024-fig2.html")
    assert "not run yet" in text_of(site, "reproduction.html")
