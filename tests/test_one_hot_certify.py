"""Certificates of token ids by counts of symbols say what those of dense tokens say."""

import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import polyattn as pa
from polyattn.certify.check.verify import objections
from polyattn.certify.domains import OneHot, Real
from polyattn.certify.one_hot import ranks
from polyattn.certify.one_hot.certificate import OneHotCertificate, UnseenFeatures
from polyattn.certify.one_hot.certify_symbols import certify_symbols
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.features.symbol_counts import QueryGroup, query_groups
from polyattn.sequences import SequenceBatch

EQUAL = (
    "verdict", "verdict_on_real_inputs", "dimension", "n_features", "n_rows", "n_sequences",
    "rank", "method", "structure",
)  # fmt: skip


def ids_of(n_symbols, lengths, seed=0, n_used=None):
    rng = np.random.default_rng(seed)
    return SequenceBatch.from_ids(
        [rng.integers(n_used or n_symbols, size=n) for n in lengths], n_symbols
    )


def assert_alike(batch, mode, domain):
    sparse, dense = (
        certify_symbols(batch, pa.Form(mode=mode), domain),
        pa.certify(batch, mode, domain),
    )
    for name in EQUAL:
        assert getattr(sparse, name) == getattr(dense, name), name
    for name in ("lambda_min", "lambda_max"):
        if getattr(dense, name) is not None:
            assert getattr(sparse, name) == pytest.approx(getattr(dense, name), rel=1e-6)
    if sparse.verdict == "not_identifiable":
        witness = sparse.witness()
        assert witness.difference > 1e-9
        assert witness.training_disagreement == 0.0
        domain.require_inside(SequenceBatch.from_sequences([witness.input]))
        # The direction has no effect on dense features either.
        layer = pa.fit(batch, np.zeros(len(batch))).layer if mode == "last" else None
        if layer is not None:
            both = sparse.witness(layer)
            np.testing.assert_allclose(both.layer_a(batch), both.layer_b(batch), atol=1e-12)
    assert objections(sparse, batch) == []
    return sparse


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_verdicts_are_those_of_dense_tokens(data):
    n_symbols = data.draw(st.integers(1, 4))
    symbol = st.integers(0, data.draw(st.integers(0, n_symbols - 1)))
    longest = data.draw(st.sampled_from([1, 2, 4]))
    lists = st.lists(st.lists(symbol, min_size=1, max_size=longest), min_size=1, max_size=30)
    batch = SequenceBatch.from_ids(data.draw(lists), n_symbols)
    mode = data.draw(st.sampled_from(["last", "causal", "full"]))
    domains = [OneHot(), Real()] + [OneHot(1), Real(1)] * int(batch.lengths.max() == 1)
    assert_alike(batch, mode, data.draw(st.sampled_from(domains)))


@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_every_kind_of_verdict(mode):
    enough, few = ids_of(3, [3] * 60), ids_of(3, [2] * 2)
    assert assert_alike(enough, mode, OneHot()).identifiable
    assert assert_alike(few, mode, OneHot()).method == "count"
    lacking = assert_alike(ids_of(3, [3] * 60, n_used=2), mode, OneHot((2, None)))
    assert lacking.structure.rest == "identifiable"
    assert lacking.structure.queries == lacking.structure.columns == (2,)
    assert assert_alike(enough, mode, Real()).structure.rest == "identifiable"


def test_counts_that_depend_on_each_other():
    # Symbols 0 and 1 always come together, so that only the sum of their coefficients shows.
    rng, rows = np.random.default_rng(0), []
    for _ in range(80):
        others = rng.integers(2, 4, size=rng.integers(1, 4)).tolist()
        rows.append([0, 1] * int(rng.integers(0, 3)) + others)
    rows += [[0, 1, 0], [1, 0, 1]] + [[0, 1, 0, 1, 2, each] for each in (0, 1)]
    batch = SequenceBatch.from_ids(rows, 4)
    found = assert_alike(batch, "last", OneHot())
    assert found.structure.rest == "not_identifiable"
    # Without symbols that never ask nothing is missing, and a null vector has to be found.
    inside = SequenceBatch.from_ids([[0, 1], [1, 0], [1, 1, 0, 0], [0, 0, 1, 1]], 2)
    found = assert_alike(inside, "last", OneHot())
    assert (found.verdict, found.method, found.structure) == ("not_identifiable", "exact", None)
    assert set(map(abs, found.unseen.integers)) == {1}


