"""Traces: what programs write, which machines are drawn, and labels that are wrong."""

from collections import Counter
from itertools import product

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

P = pa.programs

ZERO, STEP = P.DFA([[0, 0], [0, 0]]), P.DFA([[1, 0], [1, 1]])
PROGRAMS = {
    "memory": P.associative_memory(3, 3),
    "fixed": P.fixed_dfa(STEP, 3),
    "one_hot": P.universal_dfa(2, 2, 3, style="one_hot"),
    "registers": P.universal_dfa(2, 2, 3),
    "turing": P.universal_turing_machine(2, 2, 4),
}
DFA = PROGRAMS["one_hot"]


def content(traces):
    return [(trace.prompt.tolist(), trace.completion.tolist()) for trace in traces]


def words(traces):
    return [list(trace.source[-1]) for trace in traces]


# Drawing


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_seed_is_a_seed(program):
    first = P.traces(program, 12, random_state=3)
    assert content(first) == content(P.traces(program, 12, random_state=3))
    assert content(first) == content(P.traces(program, 12, random_state=np.int64(3)))
    assert content(first) != content(P.traces(program, 12, random_state=4))
    assert content(first)[:5] == content(P.traces(program, 5, random_state=3))


def test_a_generator_goes_on():
    rng = np.random.default_rng(3)
    first, second = P.traces(DFA, 8, random_state=rng), P.traces(DFA, 8, random_state=rng)
    assert content(first) == content(P.traces(DFA, 8, random_state=3))
    assert content(first + second) == content(P.traces(DFA, 16, random_state=3))


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_traces_are_what_the_compiled_program_writes(program):
    compiled = P.compile(program)
    for trace in P.traces(program, 10, random_state=1):
        prompt = [program.schema.decode(row) for row in trace.prompt]
        tokens = compiled.decode(prompt, limit=trace.n_rows).tokens
        assert np.array_equal(program.schema.encode(tokens), trace.completion)
        assert (trace.labels, trace.n_rows) == (None, len(trace.completion))
        assert trace.targets is trace.completion


@pytest.mark.parametrize("name", ["fixed", "one_hot", "registers"])
def test_words_have_all_lengths_and_no_others(name):
    program = PROGRAMS[name]
    drawn = Counter(len(word) for word in words(P.traces(program, 90, random_state=0)))
    assert set(drawn) == {1, 2, 3}
    assert min(drawn.values()) > 15
    assert {len(w) for w in words(P.traces(program, 20, lengths=(2, 3)))} == {2, 3}
    assert {len(w) for w in words(P.traces(program, 9, lengths=[3, 3]))} == {3}


