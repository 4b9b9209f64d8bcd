"""The paper map leads somewhere: every symbol imports, every test exists, every citation is in it.

The map is ``docs/paper_map.toml``.
"""

import ast
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAP = tomllib.loads((ROOT / "docs" / "paper_map.toml").read_text(encoding="utf-8"))
FIELDS = {"paper", "statement", "says", "symbols", "tests", "remark"}

CITATION = re.compile(r"\[([a-z]+\d{4}):\s*([^\]]+)\]")
# What is counted in a paper, what is only a place in it, and numbers such as 2.3, A.3 or A.3-A.8.
# Theorems, lemmas and corollaries share one count, so that A.4 is one statement by any name.
KINDS = {"theorem": "theorem", "lemma": "theorem", "corollary": "theorem"}
KINDS |= {"algorithm": "algorithm", "figure": "figure"}
PLACES = ("section", "appendix", "appendices", "eq", "phase", "table", "experiments")
PART = re.compile(
    rf"\b(?P<kind>{'|'.join(KINDS)})s?\b|\b(?P<place>{'|'.join(PLACES)})s?\b"
    r"|(?P<first>(?:[A-Z]\.)?\d+(?:\.\d+)?)(?:\s*[-–]\s*(?P<last>(?:[A-Z]\.)?\d+(?:\.\d+)?))?",
    re.IGNORECASE,
)


def statements(text):
    """The counted statements of a citation: "Lemmas 2.3, A.3-A.5" are four."""
    kind, found = None, set()
    for part in PART.finditer(text):
        if part["kind"] or part["place"]:
            kind = KINDS.get((part["kind"] or "").lower())
        elif kind:
            found |= {(kind, number) for number in numbers(part["first"], part["last"])}
    return found


def numbers(first, last):
    """All numbers of a range that differ in their last part."""
    if last is None:
        return [first]
    stem, _, start = first.rpartition(".")
    end = last.rpartition(".")[2]
    return [f"{stem}.{n}" if stem else str(n) for n in range(int(start), int(end) + 1)]


def citations(text):
    """(paper, statement) of all citations in a text."""
    return {
        (paper, statement)
        for paper, where in CITATION.findall(text)
        for statement in statements(where) or {("paper", "")}
    }


def known(content):
    """All that may be cited: the papers, and the statements of the map."""
    whole = {(paper, ("paper", "")) for paper in content["papers"]}
    return whole.union(
        (entry["paper"], statement)
        for entry in content["statements"]
        for statement in statements(entry["statement"])
    )


def sources():
    """Files that cite: the library and the pages that are written by hand."""
    pages = (ROOT / "docs").rglob("*.md")
    return sorted([
        *(ROOT / "src").rglob("*.py"),
        *(page for page in pages if not {"_build", "gallery"} & set(page.parts)),
    ])  # fmt: skip


def test_names(path):
    """Names of test functions in a file, those in classes included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}


test_names.__test__ = False


def missing_symbols(names):
    """Names that cannot be imported."""
    missing = []
    for name in names:
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError, ValueError):
            missing.append(name)
    return missing


def missing_tests(names):
    """Tests, path::name, that do not exist."""
    missing = []
    for name in names:
        file, _, function = name.partition("::")
        path = ROOT / file
        if (
            not path.is_file()
            or not function.startswith("test_")
            or function not in test_names(path)
        ):
            missing.append(name)
    return missing


def label(entry):
    return f"{entry['paper']}: {entry['statement']}"


@pytest.mark.parametrize("entry", MAP["statements"], ids=label)
def test_an_entry_leads_somewhere(entry):
    assert set(entry) <= FIELDS
    assert entry["paper"] in MAP["papers"]
    assert entry["says"].endswith(".")
    assert entry["symbols"]
    assert entry["tests"]
    assert missing_symbols(entry["symbols"]) == []
    assert missing_tests(entry["tests"]) == []


def test_statements_stand_once():
    labels = [label(entry) for entry in MAP["statements"]]
    assert len(labels) == len(set(labels))
    assert {entry["paper"] for entry in MAP["statements"]} == set(MAP["papers"])


def test_every_citation_is_in_the_map():
    missing = {}
    for path in sources():
        found = citations(path.read_text(encoding="utf-8")) - known(MAP)
        if found:
            missing[str(path.relative_to(ROOT))] = sorted(found)
    assert missing == {}


def test_citations_are_found_at_all():
    """Negative control: the search sees the citations that are known to be there."""
    found = set().union(*(citations(path.read_text(encoding="utf-8")) for path in sources()))
    assert ("yau2024", ("theorem", "A.7")) in found
    assert ("yau2024", ("algorithm", "1")) in found
    assert len(found) > 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[yau2024: Algorithm 1, in its dual form]", {("algorithm", "1")}),
        ("[yau2024: Lemmas 2.3,\nA.3-A.5]", {("theorem", n) for n in ("2.3", "A.3", "A.4", "A.5")}),
        ("[yau2024: section 4.3, figure 4; Lemma C.5]", {("figure", "4"), ("theorem", "C.5")}),
        ("[yau2024: figure 1, 2; eq. 15]", {("figure", "1"), ("figure", "2")}),
        ("[yau2024: experiments]", {("paper", "")}),
        ("[yau2024] Theorem 9", set()),
    ],
)
def test_citations_are_read(text, expected):
    assert citations(text) == {("yau2024", statement) for statement in expected}


def test_a_missing_link_is_found():
    """Negative control for symbols, tests, statements and papers."""
    assert missing_symbols(["polyattn.fit", "polyattn.fits"]) == ["polyattn.fits"]
    assert missing_symbols(["polyattn.nowhere.fit"]) == ["polyattn.nowhere.fit"]
    there = "tests/test_paper_map.py::test_a_missing_link_is_found"
    gone = [
        "tests/test_paper_map.py::test_gone",
        "tests/test_gone.py::test_x",
        "tests/planted.py::",
    ]
    assert missing_tests([there, *gone]) == gone
    assert not citations("[yau2024: Lemma A.99]") <= known(MAP)
    assert not citations("[nobody1999: Lemma 1]") <= known(MAP)
    fewer = MAP | {"statements": [e for e in MAP["statements"] if e["statement"] != "Lemma A.7"]}
    assert not citations("[yau2024: Lemma A.7]") <= known(fewer)
