"""Programs that must be refused, each with all its reasons at once."""

# ruff: noqa: E501 - a table reads best with one refusal per line

import re
from dataclasses import dataclass

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, PolyattnError
from polyattn.programs.language.attributes import Field, Pattern
from polyattn.programs.language.sorts import Sort
from polyattn.programs.language.terms import Unequal

P = pa.programs
INTEGER = "integer"

STATE, LETTER = P.symbols("state", 3), P.symbols("letter", 2)
flag = P.Attribute("flag")
pos = P.Attribute("pos", (P.line("time", 4),))
state = P.Attribute("state", (STATE,))
letter = P.Attribute("letter", (LETTER,))
key = P.Attribute("key", (STATE, LETTER), whole=("START",))
total = P.Attribute("total", (STATE,), rounding=INTEGER)
small = P.Attribute("small", (P.circle("cell", 3),))
large = P.Attribute("large", (P.circle("cell", 5),))
stranger = P.Attribute("stranger", (STATE,))
SCHEMA = P.Schema((flag, pos, state, letter, key, total, small, large))

t, q, r, x, p = P.variables("t q r x p")
found = state(r) << state(r)
at = {"match": key(q, x), "query": key(q, x)}

JOINS = "match and query must be one pattern each. To match two things at once, store their pair"
WEIGHT = "its weight must be a finite number other than 0"

