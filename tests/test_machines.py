"""Automata and Turing machines: ready ones, as data, in files, and on an endless tape."""

import json
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from machine_oracles import HALT, Ring, configurations, dfa_states, random_dfa, random_turing
from polyattn.errors import FileFormatError, InvalidInput, MissingExtra, PolyattnError

P, M = pa.programs, pa.programs.machines
PARITY, BEAVER = P.DFA([[0, 1], [1, 0]], accepting=[0]), P.TuringMachine.parse("1RB1LB_1LA1RH")


@given(st.integers(0, 2**32 - 1))
def test_machines_run_by_their_own_rules(seed):
    rng = np.random.default_rng(seed)
    Q, A, C = rng.integers(1, 5, size=3).tolist()
    dfa, word = random_dfa(rng, Q, A), rng.integers(A, size=rng.integers(9)).tolist()
    dfa = P.DFA(dfa.transitions, accepting=[Q - 1])
    states = dfa_states(dfa, word)
    assert dfa.run(word) == states
    assert dfa.accepts(word) == ([0, *states][-1] == Q - 1)
    machine, tape = random_turing(rng, Q, A), rng.integers(A, size=C + 1).tolist()
    options = {"max_steps": int(rng.integers(30)), "position": int(rng.integers(C + 1))}
    run = machine.run(tape, **options, state=Q - 1)
    assert Ring.of(run) == Ring.run(machine, tape, C + 1, **options, state=Q - 1)


LARGE = pytest.param((6, 4, 96), 500, 15_000, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("sizes", "n_machines", "least"), [((2, 2, 40), 60, 600), ((4, 3, 64), 60, 600), LARGE]
)
def test_layers_do_what_automata_lib_does_on_an_endless_tape(sizes, n_machines, least):
    """Up to the first step that an endless tape would not do."""
    (Q, A, C), rng, n_compared = sizes, np.random.default_rng(0), 0
    compiled = P.compile(P.universal_turing_machine(Q, A, C))
    tasks = [
        (random_turing(rng, Q, A), rng.integers(A, size=rng.integers(1, 9)).tolist())
        for _ in range(n_machines)
    ]
    runs = compiled.run_batch(tasks, max_steps=200)
    for (machine, tape), run in zip(tasks, runs, strict=True):
        steps = run.steps if run.wrapped_at is None else run.wrapped_at - 1
        found = configurations(machine, tape, steps)
        assert len(found) == steps + 1
        seen = [(other.state, other.tape.read_symbol()) for other in found[:steps]]
        assert seen == [(str(step.state), str(step.read)) for step in run.history[:steps]]
        if run.wrapped_at is None:
            assert found[-1].state == ("halt" if run.state == HALT else str(run.state))
            assert sum(run.tape) == sum(map(int, found[-1].tape))
        n_compared += steps
    assert n_compared > least


def test_turing_machines_that_are_ready_compute_what_they_say():
    for n_states, steps, ones in ((2, 6, 4), (3, 21, 5), (4, 107, 13)):
        machine, program = M.busy_beaver(n_states), P.universal_turing_machine(n_states, 2, 32)
        run = P.compile(program).run(machine, max_steps=1000, overflow="error")
        assert (run.steps, sum(run.tape), run.halted, run.wrapped_at) == (steps, ones, True, None)
        assert run == program.interpret(machine) == machine.run([0] * 32)
    turing = P.compile(P.universal_turing_machine(7, 3, 24))
    for number in (*range(9), 255, 4095):
        digits = [int(digit) for digit in f"0{number:b}"]
        run = turing.run(M.binary_increment(), digits, position=len(digits) - 1, overflow="error")
        assert run.halted
        assert int("".join(map(str, run.tape[: len(digits)])), 2) == number + 1
    for left, right in [*product((1, 2, 5), (0, 1, 4)), (11, 9)]:
        run = turing.run(M.unary_addition(), [1] * left + [0] + [1] * right, overflow="error")
        assert run.tape == [1] * (left + right) + [0] * (24 - left - right)


