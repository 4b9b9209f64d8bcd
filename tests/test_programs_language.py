"""The language: sorts, patterns and schemas, their properties, and programs of one's own."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, OutOfRange
from polyattn.programs.language.program import Interpreter, rounded
from polyattn.programs.language.schema import decode
from polyattn.programs.language.terms import Beyond, Unequal
from program_cases import LayerAlone
from program_reference import SCHEMA, patterns, place_of, tokens

P = pa.programs


# ---------------------------------------------------------------- sorts


@given(st.integers(1, 9), st.integers(0, 8), st.integers(-20, 20))
def test_steps_around_a_circle_lead_back(size, start, steps):
    start %= size
    circle = P.circle("c", size)
    assert circle.shifted(circle.shifted(start, steps), -steps) == start
    assert circle.shifted(start, size) == start


@given(st.integers(1, 9), st.integers(0, 8), st.integers(-20, 20))
def test_lines_have_ends(size, start, steps):
    start %= size
    moved = P.line("l", size).shifted(start, steps)
    assert moved == (start + steps if 0 <= start + steps < size else None)


def test_values_are_in_order_numbers_first():
    states = P.symbols("state", 2).plus("HALT")
    assert states.parts == (0, 1, "HALT")
    assert str(states) == "state: 2 symbols, HALT"
    assert P.names("move", "L", "R").parts == ("L", "R")
    assert [s.is_ordered for s in (states, P.line("l", 1), P.circle("c", 1))] == [False, True, True]
    key = P.Attribute("key", (states, P.symbols("letter", 2)), whole=("START",))
    assert key.values == (*product((0, 1, "HALT"), (0, 1)), "START")
    assert [key.places[value] for value in key.values] == [*range(7)]
    assert P.Attribute("flag").values == ((),)


# ---------------------------------------------------------------- patterns


@given(patterns())
def test_filling_is_the_inverse_of_matching(pattern):
    for value in pattern.attribute.values:
        found = pattern.match(value)
        if found is not None:
            assert pattern.fill(found) == value
            assert found.keys() == pattern.variables.keys()


@given(patterns(), st.data())
def test_matching_is_the_inverse_of_filling(pattern, data):
    known = {
        name: data.draw(
            st.sampled_from((*range(6), "HALT") if sort.kind != "circle" else sort.parts)
        )
        for name, sort in pattern.variables.items()
    }
    value = pattern.fill(known)
    if value is not None:
        assert value in pattern.attribute.places
        assert pattern.match(value) == known
        assert (pattern.attribute.name, value) == place_of(pattern, known)
    else:
        assert place_of(pattern, known) not in SCHEMA.coordinates


def test_the_same_variable_is_the_same_value():
    (q,) = P.variables("q")
    assert SCHEMA.key(q, q).match((1, 1)) == {"q": 1}
    assert SCHEMA.key(q, q).match((1, 0)) is None
    pair = P.Attribute("pair", (P.line("time", 4), P.line("time", 4)))
    assert pair(q, q + 1).match((2, 3)) == {"q": 2}
    assert pair(q, q + 1).match((3, 2)) is None
    assert pair(q, q + 1).fill({"q": 3}) is None


def test_a_variable_can_leave_the_shorter_line_as_long_as_its_steps_do_not():
    (t,) = P.variables("t")
    pos, end = SCHEMA.pos, SCHEMA.end  # 3 and 4 values
    program = P.Program(SCHEMA, [P.IfThen(pos(t - 1), when=end(t))])
    for last, expected in [(0, {}), (1, {"pos": 0}), (3, {"pos": 2})]:
        prompt = [SCHEMA.token(end=last)]
        for predictor in (Interpreter(program), LayerAlone(P.compile(program))):
            (token,) = decode(SCHEMA, predictor, prompt, 1).tokens
            assert token == SCHEMA.token(**expected)


def test_patterns_terms_and_programs_can_be_read():
    q, r, t = P.variables("q r t")
    key, state, pos = SCHEMA.key, SCHEMA.state, SCHEMA.pos
    instructions = [
        P.Lookup(state(r) << state(r), key(q, r), key(q, r)),
        P.Copy(-(state(r) << state(r)), pos(t - 1), pos(t)),
        P.IfThen(SCHEMA.flag(), key("START")),
        P.Conjunction(key(q, r), state(q), key(0, r)),
        P.Register(state(r) << SCHEMA.sum(r), SCHEMA.flag(), state(q)),
    ]
    text = str(P.Program(SCHEMA, instructions, "example"))
    for line in (
        "1. look up state(r) << state(r) at key(q, r) = key(q, r)",
        "2. copy -state(r) << state(r) from pos(t-1) as pos(t) asks",
        "3. if key(START) then flag",
        "4. if state(q) and key(0, r) then key(q, r)",
        "5. register state(r) << sum(r) if state(q)",
    ):
        assert line in text
    (term,) = instructions[1].terms()
    assert str(term) == "-1 state(r) <- state(r) & pos(t-1) given pos(t)"
    assert str(Unequal(q, "HALT")) == "q != HALT"
    assert str(Beyond(q, r, 1, P.line("l", 3))) == "q > r + 1"
    assert str(Beyond(q, r, 1, P.circle("c", 3))) == "q more than 1 from r"


# ---------------------------------------------------------------- schemas


@given(st.lists(tokens(), max_size=5))
def test_decoding_is_the_inverse_of_encoding(given_tokens):
    rows = SCHEMA.encode(given_tokens)
    assert rows.shape == (len(given_tokens), SCHEMA.n_dims)
    assert [SCHEMA.decode(row) for row in rows] == given_tokens
    np.testing.assert_array_equal(SCHEMA.round(rows), rows)


@given(tokens(), st.integers(0, 2**32 - 1))
def test_noise_below_one_half_is_rounded_away(token, seed):
    row = SCHEMA.encode([token])[0]
    noise = np.random.default_rng(seed).uniform(-0.24, 0.24, size=row.shape)
    np.testing.assert_array_equal(SCHEMA.round(row + noise), row)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 0.6, 1.0, 1.5, -2.0, -0.5, 2.5]), min_size=30, max_size=30)
)
def test_the_interpreter_rounds_as_arrays_are_rounded(amounts):
    assert SCHEMA.n_dims == 30
    written = dict(zip(SCHEMA.atoms, amounts, strict=True))
    assert rounded(SCHEMA, written) == SCHEMA.decode(SCHEMA.round(np.array(amounts)))


def test_one_half_is_not_held_and_ties_go_to_the_first():
    at = SCHEMA.blocks["state"]
    outputs = np.zeros((3, SCHEMA.n_dims))
    outputs[0, at], outputs[1, at], outputs[2, at] = (0.5, 0.25), (1.0, 1.0), (0.5, 0.5000001)
    states = [SCHEMA.decode(row) for row in SCHEMA.round(outputs)]
    assert states == [{}, SCHEMA.token(state=0), SCHEMA.token(state=1)]


@pytest.mark.parametrize("written", [1e25, -(2.0**63), np.inf, np.nan])
def test_outputs_that_no_token_holds_are_an_error(written):
    """They would wrap around, and the run would go on with other numbers."""
    P = pa.programs
    schema = P.Schema((P.Attribute("sum", (P.symbols("x", 2),), rounding="integer"),))
    with pytest.raises(OutOfRange, match="attribute 'sum'; a token holds integers below 2"):
        schema.round(np.array([0.0, written]))
    assert schema.round(np.array([-(2.0**62), 1.4])).tolist() == [-(2**62), 1]


def test_blocks_follow_each_other():
    assert sum((SCHEMA.atoms[block] for block in SCHEMA.blocks.values()), ()) == SCHEMA.atoms
    assert [SCHEMA.coordinates[atom] for atom in SCHEMA.atoms] == [*range(SCHEMA.n_dims)]
    with pytest.raises(AttributeError, match="the schema has no attribute 'colour'"):
        _ = SCHEMA.colour


def test_values_come_in_one_form():
    assert SCHEMA.token(state=np.int64(1)) == SCHEMA.token(state=(1,)) == {("state", (1,)): 1}
    ((_, (part,)),) = SCHEMA.token(state=True)
    assert type(part) is int
    assert SCHEMA.token(key="START", sum={0: 0, 1: -2}) == {("key", "START"): 1, ("sum", (1,)): -2}
    assert SCHEMA.show(SCHEMA.token(flag=(), key=(0, 1), sum={0: -1, 1: 2})) == (
        "flag key(0, 1) -sum(0) 2*sum(1)"
    )


def test_schemas_can_be_made_larger():
    state, letter = P.symbols("state", 2), P.symbols("letter", 2)
    key = P.Attribute("key", (state.plus("HALT"), letter))
    schema = P.Schema((P.Attribute("state", (state,)), key), stop=(key("HALT", 0),))
    larger = schema.resize(state=5)
    assert larger.n_dims == 5 + 6 * 2
    assert larger.stop[0].attribute == larger.key
    assert larger.sorts["state"].named == ("HALT",)
    assert P.universal_dfa(2, 2, 3).schema.resize(n_states=4) == P.universal_dfa(4, 2, 3).schema


# ---------------------------------------------------------------- programs of one's own


def decoded(program, prompt, limit):
    """What all meanings agree on."""
    compiled = P.compile(program)
    found = compiled.decode(prompt, limit)
    assert found == decode(program.schema, Interpreter(program), prompt, limit)
    assert found == decode(program.schema, LayerAlone(compiled), prompt, limit)
    return found


def test_values_by_name_and_values_with_parts_are_told_apart():
    q, r = P.variables("q r")
    key, state, flag = SCHEMA.key, SCHEMA.state, SCHEMA.flag
    program = P.Program(
        SCHEMA,
        [
            P.IfThen(state(1), when=key("START"), seen=2),
            P.IfThen(state(q), when=key(q, r), where=(Unequal(r, 0),)),
            P.Constant(flag(), when=key(1, 1)),
            P.IfThen(SCHEMA.next("L", q), when=SCHEMA.next("R", q)),
        ],
    )
    for content, expected in [
        ({"key": "START"}, {"state": 1}),
        ({"key": (0, 1)}, {"state": 0}),
        ({"key": (1, 1)}, {"state": 1, "flag": ()}),
        ({"key": (1, 0)}, {}),
        ({"next": ("R", "HALT")}, {"next": ("L", "HALT")}),
        ({"next": ("R", 1)}, {"next": ("L", 1)}),
        ({"next": ("L", 1)}, {}),
    ]:
        prompt = [SCHEMA.token(key="START"), SCHEMA.token(**content)]
        (token,) = decoded(program, prompt, 1).tokens
        assert token == SCHEMA.token(**expected)


def test_a_flag_that_is_held_twice_counts_twice():
    q, r = P.variables("q r")
    total = SCHEMA.sum
    program = P.Program(SCHEMA, [P.Register(total(r) << total(r), SCHEMA.count(), SCHEMA.state(q))])
    token = SCHEMA.token
    prompt = [
        token(count={(): 2}, sum={0: 3}),
        token(count={(): -1}, sum={1: 2}),
        token(sum={0: 9}),
    ]
    (found,) = decoded(program, [*prompt, token(state=0)], 1).tokens
    assert found == token(sum={0: 6, 1: -2})


def test_a_list_is_followed_to_its_end():
    nodes = P.symbols("node", 6)
    node = P.Attribute("node", (nodes,))
    link, at = (P.Attribute(name, (nodes.plus("NIL"),)) for name in ("link", "at"))
    schema = P.Schema((node, link, at), stop=(at("NIL"),))
    i, j = P.variables("i j")
    program = P.Program(schema, [P.Lookup(at(j) << link(j), match=node(i), query=at(i))], "list")
    order = [3, 0, 5, 1, "NIL"]
    cells = [schema.token(node=a, link=b) for a, b in pairwise(order)]
    found = decoded(program, [*cells[::-1], schema.token(at=3)], 10)
    assert found.tokens == [schema.token(at=each) for each in order[1:]]
    assert found.stopped
    # A list that bites its tail is followed until the limit.
    ring = [schema.token(node=0, link=1), schema.token(node=1, link=0), schema.token(at=0)]
    assert len(decoded(program, ring, 7).tokens) == 7
    # One head for all lists: what is found is written, whatever it is.
    assert P.compile(program).n_heads == 1


def test_a_value_is_looked_up_backwards():
    keys, values = P.symbols("key", 5), P.symbols("value", 3)
    key, value = P.Attribute("key", (keys,)), P.Attribute("value", (values,))
    holders = P.Attribute("holders", (keys,), rounding="integer")
    schema = P.Schema((key, value, holders))
    k, v = P.variables("k v")
    program = P.Program(
        schema, [P.Lookup(holders(k) << key(k), match=value(v), query=value(v))], "who holds it?"
    )
    table = {0: 1, 1: 2, 2: 1, 4: 1}
    prompt = [schema.token(key=k, value=v) for k, v in table.items()]
    for asked in range(3):
        (token,) = decoded(program, [*prompt, schema.token(value=asked)], 1).tokens
        assert token == schema.token(holders={k: 1 for k, v in table.items() if v == asked})


def brackets(max_length, max_depth):
    """The depth of brackets, in a register that moves up and down."""
    time, kind = P.line("time", max_length + 2), P.names("kind", "open", "close")
    depths = P.line("depth", max_depth + 1)
    flag, pos, here = P.Attribute("flag"), P.Attribute("pos", (time,)), P.Attribute("here", (time,))
    bracket, seen = P.Attribute("bracket", (kind,)), P.Attribute("seen", (kind,))
    depth = P.Attribute("depth", (depths,), rounding="integer")
    schema = P.Schema((flag, pos, here, bracket, seen, depth))
    t, b, n = P.variables("t b n")
    program = [
        P.Copy(seen(b) << bracket(b), match=pos(t + 1), query=here(t)),
        P.IfThen(here(t + 1), when=here(t)),
        P.Constant(flag(), when=here(t)),
    ]
    for name, step in (("open", 1), ("close", -1)):
        move = [depth(n + step) << depth(n), -(depth(n) << depth(n))]
        program.append(P.Register(move, flag=flag(), given=seen(name)))
    return P.Program(schema, program, "bracket depth")


@pytest.mark.parametrize("length", range(6))
def test_brackets_are_counted(length):
    program = brackets(max_length=6, max_depth=4)
    token = program.schema.token
    for word in product(("open", "close"), repeat=length):
        prompt = [token(pos=t, bracket=b) for t, b in enumerate(word, start=1)]
        start = token(flag=(), here=0, depth=0)
        found = decoded(program, [*prompt, start], length + 1)
        depths, total = [], np.zeros(5, dtype=int)
        for row in program.schema.encode([start, *found.tokens]):
            total = total + row[program.schema.blocks["depth"]]
            depths.append(total.tolist())
        level, expected = 0, [[1, 0, 0, 0, 0]] * 2
        for b in word:
            # Below the ground or above the sky there is no depth any more.
            level = level + (1 if b == "open" else -1) if level is not None else None
            level = level if level is not None and 0 <= level <= 4 else None
            expected.append([int(n == level) for n in range(5)])
        assert depths == expected


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_clock_goes_round(size):
    hours = P.circle("hour", size)
    tick, hand = P.Attribute("tick"), P.Attribute("hand", (hours,))
    turn = P.Attribute("turn", (hours,), rounding="integer")
    schema = P.Schema((tick, hand, turn))
    (h,) = P.variables("h")
    moved = [
        hand(h + 1) << turn(h),
        tick() << turn(h),
        turn(h + 1) << turn(h),
        -(turn(h) << turn(h)),
    ]
    program = P.Program(schema, [P.Register(moved, flag=tick(), given=tick())], "clock")
    found = decoded(program, [schema.token(tick=(), hand=0, turn=0)], 3 * size + 1)
    hands = [value[0] for token in found.tokens for name, value in token if name == "hand"]
    assert hands == [(i + 1) % size for i in range(3 * size + 1)]
    assert P.compile(program).n_heads == 1


def test_resizing_keeps_the_differences_of_lines():
    place = [P.Attribute("at", (P.line("time", 4),)), P.Attribute("next", (P.line("time", 5),))]
    schema = P.Schema((*place, P.Attribute("node", (P.symbols("node", 2).plus("END"),))))
    larger = schema.resize(time=9, node=7)
    assert [len(each.values) for each in larger.attributes] == [8, 9, 8]
    assert larger.resize(time=5, node=2) == schema
    with pytest.raises(InvalidInput, match="time must be an integer of at least 1; got 0"):
        schema.resize(time=0)
    with pytest.raises(InvalidInput, match="resize takes sizes of"):
        schema.resize(cells=3)
