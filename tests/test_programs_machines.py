"""Machines that are ready, and machines, words and tapes that are not: answers and refusals."""

# ruff: noqa: E501 - a table reads best with one refusal per line

import re
from itertools import product

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, PolyattnError
from program_cases import HALT, facts, oracle_configurations, random_dfa, random_turing, ring

P = pa.programs
M = P.machines
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def turing():
    """The compiled universal Turing machine with 7 states, 3 letters and 24 cells."""
    return P.compile(P.universal_turing_machine(7, 3, 24))


# ---------------------------------------------------------------- busy beavers

BUSY_BEAVERS = [(2, 6, 4), (3, 21, 5), (4, 107, 13)]


@pytest.mark.parametrize(("n_states", "steps", "ones"), BUSY_BEAVERS)
def test_busy_beavers_halt_when_they_must(n_states, steps, ones):
    machine = M.busy_beaver(n_states)
    program = P.universal_turing_machine(n_states, 2, 32)
    run = P.compile(program).run(machine, max_steps=1000, overflow="error")
    assert (run.steps, sum(run.tape), run.halted, run.wrapped_at) == (steps, ones, True, None)
    assert run == program.interpret(machine) == machine.run([0] * 32)
    last = oracle_configurations(machine, [0], 1000)[-1]
    assert (last.state, [*last.tape].count("1")) == ("halt", ones)


def test_the_fifth_busy_beaver_is_exact_for_3000_steps():
    machine = M.busy_beaver(5)
    program = P.universal_turing_machine(5, 2, 128)
    run = P.compile(program).run(machine, max_steps=3000)
    assert (run.steps, run.halted, run.wrapped_at) == (3000, False, None)
    assert facts(run) == ring(machine, [], 128, 3000)
    configurations = oracle_configurations(machine, [0], 3000)
    for step, configuration in zip(run.history, configurations, strict=False):
        assert configuration.state == str(step.state)
        assert configuration.tape.read_symbol() == str(step.read)
    assert [*configurations[-1].tape].count("1") == sum(run.tape)


def test_three_hundred_steps_of_the_fifth_by_the_interpreter():
    program = P.universal_turing_machine(5, 2, 40)
    assert facts(program.interpret(M.busy_beaver(5), max_steps=300)) == ring(
        M.busy_beaver(5), [], 40, 300
    )


@pytest.mark.parametrize("n_states", [1, 6, "2", None])
def test_other_busy_beavers_are_not_ready(n_states):
    with pytest.raises(InvalidInput, match="2 to 5 states"):
        M.busy_beaver(n_states)


# ---------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("number", [*range(20), 255, 4095])
def test_increment_adds_one(turing, number):
    digits = [int(digit) for digit in f"0{number:b}"]
    run = turing.run(M.binary_increment(), digits, position=len(digits) - 1, overflow="error")
    assert run.halted
    assert int("".join(map(str, run.tape[: len(digits)])), 2) == number + 1


@pytest.mark.parametrize(("left", "right"), [*product(range(1, 6), range(5)), (11, 9)])
def test_unary_addition_adds(turing, left, right):
    run = turing.run(M.unary_addition(), [1] * left + [0] + [1] * right, overflow="error")
    assert run.halted
    assert run.tape == [1] * (left + right) + [0] * (24 - left - right)


@pytest.mark.parametrize("length", range(9))
def test_palindromes_are_accepted_and_nothing_else(turing, length):
    machine = M.palindrome()
    words = [*product((1, 2), repeat=length)]
    runs = turing.run_batch([(machine, [0, *word]) for word in words], position=1, overflow="error")
    for word, run in zip(words, runs, strict=True):
        assert run.halted
        assert sorted(run.tape) == [0] * 23 + [int(word == word[::-1])]


def test_parity_counts():
    parity = M.parity()
    compiled = P.compile(P.universal_dfa(2, 2, 8))
    for word in (word for length in range(9) for word in product((0, 1), repeat=length)):
        assert compiled.run(parity, word) == [sum(word[: i + 1]) % 2 for i in range(len(word))]
        assert parity.accepts(word) == (sum(word) % 2 == 0)


