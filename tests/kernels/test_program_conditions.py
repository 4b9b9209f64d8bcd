"""Conditions on variables, which learned rules have and which have no public names of their own."""

from itertools import product

import pytest

import polyattn as pa
from polyattn.programs.language.terms import Beyond, Unequal

pytestmark = pytest.mark.kernel

P = pa.programs
STATE, TIME, CELL = P.symbols("state", 3), P.line("time", 4), P.circle("cell", 5)
SORTS = STATE, TIME, CELL
ASKED = [P.Attribute(each.name, (each,)) for each in SORTS]
HELD = [P.Attribute(f"{each.name}_held", (each,), rounding="integer") for each in SORTS]
SCHEMA = P.Schema((P.Attribute("flag"), *HELD, *ASKED))
R, Q = P.variables("r q")


def apart(r, q):
    return min((r - q) % 5, (q - r) % 5)


# What sort is read and asked, the condition, and when it holds of both values.
CASES = {
    "unequal": ("state", Unequal(R, Q), lambda r, q: r != q),
    "not a value": ("state", Unequal(R, 1), lambda r, _: r != 1),
    "not the asked": ("state", Unequal(Q, 2), lambda _, q: q != 2),
    "after": ("time", Beyond(R, Q, 1, TIME), lambda r, q: r - q > 1),
    "before": ("time", Beyond(Q, R, 0, TIME), lambda r, q: q - r > 0),
    "around": ("cell", Beyond(R, Q, 1, CELL), lambda r, q: apart(r, q) > 1),
}


@pytest.mark.parametrize("make", [P.Lookup, P.Register])
@pytest.mark.parametrize("name", CASES)
def test_conditions_hold_of_what_is_read_and_what_is_asked(make, name, tmp_path):
    asked, condition, holds = CASES[name]
    read, token, flag = f"{asked}_held", SCHEMA.token, SCHEMA.flag()
    held, query = getattr(SCHEMA, read), getattr(SCHEMA, asked)
    compiled = P.compile(
        P.Program(SCHEMA, [make(held(R) << held(R), flag, query(Q), (condition,))])
    )
    pa.save(compiled, tmp_path / "p")
    again = pa.load(tmp_path / "p")
    assert str(condition) in str(again.terms[0])
    for r, q in product(range(len(held.values)), range(len(query.values))):
        without_flag = token(**{read: {r: 7}})
        prompt = [token(**{"flag": (), read: {r: 2}}), without_flag, token(**{asked: q})]
        expected = token(**{read: {r: 2}}) if holds(r, q) else {}
        for runner in (compiled, again):
            assert runner.decode(prompt, 1).tokens == [expected]


def test_conditions_of_an_if_are_of_what_the_last_token_holds():
    for excluded, value in product(range(3), repeat=2):
        where = (Unequal(R, excluded),)
        program = P.Program(SCHEMA, [P.IfThen(SCHEMA.flag(), when=SCHEMA.state(R), where=where)])
        found = P.compile(program).decode([SCHEMA.token(state=value)], 1).tokens
        assert found == [SCHEMA.token(flag=()) if value != excluded else {}]
