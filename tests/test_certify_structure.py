"""Features that never occur in the data, or are always multiples of others."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from certified_forms import prompts
from polyattn import domains
from polyattn.certify.check import objections
from polyattn.certify.exact import structure
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.structure import multiples, occurring
from polyattn.form import Form, Layout
from polyattn.sequences import as_batch


def test_prompts_are_decided_and_say_what_never_occurs():
    X, _ = prompts(np.random.default_rng(8))
    certificate = pa.certify(X)
    structure = certificate.structure
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "structure")
    assert (structure.n_zero, structure.rest, structure.queries) == (10, "identifiable", (3,))
    assert certificate.rank == 30
    assert "coordinate 3 of the query is always zero" in certificate.sentence
    assert "all others are determined" in certificate.sentence
    # One entry shows it.
    assert sorted(set(certificate.direction)) == [0, 1]
    assert sum(certificate.direction) == 1
    assert pa.verify(certificate, X)
    assert certificate.witness().training_disagreement == 0.0
    form = Form(include_query=False, mean=True, query=slice(0, 3), value=[3])
    assert pa.certify(X, form=form).identifiable


def test_prompts_are_determined_on_a_domain_of_prompts():
    rng = np.random.default_rng(9)
    X, _ = prompts(rng)
    others, _ = prompts(rng, 20)
    certificate = pa.certify(X, domain=domains.Finite(others))
    assert certificate.identifiable
    assert certificate.verdict_on_real_inputs == "not_identifiable"
    assert pa.verify(certificate, X)
    others[3, -1, -1] = 1.0
    certificate = pa.certify(X, domain=domains.Finite(others))
    assert certificate.verdict == "not_identifiable"
    assert pa.verify(certificate, X)
    drawn = domains.Sampled(lambda rng: prompts(rng, 1)[0][0], 50)
    certificate = pa.certify(X, domain=drawn)
    assert certificate.verdict == "undecided"
    assert "50 samples are determined" in certificate.note


def test_no_others_are_said_to_be_determined_where_there_are_none():
    X, Y = np.zeros((30, 4, 2)), np.ones((30, 1))
    one = pa.certify(np.ones((30, 1, 2)), form=Form(include_query=False))
    for certificate in (pa.certify(X), one, pa.certify(statistics=pa.Moments(2, 1).update(X, Y))):
        assert certificate.structure.n_zero == 6
        assert "others are determined" not in certificate.sentence
        assert "the data say nothing of the layer" in certificate.sentence
    assert "the data show nothing of it" in pa.audit(pa.fit(X, Y), X, Y).sentence


def test_multiples_of_features_are_found_exactly():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((300, 4, 3))
    X[..., 2] = -4.0 * X[..., 1]
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "structure")
    assert (certificate.structure.n_multiples, certificate.structure.rest) == (12, "identifiable")
    assert "12 features are always a multiple of another" in certificate.sentence
    assert len([entry for entry in certificate.direction if entry]) == 2
    assert pa.verify(certificate, X)
    # Nearly a multiple is none.
    X[0, 0, 2] = np.nextafter(X[0, 0, 2], 9.0)
    layout = Layout.plain(3)
    rows = FeatureRows(as_batch(X), np.arange(18), layout)
    assert len(multiples(rows)) < 12
    assert occurring(rows)[0].all()


def test_ordinary_data_are_read_no_further_than_needed(monkeypatch):
    X = np.random.default_rng(11).standard_normal((5000, 3, 3))
    rows = FeatureRows(as_batch(X), np.arange(18), Layout.plain(3))
    read = []
    true = FeatureRows._summary
    monkeypatch.setattr(
        FeatureRows, "_summary", lambda self, *a: read.append(len(a[2])) or true(self, *a)
    )
    assert occurring(rows)[0].all()
    assert sum(read) <= 256


@pytest.mark.parametrize("kind", ["prompts", "multiples"])
@pytest.mark.parametrize("form", [Form(), Form(include_query=False, mean=True, value=[0, 1])])
def test_forged_structures_are_refused(form, kind):
    X = np.random.default_rng(22).standard_normal((300, 4, 3))
    if kind == "prompts":
        X[:, -1, 2] = 0.0
        X[:, :, 1] = 0.0
    else:
        X[..., 2] = -4.0 * X[..., 1]
    certificate = pa.certify(X, form=form)
    structure = certificate.structure
    assert (structure.rest, objections(certificate, X)) == ("identifiable", [])
    n_zero, n_multiples = structure.n_zero, structure.n_multiples
    forgeries = {
        "neither zero nor multiples": [
            {"rest": "not_identifiable"},
            {"n_multiples": 0, "n_zero": 1},
        ],
        "always zero, not": [{"n_zero": n_zero + n_multiples + 1, "n_multiples": 0}],
        "multiples of others, not": [{"n_zero": 0, "n_multiples": n_zero + n_multiples + 1}],
        "of the query": [{"queries": (0,)}, {"queries": (99,)}],
        "attended to are not always zero": [{"columns": (0,)}, {"columns": (99,)}],
    }
    for words, changes in forgeries.items():
        for changed in changes:
            forged = replace(certificate, evidence=None, structure=replace(structure, **changed))
            forged = replace(forged, given_direction=certificate.direction)
            assert any(words in reason for reason in objections(forged, X)), changed


def test_data_that_show_nothing_are_determined_where_nothing_shows():
    X = np.zeros((4, 3, 2))
    certificate = pa.certify(X, domain=domains.Finite(X[:2]))
    assert (certificate.verdict, certificate.rank) == ("identifiable", 0)
    assert pa.verify(certificate, X)
    assert not pa.certify(X, domain=domains.Finite(X[:2] + 1.0)).identifiable


def test_directions_must_show_on_a_custom_domain_even_of_functions():
    X = np.zeros((4, 3, 2))
    certificate = pa.certify(X, form=Form(value=np.abs), domain=domains.Finite(X[:2]))
    assert certificate.identifiable
    forged = replace(certificate, verdict="not_identifiable", given_direction=(1,) * 8)
    assert any("no effect anywhere" in reason for reason in objections(forged, X))


def test_directions_too_long_to_be_checked_are_refused():
    """A multiple of all primes has no residue that shows it."""
    X, _ = prompts(np.random.default_rng(23), 60)
    certificate = pa.certify(X)
    longer = tuple(entry + (1 << (1 << 21)) for entry in certificate.direction)
    (reason,) = objections(replace(certificate, given_direction=longer), X)
    assert "too long" in reason


@pytest.mark.parametrize("n_zeros", [0, 1])
@pytest.mark.parametrize(
    "fields", [{}, {"lags": 3}, {"lags": 5}, {"mode": "full", "include_query": False}]
)
def test_one_sequence_without_zeros_says_what_all_rows_say(fields, n_zeros, monkeypatch):
    layout = Layout.of(pa.Form(**fields), 2)
    X = [np.ones((2, 2)), np.ones((4, 2)), np.zeros((1, 2))]
    X[1][:n_zeros, 0] = 0.0
    rows = FeatureRows(as_batch(X), np.arange(layout.n_features), layout)
    at_once = occurring(rows)
    assert structure._one_sequence_has_all(rows) == (n_zeros == 0 and fields.get("lags") != 5)
    monkeypatch.setattr(structure, "_one_sequence_has_all", lambda _: False)
    for found, expected in zip(at_once, occurring(rows), strict=True):
        assert np.array_equal(found, expected)