REFUSED = [
    # what is refused, and every reason for it
    ((), ["it has no instructions"]),
    (("look up",), ["'look up' is not an instruction"]),
    ((None, 3, P.Lookup), ["None is not an instruction", "3 is not an instruction", "Lookup'> is not an instruction"]),
    # attributes and values
    ((P.Lookup(stranger(r) << state(r), **at),), ["no attribute 'stranger'; it has flag, pos, state"]),
    ((P.Lookup(state(r) << P.Attribute("state", (LETTER,))(r), **at),), ["'state' is another attribute than the schema's", "r is a state in state(r) and a letter in state(r)"]),
    ((P.Lookup(found, match=key(q), query=key(q, x)),), ["key(q) has 1 parts, key(state, letter) has 2"]),
    ((P.Lookup(found, match=key("STRAT"), query=key("START")),), ["key(STRAT) has 1 parts"]),
    ((P.Lookup(found, match=Pattern(key, whole="STRAT"), query=key(q, x)),), ["key(state, letter) has no value 'STRAT'"]),
    ((P.Lookup(state(3) << state(r), **at),), ["3 in state(3) is no state; there are 0 to 2"]),
    ((P.Lookup(state(-1) << state(1.5), **at),), ["-1 in state(-1) is no state", "1.5 in state(1.5) is no state"]),
    ((P.Lookup(state([0]) << state("HALT"), **at),), ["[0] in state([0]) is no state", "'HALT' in state(HALT) is no state"]),
    # variables
    ((P.Lookup(state(r) << state(r), match=letter(r), query=letter(x)),), ["r is a state in state(r) and a letter in letter(r)"]),
    ((P.Lookup(found, match=key(q, q), query=key(q, x)),), ["q is a state in key(q, q) and a letter in key(q, q)"]),
    ((P.Lookup(found, match=small(p), query=large(p)),), ["p is one of cell: 3 circle in small(p) and of cell: 5 circle in large(p)"]),
    ((P.Lookup(state(r + 1) << state(r), match=letter(x - 1), query=letter(x)),), ["r+1 in state(r+1): a state has no next value", "x-1 in letter(x-1): a letter has no next value"]),
    ((P.Lookup(key(q, x) << state(q), match=pos(t), query=pos(t)),), ["x in key(q, x) is not known from what is read, matched or asked"]),
    # weights
    ((P.Lookup(Field(state(r), state(r), 0.0), **at),), [f"{WEIGHT}; got 0.0"]),
    ((P.Lookup([Field(state(r), state(r), np.nan), Field(state(r), state(r), -np.inf)], **at),), [f"{WEIGHT}; got nan", f"{WEIGHT}; got -inf"]),
    ((P.Lookup(Field(state(r), state(r), "2"), **at),), ["the weight of a field must be a number; got '2'"]),
    # what one layer cannot join
    ((P.Lookup(found, match=(state(q), letter(x)), query=key(q, x)),), [JOINS]),
    ((P.Lookup(found, match=key(q, x), query=[state(q), letter(x)]),), [JOINS]),
    ((P.Lookup(found, match=key, query=None),), [JOINS]),
    ((P.Copy(found, match=key(q, x), query=key(q, x)),), ["copying goes by place, but key(q, x) and key(q, x) share no position"]),
    ((P.Copy(found, match=pos(t), query=pos(p)),), ["copying goes by place, but pos(t) and pos(p) share no position"]),
    # registers
    ((P.Register(found, flag=flag(), given=state(q)),), ["register state sums differences, so it must be rounded to integers"]),
    ((P.Register(state(r) << total(r), flag=letter(x), given=state(q)),), ["the flag of a register holds or does not; letter(x) has values"]),
    ((P.Register(state(r) << total(r), flag=flag, given=(state(q), letter(x))),), ["flag must be a pattern, such as state(q); got Attribute flag", "given must be a pattern, such as state(q); got tuple of Pattern, Pattern"]),
    # conditionals
    ((P.IfThen(pos(t + 1), when=pos(t), seen=0),), ["seen must be a number of tokens, at least 1; got 0"]),
    ((P.IfThen(stranger(0), when=pos(9), seen=-1),), ["seen must be a number of tokens, at least 1; got -1", "no attribute 'stranger'", "9 in pos(9) is no time; there are 0 to 3"]),
    ((P.IfThen(pos(t + 1), when=pos(t), seen=1.5),), ["seen must be a number of tokens; got 1.5"]),
    ((P.IfThen(state(q), when=total(q)),), ["total(q) is compared with itself, value by value, so it must hold one value"]),
    ((P.IfThen(3, when=pos),), ["write must be a pattern, such as state(q); got int 3", "when must be a pattern, such as state(q); got Attribute pos"]),
    ((P.Constant(state(q), when=key(q, x)),), ["a constant has no variables, state(q) has"]),
    ((P.Constant(None, when=pos(0)),), ["write must be a pattern, such as state(q); got NoneType None"]),
    ((P.Conjunction(key(q, x), state(q), total(r)),), ["total(r) is compared with itself", "x in key(q, x) is not known"]),
    ((P.Conjunction(key(q, x), "state", 0),), ["first must be a pattern, such as state(q); got str state", "second must be a pattern, such as state(q); got int 0"]),
    ((P.IfThen(pos(t + 1), when=pos(t), where=(t, 0)),), ["where must be a tuple of conditions; got tuple of Variable, int"]),
    ((P.IfThen(pos(t + 1), when=pos(t), where=(Unequal(q, 0),)),), ["q in 'q != 0' does not occur in pos(t+1) << pos(t)"]),
    # fields
    ((P.Lookup(state(r), **at),), ["fields must be write << read, or several of them; got Pattern state(r)"]),
    ((P.Lookup("state", **at),), ["fields must be write << read, or several of them; got str state"]),
    ((P.Lookup([found, state(r)], **at),), ["a field must be write << read; got Pattern state(r)"]),
    ((P.Lookup([], **at),), ["there are no fields to be written"]),
    ((P.Lookup(None, match=None, query=None, where=None),), ["fields must be write << read", "where must be a tuple of conditions", JOINS]),
    ((P.Lookup(state(r) << 3, **at),), ["read must be a pattern, such as state(q); got int 3"]),
    # conditions
    ((P.Lookup(found, **at, where=Unequal(q, r)),), ["where must be a tuple of conditions; got Unequal q != r"]),
    ((P.Lookup(found, **at, where=(Unequal(q, p), Unequal(t, 0))),), ["p in 'q != p' does not occur", "t in 't != 0' does not occur"]),
    ((P.Lookup(pos(t) << pos(t), match=pos(p), query=pos(p), where=(Unequal(t + 1, p),)),), ["t+1 in 't+1 != p': conditions compare variables without steps"]),
    # several instructions, some of them fine
    ((P.Lookup(found, **at), P.IfThen(stranger(q), when=state(q)), P.Copy(found, match=key(q), query=key(q, x))), ["instruction 2: the schema has no attribute 'stranger'", "instruction 3: copying goes by place, but key(q) and key(q, x) share no position", "instruction 3: key(q) has 1 parts"]),
]  # fmt: skip


