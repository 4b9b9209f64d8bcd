"""All results keep the same promises: an outcome, text, plain data, a card, a page, a file."""

import json
import re
from typing import get_args

import numpy as np
import pytest

import polyattn as pa
from polyattn import storage
from polyattn.auditing.result import AUDIT_OUTCOMES, AuditName
from polyattn.certify.one_hot.certificate import OneHotCertificate
from polyattn.certify.outcomes import CERTIFICATE_OUTCOMES, Verdict
from polyattn.display import Described, Description, Result
from polyattn.fitting.curve_result import CURVE_OUTCOMES, CurveName
from polyattn.fitting.forecasting.result import FORECAST_OUTCOMES, ForecastName
from polyattn.fitting.outcomes import FIT_OUTCOMES, FitName
from polyattn.outcome import Outcome, OutcomeSet
from polyattn.programs.certificates.outcomes import PROGRAM_CERTIFICATE_OUTCOMES
from polyattn.programs.certificates.outcomes import Verdict as ProgramVerdict
from polyattn.programs.learning.coefficients.outcomes import COEFFICIENTS_OUTCOMES, CoefficientsName
from polyattn.programs.learning.rules.outcomes import RULES_OUTCOMES, RulesName
from polyattn.softmax.outcomes import SOFTMAX_OUTCOMES, SoftmaxName
from polyattn.softmax.queries.outcomes import QUERY_OUTCOMES, QueryName
from rotary_cases import random_rotary

RNG = np.random.default_rng(0)
SOFTMAX = pa.data.random_softmax_layer(3, n_heads=2, random_state=1)
X = RNG.standard_normal((60, 4, 2))
LAYER = pa.data.random_layer(2, 2, mode="last")
Y = LAYER(X) + 0.1 * RNG.standard_normal((60, 2))

IDS = pa.SequenceBatch.from_ids(RNG.integers(5, size=(60, 4)), 5)
MANY = pa.SequenceBatch.from_ids(RNG.integers(20, size=(60, 4)), 20)

SOFT = pa.data.planted_softmax(60, 3, 2, n_heads=1, random_state=0)

P = pa.programs
MEMORY = P.associative_memory(2, 2)
TRACES = P.traces(MEMORY, 9)

# Of each kind of result: how to make some, its outcomes, and the type of their names.
RESULTS = {
    "fit": (lambda: pa.fit(X, Y), FIT_OUTCOMES, FitName),
    "fit of few rows": (lambda: pa.fit(X[:3], Y[:3]), FIT_OUTCOMES, FitName),
    "fit by a rule": (lambda: pa.fit(X, Y, ridge="loo"), FIT_OUTCOMES, FitName),
    "fit of token ids": (
        lambda: pa.fit(IDS, Y, solver="one_hot"),
        FIT_OUTCOMES,
        FitName,
    ),
    "fit of one head": (lambda: pa.fit(X, Y, n_heads=1), FIT_OUTCOMES, FitName),
    "learning curve": (lambda: pa.learning_curve(X, Y), CURVE_OUTCOMES, CurveName),
    "learning curve to the peak": (
        lambda: pa.learning_curve(X, Y, [2, 12], n_repeats=3),
        CURVE_OUTCOMES,
        CurveName,
    ),
    "forecast": (lambda: pa.forecast(LAYER, X[:2] / 9, 3), FORECAST_OUTCOMES, ForecastName),
    "forecast that diverges": (
        lambda: pa.forecast(pa.LinearAttention([[1.0]], [[1.0]]), np.full((1, 3, 1), 1.5), 9),
        FORECAST_OUTCOMES,
        ForecastName,
    ),
    "certificate": (lambda: pa.certify(X), CERTIFICATE_OUTCOMES, Verdict),
    "certificate of few rows": (lambda: pa.certify(X[:3]), CERTIFICATE_OUTCOMES, Verdict),
    "certificate of token ids": (lambda: pa.certify(MANY), CERTIFICATE_OUTCOMES, Verdict),
    "queries": (lambda: pa.learn_from_queries(SOFTMAX, 3), QUERY_OUTCOMES, QueryName),
    "few queries": (
        lambda: pa.learn_from_queries(SOFTMAX, 3, max_queries=2),
        QUERY_OUTCOMES,
        QueryName,
    ),
    "audit": (lambda: pa.audit(LAYER, X, Y), AUDIT_OUTCOMES, AuditName),
    "audit of the optimum": (lambda: pa.audit(pa.fit(X, Y), X, Y), AUDIT_OUTCOMES, AuditName),
    "audit of a black box": (lambda: pa.audit(lambda _: Y, X, Y), AUDIT_OUTCOMES, AuditName),
    "audit of few rows": (lambda: pa.audit(LAYER, X[:3], Y[:3]), AUDIT_OUTCOMES, AuditName),
    "softmax": (lambda: pa.learn_softmax(SOFT.X, SOFT.Y), SOFTMAX_OUTCOMES, SoftmaxName),
    "learned rules": (lambda: P.learn(MEMORY.schema, TRACES), RULES_OUTCOMES, RulesName),
    "learned coefficients": (
        lambda: P.learn(MEMORY.schema, TRACES, "coefficients"),
        COEFFICIENTS_OUTCOMES,
        CoefficientsName,
    ),
    "certificate of a program": (
        lambda: P.learn(MEMORY.schema, TRACES).certificate,
        PROGRAM_CERTIFICATE_OUTCOMES,
        ProgramVerdict,
    ),
}

