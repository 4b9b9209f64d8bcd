"""Conditions on variables, which learned rules have and which have no public names of their own."""

from itertools import product

import numpy as np
import pytest

import polyattn as pa
from polyattn.programs.language.terms import Beyond, Unequal

pytestmark = pytest.mark.kernel

P = pa.programs
STATE, TIME, CELL = P.symbols("state", 3), P.line("time", 4), P.circle("cell", 5)
SCHEMA = P.Schema(
    (
        P.Attribute("flag"),
        P.Attribute("state", (STATE,), rounding="integer"),
        P.Attribute("asked", (STATE,)),
        P.Attribute("pos", (TIME,), rounding="integer"),
        P.Attribute("at", (TIME,)),
        P.Attribute("cell", (CELL,), rounding="integer"),
        P.Attribute("here", (CELL,)),
    )
)
R, Q = P.variables("r q")


def apart(r, q):
    return min((r - q) % 5, (q - r) % 5)


# What is read, what is asked, the condition, and when it holds of both values.
CASES = {
    "unequal": ("state", "asked", Unequal(R, Q), lambda r, q: r != q),
    "not a value": ("state", "asked", Unequal(R, 1), lambda r, _: r != 1),
    "not the asked": ("state", "asked", Unequal(Q, 2), lambda _, q: q != 2),
    "after": ("pos", "at", Beyond(R, Q, 1, TIME), lambda r, q: r - q > 1),
    "before": ("pos", "at", Beyond(Q, R, 0, TIME), lambda r, q: q - r > 0),
    "around": ("cell", "here", Beyond(R, Q, 1, CELL), lambda r, q: apart(r, q) > 1),
}


@pytest.mark.parametrize("kind", ["lookup", "register"])
@pytest.mark.parametrize("name", CASES)
def test_conditions_hold_of_what_is_read_and_what_is_asked(kind, name, tmp_path):
    read, asked, condition, holds = CASES[name]
    held, query, flag = getattr(SCHEMA, read), getattr(SCHEMA, asked), SCHEMA.flag()
    make = P.Lookup if kind == "lookup" else P.Register
    program = P.Program(SCHEMA, [make(held(R) << held(R), flag, query(Q), (condition,))])
    compiled = P.compile(program)
    pa.save(compiled, tmp_path / "p")
    again = pa.load(tmp_path / "p")
    (term,) = again.terms
    assert str(condition) in str(term)
    for r, q in product(range(len(held.values)), range(len(query.values))):
        prompt = [
            SCHEMA.token(**{"flag": (), read: {r: 2}}),
            SCHEMA.token(**{read: {r: 7}}),  # without the flag
            SCHEMA.token(**{asked: q}),
        ]
        expected = SCHEMA.token(**{read: {r: 2}}) if holds(r, q) else {}
        for runner in (compiled, again):
            assert runner.decode(prompt, 1).tokens == [expected]
        output = compiled.layer(SCHEMA.encode(prompt).astype(float))
        np.testing.assert_array_equal(output, SCHEMA.encode([expected])[0])


def test_conditions_of_an_if_are_of_what_the_last_token_holds():
    for condition, holds in ((Unequal(R, 1), lambda v: v != 1), (Unequal(R, 0), lambda v: v != 0)):
        program = P.Program(
            SCHEMA, [P.IfThen(SCHEMA.flag(), when=SCHEMA.asked(R), where=(condition,))]
        )
        for value in range(3):
            found = P.compile(program).decode([SCHEMA.token(asked=value)], 1).tokens
            assert found == [SCHEMA.token(flag=()) if holds(value) else {}]
