"""What ``learn`` returns and its certificates as results: outcomes, words, pages, files."""

import json
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

import polyattn as pa
from polyattn.programs.certificates.outcomes import PROGRAM_CERTIFICATE_OUTCOMES, Verdict
from polyattn.programs.learning.coefficients.outcomes import (
    COEFFICIENTS_OUTCOMES,
    CoefficientsName,
)
from polyattn.programs.learning.rules.outcomes import RULES_OUTCOMES, RulesName
from polyattn.programs.library import ENCODINGS, PROGRAMS, LibraryEncoding, show_run

P = pa.programs
MEMORY, DFA = P.associative_memory(3, 3), P.universal_dfa(2, 2, 2, style="one_hot")


def memory_traces(n_traces=12, seed=0):
    return P.traces(MEMORY, n_traces, random_state=seed)


@pytest.fixture(scope="module")
def learned():
    dfa = P.traces(DFA, 200, random_state=0)
    mixed = [*memory_traces(8), *P.traces(P.associative_memory(4, 2), 6, random_state=1)]
    return {
        "rules": P.learn(MEMORY.schema, memory_traces()),
        "rules of two sizes": P.learn(MEMORY.schema, mixed),
        "untested rules": P.learn(MEMORY.schema, memory_traces(2)),
        "noisy rules": P.learn(
            MEMORY.schema, pa.data.with_wrong_labels(memory_traces(20), flips=0.1)
        ),
        "coefficients": P.learn(MEMORY.schema, memory_traces(150), "coefficients"),
        "repaired": P.learn(DFA.schema, pa.data.with_wrong_labels(dfa, flips=0.05), "coefficients"),
        "penalised": P.learn(DFA.schema, dfa[:20], "coefficients", ridge=0.1),
    }


NAMES = [
    "rules", "rules of two sizes", "untested rules", "noisy rules", "coefficients", "repaired",
    "penalised",
]  # fmt: skip