# Described, but nothing happened to them.
THINGS = {
    "layer": lambda: LAYER,
    "wide layer": lambda: pa.data.random_layer(20),
    "softmax layer": lambda: pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), bias=True),
    "softmax layer with positions": random_rotary,
    "moments": lambda: pa.Moments(2).update(X),
    "program": lambda: P.compile(MEMORY),
    "factor": lambda: pa.TriangularFactor(2, 2).update(X, Y),
}

ALL = {name: make for name, (make, *_) in RESULTS.items()} | THINGS


@pytest.fixture(scope="module")
def made():
    """Every thing, made once."""
    return {name: make() for name, make in ALL.items()}


@pytest.mark.parametrize("name", RESULTS)
def test_the_outcome_is_one_of_a_typed_set(name, made):
    _, outcomes, names = RESULTS[name]
    result = made[name]
    assert isinstance(result, Result)
    assert isinstance(outcomes, OutcomeSet)
    assert outcomes.names == get_args(names)
    # A result of token ids is one of its kind, and has the same outcomes.
    assert outcomes.result in {kind.__name__ for kind in type(result).__mro__}
    outcome = result.outcome
    assert isinstance(outcome, Outcome)
    assert outcome == outcomes(outcome.name, outcome.sentence, outcome.next_step)
    assert outcome.ok is outcomes.meanings[outcome.name].ok


@pytest.mark.parametrize("name", RESULTS)
def test_what_is_not_ok_is_a_doubt(name, made):
    described, outcome = made[name].describe(), made[name].outcome
    assert outcome.ok or described.doubts
    assert described.outcome == outcome.name
    assert described.statement.startswith(outcome.sentence)
    assert outcome.next_step in described.statement


@pytest.mark.parametrize("name", ALL)
def test_text_is_a_few_readable_lines(name, made):
    text = str(made[name])
    lines = text.splitlines()
    assert 1 <= len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert_readable(text)
    assert str(made[name].describe()) == text


def assert_readable(text):
    """No dumped arrays, and no number with more digits than one reads."""
    assert "array(" not in text
    assert "[[" not in text
    assert not re.search(r"\d\.\d{10}", text), text


def test_unreadable_text_is_found():
    """Negative control."""
    for text in ("array([1.0])", "[[1, 2]]", "risk 0.026277501662502"):
        with pytest.raises(AssertionError):
            assert_readable(text)


@pytest.mark.parametrize("name", ALL)
def test_plain_data_are_json_without_arrays(name, made):
    thing = made[name]
    content = thing.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert len(json.dumps(content)) < 5000
    if isinstance(thing, Result):
        assert content["outcome"] == thing.outcome.to_dict()
    described = thing.describe()
    assert set(content) >= set(described.facts) | set(described.sizes)
    assert isinstance(content["kind"], str)
    whole = json.loads(json.dumps(thing.to_full_dict(), allow_nan=False))
    for field, array in thing.arrays().items():
        np.testing.assert_array_equal(np.array(whole[field]), array)


@pytest.mark.parametrize("name", ALL)
def test_cards_say_what_it_is(name, made):
    card = made[name]._repr_html_()
    assert type(made[name]).__name__ in card
    doubt, fine = "#b3541e" in card, "#0b6e4f" in card
    assert (doubt, fine) == ((True, False) if made[name].describe().doubts else (False, True))