def test_null_vectors_with_long_entries_are_lifted():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, size=(12, 12))
    counts[:, 11] = counts[:, :11].sum(axis=1)
    group = QueryGroup(0, np.arange(12), np.arange(12), csr_array(counts.astype(float)))
    vector = ranks.null_vector(group)
    assert vector is not None
    assert any(vector)
    assert not np.any(counts.astype(object) @ np.array(vector, dtype=object))
    wide = csr_array(rng.integers(0, 9, size=(9, 12)).astype(float))
    vector = ranks.null_vector(QueryGroup(0, np.arange(9), np.arange(12), wide))
    assert max(map(abs, vector)).bit_length() > 22
    assert not np.any(wide.toarray().astype(int).astype(object) @ np.array(vector, dtype=object))
    full = csr_array(np.eye(3))
    assert ranks.null_vector(QueryGroup(0, np.arange(3), np.arange(3), full)) is None


def test_what_cannot_be_confirmed_is_undecided(monkeypatch):
    batch = SequenceBatch.from_ids([[0, 1], [1, 0], [1, 1, 0, 0], [0, 0, 1, 1]], 2)
    prover = import_module("polyattn.certify.one_hot.certify_symbols")
    monkeypatch.setattr(prover, "null_vector", lambda _: None)
    found = certify_symbols(batch, pa.Form(), OneHot())
    assert found.verdict == "undecided"
    assert "no direction could be confirmed" in found.note
    assert objections(found, batch) == []


def test_many_symbols_are_certified_by_counts():
    batch = ids_of(40, [6] * 300)
    for domain, dimension in (("one_hot", 1600), ("real", 40 * 41 * 20)):
        found = pa.certify(batch, "causal", domain)
        assert isinstance(found, OneHotCertificate)
        assert found.dimension == dimension
        assert not found.identifiable
        assert pa.verify(found, batch)
        assert found.n_occurring == sum(
            len(each.symbols) for some in query_groups(batch, found.form) for each in some
        )
    with pytest.raises(InvalidInput, match=r"see|holds those"):
        _ = replace(pa.certify(ids_of(200, [3] * 5)), evidence=None).direction
    assert not isinstance(pa.certify(ids_of(17, [2] * 5), bias=True), OneHotCertificate)
    with pytest.raises(InvalidInput, match="too many for anything else"):
        pa.certify(ids_of(200, [3] * 5), bias=True)
    with pytest.raises(InvalidInput, match="modes without a bias"):
        certify_symbols(batch, pa.Form(bias=True), OneHot())
    with pytest.raises(InvalidInput, match="has 6 tokens, but the domain"):
        pa.certify(batch, domain=OneHot(2))


def test_data_that_determine_all_pairs_of_many_symbols():
    d = 20
    pairs = [[a, b] for a in range(d) for b in range(d)]
    batch = SequenceBatch.from_ids(pairs, d)
    found = pa.certify(batch, domain="one_hot")
    assert found.identifiable
    assert found.rank == found.dimension == d * d
    assert found.lambda_min > 0
    assert pa.verify(found, batch)
    with pytest.raises(InvalidInput, match="no witness"):
        found.witness()
    # One pair less, and they do not.
    fewer = SequenceBatch.from_ids(pairs[:-2] + pairs[-1:], d)
    lacking = pa.certify(fewer, domain="one_hot")
    assert lacking.unseen == UnseenFeatures(((19, 19, 18),), (1,))
    assert lacking.witness().difference > 0
    for refused in (lacking.bound, lacking.next_data):
        with pytest.raises(InvalidInput, match="dense tokens"):
            refused()


