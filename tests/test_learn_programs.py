"""P.learn: programs from traces alone, what they run, what they claim, where they abstain."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput, PolyattnError

P, M = pa.programs, pa.programs.machines
FIXED = P.DFA([[1, 2], [2, 0], [0, 0]])
RULES, COEFFICIENTS = METHODS = ("rules", "coefficients")
# Programs are learned once, in the one worker that has all of these tests.
pytestmark = pytest.mark.xdist_group("learn_programs")

# A program with traces enough to learn rules, and to saturate coefficients; larger sizes.
LIBRARY = {
    "memory": (P.associative_memory(3, 3), 12, 150, {"n_keys": 9, "n_values": 7}),
    "fixed": (P.fixed_dfa(FIXED, 4), 40, 200, {}),
    "one_hot": (P.universal_dfa(2, 2, 3, style="one_hot"), 15, 600,
                {"n_states": 6, "n_letters": 4, "max_length": 9}),
    "registers": (P.universal_dfa(2, 2, 3), 15, 600,
                  {"n_states": 6, "n_letters": 4, "max_length": 9}),
    "turing": (P.universal_turing_machine(2, 2, 5), 20, 1200,
               {"n_states": 4, "n_letters": 3, "n_cells": 16}),
}  # fmt: skip
SLOW = pytest.param("turing", marks=pytest.mark.slow)
MEMORY, ONE_HOT = LIBRARY["memory"][0], LIBRARY["one_hot"][0]


@cache
def learned(name, method=RULES):
    """Learned once per process from the traces of seed 0."""
    program, few, many, _ = LIBRARY[name]
    return learn(program, few if method == RULES else many, method)


def learn(program, n_traces, method=RULES, seed=0, wrong=None, **options):
    found = P.traces(program, n_traces, random_state=seed)
    if wrong is not None:
        found = pa.data.with_wrong_labels(found, random_state=seed + 1, **wrong)
    return P.learn(program.schema, found, method, **options)


def truth(arguments, options):
    """What the machine itself does, without any token."""
    first, *rest = arguments
    if not rest:
        return FIXED.run(first)
    return first[rest[0]] if isinstance(first, dict) else first.run(*rest, **options)


def runs(program, n_machines, **abstain):
    """Fresh machines: how many runs were right, wrong (or no tokens of a machine), abstained."""
    count, rng = {"right": 0, "wrong": 0, "abstained": 0}, np.random.default_rng(1000)
    for _ in range(n_machines):
        arguments, options = program.schema.encoding.sample(rng)
        try:
            found = program.run(*arguments, **abstain, **options)
        except PolyattnError:
            found = None
        kind = "right" if found == truth(arguments, options) else "wrong"
        count["abstained" if isinstance(found, P.Abstained) else kind] += 1
    return count


def prefixes(traces):
    """What a layer sees before each token."""
    return [
        trace.tokens[: len(trace.prompt) + row].astype(float)
        for trace in traces
        for row in range(trace.n_rows)
    ]


@pytest.mark.parametrize("name", ["memory", "one_hot", "registers", SLOW])
def test_rules_run_fresh_machines_at_their_size_and_others(name):
    found, (program, n_traces, _, sizes) = learned(name), LIBRARY[name]
    assert (found.outcome.name, found.succeeded) == ("learned", True)
    assert runs(found, 40)["right"] == 40
    larger = found.resize(**sizes)
    assert runs(larger, 25)["right"] == 25
    assert (larger.n_traces, larger.outcome) == (n_traces, found.outcome)
    assert runs(larger.resize(**program.schema.encoding.sizes), 5)["right"] == 5
    assert all(term.weight * 2 == round(term.weight * 2) for term in found.terms)


def test_rules_read_as_a_person_would_write_them():
    program = P.universal_dfa(3, 3, 5, style="one_hot")
    assert {str(term) for term in learn(program, 8).terms} == {
        "+1 px(t, x) <- px(t, x) given cpos(t)",
        "+0.5 cpos(t+1) <- px(t, x) given px(t, x)",
        "+1 state(0) <- cpos(0) given cpos(0)",
        "+1 state(q) <- state(q) & key(r, x) given key(r, x)",
        "+1 key(q, x) <- state(q) & px(t, x) given px(t, x)",
    }
    # A table of one's own knows states by name; relations know only whether they are equal.
    assert learned("fixed").outcome.name == "unexplained"
    assert runs(learned("fixed"), 20, abstain=True)["abstained"] == 20
    found = learn(P.fixed_dfa(P.DFA([[1, 1], [1, 1]]), 4), 40)
    assert [str(term) for term in found.terms] == ["+1 at(t+1, 1) <- at(t, q) given at(t, q)"]
    assert found.succeeded


def test_traces_of_several_sizes_teach_one_program_and_fifteen_saturate_it():
    programs = [P.universal_dfa(*each, style="one_hot") for each in ((2, 3, 3), (3, 2, 5))]
    mixed = [trace for program in programs for trace in P.traces(program, 8)]
    found = P.learn(P.universal_dfa(7, 5, 9, style="one_hot").schema, mixed)
    assert found.succeeded
    assert runs(found, 25)["right"] == 25
    program, lengths = P.universal_dfa(3, 3, 4, style="one_hot"), (4, 4)
    found = P.learn(program.schema, P.traces(program, 15, lengths=lengths))
    fresh = P.traces(program, 60, random_state=9, lengths=lengths)
    assert found.certify(fresh=fresh).verdict == "saturated"
    # A certificate of a larger size is about that size.
    larger = found.resize(n_states=5, max_length=6)
    fresh = P.traces(P.universal_dfa(5, 3, 6, style="one_hot"), 5, random_state=9)
    assert larger.certify(fresh=fresh).verdict == "not_saturated"


def test_rules_claim_no_more_than_was_checked():
    program = P.universal_dfa(3, 3, 5, style="one_hot")
    one_letter = P.traces(program, 12, random_state=0, lengths=(1, 1))
    assert P.learn(program.schema, one_letter).outcome.name == "untested"
    unchecked = [learn(program, n_traces).outcome.name == "unchecked" for n_traces in (2, 3)]
    assert unchecked == [True, False]
    # A trace that contradicts the others is named.
    found = P.traces(program, 10, random_state=0)
    wrong = found[4].completion.copy()
    block = program.schema.blocks["state"]
    wrong[0, block] = np.roll(wrong[0, block], 1)
    fit = P.learn(program.schema, [*found[:4], replace(found[4], labels=wrong), *found[5:]])
    assert fit.outcome.name == "noisy"
    assert "trace 4, token 0, attribute 'state'" in str(fit.outcome)


@pytest.mark.parametrize(("size", "outcome"), [(4, "untested"), (5, "learned")])
def test_on_a_small_circle_steps_to_and_fro_look_the_same(size, outcome):
    schema = P.Schema((P.Attribute("at", (P.circle("cell", size),)),))
    rows = np.tile(np.eye(size, dtype=int), (3, 1))
    traces = [P.Trace(schema, rows[i : i + 1], rows[i + 1 : i + 3]) for i in range(2 * size)]
    assert P.learn(schema, traces).outcome.name == outcome


@pytest.mark.slow
def test_rules_of_turing_machines():
    found = learn(P.universal_turing_machine(3, 2, 9), 16)
    beaver = found.resize(n_states=4, n_cells=32).run(M.busy_beaver(4), max_steps=200)
    assert (beaver.halted, beaver.steps, sum(beaver.tape)) == (True, 107, 13)
    # Some rules fit as well.
    ambiguous = learn(P.universal_turing_machine(3, 3, 9), 10, seed=19)
    assert ambiguous.outcome.name == "ambiguous"
    assert "dp(p)" in str(ambiguous.outcome)


@pytest.mark.parametrize("name", ["memory", "fixed", "one_hot", "registers", SLOW])
def test_coefficients_run_fresh_machines_of_their_size(name):
    found, (program, _, n_traces, _) = learned(name, COEFFICIENTS), LIBRARY[name]
    assert (found.outcome.name, found.succeeded, found.n_traces) == ("fitted", True, n_traces)
    assert found.n_rows == sum(trace.n_rows for trace in found.traces)
    assert runs(found, 60)["right"] == 60
    with pytest.raises(InvalidInput, match="rules"):
        found.resize(**program.schema.encoding.sizes)


@pytest.mark.parametrize(
    ("program", "n_traces"),
    [(MEMORY, 15), (P.universal_dfa(2, 2, 2, style="one_hot"), 12), (P.universal_dfa(1, 2, 2), 9)],
)
def test_coefficients_are_the_least_norm_solution_of_all_features(program, n_traces):
    found = learn(program, n_traces, COEFFICIENTS)
    X, Y = prefixes(found.traces), np.concatenate([trace.targets for trace in found.traces])
    psi, d = oracle.design(X, {}), program.schema.n_dims
    theta = oracle.least_squares(psi, Y, oracle.squared_sizes({}, d, d))
    expected = oracle.table_of(theta, {}, d * (d + 1) // 2, d)
    np.testing.assert_allclose(found.layer.coef, expected, atol=1e-9)
    weights = np.abs([term.weight for term in found.terms])
    assert np.all(np.diff(weights) <= 1e-12)
    assert found.certificate.rank == rank_of(found.traces)


def test_a_penalty_of_ones_own_is_ridge_regression_within_tokens_that_share_nothing():
    found = learn(MEMORY, 30, COEFFICIENTS, ridge=0.1)
    X, Y = prefixes(found.traces), np.concatenate([trace.targets for trace in found.traces])
    psi, sizes = oracle.design(X, {}), oracle.squared_sizes({}, 9, 9)
    for key in range(3):  # whoever is asked for another key has other features
        rows = [i for i, x in enumerate(X) if x[-1, key]]
        ridge = 0.1 * np.mean(np.sum(psi[rows] ** 2 / sizes, axis=1))
        theta = oracle.least_squares(psi[rows], Y[rows], sizes, ridge)
        for row in rows:
            np.testing.assert_allclose(found.layer(X[row]), psi[row] @ theta, atol=1e-9)
    assert (found.outcome.name, found.succeeded) == ("penalised", False)


@pytest.mark.parametrize("name", ["memory", "one_hot"])
def test_what_is_not_abstained_from_is_right(name):
    program, _, many, _ = LIBRARY[name]
    assert not runs(learn(program, 12, seed=3), 20, abstain=True)["wrong"]
    found = [learn(program, n_traces, COEFFICIENTS, 1) for n_traces in (2, 12, many)]
    counts = [runs(each, 20, abstain=True) for each in found]
    assert not any(count["wrong"] for count in counts)
    first, second, third = (count["abstained"] for count in counts)
    assert first > second > third == 0


def test_an_abstention_says_before_which_token_and_the_tokens_before_are_right():
    few, numbers = learn(ONE_HOT, 12, COEFFICIENTS), set()
    for trace in P.traces(ONE_HOT, 60, random_state=7):
        found = few.run(*trace.source, abstain=True)
        if isinstance(found, P.Abstained):
            given = ONE_HOT.schema.encode(found.tokens)
            np.testing.assert_array_equal(given, trace.completion[: found.number])
            assert f"token {found.number}" in found.reason
            numbers.add(found.number)
    assert len(numbers) > 1


def test_programs_that_do_not_fit_their_traces_always_abstain_and_prove_nothing():
    """The span says what fits the traces; a program that does not is not spoken of."""
    penalised = learn(ONE_HOT, 60, COEFFICIENTS, ridge=0.1)
    for found in (penalised, learn(ONE_HOT, 60, max_terms=1)):
        assert runs(found, 10, abstain=True)["abstained"] == 10
        answer = found.run(P.DFA([[0, 1], [1, 1]]), [1], abstain=True)
        assert (answer.number, answer.tokens) == (0, [])
    for found in (penalised, learn(ONE_HOT, 60, COEFFICIENTS, wrong={"flips": 0.1})):
        with pytest.raises(InvalidInput, match="traces"):
            found.certify(domain=P.all_traces(ONE_HOT), exact=True)


@pytest.mark.parametrize(
    ("n_traces", "wrong", "outcome"),
    [
        (10, {"noise": 0.1}, "learned"),
        (10, {"flips": 0.1}, "noisy"),
        pytest.param(150, {"noise": 1.0}, "noisy unexplained", marks=pytest.mark.slow),
    ],
)
def test_rules_see_through_wrong_labels(n_traces, wrong, outcome):
    found = learn(P.universal_dfa(3, 3, 4, style="one_hot"), n_traces, wrong=wrong)
    assert found.outcome.name in outcome
    assert runs(found.resize(n_states=8, n_letters=5, max_length=12), 30)["right"] == 30


def test_coefficients_see_through_some_wrong_labels_and_claim_no_others():
    for wrong, outcome in (({"noise": 0.1}, "fitted"), ({"flips": 0.05}, "repaired")):
        found = learn(ONE_HOT, 600, COEFFICIENTS, wrong=wrong)
        assert (found.outcome.name, found.succeeded) == (outcome, outcome == "fitted")
        assert runs(found, 50)["right"] == 50
        assert runs(found, 50, abstain=True)["wrong"] == 0
        given = sum(trace.n_rows for trace in found.traces)
        assert found.n_rows == given if outcome == "fitted" else 0.9 * given < found.n_rows < given
        assert found.certificate.n_rows == found.n_rows
    noise = learn(ONE_HOT, 60, COEFFICIENTS, wrong={"noise": 3.0})
    asked = learn(ONE_HOT, 60, COEFFICIENTS, wrong={"flips": 0.2}, ridge=0)
    assert (noise.outcome.name, asked.outcome.name) == ("penalised", "penalised")
    assert learn(ONE_HOT, 3, COEFFICIENTS).outcome.name == "unchecked"
    alike = [learn(P.associative_memory(1, 1), n_traces, COEFFICIENTS) for n_traces in (19, 20)]
    assert [found.outcome.name for found in alike] == ["unchecked", "fitted"]


@pytest.mark.parametrize("method", METHODS)
def test_shuffled_labels_are_never_claimed(method):
    traces = P.traces(MEMORY, 12, random_state=0)
    pool = np.random.default_rng(12).permutation([trace.completion for trace in traces])
    shuffled = [replace(trace, labels=some) for trace, some in zip(traces, pool, strict=True)]
    assert not P.learn(MEMORY.schema, shuffled, method).succeeded


def test_what_was_learned_goes_on_after_saving(tmp_path):
    mixed = [*P.traces(MEMORY, 8), *P.traces(P.associative_memory(4, 2), 6, random_state=1)]
    repaired = learn(ONE_HOT, 300, COEFFICIENTS, wrong={"flips": 0.03})
    for program, first in ((ONE_HOT, repaired), (MEMORY, P.learn(MEMORY.schema, mixed))):
        pa.save(first, tmp_path / "p")
        second, fresh = pa.load(tmp_path / "p"), P.traces(program, 60, random_state=9)
        assert runs(second, 10, abstain=True) == runs(first, 10, abstain=True)
        assert second.certificate == first.certificate
        assert second.certify(fresh=fresh) == first.certify(fresh=fresh)
    assert second.resize(n_keys=6, n_values=5).run({4: 4, 5: 0}, 4) == 4


COUNTS = P.Schema((P.Attribute("amount", (P.symbols("s", 2),), rounding="integer"),))


def large_counts(most):
    rows = COUNTS.encode([COUNTS.token(amount={0: most}), COUNTS.token(amount={0: 1})])
    return P.Trace(COUNTS, rows[:1], rows[1:])


def spoilt(name, change):
    """Two traces, of which the second is spoilt in one of its parts."""
    first, second = P.traces(ONE_HOT, 2)
    part = second.completion.astype(float) if name == "labels" else getattr(second, name)
    return [first, replace(second, **{name: change(part)})]


REFUSED = [
    ({"traces": []}, "trace"), ({"traces": [3]}, r"traces\[0\]"),
    ({"traces": P.traces(LIBRARY["registers"][0], 2)}, "flag"),
    *(({"traces": spoilt(name, change)}, rf"traces\[1\].{name}") for name, change in (
        ("labels", lambda labels: labels * np.nan), ("labels", lambda labels: labels[1:]),
        ("completion", lambda tokens: tokens[:0]), ("prompt", lambda tokens: tokens[:0]),
        ("prompt", lambda tokens: tokens[:, 1:]), ("prompt", lambda tokens: tokens * 0.5))),
    *((each, next(iter(each))) for each in (
        {"method": "untied"}, {"ridge": "auto"}, {"max_terms": 0}, {"n_folds": 1}, {"step": 0})),
    *(({"method": COEFFICIENTS} | each, next(iter(each))) for each in (
        {"max_terms": 3}, {"step": 0.5}, {"ridge": -1},
        {"traces": P.traces(P.universal_dfa(3, 2, 3, style="one_hot"), 2)})),
    ({"schema": COUNTS, "traces": [large_counts(2**18)]}, "traces"),
]  # fmt: skip


def test_wrong_traces_and_options_are_refused_by_their_names():
    for given, word in REFUSED:
        arguments = {"schema": ONE_HOT.schema, "traces": P.traces(ONE_HOT, 3)} | given
        with pytest.raises(PolyattnError, match=word):
            P.learn(**arguments)
    for method in METHODS:  # and of a program that nobody can encode
        P.learn(COUNTS, [large_counts(2**17)], method)


def rank_of(traces, *rows):
    """The rank of the features of all rows of traces, and of others."""
    return oracle.exact_rank([*prefixes(traces), *rows], {})


def test_training_alone_bounds_what_leaves_its_span():
    found = learn(MEMORY, 25, COEFFICIENTS)
    certificate, traces, rank = found.certificate, found.traces, rank_of(found.traces)
    assert certificate.verdict == "undecided"
    assert (certificate.rank, certificate.n_traces, certificate.proved) == (rank, 25, False)
    alone = [rank_of([*traces[:i], *traces[i + 1 :]]) < rank for i in range(25)]
    assert certificate.n_innovative == sum(alone) > 0
    assert certificate.outside_mass == pytest.approx(rank / 25)
    many = learned("one_hot", COEFFICIENTS).certificate  # of several rows each
    assert many.outside_mass == pytest.approx(many.rank / 600)


def test_enough_fresh_traces_inside_bound_the_rest():
    found = learned("memory", COEFFICIENTS)
    for n_fresh, delta, exact in ((58, 0.05, False), (59, 0.05, True), (80, 0.5, False)):
        fresh = iter(P.traces(MEMORY, n_fresh, random_state=5))
        certificate = found.certify(fresh=fresh, delta=delta, exact=exact)
        assert certificate.verdict == ("saturated" if n_fresh >= 59 else "undecided")
        assert certificate.outside_mass == pytest.approx(np.log(1 / delta) / n_fresh)
        assert (certificate.confidence, certificate.proved) == (1 - delta, False)
        assert certificate.n_checked_traces == n_fresh
        assert certificate.arithmetic.startswith("modulo" if exact else "floating")


@pytest.mark.parametrize(
    ("sizes", "n_traces", "n_histories"),
    [((2, 2, 2), 60, 64), pytest.param((2, 3, 3), 200, 1728, marks=pytest.mark.slow)],
)
def test_every_automaton_on_every_word_is_a_theorem(sizes, n_traces, n_histories):
    program, lengths = P.universal_dfa(*sizes, style="one_hot"), (sizes[2], sizes[2])
    found = P.learn(program.schema, P.traces(program, n_traces, lengths=lengths), COEFFICIENTS)
    domain = list(P.all_traces(program, lengths=lengths))
    proof, plain = found.certify(domain=domain, exact=True), found.certify(domain=domain)
    assert (proof.verdict, proof.proved, proof.arithmetic) == ("saturated", True, "integers")
    assert (plain.verdict, plain.proved, plain.rank) == ("saturated", False, proof.rank)
    assert proof.n_checked_traces == plain.n_checked_traces == len(domain) == n_histories
    assert proof.n_checked_rows == n_histories * (2 * sizes[2] + 1)
    for trace in domain[:: len(domain) // 60]:
        assert found.run(*trace.source, abstain=True) == truth(trace.source, {})


def test_without_a_trace_that_is_needed_nothing_is_saturated():
    domain, whole = list(P.all_traces(MEMORY)), learned("memory", COEFFICIENTS)
    one_key = [trace for trace in whole.traces if trace.source[1] != 1]
    unseen = P.learn(MEMORY.schema, one_key, COEFFICIENTS)  # a feature that training never had
    program, lengths = P.universal_dfa(2, 2, 2, style="one_hot"), (2, 2)
    words = list(P.all_traces(program, lengths=lengths))
    some = P.traces(program, 20, random_state=1, lengths=lengths)
    several = P.learn(program.schema, some, COEFFICIENTS)  # all features of the row occurred
    few = learn(MEMORY, 12, COEFFICIENTS)
    for found, everything in ((few, domain), (unseen, domain), (several, words)):
        for exact in (True, False):
            certificate = found.certify(domain=everything, exact=exact)
            assert (certificate.verdict, certificate.proved) == ("not_saturated", exact)
            trace, row = certificate.leaving.trace, certificate.leaving.row
            seen = prefixes(everything[:trace]) + prefixes([everything[trace]])[: row + 1]
            assert certificate.rank == rank_of(found.traces) < rank_of(found.traces, seen[-1])
            assert exact or rank_of(found.traces, *seen[:-1]) == certificate.rank
    proof = whole.certify(domain=iter(domain), exact=True)
    assert (proof.verdict, proof.rank) == ("saturated", rank_of(domain))
    rules = learned("memory").certify(domain=domain)
    assert (rules.verdict, rules.proved) == ("saturated", False)


@pytest.mark.parametrize("method", METHODS)
def test_certify_refuses_misuse(method):
    found, some = learned("one_hot", method), P.traces(ONE_HOT, 3, random_state=5)
    for given, word in (
        ({}, "fresh"), ({"fresh": some, "domain": some}, "fresh"), ({"fresh": []}, "trace"),
        ({"fresh": some, "delta": 0}, "delta"), ({"fresh": some, "delta": 1.0}, "delta"),
        ({"domain": P.traces(P.universal_dfa(3, 2, 3, style="one_hot"), 3)}, r"domain\[0\]"),
        ({"fresh": [replace(some[0], completion=some[0].completion[:0])]}, "completion"),
        ({"domain": [], "exact": True}, "coefficients" if method == RULES else "domain"),
    ):  # fmt: skip
        with pytest.raises(PolyattnError, match=word):
            found.certify(**given)
