"""Definitions and constructions of the first paper, as printed, and the map of all statements.

Here Z has tokens as columns, V_h and Q_h stand on the left, and indices are those of the paper;
docs/derivations/definitions.md says what is corrected.  The map is docs/paper_map.toml: every
numbered statement is in it with a status, symbols that can be imported and tests that exist, and
every citation in the repository is one of them.
"""

import pkgutil
import re
import tomllib
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import oracle
import polyattn as pa

SHAPES = [(1, 1, 1), (2, 3, 2), (3, 1, 2), (3, 4, 1), (4, 2, 3)]  # d, n, H


def problem(d, n, n_heads, seed=0):
    """V_h, Q_h (H, d, d), one sequence Z (d, n), and its outputs (d, n)."""
    rng = np.random.default_rng([seed, d, n])
    V, Q = rng.standard_normal((2, n_heads, d, d))
    Z = rng.standard_normal((d, n))
    return V, Q, Z, oracle.forward_columns(V, Q, Z)


def as_layer(V, Q, mode="last"):
    """The paper's heads as ours: tokens are rows, so matrices are transposed."""
    return pa.LinearAttention(Q.transpose(0, 2, 1), V.transpose(0, 2, 1), mode=mode)


def algorithm_8(Z):
    """The features of the regression, d x d^2 (the page prints d x d); k d + l counts from 0."""
    return np.einsum("js,ks,l->jkl", Z, Z, Z[:, -1]).reshape(len(Z), -1)


def algorithm_2(Z):
    """H(Z): distinct pairs first, then squares, each with every coordinate of the last token."""
    products = [Z[j] @ Z[k] for j, k in paper_pairs(len(Z))]
    return np.outer(products, Z[:, -1]).ravel()


def paper_pairs(d):
    return [*combinations(range(d), 2), *((j, j) for j in range(d))]


def algorithm_1(sequences, targets):
    """V_h and Q_h: regression on all d^2 x d^2 numbers of W, then an SVD of W."""
    d = len(sequences[0])
    rows = [np.kron(np.eye(d)[a], algorithm_8(Z).ravel()) for Z in sequences for a in range(d)]
    W = np.linalg.lstsq(np.array(rows), targets.ravel(), rcond=None)[0]
    A, sizes, B = np.linalg.svd(W.reshape(d * d, d * d))
    kept = sizes > 1e-12 * sizes[0]
    return (A[:, kept] * sizes[kept]).T.reshape(-1, d, d), B[kept].reshape(-1, d, d)


def equations_41_42(V, Q, squares=1):
    """p(Theta), (d, psi) in the order of ``algorithm_2``; ``squares``: how often {j, j} counts."""
    columns = [
        np.einsum("ha,hc->ac", V[:, :, j], Q[:, k]) + np.einsum("ha,hc->ac", V[:, :, k], Q[:, j])
        if j != k
        else squares * np.einsum("ha,hc->ac", V[:, :, j], Q[:, j])
        for j, k in paper_pairs(V.shape[1])
    ]
    return np.concatenate(columns, axis=1)


def reordered(P):
    """Our folded coefficients (e, q, d) in the order of ``algorithm_2``."""
    places = {frozenset(pair): i for i, pair in enumerate(oracle.pairs({}, P.shape[2]))}
    order = [places[frozenset(pair)] for pair in paper_pairs(P.shape[2])]
    return P[:, order].reshape(len(P), -1)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_layer_is_definition_2_1_and_linear_in_the_features_of_algorithms_8_and_2(shape):
    V, Q, Z, Y = problem(*shape)
    d = shape[0]
    np.testing.assert_allclose(as_layer(V, Q, "full")(Z.T), Y.T, atol=1e-11)
    np.testing.assert_allclose(as_layer(V, Q)(Z.T), Y[:, -1], atol=1e-11)  # equation 5
    # Equation 8: <T, X_a> = y_a with T the sum of flatten(V) flatten(Q)^T, d^2 x d^2.
    T = sum(np.outer(v, q) for v, q in zip(V, Q, strict=True)).reshape(d, d, d * d)
    seen = np.einsum("ajm,jm->a", T, algorithm_8(Z))
    np.testing.assert_allclose(seen, Y[:, -1], atol=1e-11)
    # Equations 41 and 42; 19 is for distinct pairs and, read for {j, j}, counts squares twice.
    p, H = equations_41_42(V, Q), algorithm_2(Z)
    np.testing.assert_allclose(p @ H, Y[:, -1], atol=1e-11)
    np.testing.assert_allclose(reordered(as_layer(V, Q).coef), p, atol=1e-13)
    twice = equations_41_42(V, Q, squares=2) @ H
    assert np.abs(twice - Y[:, -1]).max() > 1e-2 * np.abs(Y[:, -1]).max()