@pytest.mark.parametrize("base", [2, 3, 10])
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("style", ["registers", "one_hot"])
def test_divisibility_divides(divisor, base, style):
    dfa = M.divisibility(divisor, base)
    compiled = P.compile(P.universal_dfa(divisor, base, 4, style=style))
    for number in [*range(0, base**4, max(1, base**4 // 40))]:
        digits = [number // base**place % base for place in (3, 2, 1, 0)]
        assert compiled.run(dfa, digits)[-1] == number % divisor
        assert dfa.accepts(digits) == (number % divisor == 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: P.machines.divisibility(2.5), "divisor must be an integer"),
        (lambda: P.machines.busy_beaver([]), "busy beavers are ready for 2 to 5"),
        (lambda: P.TuringMachine.parse(3), "is a text; got 3"),
        (lambda: P.TuringMachine.parse("²RB"), "is no rule"),
        (lambda: BB2.run([0], position=1), "position must be 0 to 0; got 1"),
        (lambda: BB2.run([0], state=2), "state must be 0 to 1; got 2"),
        (lambda: BB2.run([0], max_steps=-1), "max_steps must be an integer of at least 0"),
        (lambda: BB2.run([0, 0], position=0.5), "position must be an integer"),
    ],
)
def test_what_machines_refuse(call, words):
    with pytest.raises(PolyattnError, match=words):
        call()


@pytest.mark.parametrize(("divisor", "base"), [(0, 2), (-1, 2), (2, 1), (2, 0)])
def test_divisibility_by_nothing(divisor, base):
    with pytest.raises(InvalidInput, match="must be an integer of at least"):
        M.divisibility(divisor, base)


# ---------------------------------------------------------------- machines as data


def test_machines_are_equal_when_their_rules_are():
    table = [[0, 1], [1, 0]]
    assert P.DFA(table, [0]) == M.parity() != P.DFA(table)
    assert len({P.DFA(table), P.DFA(np.array(table)), M.parity()}) == 2
    assert M.busy_beaver(3) == P.TuringMachine.parse("1RB1RH_1LB0RC_1LC1LA")
    assert M.busy_beaver(3) != M.busy_beaver(4)
    assert M.parity() != table
    assert len({M.busy_beaver(2), M.busy_beaver(2), M.busy_beaver(3)}) == 2


def test_the_table_of_an_automaton_cannot_change():
    table = np.array([[0, 1], [1, 0]])
    dfa = P.DFA(table)
    table[0, 0] = 1
    assert dfa.run([0]) == [0]
    with pytest.raises(ValueError, match="read-only"):
        dfa.transitions[0, 0] = 1


def test_parse_reads_the_usual_short_form():
    machine = P.TuringMachine.parse("1RB---_0LA1RZ\n")
    assert dict(machine.rules) == {
        (0, 0): (1, 1, 1), (0, 1): (HALT, 1, 0), (1, 0): (0, 0, -1), (1, 1): (HALT, 1, 1),
    }  # fmt: skip
    # With eight states, H is one of them.
    assert P.TuringMachine.parse("_".join(["1RH0LA"] * 8)).rules[0, 0] == (7, 1, 1)


def test_missing_rules_can_halt():
    with pytest.raises(InvalidInput, match=r"no rule for \(state, letter\) = \(0, 1\), \(1, 0\)"):
        P.TuringMachine({(0, 0): (1, 1, 1), (1, 1): (0, 0, 0)}, 2, 2)
    machine = P.TuringMachine({(0, 0): (1, 1, 1), (1, 1): (0, 0, 0)}, 2, 2, missing="halt")
    assert machine.run([0, 0, 0]).history[-1] == (1, 1, 0, 0, 0, HALT)


def test_a_run_can_be_read():
    text = M.busy_beaver(2).run([0] * 5).show(most=2)
    assert text.splitlines() == [
        "    0  [0] 0  0  0  0   state 0: read 0, write 1, right, state 1",
        "    1   1 [0] 0  0  0   state 1: read 0, write 1, left, state 0",
        "       ... 4 steps more",
        "    6  [1] 1  0  1  1   halted",
    ]


REFUSED_MACHINES = [
    (lambda: P.DFA([]), "transitions must be a table"),
    (lambda: P.DFA([0, 1]), "transitions must be a table"),
    (lambda: P.DFA([[]]), "transitions must be a table"),
    (lambda: P.DFA([[0.0, 1.0], [0.0, 0.0]]), "must be integers; got float64"),
    (lambda: P.DFA([[np.nan]]), "must be integers; got float64"),
    (lambda: P.DFA([[True, False]]), "must be integers; got bool"),
    (lambda: P.DFA([["a"]]), "must be integers"),
    (lambda: P.DFA([[None]]), "must be integers"),
    (lambda: P.DFA([[0, 2], [0, 1]]), "transitions[0, 1] is 2; the states are 0 to 1"),
    (lambda: P.DFA([[0, 1], [-1, 1]]), "transitions[1, 0] is -1"),
    (lambda: P.DFA([[0]], accepting=[1]), "accepting has states outside 0 to 0"),
    (lambda: P.TuringMachine([], 1, 1), "rules must be a mapping; got list"),
    (lambda: P.TuringMachine({}, 0, 1), "n_states must be an integer of at least 1; got 0"),
    (lambda: P.TuringMachine({}, 1, 1.0), "n_letters must be an integer of at least 1; got 1.0"),
    (lambda: P.TuringMachine({}, 1, 1, missing="stop"), "missing must be one of 'error', 'halt'"),
    (lambda: P.TuringMachine({(0, 0): (1, 0, 0)}, 1, 1), "next_state 1 is neither a state nor -1"),
    (lambda: P.TuringMachine({(0, 0): (-4, 0, 0)}, 1, 1), "next_state -4 is neither"),
    (lambda: P.TuringMachine({(0, 0): (0, 1, 2)}, 1, 1), "it writes 1; the letters are 0 to 0; it moves 2"),
    (lambda: P.TuringMachine({(1, 0): (0, 0, 0)}, 1, 1), "state 1 is not among 0 to 0"),
    (lambda: P.TuringMachine({(0, 1): (0, 0, 0)}, 1, 1), "letter 1 is not among 0 to 0"),
    (lambda: P.TuringMachine({(0, 0): (0, 0)}, 1, 1), "must be (state, letter): (next_state, write, move)"),
    (lambda: P.TuringMachine({(0, 0): (0, "x", 0)}, 1, 1), "must be (state, letter)"),
    (lambda: P.TuringMachine({0: (0, 0, 0)}, 1, 1), "must be (state, letter)"),
    (lambda: P.TuringMachine.parse("1RB"), "'1RB' is no rule"),
    (lambda: P.TuringMachine.parse("1RA1"), "every row needs the same number of triples"),
    (lambda: P.TuringMachine.parse("1RA_1RA1RA"), "every row needs the same number of triples"),
    (lambda: P.TuringMachine.parse(""), "every row needs the same number of triples"),
    (lambda: P.TuringMachine.parse("0XA"), "'0XA' is no rule"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), REFUSED_MACHINES)
def test_wrong_machines_are_refused(make, reason):
    with pytest.raises(PolyattnError, match=re.escape(reason)):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: P.TuringMachine({(0, 0): (0.9, 0.5, 1)}, 1, 1),
        lambda: P.TuringMachine({(0.5, 0): (0, 0, 1)}, 1, 1, missing="halt"),
        lambda: P.DFA([[0, 1], [0]]),
        lambda: P.DFA([[0]], accepting=[0.5]),
        lambda: P.DFA([[0]], accepting=3),
    ],
)
def test_machines_of_halves_and_rags_are_refused(make):
    with pytest.raises(PolyattnError):
        make()


