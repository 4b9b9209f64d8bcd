"""P.learn: programs from traces alone, what they run, what they claim, where they abstain."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, PolyattnError

P = pa.programs

SLOW, ONE_HOT = pytest.mark.slow, "one_hot"
FIXED = P.DFA([[1, 2], [2, 0], [0, 0]])

# A program with traces enough to learn rules, and to saturate coefficients.
LIBRARY = {
    "memory": (P.associative_memory(3, 3), 12, 150),
    "fixed": (P.fixed_dfa(FIXED, 4), 40, 200),
    "one_hot": (P.universal_dfa(2, 2, 3, style=ONE_HOT), 15, 600),
    "registers": (P.universal_dfa(2, 2, 3), 15, 600),
    "turing": (P.universal_turing_machine(2, 2, 5), 20, 1200),
}
RULES = [name for name in LIBRARY if name != "fixed"]
LARGER = {
    "memory": {"n_keys": 9, "n_values": 7},
    "one_hot": {"n_states": 6, "n_letters": 4, "max_length": 9},
    "registers": {"n_states": 6, "n_letters": 4, "max_length": 9},
    "turing": {"n_states": 4, "n_letters": 3, "n_cells": 16},
}
# Programs are learned once, in the one worker that has all of these tests.
pytestmark = pytest.mark.xdist_group("programs_learn")
_CACHE = {}


def learned(name, method="rules"):
    """Learned once per process from the traces of seed 0."""
    if (name, method) not in _CACHE:
        program, few, many = LIBRARY[name]
        found = P.traces(program, few if method == "rules" else many, random_state=0)
        _CACHE[name, method] = P.learn(program.schema, found, method)
    return _CACHE[name, method]


def oracle(arguments, options):
    """What the machine itself does, without any token."""
    first, *rest = arguments
    if not rest:
        return FIXED.run(first)
    return first[rest[0]] if isinstance(first, dict) else first.run(*rest, **options)


def fresh(schema, n_machines, seed=1000):
    rng = np.random.default_rng(seed)
    return [schema.encoding.sample(rng) for _ in range(n_machines)]


def n_exact(program, n_machines, seed=1000):
    """How many fresh machines run as by their own rules; tokens that nobody can read are wrong."""
    count = 0
    for arguments, options in fresh(program.schema, n_machines, seed):
        try:
            count += program.run(*arguments, **options) == oracle(arguments, options)
        except PolyattnError:
            continue
    return count


def verdicts(program, n_machines, seed=1000):
    """Of runs that may abstain: how many did, were right, were wrong."""
    count = {"abstained": 0, "right": 0, "wrong": 0}
    for arguments, options in fresh(program.schema, n_machines, seed):
        found = program.run(*arguments, abstain=True, **options)
        if isinstance(found, P.Abstained):
            count["abstained"] += 1
        else:
            count["right" if found == oracle(arguments, options) else "wrong"] += 1
    return count


def assert_layer_is_what_runs(program, traces):
    """The layer on every prefix, before rounding, against the tokens."""
    for trace in traces:
        for row in range(trace.n_rows):
            output = program.layer(trace.tokens[: len(trace.prompt) + row].astype(float))
            assert np.allclose(output, trace.completion[row], atol=1e-8)


def shuffled(traces, seed=0):
    """Labels that belong to other rows."""
    rng = np.random.default_rng(seed)
    pool = rng.permutation(np.concatenate([trace.completion for trace in traces]))
    ends = np.cumsum([trace.n_rows for trace in traces])[:-1]
    return [replace(t, labels=some) for t, some in zip(traces, np.split(pool, ends), strict=True)]


# The library


@pytest.mark.parametrize("name", RULES)
def test_programs_of_rules_run_fresh_machines_at_their_size_and_others(name):
    found = learned(name)
    assert (found.outcome.name, found.succeeded) == ("learned", True)
    assert n_exact(found, 40) == 40
    larger = found.resize(**LARGER[name])
    assert n_exact(larger, 25) == 25
    assert larger.schema.encoding.sizes == LARGER[name]
    assert (larger.n_traces, larger.outcome) == (found.n_traces, found.outcome)
    assert n_exact(larger.resize(**LIBRARY[name][0].schema.encoding.sizes), 5) == 5


@pytest.mark.parametrize(
    "name", ["memory", "fixed", "one_hot", "registers", pytest.param("turing", marks=SLOW)]
)
def test_learned_coefficients_run_fresh_machines(name):
    found = learned(name, "coefficients")
    assert (found.outcome.name, found.succeeded) == ("fitted", True)
    assert n_exact(found, 60) == 60
    assert found.n_rows == sum(trace.n_rows for trace in found.traces)
    assert found.n_traces == LIBRARY[name][2]
    with pytest.raises(InvalidInput, match="method='rules' to resize"):
        found.resize(**LIBRARY[name][0].schema.encoding.sizes)


def test_a_fixed_automaton_has_no_rules_and_that_is_said():
    """Its table knows states and letters by name; relations know only whether they are equal."""
    found = learned("fixed")
    assert not found.succeeded
    assert found.outcome.name == "unexplained"
    assert verdicts(found, 20) == {"abstained": 20, "right": 0, "wrong": 0}


def test_a_fixed_automaton_that_does_not_look_has_rules():
    constant = P.fixed_dfa(P.DFA([[1, 1], [1, 1]]), 4)
    found = P.learn(constant.schema, P.traces(constant, 40, random_state=0))
    assert found.succeeded
    assert [str(term) for term in found.terms] == ["+1 at(t+1, 1) <- at(t, q) given at(t, q)"]


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, "rules") for name in RULES),
        *((name, "coefficients") for name in LIBRARY if name != "turing"),
    ],
)
def test_the_layer_is_what_runs(name, method):
    program = LIBRARY[name][0]
    found = learned(name, method)
    assert_layer_is_what_runs(found, P.traces(program, 4, random_state=77))


def test_a_layer_before_rounding_gives_what_the_engine_gives_along_a_wrong_history():
    program = LIBRARY["one_hot"][0]
    few = P.learn(program.schema, P.traces(program, 4, random_state=0), method="coefficients")
    wrong = 0
    for trace in P.traces(program, 10, random_state=5):
        predictor = few.predictor()
        predictor.start([trace.schema.decode(row) for row in trace.prompt])
        tokens = trace.prompt.astype(float)
        for wanted in trace.completion:
            output = few.layer(tokens)
            token = trace.schema.encode([predictor.next_token()])
            assert np.array_equal(trace.schema.round(output), token[0])
            wrong += not np.array_equal(token[0], wanted)
            tokens = np.concatenate([tokens, token])
    assert wrong > 5


@pytest.mark.parametrize("name", RULES)
def test_terms_of_rules_are_the_layer(name):
    found = learned(name)
    again = P.Compiled(found.schema, tuple(found.terms))
    tokens = P.traces(LIBRARY[name][0], 1, random_state=8)[0].tokens.astype(float)
    assert np.array_equal(again.layer(tokens), found.layer(tokens))
    assert again.heads == found.compiled.heads


def test_terms_of_coefficients_are_the_coefficients():
    found = learned("memory", "coefficients")
    weights = np.array([term.weight for term in found.terms])
    assert np.all(np.diff(np.abs(weights)) <= 1e-12)
    assert "out(" in str(found.terms[0])


def test_traces_of_several_sizes_teach_one_program():
    sizes = [(2, 3, 3), (3, 2, 5), (4, 2, 4)]
    programs = [P.universal_dfa(*each, style=ONE_HOT) for each in sizes]
    mixed = [trace for program in programs for trace in P.traces(program, 5, random_state=0)]
    found = P.learn(P.universal_dfa(7, 5, 9, style=ONE_HOT).schema, mixed)
    assert found.succeeded
    assert found.n_dims == P.universal_dfa(7, 5, 9, style=ONE_HOT).schema.n_dims
    assert n_exact(found, 25) == 25
    assert isinstance(found.certificate.rank, int)
    assert isinstance(found.run(P.DFA([[1, 0], [0, 1]]), [0], abstain=True), P.Abstained | list)


def linked_list(n_nodes):
    node = P.symbols("node", n_nodes)
    schema = P.Schema(tuple(P.Attribute(name, (node,)) for name in ("cell", "next", "here")))
    i, j = P.variables("i j")
    follow = P.Lookup(schema.here(j) << schema.next(j), match=schema.cell(i), query=schema.here(i))
    return P.Program(schema, [follow], "linked list")


def list_of(schema, rng, n_nodes):
    """A random list as a prompt, every other one with an end that links to itself.

    Also the tokens that follow, n_nodes at most.
    """
    order = rng.permutation(n_nodes)[: rng.integers(2, n_nodes + 1)].tolist()
    if rng.random() < 0.5:
        order += [order[-1]] * n_nodes
    links = list(dict.fromkeys(pairwise(order)))
    rng.shuffle(links)
    prompt = [*(schema.token(cell=a, next=b) for a, b in links), schema.token(here=order[0])]
    return prompt, [*(schema.token(here=node) for node in order[1:]), {}][:n_nodes]


@pytest.mark.parametrize("method", ["rules", "coefficients"])
def test_a_program_of_ones_own_is_learned_from_traces_made_by_hand(method):
    n_nodes, rng = 5, np.random.default_rng(0)
    program = linked_list(n_nodes)
    schema, compiled, traces = program.schema, P.compile(program), []
    for _ in range(12 if method == "rules" else 500):
        prompt, _ = list_of(schema, rng, n_nodes)
        tokens = compiled.decode(prompt, limit=n_nodes).tokens
        traces.append(P.Trace(schema, schema.encode(prompt), schema.encode(tokens)))
    found = P.learn(schema, traces, method=method)
    assert found.succeeded, str(found.outcome)
    with pytest.raises(InvalidInput, match="no encoding"):
        found.run([1, 2, 3])
    if method == "rules":
        n_nodes = 9
        assert len(found.terms) == 1
        found = found.resize(node=n_nodes)
        schema = found.schema
    for _ in range(30):
        prompt, after = list_of(schema, rng, n_nodes)
        assert found.decode(prompt, limit=n_nodes).tokens == after


# Abstaining


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=SLOW) for seed in (1, 2, 3))])
@pytest.mark.parametrize(
    "n_traces", [2, pytest.param(5, marks=SLOW), 12, pytest.param(25, marks=SLOW)]
)
@pytest.mark.parametrize("name", ["memory", "one_hot", pytest.param("registers", marks=SLOW)])
def test_what_is_not_abstained_from_is_right(name, n_traces, seed):
    program = LIBRARY[name][0]
    total = {"abstained": 0, "right": 0, "wrong": 0}
    traces = P.traces(program, n_traces, random_state=seed)
    for options in ({"method": "coefficients"}, {}):
        found = verdicts(P.learn(program.schema, traces, **options), 15, seed=seed)
        total = {key: total[key] + found[key] for key in total}
    assert total["wrong"] == 0
    assert total["abstained"] > 0 or n_traces > 2
    assert total["right"] > 0 or n_traces < 25


def test_fewer_abstain_with_more_traces_and_none_when_saturated():
    program = LIBRARY["one_hot"][0]
    counts = []
    for n_traces in (5, 40, 600):
        traces = P.traces(program, n_traces, random_state=0)
        counts.append(
            verdicts(P.learn(program.schema, traces, method="coefficients"), 60)["abstained"]
        )
    assert counts[0] > counts[1] > counts[2] == 0
    assert verdicts(learned("memory"), 40)["abstained"] == 0


def test_an_abstention_says_before_which_token_and_the_tokens_before_are_right():
    program = LIBRARY["one_hot"][0]
    few = P.learn(program.schema, P.traces(program, 12, random_state=0), method="coefficients")
    numbers = set()
    for (dfa, word), _ in fresh(program.schema, 60):
        found = few.run(dfa, word, abstain=True)
        if isinstance(found, P.Abstained):
            trace = P.compile(program).trace(dfa, word)
            right = [trace.schema.decode(row) for row in trace.completion]
            assert found.tokens == right[: found.number]
            assert str(found) == found.reason
            assert f"before token {found.number}" in found.reason
            before = right[found.number - 1] if found.number else {("cpos", (0,)): 1}
            assert f"after '{trace.schema.show(before)}'" in found.reason
            numbers.add(found.number)
    assert len(numbers) > 1


@pytest.mark.parametrize("options", [{"method": "coefficients", "ridge": 0.1}, {"max_terms": 1}])
def test_a_program_that_does_not_fit_its_traces_always_abstains(options):
    """The span says what fits the traces; a program that does not is not spoken of."""
    program = LIBRARY["one_hot"][0]
    found = P.learn(program.schema, P.traces(program, 60, random_state=0), **options)
    assert verdicts(found, 10) == {"abstained": 10, "right": 0, "wrong": 0}
    (dfa, word), _ = fresh(program.schema, 1)[0]
    answer = found.run(dfa, word, abstain=True)
    assert (answer.number, answer.tokens) == (0, [])
    assert "before token 0" in answer.reason


def test_abstaining_does_not_hide_wrong_arguments():
    found = learned("one_hot")
    with pytest.raises(InvalidInput, match=r"word\[0\] is 7"):
        found.run(P.DFA([[0, 1], [1, 1]]), [7], abstain=True)
    with pytest.raises(InvalidType, match="abstain must be True or False"):
        found.run(P.DFA([[0, 1], [1, 1]]), [1], abstain="no")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_turing_machines_are_never_run_wrongly_without_saying_so(seed):
    program = LIBRARY["turing"][0]
    for n_traces in (3, 10, 40, 150):
        traces = P.traces(program, n_traces, random_state=seed)
        found = P.learn(program.schema, traces, method="coefficients")
        assert verdicts(found, 40, seed)["wrong"] == 0
        if n_traces < 40:
            assert verdicts(P.learn(program.schema, traces), 15, seed)["wrong"] == 0


# Certificates


@pytest.mark.parametrize("method", ["rules", "coefficients"])
def test_certificates_are_issued_and_are_plain_data(method):
    found = learned("memory", method)
    program = LIBRARY["memory"][0]
    issued = [found.certificate, found.certify(fresh=P.traces(program, 80, random_state=5))]
    issued.append(found.certify(domain=P.all_traces(program)))
    assert [each.method for each in issued] == ["training", "fresh", "exhaustive"]
    assert [each.verdict for each in issued] == ["undecided", "saturated", "saturated"]
    assert not any(each.proved for each in issued)
    for each in issued:
        plain = json.loads(json.dumps(each.to_dict(), allow_nan=False))
        assert plain["sentence"] == each.sentence
        assert plain["n_traces"] == found.n_traces
        assert (plain["rank"], plain["n_rows"]) == (each.rank, found.n_rows)
    assert issued[1].outside_mass == pytest.approx(np.log(20) / 80)
    wider = found.certify(fresh=iter(P.traces(program, 80, random_state=5)), delta=0.5)
    assert wider.outside_mass == pytest.approx(np.log(2) / 80)
    assert wider.confidence == 0.5


def test_a_certificate_of_coefficients_can_be_a_theorem():
    found, program = learned("memory", "coefficients"), LIBRARY["memory"][0]
    proof = found.certify(domain=P.all_traces(program), exact=True)
    assert (proof.verdict, proof.proved, proof.arithmetic) == ("saturated", True, "integers")
    modular = found.certify(fresh=P.traces(program, 80, random_state=5), exact=True)
    assert (modular.verdict, modular.proved) == ("saturated", False)
    assert modular.arithmetic.startswith("modulo")
    few = P.learn(program.schema, found.traces[:5], method="coefficients")
    refuted = few.certify(domain=P.all_traces(program), exact=True)
    assert (refuted.verdict, refuted.proved) == ("not_saturated", True)


def test_a_certificate_of_a_larger_size_is_about_that_size():
    program = P.universal_dfa(3, 3, 4, style=ONE_HOT)
    found = P.learn(program.schema, P.traces(program, 15, random_state=0, lengths=(4, 4)))
    same = found.certify(fresh=P.traces(program, 60, random_state=9, lengths=(4, 4)))
    assert same.verdict == "saturated"
    larger = found.resize(n_states=5, max_length=6)
    other = P.universal_dfa(5, 3, 6, style=ONE_HOT)
    assert larger.certify(fresh=P.traces(other, 5, random_state=9)).verdict == "not_saturated"


@pytest.mark.parametrize("method", ["rules", "coefficients"])
def test_certify_refuses_misuse(method):
    found, program = learned("one_hot", method), LIBRARY["one_hot"][0]
    some = P.traces(program, 3, random_state=5)
    cases = [
        ({}, "fresh traces, or all"),
        ({"fresh": some, "domain": some}, "fresh traces, or all"),
        ({"fresh": some, "delta": 0}, "delta must be"),
        ({"fresh": some, "delta": 1.0}, "delta must be"),
        ({"fresh": some, "delta": float("nan")}, "delta must be"),
        ({"fresh": some, "delta": "a"}, "delta must be"),
        ({"fresh": []}, "at least one trace"),
        ({"domain": iter(())}, "at least one trace"),
        ({"fresh": some, "exact": 1}, "exact must be True or False"),
        ({"fresh": [some[0], 1]}, r"fresh\[1\] must be a Trace; got int"),
        ({"domain": 3}, "domain must be a list of traces"),
        ({"fresh": P.traces(LIBRARY["registers"][0], 3)}, r"fresh\[0\] has the attributes flag"),
        ({"domain": P.traces(P.universal_dfa(3, 2, 3, style=ONE_HOT), 3)}, "another size"),
        ({"fresh": [replace(some[0], completion=some[0].completion[:0])]}, "at least one token"),
    ]
    for given, message in cases:
        with pytest.raises((InvalidInput, InvalidType), match=message):
            found.certify(**given)
    refused = "only programs learned by coefficients" if method == "rules" else ""
    with pytest.raises(InvalidInput, match=refused or "got none"):
        found.certify(domain=[], exact=True)
    with pytest.raises(InvalidInput, match=refused or "delta must be"):
        found.certify(fresh=some, delta=None, exact=True)


def test_no_proof_is_made_for_a_layer_that_does_not_fit():
    program = LIBRARY["one_hot"][0]
    traces = P.traces(program, 60, random_state=0)
    domain = P.all_traces(program)
    for given in (
        P.learn(program.schema, traces, method="coefficients", ridge=0.1),
        P.learn(
            program.schema, pa.data.with_wrong_labels(traces, flips=0.1), method="coefficients"
        ),
    ):
        with pytest.raises(InvalidInput, match="every token of its traces"):
            given.certify(domain=domain, exact=True)


# All automata on all words: sizes, traces, seed, histories, rank.  Of seeds 0 to 7, 7, 6 and 7
# saturate from words of full length; of all lengths from 200, 1200 and 1200 traces, all do.
FULL = {(2, 2, 2): (60, 0, 64, 70), (2, 3, 3): (200, 0, 1728, 269), (3, 2, 3): (300, 1, 5832, 316)}
ALL = {
    (2, 2, 2): (200, 0, 96, 75),
    (2, 3, 3): (1200, 0, 2496, 291),
    (3, 2, 3): (1200, 0, 10206, 335),
}


@pytest.mark.parametrize(
    ("sizes", "full"),
    [
        ((2, 2, 2), True), ((2, 2, 2), False),
        pytest.param((2, 3, 3), True, marks=SLOW), pytest.param((3, 2, 3), True, marks=SLOW),
        pytest.param((2, 3, 3), False, marks=SLOW), pytest.param((3, 2, 3), False, marks=SLOW),
    ],
)  # fmt: skip
def test_every_automaton_on_every_word(sizes, full):
    n_traces, seed, n_histories, rank = (FULL if full else ALL)[sizes]
    program = P.universal_dfa(*sizes, style=ONE_HOT)
    lengths = (sizes[2], sizes[2]) if full else (1, sizes[2])
    traces = P.traces(program, n_traces, random_state=seed, lengths=lengths)
    found = P.learn(program.schema, traces, method="coefficients")
    domain = list(P.all_traces(program, lengths=lengths))
    proof = found.certify(domain=domain, exact=True)
    assert (proof.verdict, proof.proved, proof.rank) == ("saturated", True, rank)
    assert (proof.n_checked_traces, len(domain)) == (n_histories, n_histories)
    assert all(right.all() for right in found.right(domain))
    for trace in domain[:: len(domain) // 60]:
        dfa, word = trace.source
        assert found.run(dfa, word, abstain=True) == dfa.run(word)


@pytest.mark.parametrize("sizes", [(2, 3, 3), pytest.param((3, 2, 3), marks=SLOW)])
def test_every_automaton_on_every_word_of_full_length_in_floating_point(sizes):
    n_traces, seed, n_histories, rank = FULL[sizes]
    program, lengths = P.universal_dfa(*sizes, style=ONE_HOT), (3, 3)
    traces = P.traces(program, n_traces, random_state=seed, lengths=lengths)
    found = P.learn(program.schema, traces, method="coefficients")
    domain = list(P.all_traces(program, lengths=lengths))
    verdict = found.certify(domain=domain)
    assert (verdict.verdict, verdict.rank) == ("saturated", rank)
    assert verdict.n_checked_traces == n_histories
    assert all(right.all() for right in found.right(domain))


# Fifteen traces


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_fifteen_traces_saturate_and_run_at_ten_states(seed):
    """Of seeds 0 to 9, 8 saturate and 10 are exact."""
    program = P.universal_dfa(3, 3, 4, style=ONE_HOT)
    traces = P.traces(program, 15, random_state=seed, lengths=(4, 4))
    found = P.learn(program.schema, traces)
    assert found.succeeded
    fresh_ones = P.traces(program, 100, random_state=1000 + seed, lengths=(4, 4))
    assert found.certify(fresh=fresh_ones).verdict == "saturated"
    assert n_exact(found.resize(n_states=10, n_letters=6, max_length=30), 100) == 100


# Wrong labels


@pytest.mark.parametrize(
    ("n_traces", "wrong", "outcomes"),
    [
        (10, {"noise": 0.1}, {"learned"}),
        (10, {"flips": 0.1}, {"noisy"}),
        pytest.param(40, {"noise": 0.3}, {"noisy", "unexplained"}, marks=SLOW),
        pytest.param(150, {"noise": 1.0}, {"noisy", "unexplained"}, marks=SLOW),
    ],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
def test_rules_see_through_wrong_labels(n_traces, wrong, outcomes, seed):
    program = P.universal_dfa(3, 3, 4, style=ONE_HOT)
    clean = P.traces(program, n_traces, random_state=seed)
    found = P.learn(
        program.schema, pa.data.with_wrong_labels(clean, random_state=seed + 1, **wrong)
    )
    # Labels that still round to the right token are right; others are owned up to.
    assert found.outcome.name in outcomes
    assert n_exact(found.resize(n_states=8, n_letters=5, max_length=12), 50) == 50


@pytest.mark.parametrize(
    ("wrong", "outcome"), [({"noise": 0.1}, "fitted"), ({"flips": 0.05}, "repaired")]
)
def test_coefficients_see_through_some_wrong_labels(wrong, outcome):
    program = LIBRARY["one_hot"][0]
    traces = pa.data.with_wrong_labels(P.traces(program, 600, random_state=0), **wrong)
    found = P.learn(program.schema, traces, method="coefficients")
    assert (found.outcome.name, found.succeeded) == (outcome, outcome == "fitted")
    assert "contradict" in found.outcome.sentence
    assert n_exact(found, 50) == 50
    assert verdicts(found, 50)["wrong"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [
        # Some traces leave the span of the others: nothing confirms what their labels round to.
        ({"noise": 0.1}, "unchecked"),
        ({"noise": 0.3}, "repaired"),
        ({"flips": 0.02}, "repaired"),
        ({"flips": 0.1}, "repaired"),
    ],
)
def test_coefficients_of_four_states_see_through_wrong_labels(wrong, outcome):
    program = P.universal_dfa(4, 4, 4, style=ONE_HOT)
    clean = P.traces(program, 1000, random_state=0, lengths=(4, 4))
    traces = pa.data.with_wrong_labels(clean, random_state=1, **wrong)
    found = P.learn(program.schema, traces, method="coefficients")
    assert found.outcome.name == outcome
    test = P.traces(program, 200, random_state=10_000, lengths=(4, 4))
    assert sum(right.all() for right in found.right(test)) == 200


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=SLOW) for seed in (1, 2, 3))])
@pytest.mark.parametrize("n_traces", [5, pytest.param(15, marks=SLOW), 30])
def test_shuffled_labels_are_never_claimed(n_traces, seed):
    program = P.universal_dfa(2, 3, 3, style=ONE_HOT)
    traces = shuffled(P.traces(program, n_traces, random_state=seed), seed)
    for options in ({}, {"method": "coefficients"}):
        found = P.learn(program.schema, traces, **options)
        assert not found.succeeded, (options, str(found.outcome))
        assert found.outcome.name in {"unexplained", "unchecked", "penalised"}


def test_labels_of_coefficients_that_nothing_confirms_are_not_claimed():
    program = LIBRARY["one_hot"][0]
    found = P.learn(program.schema, P.traces(program, 3, random_state=0), method="coefficients")
    assert (found.outcome.name, found.succeeded) == ("unchecked", False)
    assert "any labels would have been fitted" in str(found.outcome)


# What is refused, and what is not


DFA2 = LIBRARY["one_hot"][0]
SOME = P.traces(DFA2, 20, random_state=0)


def relabelled(change):
    return [replace(trace, labels=change(trace.completion.astype(float))) for trace in SOME]


def changed(**parts):
    return [SOME[0], replace(SOME[1], **{k: f(getattr(SOME[1], k)) for k, f in parts.items()})]


@pytest.mark.parametrize("method", ["rules", "coefficients"])
@pytest.mark.parametrize(
    ("traces", "message"),
    [
        ([], "at least one trace; got none"),
        (3, "a list of traces; got one int"),
        (SOME[0], "a list of traces; got one Trace"),
        ([SOME[0], SOME[0].prompt], r"traces\[1\] must be a Trace; got ndarray"),
        (P.traces(LIBRARY["registers"][0], 2), r"traces\[0\] has the attributes flag, pos"),
        (relabelled(lambda labels: labels * np.nan), r"traces\[0\].labels must be finite"),
        (relabelled(lambda labels: labels + np.inf), r"traces\[0\].labels must be finite"),
        (relabelled(lambda labels: labels * 1e200), "below 1e"),
        (relabelled(lambda labels: labels * 1j), "real numbers; got ndarray of complex"),
        (relabelled(lambda labels: labels[:, 1:]), "must have the completion's shape"),
        (relabelled(lambda labels: labels[1:]), "must have the completion's shape"),
        (relabelled(lambda labels: labels[0]), "must have the completion's shape"),
        (relabelled(lambda labels: labels.tolist()), "real numbers; got list"),
        (changed(completion=lambda tokens: tokens[:0]), r"traces\[1\].completion must have shape"),
        (
            [replace(SOME[0], completion=SOME[0].completion[:0], labels=np.zeros((0, 16)))],
            r"traces\[0\].completion must have shape \(n, 16\) with at least one token",
        ),
        (changed(prompt=lambda tokens: tokens[:0]), r"traces\[1\].prompt must have shape"),
        (changed(prompt=lambda tokens: tokens[:, 1:]), r"shape \(n, 16\)"),
        (changed(prompt=lambda tokens: tokens * 0.5), r"traces\[1\].prompt must hold whole"),
        (changed(completion=lambda tokens: tokens * np.nan), "must hold whole numbers"),
        (changed(prompt=lambda tokens: tokens.tolist()), "as schema.encode"),
    ],
)
def test_bad_traces_are_refused(traces, message, method):
    with pytest.raises((InvalidInput, InvalidType), match=message):
        P.learn(DFA2.schema, traces, method=method)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"foo": 1}, "unexpected keyword argument 'foo'"),
        ({"ridge": 1}, "keywords max_offset, max_terms, n_folds, step; got ridge"),
        ({"ridge": None}, "got ridge"),
        ({"method": "coefficients", "max_terms": 3}, "keywords ridge; got max_terms"),
        ({"method": "coefficients", "step": None}, "keywords ridge; got step"),
        # At their default values, too.
        ({"ridge": "auto"}, "keywords max_offset, max_terms, n_folds, step; got ridge"),
        ({"method": "coefficients", "n_folds": 10}, "keywords ridge; got n_folds"),
        ({"method": "coefficients", "step": 0.5}, "keywords ridge; got step"),
        ({"method": True}, "method must be one of 'rules', 'coefficients'"),
        ({"method": "untied"}, "method must be one of"),
        ({"max_terms": 0}, "max_terms must be an integer of at least 1"),
        ({"n_folds": 1}, "n_folds must be an integer of at least 2"),
        ({"max_offset": 1.5}, "max_offset must be an integer"),
        ({"step": 0}, "step must be a number > 0"),
        ({"step": float("nan")}, "step must be a number > 0"),
        ({"method": "coefficients", "ridge": -1}, "ridge must be 'auto' or a number >= 0"),
        ({"method": "coefficients", "ridge": None}, "ridge must be"),
        ({"method": "coefficients", "ridge": float("nan")}, "ridge must be"),
    ],
)
def test_bad_options_are_refused(given, message):
    with pytest.raises((InvalidInput, TypeError), match=message):
        P.learn(DFA2.schema, SOME, **given)


def test_the_schema_must_be_one():
    for wrong in (DFA2, None, "px"):
        with pytest.raises(InvalidType, match="schema must be a Schema"):
            P.learn(wrong, SOME)


def test_traces_of_coefficients_must_have_the_size_of_the_schema():
    larger = P.universal_dfa(3, 2, 3, style=ONE_HOT)
    with pytest.raises(InvalidInput, match=r"16 numbers, those of the schema 19"):
        P.learn(larger.schema, SOME, method="coefficients")
    with pytest.raises(InvalidInput, match=r"traces\[20\] is of another size"):
        P.learn(DFA2.schema, [*SOME, *P.traces(larger, 2)], method="coefficients")


@pytest.mark.parametrize("method", ["rules", "coefficients"])
def test_one_trace_and_copies_of_it_claim_little(method):
    one = P.learn(DFA2.schema, SOME[:1], method=method)
    assert (one.outcome.name, one.succeeded) == ("unchecked", False)
    copies = P.learn(DFA2.schema, SOME[:1] * 12, method=method)
    assert copies.certify(fresh=P.traces(DFA2, 60, random_state=3)).verdict == "not_saturated"
    assert verdicts(copies, 20)["wrong"] == 0
    assert not (method == "rules" and copies.succeeded)
    dfa, word = SOME[0].source
    assert copies.run(dfa, word) == dfa.run(word)


@pytest.mark.parametrize("method", ["rules", "coefficients"])
def test_what_traces_are_made_of_does_not_matter(method):
    """Generators, small integers, whole floats, labels of only some: the same program."""
    wanted = [str(term) for term in P.learn(DFA2.schema, SOME, method=method).terms][:50]
    small = [
        replace(t, prompt=t.prompt.astype(np.int8), completion=t.completion.astype(float))
        for t in SOME
    ]
    labelled = [replace(SOME[0], labels=SOME[0].completion.astype(float)), *SOME[1:]]
    for given in (iter(SOME), tuple(SOME), small, labelled):
        found = P.learn(DFA2.schema, given, method=method)
        assert [str(term) for term in found.terms][:50] == wanted
        assert (
            repr(found)
            == f"{type(found).__name__}({found.outcome.name}, 20 traces, {found.n_rows} rows)"
        )


def test_certificates_of_repaired_programs_are_about_the_rows_that_are_believed():
    program = P.universal_dfa(2, 2, 2, style="one_hot")
    clean = P.traces(program, 200, random_state=0)
    found = P.learn(
        program.schema, pa.data.with_wrong_labels(clean, flips=0.05), method="coefficients"
    )
    assert found.outcome.name == "repaired"
    given = sum(trace.n_rows for trace in found.traces)
    assert 0.9 * given < found.n_rows < given
    assert found.certificate.n_rows == found.n_rows == found.span.n_rows