@pytest.mark.parametrize(("instructions", "reasons"), REFUSED)
def test_a_program_is_refused_with_all_its_reasons(instructions, reasons):
    with pytest.raises(P.ProgramRefused) as refused:
        P.compile(P.Program(SCHEMA, instructions, "the program"))
    assert len(refused.value.reasons) == len(reasons), refused.value.reasons
    for reason in reasons:
        assert any(reason in each for each in refused.value.reasons), (reason, refused.value)
        assert reason in str(refused.value)
    assert str(refused.value).startswith("the program cannot be compiled:\n- ")


def test_the_same_schema_takes_a_program_without_faults():
    fine = P.Lookup([found, -(letter(t) << letter(t))], **at, where=(Unequal(q, 0),))
    assert P.compile(P.Program(SCHEMA, [fine])).n_heads == 1


def test_instructions_of_your_own_may_have_other_parts():
    @dataclass(frozen=True)
    class Noted(P.Lookup):
        note: str = "not for the compiler"

    assert P.compile(P.Program(SCHEMA, [Noted([found], **at)])).n_heads == 1


def test_a_stop_rule_that_can_never_match_is_refused():
    schema = P.Schema((state, key), stop=(state(7), key(q)))
    with pytest.raises(P.ProgramRefused) as refused:
        P.compile(P.Program(schema, [P.Lookup(found, **at)]))
    assert [reason.split(":")[0] for reason in refused.value.reasons] == ["stop rule"] * 2


# ---------------------------------------------------------------- parts of programs

REFUSED_PARTS = [
    (lambda: P.compile("program"), "compile takes a Program; got str"),
    (lambda: P.compile(None), "compile takes a Program; got NoneType"),
    (lambda: P.Program("schema", []), "schema must be a Schema; got str"),
    (lambda: P.Program(SCHEMA, None), "instructions must be a sequence of them; got a NoneType"),
    (lambda: P.Program(SCHEMA, P.Lookup(found, **at)), "instructions must be a sequence of them; got a Lookup"),
    (lambda: P.Schema(()), "a schema needs at least one attribute"),
    (lambda: P.Schema((state, state)), "attributes of different names; got ['state', 'state']"),
    (lambda: P.Schema((state, "letter")), "attributes and patterns make a schema, not 'letter'"),
    (lambda: P.Schema((state,), stop=(state,)), "attributes and patterns make a schema, not Attribute"),
    (lambda: P.Schema((state,), stop=(letter(0),)), "the stop rule names unknown attributes: ['letter']"),
    (lambda: P.Schema((state,), stop_without=("letter",)), "the stop rule names unknown attributes"),
    *((lambda name=name: P.Schema((P.Attribute(name),)), f"an attribute cannot be called {name}") for name in ("token", "stop", "round", "attributes", "blocks")),
    (lambda: P.Attribute("two words"), "an attribute's name must be an identifier; got 'two words'"),
    (lambda: P.Attribute(3), "an attribute's name must be an identifier; got 3"),
    (lambda: P.Attribute("a", STATE), "sorts of a must be a tuple of Sort; got Sort"),
    (lambda: P.Attribute("a", ("state",)), "sorts of a must be a tuple of Sort"),
    (lambda: P.Attribute("a", (), "START"), "whole of a must be a tuple of str; got 'START'"),
    (lambda: P.Attribute("a", (), ("X", "X")), "a has a whole value twice"),
    (lambda: P.Attribute("a", rounding="half"), "rounding must be one of 'one_hot', 'integer'"),
    (lambda: P.symbols("s", 0), "sort 's' needs at least one value; got 0"),
    (lambda: P.line("s", -1), "sort 's' needs at least one value; got -1"),
    (lambda: P.circle("s", 2.0), "sort 's' needs at least one value; got 2.0"),
    (lambda: P.names("s"), "sort 's' needs at least one value"),
    (lambda: P.names("s", "a", "a"), "sort 's' has a name twice"),
    (lambda: P.symbols("s", 2, landmarks=3), "sort 's' has 2 values to be landmarks"),
    (lambda: Sort("s", "heap", 2), "kind must be one of 'symbols', 'line', 'circle', 'names'"),
    (lambda: SCHEMA.token(colour=1), "the schema has no attribute 'colour'"),
    (lambda: SCHEMA.token(state=3), "3 is not a value of state(state); it has 3 values, such as (0,), (1,), (2,)"),
    (lambda: SCHEMA.token(state=[0]), "[0] is not a value of state(state)"),
    (lambda: SCHEMA.token(state=np.nan), "nan is not a value of state(state)"),
    (lambda: SCHEMA.token(key=np.zeros(2)), "is not a value of key(state, letter)"),
    (lambda: SCHEMA.token(key=(0,)), "(0,) is not a value of key(state, letter)"),
    (lambda: SCHEMA.token(total={0: 0.5}), "total holds 0 a whole number of times; got 0.5"),
    (lambda: SCHEMA.token(state={0: 1, 1: 1}), "state holds one value, once"),
    (lambda: SCHEMA.token(state={0: -1}), "state holds one value, once"),
    (lambda: SCHEMA.encode([{("colour", (1,)): 1}]), "('colour', (1,)) is no attribute and value of this schema"),
    (lambda: SCHEMA.resize(colour=3), "resize takes sizes of ['cell', 'letter', 'state', 'time']"),
    (lambda: P.universal_dfa(2, 2, 2).schema.resize(n_cells=3), "resize takes n_states, n_letters, max_length; got ['n_cells']"),
    (lambda: P.Program(SCHEMA, [P.Lookup(found, **at)]).interpret(1), "this schema has no encoding of machines and inputs"),
    (lambda: P.compile(P.Program(SCHEMA, [P.Lookup(found, **at)])).run(1), "this schema has no encoding"),
    (lambda: P.compile(P.Program(SCHEMA, [P.Lookup(found, **at)])).decode([], 1), "a prompt needs at least one token"),
    (lambda: P.traces(P.Program(SCHEMA, [P.Lookup(found, **at)])), "traces needs a program whose schema has an encoding"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "reason"), REFUSED_PARTS)