def test_turing_machines_stop_early_and_late():
    traces = P.traces(PROGRAMS["turing"], 60, random_state=0, steps=(2, 20))
    steps = [(trace.n_rows - 1) // 2 for trace in traces]
    assert min(steps) <= 2
    assert max(steps) > 12
    assert max(steps) <= 20
    assert {t.n_rows for t in P.traces(PROGRAMS["turing"], 5, steps=(0, 0))} == {1}


def test_machines_and_inputs_are_taken_in_turn():
    inputs = [[0], [1], [0, 1]]
    found = P.traces(DFA, 7, machines=[ZERO, STEP], inputs=inputs)
    assert [trace.source[0] for trace in found] == [ZERO, STEP, ZERO, STEP, ZERO, STEP, ZERO]
    assert words(found) == [*inputs, *inputs, [0]]
    assert words(P.traces(DFA, 2, machines=[ZERO, STEP, ZERO], inputs=inputs)) == inputs[:2]
    assert len(P.traces(DFA, machines=[ZERO, STEP], inputs=inputs)) == 3
    assert len(P.traces(DFA)) == 25
    assert words(P.traces(DFA, inputs=np.array([[0, 1], [1, 1]]))) == [[0, 1], [1, 1]]
    assert [t.source[0] for t in P.traces(DFA, machines=iter([STEP, ZERO]))] == [STEP, ZERO]


def test_a_key_that_is_given_is_in_the_table():
    found = P.traces(PROGRAMS["memory"], 40, inputs=[2])
    assert all(key == 2 and key in table for table, key in (trace.source for trace in found))
    assert {len(trace.source[0]) for trace in found} == {1, 2, 3}


# Everything there is


def test_all_automata_on_all_words():
    everything = list(P.all_traces(DFA))
    tables = {(t.source[0], tuple(t.source[1])) for t in everything}
    wanted = {
        (P.DFA(np.reshape(table, (2, 2))), word)
        for table in product(range(2), repeat=4)
        for length in (1, 2, 3)
        for word in product(range(2), repeat=length)
    }
    assert len(everything) == len(wanted) == 16 * 14
    assert tables == wanted
    assert len(list(P.all_traces(DFA, lengths=(3, 3)))) == 16 * 8
    for trace in everything[::7]:
        dfa, word = trace.source
        block = trace.schema.blocks["state"]
        assert trace.completion[2::2, block].argmax(axis=1).tolist() == dfa.run(word)


@pytest.mark.parametrize(("name", "n_traces"), [("fixed", 14), ("memory", 144)])
def test_all_inputs_of_other_programs(name, n_traces):
    found = list(P.all_traces(PROGRAMS[name]))
    assert len(found) == len({str(trace.source) for trace in found}) == n_traces


def test_all_words_of_one_length_of_a_fixed_automaton():
    found = list(P.all_traces(PROGRAMS["fixed"], lengths=(2, 2)))
    assert words(found) == [list(word) for word in product(range(2), repeat=2)]


# What is refused


@pytest.mark.parametrize("name", ["fixed", "one_hot", "registers"])
@pytest.mark.parametrize("lengths", [(0, 3), (0, 0), (-1, 2), (1, 4), (4, 4), (3, 1)])
def test_lengths_that_no_word_can_have_are_refused(name, lengths):
    for draw in (P.traces, P.all_traces):
        with pytest.raises(InvalidInput, match=r"lengths must be two integers from 1 to 3"):
            draw(PROGRAMS[name], lengths=lengths)


@pytest.mark.parametrize("lengths", [(2,), (1, 2, 3), 5, "ab", (1.5, 2), (None, 3)])
def test_lengths_that_are_no_lengths_are_refused(lengths):
    for draw in (P.traces, P.all_traces):
        with pytest.raises(InvalidType, match=r"lengths must be two integers"):
            draw(DFA, lengths=lengths)
    with pytest.raises(InvalidType, match=r"steps must be two integers"):
        P.traces(PROGRAMS["turing"], steps=lengths)


@pytest.mark.parametrize("steps", [(-1, 2), (3, 1)])
def test_steps_that_no_run_can_have_are_refused(steps):
    with pytest.raises(InvalidInput, match="steps must be two integers of at least 0"):
        P.traces(PROGRAMS["turing"], steps=steps)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("one_hot", {"machines": [3]}, "runs a DFA"),
        ("one_hot", {"machines": [P.machines.busy_beaver(2)], "inputs": [[0]]}, "runs a DFA"),
        ("one_hot", {"machines": [P.DFA([[0, 1], [1, 2], [0, 0]])]}, "3 states"),
        ("one_hot", {"machines": ZERO}, "machines must be a list"),
        ("one_hot", {"machines": []}, "machines must not be empty"),
        ("one_hot", {"inputs": []}, "inputs must not be empty"),
        ("one_hot", {"inputs": [[5]]}, r"word\[0\] is 5"),
        ("one_hot", {"inputs": [[0] * 4]}, "4 letters"),
        ("turing", {"machines": [ZERO]}, "runs a TuringMachine"),
        ("turing", {"inputs": [[0] * 5]}, "5 letters"),
        ("fixed", {"machines": [ZERO]}, "automaton built in"),
        ("memory", {"machines": [ZERO]}, "table must be a mapping"),
        ("memory", {"machines": [{}]}, "at least one key"),
        ("memory", {"machines": [{0: 1}], "inputs": [2]}, "not in the table"),
        ("memory", {"lengths": (1, 2)}, "has the options"),
        ("one_hot", {"steps": (1, 2)}, "options lengths; got 'steps'"),
        ("one_hot", {"n_traces": 0}, "n_traces must be an integer of at least 1"),
        ("one_hot", {"n_traces": 2.5}, "n_traces must be an integer"),
        ("one_hot", {"random_state": True}, "random_state must be"),
        ("one_hot", {"random_state": -1}, "random_state must be"),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, given, message):
    with pytest.raises((InvalidInput, InvalidType), match=message):
        P.traces(PROGRAMS[name], **given)


def test_what_cannot_be_listed_is_refused_at_once():
    with pytest.raises(InvalidInput, match="cannot list all machines"):
        P.all_traces(PROGRAMS["turing"])
    with pytest.raises(InvalidType, match="options"):
        P.all_traces(PROGRAMS["memory"], lengths=(1, 1))
    bare = P.Schema((P.Attribute("a", (P.symbols("s", 2),)),))
    s = P.variables("s")[0]
    program = P.Program(bare, [P.Constant(bare.a(0), when=bare.a(s))], "no machines")
    for draw in (P.traces, P.all_traces):
        with pytest.raises(InvalidInput, match="has an encoding"):
            draw(program)
        with pytest.raises(InvalidType, match="needs a Program; got Compiled"):
            draw(P.compile(DFA))