FORGERIES = {
    "verdict": lambda c: replace(c, verdict="identifiable", given_unseen=None, structure=None),
    "rank": lambda c: replace(c, rank=c.rank + 1),
    "dimension": lambda c: replace(c, dimension=c.dimension - 1),
    "n_occurring": lambda c: replace(c, n_occurring=c.n_occurring - 1),
    "n_rows": lambda c: replace(c, n_rows=c.n_rows + 1),
    "digest": lambda c: replace(c, digest="0" * 64),
    "method": lambda c: replace(c, method="gram", prime=None),
    "count": lambda c: replace(c, method="count", prime=None),
    "prime": lambda c: replace(c, prime=10),
    "real": lambda c: replace(c, verdict_on_real_inputs="identifiable"),
    "bias": lambda c: replace(c, bias=True),
    "domain": lambda c: replace(c, domain=OneHot(3)),
    "lambda_max": lambda c: replace(c, lambda_max=2 * c.lambda_max),
    "lambda_min": lambda c: replace(c, lambda_min=0.1),
    "seen": lambda c: replace(c, given_unseen=UnseenFeatures(((0, 0, 0),), (1,))),
    "no effect": lambda c: replace(c, given_unseen=UnseenFeatures(((0, 1, 0),), (1,))),
    "zero": lambda c: replace(c, given_unseen=UnseenFeatures(((19, 19, 19),), (0,))),
    "rest": lambda c: replace(c, structure=replace(c.structure, rest="not_identifiable")),
    "n_zero": lambda c: replace(c, structure=replace(c.structure, n_zero=1)),
    "queries": lambda c: replace(c, structure=replace(c.structure, queries=())),
    "columns": lambda c: replace(c, structure=replace(c.structure, columns=(3,))),
}


@pytest.fixture(scope="module")
def lacking():
    d = 20
    batch = SequenceBatch.from_ids([[a, b] for a in range(d - 1) for b in range(d - 1)], d)
    found = pa.certify(batch, domain="one_hot")
    assert found.structure.rest == "identifiable"
    assert objections(found, batch) == []
    return found, batch


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_claims_are_found(lacking, name):
    certificate, batch = lacking
    assert objections(FORGERIES[name](certificate), batch)


def test_other_data_are_found(lacking):
    certificate, batch = lacking
    assert not pa.verify(certificate, batch[1:])
    assert not pa.verify(certificate, list(batch))
    assert objections(certificate, batch, domain="real")


@pytest.mark.parametrize("domain", ["one_hot", "real"])
def test_documents_hold_the_certificate(tmp_path, domain):
    batch = ids_of(30, [4] * 50)
    found = pa.certify(batch, "causal", domain)
    pa.save(found, tmp_path / "certificate.json")
    same = pa.load(tmp_path / "certificate.json")
    assert isinstance(same, OneHotCertificate)
    assert same.to_dict() == found.to_dict()
    assert same.unseen == found.unseen
    assert pa.verify(same, batch)
    assert same.witness().training_disagreement is None
    document = json.loads((tmp_path / "certificate.json").read_text())
    for name, value in (
        ("rank", 1), ("n_features", 5), ("seal", "0" * 64), ("version", 2), ("mode", "other"),
        ("unseen", {"features": [[0, 0, 99]], "integers": ["1"]}),
        ("unseen", {"features": [[0, 0, 1]], "integers": ["x"]}),
    ):  # fmt: skip
        (tmp_path / "forged.json").write_text(json.dumps(document | {name: value}))
        with pytest.raises(FileFormatError):
            pa.load(tmp_path / "forged.json")


def test_it_describes_itself(tmp_path):
    batch = ids_of(30, [4] * 50)
    found = pa.certify(batch, "causal", "one_hot")
    assert "features that occur" in str(found)
    assert found.to_dict()["n_occurring"] == found.n_occurring
    assert "next_data" not in found.sentence
    found.report(tmp_path / "page.html")
    found.report(tmp_path / "page.html", batch)


def test_the_checker_combines_rows_exactly(monkeypatch):
    checker = import_module("polyattn.certify.check.symbols")
    rng, prime = np.random.default_rng(0), (1 << 22) + 15
    weights = rng.integers(-prime // 2, prime // 2, (9, 40)).astype(float)
    table = rng.integers(0, 3, (40, 7)).astype(float)
    wanted = (weights.astype(int).astype(object) @ table.astype(int).astype(object)) % prime
    for exact in (checker.EXACT, 0.0):
        monkeypatch.setattr(checker, "EXACT", exact)
        found = checker._combinations(weights, table, prime)
        assert np.array_equal(found.astype(int) % prime, wanted.astype(int))
