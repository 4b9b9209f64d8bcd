"""The paper map is whole and leads somewhere.

Every numbered statement of the first paper and every phase and bound of the second is in it, with
a status; every symbol imports, every test exists and asserts something about the symbols, and
every citation is in the map.  The map is ``docs/paper_map.toml``.
"""

import ast
import pkgutil
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from asserted_symbols import Search, Source, asserts_about

ROOT = Path(__file__).resolve().parent.parent
MAP = tomllib.loads((ROOT / "docs" / "paper_map.toml").read_text(encoding="utf-8"))
FIELDS = {"paper", "statement", "says", "status", "symbols", "tests", "remark"}

# What ours is beside the statement; all but the first must say how or why.
STATUSES = ("as printed", "corrected", "ours instead")

# All that is numbered in the first paper, by kind.
NUMBERED = {
    "theorem": """
        2.1 2.2 2.3 2.4 3.1 A.1 A.2 A.3 A.4 A.5 A.6 A.7 A.8 B.1 C.1 C.2 C.3 C.4 C.5 E.1 E.2 F.1
        F.2 F.3 G.1 G.2
    """,
    "algorithm": "1 2 3 4 5 6 7 8",
    "figure": "1 2 3 4",
}

# What the second paper is made of.
PARTS = (
    *(f"Phase {number}" for number in range(1, 7)),
    "Non-degeneracy",
    "The main theorem",
    "The lower bound for statistical queries",
    "The cryptographic lower bound",
)

CITATION = re.compile(r"\[([a-z]+\d{4}):\s*([^\]]+)\]")
# What is counted in a paper, what is only a place in it, and numbers such as 2.3, A.3 or A.3-A.8.
# Theorems, lemmas, corollaries and definitions share one count, so that A.4 is one statement by
# any name.
KINDS = dict.fromkeys(("theorem", "lemma", "corollary", "definition"), "theorem")
KINDS |= {"corollarie": "theorem", "algorithm": "algorithm", "figure": "figure"}
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
    assert entry["status"] in STATUSES
    if entry["status"] != "as printed":
        assert entry["remark"].endswith(".")


@pytest.mark.parametrize("entry", MAP["statements"], ids=label)
def test_what_an_entry_names_is_tested(entry):
    """Each symbol by one of the tests, and each test is about one of the symbols."""
    symbols, tests = entry["symbols"], entry["tests"]
    about = {(s, t) for s in symbols for t in tests if asserts_about(t, s)}
    assert [symbol for symbol in symbols if symbol not in {s for s, _ in about}] == []
    assert [test for test in tests if test not in {t for _, t in about}] == []


def test_statements_stand_once():
    labels = [label(entry) for entry in MAP["statements"]]
    assert len(labels) == len(set(labels))
    assert {entry["paper"] for entry in MAP["statements"]} == set(MAP["papers"])


def test_the_first_paper_is_mapped_number_by_number():
    expected = {(kind, one) for kind, numbers in NUMBERED.items() for one in numbers.split()}
    mapped = Counter(
        one
        for entry in MAP["statements"]
        if entry["paper"] == "yau2024"
        for one in statements(entry["statement"])
    )
    assert set(mapped) == expected
    assert {one for one, count in mapped.items() if count > 1} == set()


def test_the_second_paper_is_mapped_part_by_part():
    names = [entry["statement"] for entry in MAP["statements"] if entry["paper"] == "chen2024"]
    for part in PARTS:
        assert len([name for name in names if name.startswith(part)]) == 1, part


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
    fewer = MAP | {"statements": [e for e in MAP["statements"] if "A.7" not in e["statement"]]}
    assert not citations("[yau2024: Lemma A.7]") <= known(fewer)


ABOUT_FIT = """
import numpy as np
import pytest
import polyattn as pa
from polyattn.fitting.fit import fit as least_squares

EXACT = pa.fit(X, Y)

@pytest.fixture
def fitted():
    return pa.fit(X, Y)

def error(X):
    return least_squares(X).risk

def check(value):
    assert value > 0

def test_directly(): assert pa.fit(X).risk == 0
def test_under_another_name(): assert least_squares(X).risk == 0
def test_through_values():
    result = pa.fit(X)
    risks = []
    for row in result.rows: risks.append(row.risk)
    assert max(risks) == 0
def test_through_a_helper(): assert error(X) == 0
def test_through_a_fixture(fitted): assert fitted.risk == 0
def test_through_a_constant(): assert EXACT.risk == 0
@pytest.mark.parametrize("found, other", [(EXACT, 1)])
def test_through_parameters(found, other): assert found.risk == 0
def test_by_an_error():
    with pytest.raises(ValueError):
        pa.fit(None)
def test_by_an_assertion_elsewhere(): check(pa.fit(X).risk)
def test_by_numpy(): np.testing.assert_allclose(pa.fit(X).coef, 0)

def test_never_asserted():
    result = pa.fit(X)
    assert True
def test_about_another(): assert pa.certify(X).verdict == "identifiable"
def test_a_word_alone(): assert "fit" == "pa.fit"
def test_another_fit(model): assert model.fit(X).risk == 0
@pytest.mark.parametrize("found, other", [(EXACT, 1)])
def test_the_other_name(clock): assert clock == 1
"""


def test_assertions_about_a_symbol_are_told_from_others(tmp_path):
    """Negative control: naming a symbol, or asserting something else, does not count."""
    path = tmp_path / "test_fit.py"
    path.write_text(ABOUT_FIT, encoding="utf-8")
    source = Source(path)
    tests = [name for name in source.functions if name.startswith("test_")]
    about = {
        symbol: [name for name in tests if Search(symbol).asserts(source, source.functions[name])]
        for symbol in ("polyattn.fit", "polyattn.FitResult.coef")
    }
    assert about["polyattn.fit"] == tests[:10]
    assert about["polyattn.FitResult.coef"] == ["test_by_numpy"]
