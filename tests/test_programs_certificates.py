"""Certificates for programs: saturation of the domain by the training traces."""

import json

import numpy as np
import pytest

from polyattn.errors import InvalidInput
from polyattn.programs.certificates import (
    certify_domain,
    certify_fresh,
    certify_training,
    prove_domain,
)
from polyattn.programs.learning.coefficients import (
    CoefficientSpan,
    ExactSpan,
    innovative,
    learn_coefficients,
)
from polyattn.programs.traces import TraceRows
from program_traces import all_dfa_traces, dfa_traces

# All automata and all words: sizes, training traces, histories of the domain, rank.
EXHAUSTIVE = {(2, 2, 2): (60, 64, 70), (2, 3, 3): (200, 1728, 269), (3, 2, 3): (300, 5832, 316)}


def counts(span):
    return span.n_rows, span.n_traces


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(sizes, marks=pytest.mark.slow if sizes == (3, 2, 3) else ())
        for sizes in EXHAUSTIVE
    ],
    ids=str,
)
def test_all_machines_on_all_words(sizes):
    n_traces, n_histories, rank = EXHAUSTIVE[sizes]
    training, domain = list(dfa_traces(sizes, n_traces, seed=1)), list(all_dfa_traces(sizes))
    program = learn_coefficients(training[0].schema, training)
    assert all(right.all() for right in program.right(domain))
    proof = prove_domain(training, domain)
    assert (proof.verdict, proof.proved, proof.arithmetic) == ("saturated", True, "integers")
    assert (proof.rank, proof.n_checked_traces) == (rank, n_histories)
    assert proof.n_checked_rows == n_histories * (2 * sizes[2] + 1)
    modular = certify_domain(ExactSpan.of(program.span), *counts(program.span), domain)
    assert (modular.verdict, modular.proved, modular.rank) == ("saturated", False, rank)
    assert program.span.rank == rank


def test_without_a_trace_that_is_needed_nothing_is_saturated():
    sizes = (2, 2, 2)
    training, domain = list(dfa_traces(sizes, 60, seed=1)), list(all_dfa_traces(sizes))
    assert prove_domain(training, domain).verdict == "saturated"
    while not len(needed := innovative(CoefficientSpan.of(training))):
        training.pop()
    del training[needed[0]]
    span = CoefficientSpan.of(training)
    for found in (
        prove_domain(training, domain),
        certify_domain(span, *counts(span), domain),
        certify_domain(ExactSpan.of(span), *counts(span), domain),
    ):
        assert found.verdict == "not_saturated"
        leaving = domain[found.leaving.trace]
        assert span.inside(TraceRows.of(leaving))[found.leaving.row] == "outside"
        assert "leaves it" in found.sentence


def test_a_feature_that_training_never_had_is_a_proof_of_its_own():
    sizes = (2, 2, 2)
    training = [t for t in dfa_traces(sizes, 60, seed=1) if t.source[1] != (0, 0)]
    training = [t for t in training if t.source[1][0] == 1]
    found = prove_domain(training, all_dfa_traces(sizes))
    assert (found.verdict, found.proved) == ("not_saturated", True)


def test_training_alone_decides_nothing_but_bounds():
    span = CoefficientSpan.of(dfa_traces((2, 3, 3), 300, seed=0))
    found = certify_training(span, *counts(span), len(innovative(span)))
    assert found.verdict == "undecided"
    assert found.outside_mass == pytest.approx(span.rank / 300)
    assert found.n_innovative < 10
    assert "300 traces" in found.sentence


def test_the_share_left_out_predicts_the_share_of_fresh_traces_outside():
    sizes, n_traces = (2, 3, 3), 60
    shares, outside = [], []
    for seed in range(8):
        span = CoefficientSpan.of(dfa_traces(sizes, n_traces, seed=seed))
        shares.append(len(innovative(span)) / n_traces)
        fresh = TraceRows.joined([TraceRows.of(t) for t in dfa_traces(sizes, 150, seed=100 + seed)])
        left = (span.inside(fresh) != "inside").reshape(150, -1).any(axis=1)
        outside.append(np.mean(left))
    # Means of 480 and 1200 traces; the error of either is below 0.03.
    assert np.mean(shares) == pytest.approx(np.mean(outside), abs=0.08)
    assert np.mean(outside) > 0.1


def test_fresh_traces_bound_what_is_outside():
    sizes = (2, 3, 3)
    span = CoefficientSpan.of(dfa_traces(sizes, 300, seed=1))
    found = certify_fresh(span, *counts(span), dfa_traces(sizes, 300, seed=9))
    assert found.verdict == "saturated"
    assert found.outside_mass == pytest.approx(np.log(20) / 300)
    assert (found.n_checked_traces, found.n_checked_rows) == (300, 2100)
    assert "with confidence 95% at most 1.00%" in found.sentence
    few = certify_fresh(span, *counts(span), dfa_traces(sizes, 58, seed=9))
    assert (few.verdict, few.leaving) == ("undecided", None)
    assert "few" in few.sentence


def test_a_fresh_trace_outside_is_named():
    sizes = (2, 3, 3)
    span = CoefficientSpan.of(dfa_traces(sizes, 20, seed=1))
    fresh = list(dfa_traces(sizes, 500, seed=9))
    found = certify_fresh(span, *counts(span), fresh)
    assert (found.verdict, found.outside_mass) == ("not_saturated", None)
    every = [span.inside(TraceRows.of(trace)) for trace in fresh]
    first = next(i for i, status in enumerate(every) if (status == "outside").any())
    assert found.leaving.trace == first
    assert found.leaving.row == np.flatnonzero(every[first] == "outside")[0]


class Hesitant:
    """A span of another kind: only what the protocol asks for."""

    rank = 3

    def inside(self, rows):
        return np.full(len(rows.queries), "undecided")


def test_any_span_will_do_and_undecided_rows_are_said():
    for found in (
        certify_fresh(Hesitant(), 10, 2, dfa_traces((2, 2, 2), 80, seed=0)),
        certify_domain(Hesitant(), 10, 2, dfa_traces((2, 2, 2), 80, seed=0)),
    ):
        assert (found.verdict, found.n_undecided) == ("undecided", 400)
        assert found.arithmetic == "floating point"
        assert "exact arithmetic decides" in found.sentence


def test_certificates_are_plain_data():
    span = CoefficientSpan.of(dfa_traces((2, 2, 2), 20, seed=1))
    found = certify_fresh(ExactSpan.of(span), *counts(span), dfa_traces((2, 2, 2), 100, seed=9))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["verdict"] == found.verdict == "not_saturated"
    assert data["leaving"] == {"trace": found.leaving.trace, "row": found.leaving.row}
    assert data["sentence"] == found.sentence
    assert "20 traces with 100 rows span" in str(found)
    assert data["arithmetic"].startswith("modulo ")


def test_nothing_to_look_at_is_refused():
    span = CoefficientSpan.of(dfa_traces((2, 2, 2), 5, seed=1))
    with pytest.raises(InvalidInput, match="at least one trace"):
        certify_fresh(span, 25, 5, [])
    with pytest.raises(InvalidInput, match="delta must be"):
        certify_fresh(span, 25, 5, dfa_traces((2, 2, 2), 5, seed=2), delta=0.0)
    with pytest.raises(InvalidInput, match="got none"):
        prove_domain([], all_dfa_traces((2, 2, 2)))