def runs(program, n_runs=8):
    rng = np.random.default_rng(3)
    drawn = [program.schema.encoding.sample(rng) for _ in range(n_runs)]
    found = []
    for given, options in drawn:
        try:
            found.append(program.run(*given, **options))
        except pa.errors.PolyattnError as error:
            found.append(str(error))
        found.append(str(program.run(*given, abstain=True, **options)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_learned_program_is_the_same_after_saving(learned, name, tmp_path):
    first = learned[name]
    pa.save(first, tmp_path / "p")
    second = pa.load(tmp_path / "p")
    assert type(second) is type(first)
    assert second.to_dict() == first.to_dict()
    assert list(map(str, second.terms)) == list(map(str, first.terms))
    assert runs(second) == runs(first)
    assert second.certificate == first.certificate
    fresh = P.traces(MEMORY if first.n_dims == MEMORY.schema.n_dims else DFA, 60, random_state=9)
    assert second.certify(fresh=fresh) == first.certify(fresh=fresh)
    for one, other in zip(first.traces, second.traces, strict=True):
        assert (one.cut, one.schema) == (other.cut, other.schema)
        np.testing.assert_array_equal(one.targets, other.targets)
    one, other = first.to_record(), second.to_record()
    assert json.dumps(one.metadata) == json.dumps(other.metadata)
    assert (one.kind, set(one.arrays)) == (other.kind, set(other.arrays))


def test_rules_are_resized_before_and_after_saving(learned, tmp_path):
    first = learned["rules of two sizes"]
    pa.save(first, tmp_path / "p")
    pa.save(first.resize(n_keys=6, n_values=5), tmp_path / "larger")
    larger = pa.load(tmp_path / "p").resize(n_keys=6, n_values=5)
    for each in (larger, pa.load(tmp_path / "larger")):
        assert runs(each) == runs(first.resize(n_keys=6, n_values=5))
        assert each.run({4: 4, 5: 0}, 4) == 4


def test_coefficients_prove_the_same_after_saving(learned, tmp_path):
    pa.save(learned["coefficients"], tmp_path / "p")
    domain = list(P.all_traces(MEMORY))
    found = pa.load(tmp_path / "p").certify(domain=domain, exact=True)
    assert found == learned["coefficients"].certify(domain=domain, exact=True)
    assert found.proved


@pytest.mark.parametrize("name", NAMES)
def test_a_learned_program_describes_itself(learned, name, tmp_path):
    found = learned[name]
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["kind"] == found.to_record().kind
    assert plain["outcome"]["name"] == found.outcome.name
    assert (
        plain["outcome"]["ok"] == found.succeeded == (name.split()[0] in ("rules", "coefficients"))
    )
    assert (plain["method"], plain["n_traces"]) == (found.method, found.n_traces)
    assert found.outcome.sentence[:30] in str(found)
    assert max(map(len, str(found).splitlines())) <= 100
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "A run, step by step" in page
    assert "<" in found._repr_html_()


def test_the_outcomes_are_those_of_their_types():
    for outcomes, names in (
        (RULES_OUTCOMES, RulesName),
        (COEFFICIENTS_OUTCOMES, CoefficientsName),
        (PROGRAM_CERTIFICATE_OUTCOMES, Verdict),
    ):
        assert outcomes.names == get_args(names)
        assert [name for name, each in outcomes.meanings.items() if each.ok] == [outcomes.names[0]]


@pytest.mark.parametrize("how", ["training", "fresh", "outside", "few", "exhaustive"])
def test_certificates_are_the_same_after_saving(learned, how, tmp_path):
    coefficients = learned["coefficients"]
    found = {
        "training": lambda: coefficients.certificate,
        "fresh": lambda: coefficients.certify(fresh=memory_traces(80, seed=5), exact=True),
        "outside": lambda: learned["penalised"].certify(fresh=P.traces(DFA, 80, random_state=5)),
        "few": lambda: coefficients.certify(fresh=memory_traces(5, seed=5)),
        "exhaustive": lambda: coefficients.certify(domain=P.all_traces(MEMORY), exact=True),
    }[how]()
    pa.save(found, tmp_path / "c")
    assert pa.load(tmp_path / "c") == found
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["outcome"] == found.outcome.to_dict()
    assert found.outcome.name == found.verdict == plain["verdict"]
    assert found.outcome.ok == (how in ("fresh", "exhaustive"))
    assert found.sentence == str(found.outcome)
    assert found.outcome.sentence in " ".join(str(found).split())
    found.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "What the traces determine" in page
    assert f"{found.n_traces} training traces" in page


def test_an_undecided_domain_is_not_called_determined(learned):
    known = learned["coefficients"].certify(domain=P.all_traces(MEMORY), exact=True)
    undecided = replace(known, verdict="undecided", proved=False)
    assert not undecided.outcome.ok
    assert "agrees with every other" not in undecided.sentence
    assert "not found out" in undecided.sentence


def test_a_ridge_of_zero_on_contradicting_labels_claims_nothing():
    """Labels that no layer meets are not called fitted, whoever asked for no penalty."""
    traces = pa.data.with_wrong_labels(P.traces(DFA, 60, random_state=0), flips=0.2)
    found = P.learn(DFA.schema, traces, "coefficients", ridge=0)
    assert (found.outcome.name, found.succeeded) == ("penalised", False)


# The library in one place


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_registered_program_has_an_encoding_that_shows_its_runs(name, tmp_path):
    entry = PROGRAMS[name]
    compiled = P.compile(entry.make(**entry.sizes))
    encoding = compiled.schema.encoding
    assert isinstance(encoding, LibraryEncoding)
    assert ENCODINGS[encoding.name] is type(encoding)
    run, quick = show_run(compiled), show_run(compiled, margins=False)
    assert run.agrees
    assert (run.result, run.tokens, run.lines) == (quick.result, quick.tokens, quick.lines)
    assert run.is_whole
    assert sum(len(step.written) for step in run.steps) == len(run.tokens)
    assert not any(step.written for step in quick.steps)
    first = show_run(compiled, n_shown=1)
    assert len(first.steps) <= 2
    assert (first.result, first.n_steps) == (run.result, run.n_steps)
    pa.save(compiled, tmp_path / "p")
    assert pa.load(tmp_path / "p").schema.encoding == encoding