def test_wrong_parts_are_refused(make, reason):
    with pytest.raises(PolyattnError, match=re.escape(reason)):
        make()


def test_steps_are_whole():
    for steps in (1.5, "1", None):
        with pytest.raises(TypeError):
            t + steps


def test_refusals_are_errors_of_their_kind():
    assert issubclass(P.ProgramRefused, InvalidInput)
    with pytest.raises(InvalidType):
        P.compile(SCHEMA)


# ---------------------------------------------------------------- assumptions


def decode(instructions, prompt, limit=1):
    from polyattn.programs.language.program import Interpreter
    from polyattn.programs.language.schema import decode

    return decode(SCHEMA, Interpreter(P.Program(SCHEMA, instructions)), prompt, limit)


token = SCHEMA.token


@pytest.mark.parametrize("seen", [1, 2, 3])
def test_if_then_counts_who_holds_the_same(seen):
    prompt = [token(state=1)] * 2
    program = [P.IfThen(letter(0), when=state(q), seen=seen)]
    if seen == 2:
        assert decode(program, prompt).tokens == [token(letter=0)]
    else:
        with pytest.raises(
            InvalidInput, match=rf"assumes that {seen} tokens hold the same by then; 2 do"
        ):
            decode(program, prompt)


def test_a_conjunction_needs_its_values_for_itself():
    program = [P.Conjunction(key(q, x), state(q), letter(x))]
    both = token(state=1, letter=0)
    assert decode(program, [token(letter=0), both]).tokens == [token(key=(1, 0))]
    with pytest.raises(
        InvalidInput,
        match="no other token holds state\\(q\\) and the same letter\\(x\\); 2 tokens do",
    ):
        decode(program, [token(state=2, letter=0), both])
    # The layer would find the other token even if the last has no state.
    with pytest.raises(InvalidInput, match="1 tokens do"):
        decode(program, [both, token(letter=0)])
    with pytest.raises(InvalidInput, match="2 tokens do"):
        decode(program, [both, both])