# ---------------------------------------------------------------- words, tapes and options

DFA2 = P.DFA([[0, 1], [1, 0]])
BB2 = M.busy_beaver(2)
STAY = P.TuringMachine({(0, 0): (0, 0, 0)}, 1, 1)
PROGRAMS = {
    "registers": P.universal_dfa(2, 3, 3),
    "one_hot": P.universal_dfa(2, 3, 3, style="one_hot"),
    "fixed": P.fixed_dfa(DFA2, 3),
    "turing": P.universal_turing_machine(2, 2, 4),
    "memory": P.associative_memory(3, 3),
}

WRONG_LETTERS = [
    ([0, 2], "[1] is 2; the letters are 0 to 1"), ([-1], "[0] is -1"),
    ([0, True], "[1] must be an integer; got True"), ([1.0], "[0] must be an integer; got 1.0"),
    ([np.nan], "[0] must be an integer; got nan"), (["a"], "[0] must be an integer; got 'a'"),
    ("01", "[0] must be an integer; got '0'"), ([None], "[0] must be an integer; got None"),
    ([[0]], "[0] must be an integer; got [0]"), (3, "must be a sequence of letters; got 3"),
    (None, "must be a sequence of letters; got None"),
]  # fmt: skip

REFUSED_RUNS = [
    *(("registers", (DFA2, word), {}, f"word{reason}" if reason[0] == "[" else reason) for word, reason in WRONG_LETTERS),
    *(("one_hot", (DFA2, word), {}, f"word{reason}" if reason[0] == "[" else reason) for word, reason in WRONG_LETTERS),
    *(("fixed", (word,), {}, f"word{reason}" if reason[0] == "[" else reason) for word, reason in WRONG_LETTERS),
    *(("turing", (BB2, tape), {}, f"tape{reason}" if reason[0] == "[" else reason) for tape, reason in WRONG_LETTERS),
    *((name, (DFA2, [0] * 4), {}, "the word has 4 letters; this program was made for up to 3") for name in ("registers", "one_hot")),
    ("fixed", ([0] * 4,), {}, "the word has 4 letters"),
    ("turing", (BB2, [0] * 5), {}, "the tape has 5 letters; this program has 4 cells"),
    *((name, (random_dfa(RNG, 3, 2), [0]), {}, "the machine has 3 states and 2 letters; this program was made for up to 2 and 3") for name in ("registers", "one_hot")),
    ("registers", (random_dfa(RNG, 2, 4), [0]), {}, "2 states and 4 letters"),
    ("turing", (M.busy_beaver(3), []), {}, "the machine has 3 states"),
    ("turing", (random_turing(RNG, 2, 3), []), {}, "2 states and 3 letters"),
    ("registers", (BB2, [0]), {}, "this program runs a DFA, as in run(dfa, word); got TuringMachine"),
    ("one_hot", ([[0, 1]], [0]), {}, "this program runs a DFA, as in run(dfa, word); got list"),
    ("turing", (DFA2, [0]), {}, "this program runs a TuringMachine, as in run(machine, tape); got DFA"),
    ("turing", (BB2,), {"max_steps": -1}, "max_steps must be an integer of at least 0; got -1"),
    ("turing", (BB2,), {"max_steps": 2.0}, "max_steps must be an integer of at least 0; got 2.0"),
    ("turing", (BB2,), {"max_steps": None}, "max_steps must be an integer"),
    ("turing", (BB2,), {"position": 4}, "position must be 0 to 3; got 4"),
    ("turing", (BB2,), {"position": -1}, "position must be an integer of at least 0; got -1"),
    ("turing", (BB2,), {"position": True}, "position must be an integer"),
    ("turing", (BB2,), {"state": 2}, "state must be 0 to 1; got 2"),
    ("turing", (STAY,), {"state": 1}, "state must be 0 to 0; got 1"),
    ("turing", (BB2,), {"overflow": "grow"}, "overflow must be one of 'wrap', 'error'"),
    ("memory", ({}, 0), {}, "table must hold at least one key; got none"),
    ("memory", ({1: 1}, 0), {}, "key 0 is not in the table; it has [1]"),
    ("memory", ({1: 3}, 1), {}, "values[0] is 3; the letters are 0 to 2"),
    ("memory", ({3: 1}, 3), {}, "keys[0] is 3"),
    ("memory", ({1: 1}, 1.0), {}, "key[0] must be an integer; got 1.0"),
    ("memory", ({1: 1}, [1]), {}, "key[0] must be an integer; got [1]"),
    ("memory", ({1: np.nan}, 1), {}, "values[0] must be an integer; got nan"),
    ("memory", ({1: 1, "a": 1}, 1), {}, "keys[1] must be an integer; got 'a'"),
    ("memory", ([1], 1), {}, "table must be a mapping of keys to values; got [1]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "options", "reason"), REFUSED_RUNS)
def test_wrong_input_is_refused_alike_by_all_ways_to_run(name, given, options, reason):
    program = PROGRAMS[name]
    compiled = P.compile(program)
    ways = [
        lambda: program.interpret(*given, **options),
        lambda: compiled.run(*given, **options),
        lambda: compiled.run_batch([given], **options),
        lambda: compiled.trace(*given, **options),
    ]
    for run in ways:
        with pytest.raises(PolyattnError, match=re.escape(reason)):
            run()


REFUSED_SIZES = [
    (lambda: P.associative_memory(0, 1), "n_keys must be an integer of at least 1; got 0"),
    (lambda: P.associative_memory(1, 2.0), "n_values must be an integer of at least 1; got 2.0"),
    (lambda: P.universal_dfa(0, 1, 1), "n_states must be an integer of at least 1"),
    (lambda: P.universal_dfa(1, True, 1), "n_letters must be an integer of at least 1; got True"),
    (lambda: P.universal_dfa(1, 1, 0), "max_length must be an integer of at least 1"),
    (lambda: P.universal_dfa(1, 1, 1, style="two_hot"), "style must be one of 'registers', 'one_hot'"),
    (lambda: P.universal_turing_machine(1, 0, 2), "n_letters must be an integer of at least 1"),
    (lambda: P.universal_turing_machine(1, 1, 1), "n_cells must be an integer of at least 2; got 1"),
    (lambda: P.fixed_dfa(BB2, 3), "this program runs a DFA, as in fixed_dfa(dfa, max_length)"),
    (lambda: P.fixed_dfa(DFA2, 0), "max_length must be an integer of at least 1; got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), REFUSED_SIZES)
def test_impossible_sizes_are_refused(make, reason):
    with pytest.raises(PolyattnError, match=re.escape(reason)):
        make()


# ---------------------------------------------------------------- the least there can be


def test_empty_words_lead_nowhere():
    for name in ("registers", "one_hot"):
        assert P.compile(PROGRAMS[name]).run(DFA2, []) == PROGRAMS[name].interpret(DFA2, ()) == []
    assert P.compile(PROGRAMS["fixed"]).run([]) == []


def test_no_steps_leave_everything_as_it_was():
    for run in (P.compile(PROGRAMS["turing"]).run, PROGRAMS["turing"].interpret):
        found = run(BB2, [1, 0, 1], max_steps=0, position=2, state=1)
        assert facts(found) == ([1, 0, 1, 0], 1, 2, [], None)


def test_letters_of_numpy_are_letters():
    word = np.array([1, 0, 1], dtype=np.uint8)
    assert P.compile(PROGRAMS["registers"]).run(DFA2, word) == [1, 1, 0]
    assert P.compile(PROGRAMS["turing"]).run(BB2, word).tape == BB2.run([1, 0, 1, 0]).tape
    assert P.compile(PROGRAMS["memory"]).run({np.int64(2): np.int64(1)}, np.int64(2)) == 1


def test_words_may_be_read_only_once():
    assert P.compile(PROGRAMS["registers"]).run(DFA2, iter([1, 0])) == [1, 1]
    assert P.compile(PROGRAMS["one_hot"]).run(DFA2, (x for x in (1, 1))) == [1, 0]


def test_a_head_that_goes_around_is_refused_on_demand():
    right = P.TuringMachine({(0, 0): (0, 1, 1), (0, 1): (0, 1, 1)}, 1, 2)
    compiled = P.compile(P.universal_turing_machine(1, 2, 4))
    assert compiled.run(right, max_steps=9).wrapped_at == 4
    for max_steps in (0, 3):
        assert compiled.run(right, max_steps=max_steps, overflow="error").wrapped_at is None
    with pytest.raises(InvalidInput, match="the head leaves the tape of 4 cells at step 4"):
        compiled.run(right, max_steps=4, overflow="error")
    with pytest.raises(InvalidInput, match="the head leaves the tape"):
        compiled.run_batch([(STAY,), (right,)], max_steps=9, overflow="error")


def test_a_head_that_meets_the_far_end_of_a_tape_is_refused_on_demand():
    left = P.TuringMachine({(0, 0): (HALT, 0, 0), (0, 1): (0, 1, -1)}, 1, 2)
    compiled = P.compile(P.universal_turing_machine(1, 2, 4))
    # An endless tape has a blank left of the word, the ring has the end of the word.
    assert len(oracle_configurations(left, [1, 1, 1, 1], 3)) == 3
    with pytest.raises(InvalidInput, match="the head leaves the tape"):
        compiled.run(left, [1, 1, 1, 1], max_steps=3, overflow="error")