@pytest.mark.parametrize("name", RESULTS)
def test_a_page_is_written(name, made, tmp_path):
    made[name].report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    described = made[name].describe()
    assert f"<title>{described.title}</title>" in page
    assert described.lead in page


@pytest.mark.parametrize("name", ALL)
def test_files_give_back_the_same(name, made, tmp_path):
    thing = made[name]
    pa.save(thing, tmp_path / "thing")
    loaded = pa.load(tmp_path / "thing")
    assert type(loaded) is type(thing)
    assert isinstance(loaded, Described)
    assert str(loaded) == str(thing)
    assert loaded.to_dict() == thing.to_dict()


def test_every_kind_that_can_be_saved_is_walked_through(made):
    kinds = {*storage.KINDS.values(), pa.Certificate, OneHotCertificate}
    assert {type(thing) for thing in made.values()} == kinds


def test_describing_and_saving_a_fit_start_no_search(tmp_path, monkeypatch):
    result = pa.fit(X, Y, solver="dual")
    monkeypatch.setattr("polyattn.fitting.result.compress", pytest.fail)
    str(result), repr(result), result.to_dict(), result.to_full_dict(), result._repr_html_()
    pa.save(result, tmp_path / "fit.safetensors")
    loaded = pa.load(tmp_path / "fit.safetensors")
    assert loaded.found_heads is None
    assert "Looked for when layer is asked for" in str(loaded)
    monkeypatch.undo()
    # The same search by the same data: what they are judged by was stored, too.
    assert loaded.layer == result.layer
    assert loaded.heads.sentence == result.heads.sentence
    pa.save(result, tmp_path / "fit.safetensors")
    assert pa.load(tmp_path / "fit.safetensors").found_heads.n_heads == result.heads.n_heads


def test_no_risk_of_a_fit_with_a_ridge_is_called_optimal(tmp_path):
    """The least risk of any layer is smaller, and bounds by the other would be too small."""
    task = pa.data.planted(100, 5, 2, n_heads=1, mode="last", noise=0.01, random_state=0)
    free, shrunk = pa.fit(task.X, task.Y), pa.fit(task.X, task.Y, ridge=1e4)
    assert shrunk.optimal_risk > 2 * pa.audit(shrunk, task.X, task.Y).optimal_risk
    for result, is_least in ((free, True), (shrunk, False)):
        result.report(tmp_path / "page.html")
        for shown in (str(result), (tmp_path / "page.html").read_text(), result._repr_html_()):
            assert ("optimal risk" in shown) == is_least
            assert ("risk with this ridge and any heads" in shown) != is_least
        assert "optimal_risk" in result.to_dict()


def test_heads_are_printed_without_their_matrices():
    heads = pa.fit(X, Y, n_heads=1).heads
    assert " ".join(str(heads).split()).startswith(heads.sentence)
    assert "head  size" in str(heads)
    assert "array(" not in str(heads)
    assert_readable(repr(heads))


def test_a_loaded_audit_says_that_bounds_need_the_data(tmp_path):
    audit = pa.audit(LAYER, X, Y)
    assert np.all(np.isfinite(audit.implied.bound(X)))
    pa.save(audit, tmp_path / "audit.safetensors")
    loaded = pa.load(tmp_path / "audit.safetensors")
    assert loaded.implied.distance == audit.implied.distance
    assert loaded.certificate.sentence == audit.certificate.sentence
    assert pa.verify(loaded.certificate, X)
    with pytest.raises(pa.errors.InvalidInput, match="needs the data behind the certificate"):
        loaded.implied.bound(X)


def test_long_sentences_and_values_are_wrapped_and_numbers_stay_whole():
    words = " ".join(["word", "1.5e-15"] * 40)
    lines = str(Description("A thing", "About", words, facts={"said": words, "n": 3})).splitlines()
    assert max(map(len, lines)) <= 100
    assert not any(line.rstrip().endswith(("1.5e-", "1.5e")) for line in lines)
    assert " ".join(" ".join(lines).split()).count("1.5e-15") == 80


def test_figures_that_are_not_finite_are_null():
    class Thing(Described):
        def describe(self):
            return Description("A thing", "About", facts={"a": np.inf, "b": [np.nan, np.int64(1)]})

    assert Thing().to_dict() == {"kind": "Thing", "a": None, "b": [None, 1]}