def test_automata_that_are_ready_compute_what_they_say():
    for word in (word for length in range(7) for word in product((0, 1), repeat=length)):
        assert M.parity().accepts(word) == (sum(word) % 2 == 0)
    for divisor, base in product((1, 2, 3, 7, 9), (2, 3, 10)):
        dfa = M.divisibility(divisor, base)
        for number in range(0, base**4, max(1, base**4 // 40)):
            digits = [number // base**place % base for place in (3, 2, 1, 0)]
            assert dfa.run(digits)[-1] == number % divisor
            assert dfa.accepts(digits) == (number % divisor == 0)


def test_machines_are_equal_when_their_rules_are_and_cannot_change():
    table = np.array([[0, 1], [1, 0]])
    dfa = P.DFA(table)
    table[0, 0] = 1
    assert dfa.run([0]) == [0]
    with pytest.raises(ValueError, match="read-only"):
        dfa.transitions[0, 0] = 1
    assert PARITY == M.parity() != dfa
    assert len({dfa, PARITY, M.parity()}) == 2
    assert len({M.busy_beaver(2), BEAVER, M.busy_beaver(3)}) == 2


def test_the_short_form_is_read_and_missing_rules_can_halt():
    machine = P.TuringMachine.parse("1RB---_0LA1RZ\n")
    rules = {(0, 0): (1, 1, 1), (0, 1): (HALT, 1, 0), (1, 0): (0, 0, -1), (1, 1): (HALT, 1, 1)}
    assert dict(machine.rules) == rules
    # With eight states, H is one of them.
    assert P.TuringMachine.parse("_".join(["1RH0LA"] * 8)).rules[0, 0] == (7, 1, 1)
    some = {(0, 0): (1, 1, 1), (1, 1): (0, 0, 0)}
    with pytest.raises(InvalidInput, match=r"\(0, 1\), \(1, 0\)"):
        P.TuringMachine(some, 2, 2)
    machine = P.TuringMachine(some, 2, 2, missing="halt")
    assert machine.run([0, 0, 0]).history[-1] == (1, 1, 0, 0, 0, HALT)


REFUSED = [
    *((lambda t=t: P.DFA(t), "transitions") for t in (
        [], [0, 1], [[]], [[0.0, 1.0], [0.0, 0.0]], [[0, 1], [0]])),
    (lambda: P.DFA([[0, 2], [0, 1]]), r"transitions\[0, 1\]"),
    *((lambda a=a: P.DFA([[0]], accepting=a), "accepting") for a in ([1], [0.5])),
    (lambda: P.TuringMachine({}, 0, 1), "n_states"),
    *((lambda p=p, r=r: P.TuringMachine({p: r}, 1, 1), word) for p, r, word in (
        ((0, 0), (1, 0, 0), "next_state 1"), ((0, 0), (0, 1, 2), "writes 1.*moves 2"),
        ((1, 0), (0, 0, 0), "state 1"), ((0, 1), (0, 0, 0), "letter 1"),
        ((0, 0), (0, 0), "rule"), ((0, 0), (0.9, 0.5, 1), "rule"))),
    *((lambda t=t: P.TuringMachine.parse(t), "text|rule|triples") for t in (
        "1RB", "1RA_1RA1RA", "0XA", "²RB")),
    (lambda: BEAVER.run([0], position=1), "position"),
    (lambda: BEAVER.run([0], state=2), "state"),
    (lambda: BEAVER.run([]), "tape"),
    (lambda: PARITY.run([2]), r"word\[0\]"),
    *((lambda n=n: M.busy_beaver(n), "2 to 5") for n in (1, 6)),
    (lambda: M.divisibility(0, 2), "divisor"), (lambda: M.divisibility(2, 1), "base"),
]  # fmt: skip


def test_wrong_machines_are_refused():
    for make, word in REFUSED:
        with pytest.raises(PolyattnError, match=word):
            make()


@pytest.fixture
def load(tmp_path):
    """Load plain data, or a text, as a file; JSON unless another suffix is given."""

    def call(text, suffix=".json"):
        path = tmp_path / f"machine{suffix}"
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return M.load_machine(path)

    return call


EVEN_ODD = {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}
RULES = {"A": {"0": "1RB", "1": "1LB"}, "B": {"0": "1LA", "1": "1RH"}}
BRIEF = {"A": {"0": {"next": "B", "write": 1, "move": "R"}, "1": {"next": "B", "move": "L"}},
         "B": {"0": ["A", 1, "L"], "1": {"next": "H", "move": "R"}}}  # fmt: skip


def test_every_layout_of_a_table_is_the_same_automaton(load):
    for content in (
        {"kind": "dfa", "transitions": EVEN_ODD},
        {"states": ["even", "odd"], "letters": ["0", "1"], "transitions": EVEN_ODD},
        {"states": ["even", "odd"], "transitions": [["even", "odd"], ["odd", "even"]]},
        {"states": ["even", "odd"], "transitions": [[0, 1], [1, 0]]},
        {"start": "even", "transitions": dict(reversed(EVEN_ODD.items()))},
    ):
        named = load(content | {"accepting": "even", "word": "1101"})
        assert (named.machine, named.input) == (PARITY, (1, 1, 0, 1))
        assert (named.states, named.letters) == (("even", "odd"), ("0", "1"))
    plain = load([[0, 1], [1, 0]])
    assert (plain.machine, plain.states) == (P.DFA([[0, 1], [1, 0]]), ("0", "1"))
    assert load("[[0,1],[1,0]]", ".yaml") == plain
    # The start state becomes number 0.
    named = load({"transitions": [[0, 1], [2, 0], [1, 1]], "start": 2, "accepting": [1]})
    assert named.states == ("2", "0", "1")
    assert named.machine == P.DFA([[2, 2], [1, 2], [0, 1]], accepting=[2])


def test_every_way_to_write_rules_is_the_same_machine(load):
    for content in (
        "1RB1LB_1LA1RH",
        {"rules": RULES},
        {"rules": BRIEF},
        {"rules": {"A": [["B", "1", "right"], ["B", 1, -1]], "B": [["A", 1, -1], "1RH"]}},
    ):
        named = load(json.dumps(content))
        assert (named.machine, named.halts) == (BEAVER, {(1, 1): "H"})
        assert (named.states, named.letters) == (("A", "B"), ("0", "1"))
    with pytest.raises(FileFormatError, match="2 ways"):
        load({"letters": ["L", "LL"], "rules": {"R": ["LLRR", "H"], "LR": ["LLLR", "H"]}})


def test_start_blank_verdicts_and_names_are_those_of_the_file(load):
    named = load("""
    letters: [0, 1, _]
    start: right
    halt: [yes, no]
    tape: 0110
    position: last
    max_steps: 50
    rules:
      back: {0: [yes, 0, S], 1: [no, 1, S], _: [no, _, S]}
      right: {0: {move: R}, 1: {move: R}, _: {move: L, next: back}}
    """, ".yml")  # fmt: skip
    assert (named.states, named.letters) == (("right", "back"), ("_", "0", "1"))
    assert (named.input, named.position, named.max_steps) == ((1, 2, 2, 1), "last", 50)
    assert (named.start(named.input), named.start([])) == (3, 0)
    assert M.NamedMachine.plain(BEAVER).start([1, 0]) == 0
    run = named.machine.run([*named.input, 0])
    last = run.history[-1]
    assert named.halts[last.state, last.read] == "yes"
    assert named.written(run.tape) == "0110_"
    named = load({
        "accepting": "yes", "rejecting": ["no", "never"], "letters": ["_", "a"],
        "rules": {"look": {"_": "---", "a": ["second", "a", "R"]},
                  "second": {"_": "yes", "a": {"next": "never", "move": "R"}}},
    })  # fmt: skip
    ends = [named.machine.rules[pair] for pair in ((0, 0), (1, 0), (1, 1))]
    assert ends == [(HALT, 0, 0), (M.ACCEPT, 0, 0), (M.REJECT, 1, 1)]
    assert named.halts == {(0, 0): "H", (1, 0): "yes", (1, 1): "never"}
    rules = {"go": {"a": {"move": "R"}}}
    named = load({"letters": ["a"], "blank": ".", "missing": "halt", "rules": rules})
    assert (named.letters, named.machine.rules[0, 0]) == ((".", "a"), (HALT, 0, 0))


def test_words_are_read_by_the_names_of_letters(load):
    for letters, word, numbers in (
        (["0", "1"], "0110", [0, 1, 1, 0]), (["0", "1"], "0,1 1, 0", [0, 1, 1, 0]),
        (["0", "1"], "", []), (["0", "1"], 1101, [1, 1, 0, 1]), (["0", "1"], [1, "0"], [1, 0]),
        ([" ", "x"], "x x", [1, 0, 1]), (["red", "green"], "green, red", [1, 0]),
        (["1", "11"], "11", [1]),
    ):  # fmt: skip
        named = load({"letters": letters, "transitions": [[0] * len(letters)], "word": word})
        assert (list(named.input), named.read(word)) == (numbers, numbers)
        if " " not in letters:
            assert named.read(named.written(numbers)) == numbers
    parity = load({"transitions": EVEN_ODD})
    for wrong in ("02", ["0", None], ["0", True]):
        with pytest.raises(InvalidInput, match=r"place 1.*'0', '1'"):
            parity.read(wrong)


def rule(value, **keys):
    return {"rules": {"A": {"0": value, "1": "1RH"}}} | keys


def table(**keys):
    return {"transitions": {"a": {"0": "a", "1": "b"}, "b": {"0": "a", "1": "a"}}} | keys


# What is wrong, and words of which each must be in the message.
BAD_JSON = [
    ("", "empty"), ("{", "line 1, column 2"), ("3", "3"), ("[" * 100_000, "nested"),
    ('{"max_steps": NaN}', "NaN"), ('{"transitions": {"a": {"0": "a"}, "a": {"0": "a"}}}', "'a'"),
    (table(rules=RULES), "transitions rules"), (table(kind="turing"), "'transitions'"),
    (table(startt="a"), "'start'"), ([[0, 1], [0]], "1 2"), ([[0, 2], [0, 1]], "'0' '1' '2'"),
    ({"transitions": {"a": {"0": "c"}}}, "'a' '0' 'c'"), (table(letters=["0"]), "'a' '1'"),
    (table(states=["a", "b", "b"]), "'b' twice"), (table(states=["a", "b\n"]), "printable"),
    (table(accepting=["a", "c"]), "accepting 'c'"), (table(word="012"), "'2' 2"),
    ({"transitions": [[0]], "states": 1000, "letters": 1000}, "too many"),
    ('"1RB1LB_1LA"', "row 1"), (rule("1RQ"), "'A' '0' '1RQ'"), (rule("2RA"), "'0', '1'"),
    (rule(["A", "1"]), "next, write, move"), (rule({"write": 1, "goto": "A"}), "'goto'"),
    (rule("1RH", start="H"), "'H'"), (rule("1RH", blank="_"), "'A' '_'"),
    (rule("1RH", position="middle"), "first last"), (rule("1RH", max_steps=-1), "max_steps"),
    ({"rules": RULES, "halt": "B"}, "'B'"), (rule("0Ryes", accepting="yes", halt="yes"), "yes"),
]  # fmt: skip
BAD_YAML = [
    ("a: [1", "line 1"), ("transitions:\n  a: {0: a}\n  a: {0: a}\n", "line 3 'a'"),
    ("a: \x01", "control"), ("transitions: !!python/object:os.system {}", "tags"),
    ("&a [*a]", "line 1 alias"), ("[" * 70 + "]" * 70, "nested"),
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "cases"), [(".json", BAD_JSON), (".yaml", BAD_YAML)])
def test_what_is_wrong_in_a_file_is_named_with_its_place(load, suffix, cases):
    for content, words in cases:
        with pytest.raises(FileFormatError) as refused:
            load(content, suffix)
        message = str(refused.value)
        for word in [words] if "," in words or "[" in words else words.split():
            assert word in message, (content, message)
        assert "machine." in message
        assert len(message) < 1000


def test_files_that_are_no_machine_files(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    for content, words in ((b"[[0, \xff]]", "UTF-8"), (b"[" + b"[0, 1], " * 200_000, "1000000")):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=words):
            M.load_machine(path)
    path.write_bytes(b"\xef\xbb\xbf[[0]]")  # some editors begin a file like this
    for call in (M.load_machine, lambda name: M.save_machine(PARITY, name)):
        with pytest.raises(FileFormatError, match=r"\.json, \.yaml, \.yml"):
            call(tmp_path / "machine.txt")
    # Without pyyaml, JSON still works.
    for name in [each for each in sys.modules if each == "yaml" or each.endswith("yaml_syntax")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert M.load_machine(path).machine == P.DFA([[0]])
    path.rename(tmp_path / "machine.yaml")
    with pytest.raises(MissingExtra, match="yaml"):
        M.load_machine(tmp_path / "machine.yaml")


NAMES = st.text(
    st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6
).filter(str.isprintable) | st.sampled_from(
    ["on", "null", "~", "true", "1", "01", "-1", "1e3", "<<", "- a", "a: b", "#", "H", "HALT",
     "'", '"', "&a", "*a", "!", "%", "{", "[", ",", "?", ".nan", "0x1", "2020-01-01"]
)  # fmt: skip


@st.composite
def machines(draw):
    """Named automata and Turing machines; their ends are called other than their states."""
    letters = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    *states, halt, yes, no = draw(st.lists(NAMES, min_size=4, max_size=7, unique=True))
    sizes, rng = (len(states), len(letters)), np.random.default_rng(draw(st.integers(0, 999)))
    word = st.lists(st.integers(0, len(letters) - 1), max_size=5).map(tuple)
    rest = {"name": draw(st.sampled_from(["", "some"])), "input": draw(st.none() | word)}
    if draw(st.booleans()):
        accepting = draw(st.sets(st.integers(0, len(states) - 1)))
        dfa = P.DFA(random_dfa(rng, *sizes).transitions, accepting)
        decides = draw(st.booleans()) or bool(accepting)
        return M.NamedMachine(dfa, tuple(states), tuple(letters), decides=decides, **rest)
    rules = dict(random_turing(rng, *sizes, halting=0.3).rules)
    for pair, (after, *change) in rules.items():
        rules[pair] = (int(rng.choice([-1, -2, -3])) if after == HALT else after, *change)
    ends = {-1: halt, -2: yes, -3: no}
    return M.NamedMachine(
        P.TuringMachine(rules, *sizes), tuple(states), tuple(letters),
        halts={pair: ends[after] for pair, (after, *_) in rules.items() if after < 0},
        position=draw(st.integers(-3, 3) | st.sampled_from(["first", "last"])),
        max_steps=draw(st.none() | st.integers(0, 99)), **rest,
    )  # fmt: skip


@given(machine=machines(), suffix=st.sampled_from([".json", ".yaml", ".yml"]))
def test_what_is_saved_is_loaded(machine, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("machines") / f"machine{suffix}"
    M.save_machine(machine, path)
    assert M.load_machine(path) == machine
    M.save_machine(machine.machine, path)  # without names it gets some
    assert M.load_machine(path).machine == machine.machine