# pa.data


def test_data_are_traces_of_the_library():
    found = pa.data.automaton_traces(9, 2, 2, 3, style="one_hot", random_state=5)
    assert content(found) == content(P.traces(DFA, 9, random_state=5))
    found = pa.data.automaton_traces(9, 2, 2, 3, random_state=5, lengths=(2, 2))
    assert content(found) == content(P.traces(PROGRAMS["registers"], 9, 5, lengths=(2, 2)))
    found = pa.data.turing_traces(9, 2, 2, 4, random_state=5, steps=(3, 9))
    assert content(found) == content(P.traces(PROGRAMS["turing"], 9, 5, steps=(3, 9)))
    with pytest.raises(InvalidInput, match="lengths must be"):
        pa.data.automaton_traces(3, max_length=4, lengths=(1, 5))
    with pytest.raises(InvalidInput, match="style must be one of"):
        pa.data.automaton_traces(3, style="one hot")
    with pytest.raises(InvalidInput, match="n_traces"):
        pa.data.turing_traces(0)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_every_flip_is_one(program):
    clean = P.traces(program, 60, random_state=0)
    flipped = pa.data.with_wrong_labels(clean, flips=1.0, random_state=1)
    for before, after in zip(clean, flipped, strict=True):
        assert after.prompt is before.prompt
        assert after.completion is before.completion
        changed = after.labels != before.completion
        assert changed.any(axis=1).all()
        for row in changed:  # one attribute
            assert sum(row[block].any() for block in program.schema.blocks.values()) == 1


@pytest.mark.parametrize("program", [P.associative_memory(1, 1), P.universal_dfa(1, 1, 1)])
def test_a_flip_is_one_where_nothing_can_stand_elsewhere(program):
    found = pa.data.with_wrong_labels(P.traces(program, 20), flips=1.0)
    assert all((trace.labels != trace.completion).any(axis=1).all() for trace in found)


def test_the_share_of_flips_and_the_size_of_noise_are_right():
    clean = P.traces(DFA, 2000, random_state=0)
    n_rows = sum(trace.n_rows for trace in clean)
    flipped = pa.data.with_wrong_labels(clean, flips=0.1, random_state=1)
    n_wrong = sum((t.labels != t.completion).any(axis=1).sum() for t in flipped)
    assert abs(n_wrong / n_rows - 0.1) < 5 * np.sqrt(0.09 / n_rows)
    noisy = pa.data.with_wrong_labels(clean, noise=0.3, random_state=1)
    rest = np.concatenate([(t.labels - t.completion).ravel() for t in noisy])
    assert abs(rest.std() - 0.3) < 5 * 0.3 / np.sqrt(2 * rest.size)
    assert abs(rest.mean()) < 5 * 0.3 / np.sqrt(rest.size)


def test_wrong_labels_have_seeds_and_add_up():
    clean = P.traces(DFA, 10, random_state=0)
    make = pa.data.with_wrong_labels
    one, same, other = (make(clean, noise=0.1, random_state=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a.labels, b.labels) for a, b in zip(one, same, strict=True))
    assert not np.array_equal(one[0].labels, other[0].labels)
    rng = np.random.default_rng(1)
    assert np.array_equal(make(clean, noise=0.1, random_state=rng)[0].labels, one[0].labels)
    assert not np.array_equal(make(clean, noise=0.1, random_state=rng)[0].labels, one[0].labels)
    untouched = make(clean)
    assert all(np.array_equal(t.labels, t.completion) for t in untouched)
    twice = make(one, flips=1.0, random_state=3)
    assert all((a.labels != b.labels).any(axis=1).all() for a, b in zip(one, twice, strict=True))
    assert make([]) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": -1}, "noise must be"),
        ({"noise": np.nan}, "noise must be"),
        ({"flips": 1.1}, "flips must be"),
        ({"flips": "a"}, "flips must be"),
        ({"random_state": True}, "random_state must be"),
    ],
)
def test_wrong_levels_are_refused(given, message):
    with pytest.raises(InvalidInput, match=message):
        pa.data.with_wrong_labels(P.traces(DFA, 2), **given)


def test_only_traces_get_wrong_labels():
    with pytest.raises(InvalidType, match=r"clean\[0\] must be a Trace; got int"):
        pa.data.with_wrong_labels([3])
    with pytest.raises(InvalidType, match="a list of traces"):
        pa.data.with_wrong_labels(P.traces(DFA, 1)[0])