@pytest.mark.parametrize(("d", "n_sequences"), [(1, 3), (2, 30), (3, 60), (2, 4)])
def test_algorithm_1_as_printed_is_our_fit(d, n_sequences):
    """On targets of no layer and of one; four sequences are fewer equations than unknowns."""
    rng = np.random.default_rng(d)
    sequences = rng.standard_normal((n_sequences, d, 4))
    targets = rng.standard_normal((n_sequences, d))
    V, Q = algorithm_1(sequences, targets)
    assert len(V) <= d * d
    X, found = sequences.transpose(0, 2, 1), as_layer(V, Q)
    fitted, certificate = pa.fit(X, targets), pa.certify(X)
    away = found(X) - targets
    assert fitted.risk == pytest.approx(np.mean(np.sum(away**2, axis=1)), abs=1e-13)
    np.testing.assert_allclose(fitted.coef, found.coef, atol=1e-11)
    # The features of certificates: psi of them, all seen in enough data, and Lemma A.6: the
    # gradient vanishes at the fit, and the risk is curved in every direction.
    rows = np.array([algorithm_2(Z) for Z in sequences])
    np.testing.assert_allclose(rows.T @ (rows @ reordered(fitted.coef).T - targets), 0.0, atol=1e-9)
    enough = n_sequences >= rows.shape[1]
    assert certificate.verdict == ("identifiable" if enough else "not_identifiable")
    assert certificate.dimension == rows.shape[1]
    if enough:
        smallest = np.linalg.eigvalsh(rows.T @ rows / len(rows))[0]
        assert certificate.lambda_min == pytest.approx(smallest, rel=1e-9)
    # Definitions A.1, A.2: realisable data leave no risk, and identify one function if enough.
    refitted = pa.fit(X, found(X))
    assert refitted.risk <= 1e-24 * np.mean(found(X) ** 2)
    assert pa.same_function(refitted.layer, found, 1e-9) or not enough


def test_corollary_2_4_other_heads_with_the_same_p_are_the_same_function_and_no_others():
    V, Q, _, _ = problem(3, 4, 2)
    rng = np.random.default_rng(1)
    mixing = rng.standard_normal((2, 2))
    mixed_V = np.einsum("gh,hij->gij", mixing, V)
    mixed_Q = np.einsum("gh,hij->gij", np.linalg.inv(mixing).T, Q)
    np.testing.assert_allclose(equations_41_42(mixed_V, mixed_Q), equations_41_42(V, Q), atol=1e-12)
    one, other, X = as_layer(V, Q), as_layer(mixed_V, mixed_Q), rng.standard_normal((20, 4, 3))
    assert pa.same_function(one, other)
    np.testing.assert_allclose(one(X), other(X), atol=1e-10)
    # <z_1, z_2> z_1n and <z_1, z_1> z_2n are two features, and one monomial if n = 1.
    heads = np.zeros((2, 2, 1, 2, 2))
    heads[:, 0, 0, 0, 0] = heads[0, 1, 0, 1, 0] = heads[1, 1, 0, 0, 1] = 1.0
    first, second = (as_layer(*each) for each in heads)
    alone = rng.standard_normal((50, 1, 2))
    np.testing.assert_allclose(first(alone), second(alone), atol=1e-12)
    assert not pa.same_function(first, second)
    assert pa.coefficient_distance(first, second) == pytest.approx(np.sqrt(2))


ROOT = Path(__file__).resolve().parent.parent
MAP = tomllib.loads((ROOT / "docs" / "paper_map.toml").read_text(encoding="utf-8"))
FIELDS = {"paper", "statement", "says", "status", "symbols", "tests", "remark"}

# All that is numbered in the first paper, and what the second is made of.
NUMBERED = (
    "Theorems 2.1-2.4, 3.1, A.1-A.8, B.1, C.1-C.5, E.1-E.2, F.1-F.3, G.1-G.2, Algorithms 1-8, "
    "Figures 1-4"
)
PARTS = (
    *(f"Phase {number}" for number in range(1, 7)), "Non-degeneracy", "The main theorem",
    "The lower bound for statistical queries", "The cryptographic lower bound",
)  # fmt: skip

