"""Machine files: what people write is understood, and what is wrong is named with its place."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, MissingExtra
from polyattn.programs.machines import (
    DFA,
    NamedMachine,
    TuringMachine,
    load_machine,
    save_machine,
)
from polyattn.programs.machines.files import content_of, machine_from
from polyattn.programs.machines.format import yaml_syntax
from polyattn.programs.machines.format.tables import MOST_ENTRIES

PARITY = DFA([[0, 1], [1, 0]], accepting=[0])
BB2 = TuringMachine.parse("1RB1LB_1LA1RH")


@pytest.fixture
def load(tmp_path):
    """Load a text as a file; JSON unless another suffix is given."""

    def call(text, suffix=".json"):
        path = tmp_path / f"machine{suffix}"
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return load_machine(path)

    return call


# Automata

EVEN_ODD = {"even": {"0": "even", "1": "odd"}, "odd": {"0": "odd", "1": "even"}}


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "dfa", "transitions": EVEN_ODD},
        {"kind": "DFA", "states": ["even", "odd"], "letters": [0, 1], "transitions": EVEN_ODD},
        {"states": ["even", "odd"], "transitions": [["even", "odd"], ["odd", "even"]]},
        {"states": ["even", "odd"], "transitions": [[0, 1], [1, 0]]},
        {"states": ["even", "odd"], "letters": 2, "transitions": {"odd": [1, 0], "even": [0, 1]}},
        {"start": "even", "transitions": dict(reversed(EVEN_ODD.items()))},
    ],
)
def test_every_layout_of_a_table_is_the_same_automaton(content, load):
    named = load(content | {"accepting": "even", "word": "1101"})
    assert named.machine == PARITY
    assert named.states == ("even", "odd")
    assert named.letters == ("0", "1")
    assert (named.kind, named.decides, named.input) == ("dfa", True, (1, 1, 0, 1))


def test_a_plain_table_is_an_automaton(load):
    named = load([[0, 1], [1, 0]])
    assert named.machine == DFA([[0, 1], [1, 0]])
    assert (named.states, named.letters) == (("0", "1"), ("0", "1"))
    assert not named.decides
    assert load("[[0,1],[1,0]]", ".yaml") == named
    assert load({"transitions": [[0, 1], [1, 0]]}) == named


def test_the_start_state_becomes_number_zero(load):
    named = load({"transitions": [[0, 1], [2, 0], [1, 1]], "start": 2, "accepting": [1]})
    assert named.states == ("2", "0", "1")
    assert named.machine == DFA([[2, 2], [1, 2], [0, 1]], accepting=[2])
    word = [0, 1, 0]
    assert [named.states[q] for q in named.machine.run(word)] == ["1", "0", "0"]


def test_accepting_nothing_is_not_the_same_as_not_deciding(load):
    assert load({"transitions": [[0]], "accepting": []}).decides
    assert not load({"transitions": [[0]]}).decides


# Turing machines


@pytest.mark.parametrize(
    "content",
    [
        '"1RB1LB_1LA1RH"',
        {"rules": "1RB1LB_1LA1RH"},
        {"rules": [["1RB", "1LB"], ["1LA", "1RH"]]},
        {"rules": {"A": ["1RB", "1LB"], "B": ["1LA", "1RH"]}},
        {"rules": {"A": {"0": "1RB", "1": "1 L B"}, "B": {"0": "1,L,A", "1": "1RH"}}},
        {
            "rules": {
                "A": [["B", "1", "R"], ["B", 1, -1]],
                "B": [["A", 1, "left"], ["H", 1, "right"]],
            }
        },
        {"rules": [[[1, 1, 1], [1, 1, -1]], [[0, 1, -1], [-1, 1, 1]]]},
        {
            "states": ["A", "B", "H"],
            "halt": ["H"],
            "rules": {
                "A": {"0": {"next": "B", "write": 1, "move": "R"}, "1": {"next": "B", "move": "L"}},
                "B": {"0": {"next": "A", "write": 1, "move": "L"}, "1": {"next": "H", "move": "R"}},
                "H": {},
            },
        },
    ],
)
def test_every_way_to_write_rules_is_the_same_machine(content, load):
    named = load(content)
    assert named.machine == BB2
    assert (named.states, named.letters) == (("A", "B"), ("0", "1"))
    assert named.halts == {(1, 1): "H"}
    assert named.kind == "turing"


def test_start_and_blank_become_number_zero_and_names_stay(load):
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
    assert named.states == ("right", "back")
    assert named.letters == ("_", "0", "1")
    assert named.input == (1, 2, 2, 1)
    assert (named.position, named.start(named.input), named.max_steps) == ("last", 3, 50)
    run = named.machine.run([*named.input, 0])
    last = run.history[-1]
    assert run.halted
    assert named.halts[last.state, last.read] == "yes"
    assert named.written(run.tape) == "0110_"


def test_the_blank_need_not_be_listed_and_missing_rules_can_halt(load):
    named = load({
        "letters": ["a"], "blank": ".", "missing": "halt", "rules": {"go": {"a": {"move": "R"}}},
    })  # fmt: skip
    assert named.letters == (".", "a")
    assert named.machine.rules[0, 0] == (-1, 0, 0)
    assert named.machine.run([1, 1, 0]).steps == 3


def test_names_of_the_short_form_can_be_given(load):
    named = load({"rules": "1RB1LB_1LA1RH", "states": ["x", "H"], "letters": ["o", "i"]})
    assert (named.states, named.letters) == (("x", "H"), ("o", "i"))
    assert named.halts == {(1, 1): "HALT"}


def test_a_rule_of_long_names_is_split_where_it_can_be(load):
    named = load({"letters": ["L", "LL"], "rules": {"R": ["LLRR", ["R", "L", "S"]]}})
    assert named.machine.rules[0, 0] == (0, 1, 1)
    with pytest.raises(FileFormatError, match="2 ways"):
        load({"letters": ["L", "LL"], "rules": {"R": ["LLRR", "H"], "LR": ["LLLR", "H"]}})


# Names and words


def test_yaml_words_are_words(load):
    text = "{states: [on, off], letters: [y, n, 01], transitions: [[0, 1, 0], [off, on, on]]}"
    named = load(text, ".yaml")
    assert named.states == ("on", "off")
    assert named.letters == ("y", "n", "01")


@pytest.mark.parametrize(
    ("letters", "text", "numbers"),
    [
        (("0", "1"), "0110", [0, 1, 1, 0]),
        (("0", "1"), "0,1 1, 0", [0, 1, 1, 0]),
        (("0", "1"), "", []),
        (("0", "1"), 1101, [1, 1, 0, 1]),
        (("0", "1"), [1, "0"], [1, 0]),
        ((" ", "x"), "x x", [1, 0, 1]),
        (("red", "green"), "green, red", [1, 0]),
        (("red", "green"), "red", [0]),
        (("red", "green"), "", []),
        (("1", "11"), "11", [1]),
    ],
)
def test_words_are_read(letters, text, numbers):
    named = NamedMachine(DFA([[0] * len(letters)]), ("q",), letters)
    assert named.read(text) == numbers
    assert named.read([letters[x] for x in numbers]) == numbers
    if " " not in letters:
        assert named.read(named.written(numbers)) == numbers


@pytest.mark.parametrize("wrong", ["02", ["0", None], ["0", True], ["0", 1.0]])
def test_a_wrong_letter_is_named_with_its_place(wrong):
    with pytest.raises(
        InvalidInput, match="at place 1, which is no letter; the letters are '0', '1'"
    ):
        NamedMachine.plain(PARITY).read(wrong)
    with pytest.raises(InvalidType, match="text or a list"):
        NamedMachine.plain(PARITY).read({})


# Files that cannot be used

TABLE = {"a": {"0": "a", "1": "b"}, "b": {"0": "a", "1": "a"}}
RULES = {"A": {"0": "1RB", "1": "1LB"}, "B": {"0": "1LA", "1": "1RH"}}


def rule(value, **keys):
    return {"rules": {"A": {"0": value, "1": "1RH"}}} | keys


BAD_JSON = [
    ("", "is empty"),
    (" \n", "is empty"),
    ("{", "line 1, column 2"),
    ('{"transitions":\n [[0,]]}', "line 2, column"),
    ("hello", "no JSON"),
    ("null", "got None"),
    ("3", "got 3"),
    ("[" * 100_000, "nested too deeply"),
    ('{"max_steps": NaN}', "NaN is no number"),
    ('{"rules": "1RH", "max_steps": ' + "9" * 5000 + "}", "no JSON that can be read"),
    ('{"transitions": {"a": {"0": "a"}, "a": {"0": "a"}}}', "'a' stands twice"),
    ({}, "neither transitions nor rules"),
    ({"transitions": TABLE, "rules": RULES}, "both transitions and rules"),
    ({"kind": "pda", "transitions": TABLE}, "dfa or turing; got 'pda'"),
    ({"kind": 3}, "dfa or turing"),
    ({"kind": "dfa"}, "no transitions"),
    ({"kind": "turing", "transitions": TABLE}, "'transitions' is unknown"),
    ({"transitions": TABLE, "accept": ["a"]}, "is it 'accepting'"),
    ({"transitions": TABLE, "alphabet": ["a"]}, "is it 'letters'"),
    ({"transitions": TABLE, "startt": "a"}, "is it 'start'"),
    ({"transitions": TABLE, "tape": "a"}, "'tape' is unknown"),
    ({"transitions": TABLE, "name": 3}, "name must be text"),
    ({"transitions": []}, "transitions are empty"),
    ([], "transitions are empty"),
    ([[]], "no letters"),
    ([[0, 1], [0]], "1 entries in a list, for 2 letters"),
    ([[0, 2], [0, 1]], "'0' at letter '1': there is no state '2'"),
    ([[0, -1], [0, 1]], "no state '-1'"),
    ([[0, True], [0, 1]], "true is a truth value"),
    ([[0, 1.0], [0, 1]], "whole number; got 1.0"),
    ([[0, None], [0, 1]], "no transition for state '0' and letter '1'"),
    ([[0, [1]], [0, 1]], "got [1]"),
    ([0, 1], "got 0 in place of a row"),
    ({"transitions": "0110"}, "must be a table"),
    ({"transitions": {"a": {"0": "a"}, "b": {"1": "a"}}}, "state 'a' and letter '1'; state 'b'"),
    ({"transitions": {"a": {"0": "c"}}}, "transition of 'a' at letter '0': there is no state 'c'"),
    ({"transitions": TABLE, "letters": ["0"]}, "transitions of 'a': there is no letter '1'"),
    ({"transitions": TABLE, "states": ["a"]}, "there is no state 'b'"),
    ({"transitions": TABLE, "states": ["a", "b", "c"]}, "state 'c' and letter '0'"),
    ({"transitions": TABLE, "states": ["a", "b", "b"]}, "'b' stands twice"),
    ({"transitions": TABLE, "states": [1, "1"]}, "'1' stands twice"),
    ({"transitions": TABLE, "states": []}, "no states"),
    ({"transitions": TABLE, "states": "ab"}, "list of names"),
    ({"transitions": TABLE, "states": -1}, "list of names"),
    ({"transitions": TABLE, "states": ["a", ""]}, "states[1]"),
    ({"transitions": TABLE, "states": ["a", "b" * 65]}, "1 to 64"),
    ({"transitions": TABLE, "states": ["a", "b\n"]}, "printable"),
    ({"transitions": TABLE, "states": ["a", None]}, "a name is missing"),
    ({"transitions": TABLE, "states": ["a", {}]}, "got {}"),
    ({"transitions": TABLE, "start": "c"}, "start: there is no state 'c'"),
    ({"transitions": TABLE, "start": 2}, "start: there is no state '2'"),
    ({"transitions": TABLE, "start": False}, "false is a truth value"),
    ({"transitions": TABLE, "accepting": ["a", "c"]}, "accepting: there is no state 'c'"),
    ({"transitions": TABLE, "word": "012"}, "'2' at place 2"),
    ({"transitions": TABLE, "word": 1.5}, "text or a list"),
    ({"transitions": [[0]], "states": 1000, "letters": 1000}, "too many"),
    ("\"1RB1LB_1LA\"", "row 1 of"),
    ("\"1RB2LB_1LA1RH\"", "writes 2"),
    ("\"²RB1LB_1LA1RH\"", "rules: "),
    ({"rules": "1RB1LB_1LA1RH", "states": ["A"]}, "1 names; rules have 2 states"),
    ({"rules": "1RB1LB_1LA1RH", "missing": "halt"}, "leave it out"),
    ({"rules": 3}, "must be a table"),
    ({"rules": {}}, "rules are empty"),
    ({"rules": {"A": "1RH"}}, "in place of a row"),
    (rule("1RQ"), "rule of 'A' at letter '0': '1RQ' is no rule"),
    (rule("1XA"), "'1XA' is no rule"),
    (rule("2RA"), "The letters are '0', '1'"),
    (rule("2 R A"), "writes: there is no letter '2'"),
    (rule(["A", "1"]), "[next, write, move]"),
    (rule(["Q", "1", "R"]), "no state 'Q'; there are 'A'; halting states: 'H', 'HALT', 'halt'"),
    (rule(["A", "2", "R"]), "no letter '2'"),
    (rule(["A", "1", "up"]), "'up' is no move"),
    (rule(["A", "1", True]), "True is no move"),
    (rule(["A", "1", 2]), "2 is no move"),
    (rule({"write": 1, "goto": "A"}), "not 'goto'"),
    (rule({}), "some of next, write and move"),
    (rule(7), "7 is no rule"),
    (rule("1RH", halt="A"), "all states halt"),
    (rule("1RH", start="H"), "would halt in 'H' at once"),
    (rule("1RH", blank="_"), "no rule for state 'A' and letter '_'"),
    (rule("1RH", blank=[]), "blank: a name is text"),
    (rule("1RH", missing="stop"), "'error', 'halt'"),
    (rule("1RH", tape="0a"), "tape has 'a' at place 1"),
    (rule("1RH", position=1.5), "position must be a whole number"),
    (rule("1RH", position="middle"), "first or last"),
    (rule("1RH", max_steps=-1), "max_steps"),
    (rule("1RH", max_steps="many"), "max_steps"),
    (rule("1RH", max_steps=True), "max_steps"),
    (rule("1RH", word="0"), "'word' is unknown"),
    ({"rules": RULES, "halt": "B"}, "state 'B' halts, and yet has rules"),
    ({"rules": RULES | {"C": None}}, "state 'C' has no rules; if the machine ends there"),
    ({"rules": {"A": {"0": "1RH"}, "B": {"1": "1RH"}}}, "missing: halt"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), BAD_JSON)
def test_what_is_wrong_is_named(content, words, load):
    with pytest.raises(FileFormatError) as refused:
        load(content)
    message = str(refused.value)
    assert words in message
    assert "machine.json': " in message
    assert len(message) < 500 + len(words)


BAD_YAML = [
    ("a: [1", "line 1, column 4"),
    ("transitions:\n  a: {0: a}\n  a: {0: a}\n", "line 3, column 3"),
    ("transitions:\n  a: {0: a}\n  a: {0: a}\n", "the key 'a' stands twice"),
    ("transitions: {a: {0: a, '0': a}}", "letter '0' stands twice"),
    ("transitions: {a: {true: a}}", "true is a truth value, not a name; put it in quotes: 'true'"),
    ("transitions: {a: {1.5: a}}", "got 1.5"),
    ("transitions: {a: {0: }}", "no transition for state 'a' and letter '0'"),
    ("transitions: {[a]: {0: a}}", "the key ['a'] is no text and no number"),
    ("transitions: !!python/object:os.system {}", "os.system': machines are written without tags"),
    ("a: 1\n---\nb: 2", "single document"),
    ("a: \x01", "control characters"),
    ("&a [*a]", "line 1, column 5: it is no YAML that can be read (the alias 'a'"),
    ("- [[0, 1]]\n- !!set {a, b}", "written without tags"),
    ("[" * 70 + "]" * 70, "nested too deeply"),
    ("{a: " * 70 + "0" + "}" * 70, "nested too deeply"),
    ("{max_steps: .nan, rules: 0RH}", "max_steps must be"),
    ("# nothing", "got None"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), BAD_YAML)
def test_what_is_wrong_in_yaml_is_named(text, words, load):
    with pytest.raises(FileFormatError) as refused:
        load(text, ".yaml")
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: [1, -2, 0.5, 01, on, ~, 'x', \"y\", true]}\nc: |\n  two\n  lines\n", "[]", "{}",
        "- a\n- {b: , c: null}\n- [[[]]]\n", "&x [1]", "word", "3", "# nothing", "--- 5\n...\n",
    ],
)  # fmt: skip
def test_both_parsers_of_yaml_read_the_same(text, monkeypatch):
    """The one in C, and the one in Python where that is missing."""
    import yaml

    fast = yaml_syntax.parse_yaml(text)
    monkeypatch.setattr(yaml_syntax, "_PARSER", yaml.SafeLoader)
    assert yaml_syntax.parse_yaml(text) == fast


def test_aliases_that_grow_without_end_are_refused_at_once(load):
    text = "- &a0 [0]\n" + "".join(f"- &a{i + 1} [*a{i}, *a{i}, *a{i}]\n" for i in range(60))
    with pytest.raises(FileFormatError, match="the alias 'a0': write out"):
        load(text, ".yaml")


def test_files_that_are_no_text_or_too_large(tmp_path, monkeypatch):
    path = tmp_path / "machine.json"
    with pytest.raises(FileNotFoundError, match="no file"):
        load_machine(path)
    path.write_bytes(b"[[0, \xff]]")
    with pytest.raises(FileFormatError, match="UTF-8"):
        load_machine(path)
    path.write_text("[" + "[0, 1], " * 200_000 + "[0, 1]]")
    with pytest.raises(FileFormatError, match="at most 1000000"):
        load_machine(path)
    path.write_bytes(b"\xef\xbb\xbf[[0]]")  # some editors begin a file like this
    assert load_machine(path).machine == DFA([[0]])
    for call in (load_machine, lambda name: save_machine(PARITY, name)):
        with pytest.raises(FileFormatError, match=r"\.json, \.yaml, \.yml"):
            call(tmp_path / "machine.txt")
    rows = MOST_ENTRIES // 2 + 1
    with pytest.raises(InvalidInput, match="too many"):
        machine_from([[0, 0]] * rows)
    # Without pyyaml, JSON still works.
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "polyattn.programs.machines.format.yaml_syntax", raising=False)
    assert load_machine(path).machine == DFA([[0]])
    (tmp_path / "machine.yaml").write_text("[[0]]")
    with pytest.raises(MissingExtra, match=r"polyattn\[yaml\]"):
        load_machine(tmp_path / "machine.yaml")


# Properties

name = st.text(
    st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6
).filter(str.isprintable)  # fmt: skip
text_like_values = st.sampled_from(
    ["on", "yes", "null", "~", "true", "1", "01", "-1", "1e3", "=", "<<", "- a", "a: b", "#", "H",
     "HALT", "'", '"', "&a", "*a", "!", "%", "@", "{", "[", ",", "?", ".nan", "0x1", "2020-01-01"]
)  # fmt: skip


def some_names(size):
    return st.lists(name | text_like_values, min_size=size, max_size=size, unique=True).map(tuple)


@st.composite
def machines(draw):
    n_states, n_letters = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    names = draw(some_names(n_states + 2))
    states, ends = names[:n_states], names[n_states:]
    letters = draw(some_names(n_letters))
    given = st.lists(st.integers(0, n_letters - 1), max_size=5).map(tuple)
    rest = {"name": draw(st.sampled_from(["", "a machine"])), "input": draw(st.none() | given)}
    state, letter = st.integers(0, n_states - 1), st.integers(0, n_letters - 1)
    pairs = [(q, x) for q in range(n_states) for x in range(n_letters)]
    if draw(st.booleans()):
        table = [[draw(state) for _ in range(n_letters)] for _ in range(n_states)]
        accepting = draw(st.sets(state))
        decides = draw(st.booleans()) or bool(accepting)
        return NamedMachine(DFA(table, accepting), states, letters, decides=decides, **rest)
    step = st.tuples(st.integers(-1, n_states - 1), letter, st.integers(-1, 1))
    rules = {pair: draw(step) for pair in pairs}
    halts = {pair: draw(st.sampled_from(ends)) for pair, rule in rules.items() if rule[0] == -1}
    return NamedMachine(
        TuringMachine(rules, n_states, n_letters), states, letters, halts=halts,
        position=draw(st.integers(-3, 3) | st.sampled_from(["first", "last"])),
        max_steps=draw(st.none() | st.integers(0, 99)), **rest,
    )  # fmt: skip


@given(machine=machines(), suffix=st.sampled_from([".json", ".yaml", ".yml"]))
def test_what_is_saved_is_loaded(machine, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("machines") / f"machine{suffix}"
    save_machine(machine, path)
    assert load_machine(path) == machine
    assert machine_from(content_of(machine)) == machine


def test_the_comparison_can_fail():
    """Negative control: another name, rule or input is another machine."""
    named = NamedMachine.plain(BB2, "b")
    others = [
        NamedMachine.plain(BB2, "c"),
        NamedMachine.plain(PARITY, "b"),
        NamedMachine.plain(TuringMachine.parse("1RB1LB_1LA1LH"), "b"),
        NamedMachine(BB2, ("A", "C"), named.letters, "b", halts=named.halts),
        NamedMachine(BB2, named.states, named.letters, "b", halts={(1, 1): "END"}),
        NamedMachine(BB2, named.states, named.letters, "b", halts=named.halts, input=(0,)),
    ]
    assert all(named != other for other in others)


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("n_states", [2, 9, 30])
def test_machines_without_names_get_some(n_states, suffix, tmp_path):
    rules = {(q, 0): ((q + 1) if q + 1 < n_states else -1, 0, 1) for q in range(n_states)}
    machine = TuringMachine(rules, n_states, 1)
    for each in (machine, PARITY):
        save_machine(each, tmp_path / f"m{suffix}")
        assert load_machine(tmp_path / f"m{suffix}").machine == each
    assert list(tmp_path.iterdir()) == [tmp_path / f"m{suffix}"]


def test_only_machines_are_saved(tmp_path):
    with pytest.raises(InvalidType, match="DFA or a TuringMachine"):
        save_machine([[0]], tmp_path / "m.json")
    with pytest.raises(FileNotFoundError, match="folder"):
        save_machine(PARITY, tmp_path / "gone" / "m.json")


scalars = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=4)
anything = st.recursive(
    scalars | st.sampled_from(["1RB", "A", "H", "1RB1LB_1LA1RH", "---"]),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            scalars | st.sampled_from(["A", "B", "next", "write"]), inside, max_size=3
        )
    ),
    max_leaves=12,
)
KEYS = ("kind", "name", "states", "letters", "start", "accepting", "transitions", "word", "blank")
KEYS += ("halt", "rules", "missing", "tape", "position", "max_steps")


def machine_or_message(content):
    try:
        return machine_from(content), ""
    except (InvalidInput, InvalidType) as error:
        return None, str(error)


@settings(max_examples=500)
@given(content=anything | st.dictionaries(st.sampled_from(KEYS), anything, max_size=6))
def test_whatever_a_file_holds_it_is_a_machine_or_a_clear_error(content):
    named, message = machine_or_message(content)
    if named is None:
        assert message.endswith((".", "?"))
        assert len(message) < 1500
    else:
        assert machine_from(content_of(named)) == named


def test_the_names_are_public():
    machines = pa.programs.machines
    assert machines.load_machine is load_machine
    assert machines.save_machine is save_machine