CITATION = re.compile(r"\[([a-z]+\d{4}):\s*([^\]]+)\]")
# What is counted in a paper, and numbers such as 2.3, A.3 or A.3-A.8; theorems, lemmas, corollaries
# and definitions share one count.
KINDS = dict.fromkeys(("theorem", "lemma", "corollary", "definition"), "theorem")
KINDS |= {"corollarie": "theorem", "algorithm": "algorithm", "figure": "figure"}
PART = re.compile(
    r"(?P<word>eq|[a-z]{4,})"
    r"|(?P<first>(?:[A-Z]\.)?\d+(?:\.\d+)?)(?:\s*[-–]\s*(?P<last>(?:[A-Z]\.)?\d+(?:\.\d+)?))?",
    re.IGNORECASE,
)


def statements(text):
    """The counted statements of a citation: "Lemmas 2.3, A.3-A.5" are four."""
    kind, found = None, set()
    for part in PART.finditer(text):
        if part["word"]:  # any other is only a place in a paper
            kind = KINDS.get(part["word"].lower().removesuffix("s"))
        elif kind:
            stem, _, start = part["first"].rpartition(".")
            end = (part["last"] or part["first"]).rpartition(".")[2]
            numbers = range(int(start), int(end) + 1)
            found |= {(kind, f"{stem}.{n}" if stem else str(n)) for n in numbers}
    return found


def citations(text):
    """(paper, statement) of all citations in a text."""
    return {
        (paper, statement)
        for paper, where in CITATION.findall(text)
        for statement in statements(where) or {("paper", "")}
    }


def known(entries):
    """All that may be cited: the papers, and the statements of the map."""
    found = {(paper, ("paper", "")) for paper in MAP["papers"]}
    return found | {(e["paper"], one) for e in entries for one in statements(e["statement"])}


def faults(entry):
    """What is wrong with an entry of the map: fields, symbols that are not there, tests neither."""
    found = [name for name in entry if name not in FIELDS]
    if entry["status"] not in ("as printed", "corrected", "ours instead"):
        found.append(entry["status"])
    if entry["status"] != "as printed" and not entry.get("remark", "").endswith("."):
        found.append("remark")
    if not (entry["says"].endswith(".") and entry["symbols"] and entry["tests"]):
        found.append("empty")
    for name in entry["symbols"]:
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError, ValueError):
            found.append(name)
    for name in entry["tests"]:
        file, _, function = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else ""
        if not re.search(rf"^def {function}\(", text, re.MULTILINE):
            found.append(name)
    return found


def test_every_entry_of_the_map_leads_somewhere():
    found = {f"{e['paper']}: {e['statement']}": faults(e) for e in MAP["statements"]}
    assert len(found) == len(MAP["statements"])  # each stands once
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    # Negative control.
    bad = {"symbols": ["polyattn.fits"], "tests": ["tests/test_papers.py::test_x", "tests/x.py::"]}
    bad |= {"status": "corrected", "remark": ""}
    assert len(faults(MAP["statements"][0] | bad)) == 4


def test_the_papers_are_mapped_number_by_number_and_every_citation_is_in_the_map():
    entries = MAP["statements"]
    own = [e["statement"] for e in entries if e["paper"] == "yau2024"]
    counts = Counter(one for name in own for one in statements(name))
    assert counts == dict.fromkeys(statements(NUMBERED), 1)
    assert len(counts) == 26 + 8 + 4
    second = [e["statement"] for e in entries if e["paper"] == "chen2024"]
    assert [sum(name.startswith(part) for name in second) for part in PARTS] == [1] * len(PARTS)
    pages = (ROOT / "docs").rglob("*.md")
    pages = [page for page in pages if not {"_build", "gallery"} & set(page.parts)]
    found = set()
    for path in [*(ROOT / "src").rglob("*.py"), *pages]:
        found |= citations(path.read_text(encoding="utf-8"))
    assert found - known(entries) == set()
    # Negative control: the search sees the citations that are known to be there.
    assert {("yau2024", ("theorem", "A.7")), ("yau2024", ("algorithm", "1"))} <= found
    fewer = [e for e in entries if "A.7" not in e["statement"]]
    assert ("yau2024", ("theorem", "A.7")) not in known(fewer)
