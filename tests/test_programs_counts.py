"""Counts and weights beyond 2^53: interpreter, engine and batch give what exact sums give."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, OutOfRange
from polyattn.programs.language.attributes import Field
from polyattn.programs.language.program import Interpreter, ProgramRefused
from polyattn.programs.language.schema import decode
from polyattn.programs.learning.training_traces import require_traces
from polyattn.programs.running.engine import decode_batch
from polyattn.programs.traces import Trace

P = pa.programs

LETTER = P.symbols("letter", 2)
SCHEMA = P.Schema(
    (
        P.Attribute("key", (LETTER,)),
        P.Attribute("mark", (LETTER,)),
        P.Attribute("flag"),
        P.Attribute("amount", (LETTER,), rounding="integer"),
    )
)
A, B = P.variables("a b")
KEY, MARK, AMOUNT, FLAG = SCHEMA.key, SCHEMA.mark, SCHEMA.amount, SCHEMA.flag()
LIMIT = 3


def exact_tokens(program, prompt, limit):
    """The tokens after a prompt: every product of every term, in fractions."""
    tokens = list(prompt)
    for _ in range(limit):
        written = {}
        for term in program.terms():
            names = [pattern.attribute.name for pattern in term.patterns]
            for values in term.entries():
                write, read, match, query = zip(names, values, strict=True)
                held = sum(token.get(read, 0) * token.get(match, 0) for token in tokens)
                amount = Fraction(term.weight) * held * tokens[-1].get(query, 0)
                written[write] = written.get(write, 0) + amount
        tokens.append(rounded(written))
        if not tokens[-1]:
            break
    return tokens[len(prompt) :]


def rounded(written):
    token = {}
    for attribute in SCHEMA.attributes:
        block = {value: written.get((attribute.name, value), 0) for value in attribute.values}
        if attribute.rounding == "integer":
            token |= {(attribute.name, v): round(x) for v, x in block.items() if round(x)}
            continue
        best = max(block, key=lambda value: block[value])  # the first of several
        if block[best] > Fraction(1, 2):
            token[attribute.name, best] = 1
    return token


def all_ways(program, prompt, limit=LIMIT):
    compiled = P.compile(program)
    interpreted = decode(SCHEMA, Interpreter(program), prompt, limit).tokens
    run = compiled.decode(prompt, limit).tokens
    easy = [SCHEMA.token(key=0, flag=())]
    batch = decode_batch(SCHEMA, compiled.heads, [easy, prompt], [limit, limit])
    return interpreted, run, batch[1].tokens


def register(weight=1.0, write=AMOUNT):
    field = Field(write(A), AMOUNT(A), weight)
    keep = P.Lookup(FLAG << FLAG, match=FLAG, query=FLAG)
    return P.Program(SCHEMA, [P.Register(field, FLAG, FLAG), keep])


def counts(*amounts):
    return [SCHEMA.token(flag=(), amount={0: amount}) for amount in amounts]


# ---------------------------------------------------------------- known answers


@pytest.mark.parametrize("most", [2**53 - 1, 2**53, 2**53 + 1, 2**60 + 1])
def test_a_sum_at_the_border_and_beyond(most):
    prompt = counts(most - 2, 1, 1)
    for found in all_ways(register(), prompt, 1):
        assert found[0]["amount", (0,)] == most


def test_many_ones_after_a_large_count():
    """Added one by one to 2^53 in float64, ones are lost: the interpreter differed from the run."""
    program = P.Program(SCHEMA, [P.Lookup(AMOUNT(A) << AMOUNT(A), match=KEY(B), query=KEY(B))])
    large = [SCHEMA.token(key=0, amount={0: 2**53})]
    ones = [SCHEMA.token(key=0, amount={0: 1}) for _ in range(5)]
    for found in all_ways(program, large + ones, 1):
        assert found == [{("amount", (0,)): 2**53 + 5}]


def test_a_large_count_that_cancels():
    prompt = counts(2**61 + 1, -(2**61), 2**55, -(2**55))
    for found in all_ways(register(), prompt, 1):
        assert found[0]["amount", (0,)] == 1


def test_weights_that_add_up_beyond_float64():
    """2^53 + 1 is no float64; as a sum of two weights it is still what the program means."""
    fields = [Field(AMOUNT(A), AMOUNT(A), weight) for weight in (2.0**53, 1.0)]
    program = P.Program(SCHEMA, [P.Register(field, FLAG, FLAG) for field in fields])
    for found in all_ways(program, counts(1), 1):
        assert found == [{("amount", (0,)): 2**53 + 1}]


def test_a_count_decides_which_value_wins():
    """The lead of the second value is one in 2^53."""
    program = register(write=MARK)
    prompt = [SCHEMA.token(flag=(), amount={0: 2**53, 1: 2**53 + 1})]
    for found in all_ways(program, prompt, 1):
        assert found[0]["mark", (1,)] == 1
        assert ("mark", (0,)) not in found[0]


def test_counts_that_grow_in_a_run():
    """Each token holds the sum of all before it: 2^53 is passed on the way, 2^63 is not."""
    found = all_ways(register(), counts(1), 63)
    amounts = [token["amount", (0,)] for token in found[0]]
    assert amounts == [2**i for i in range(63)]
    assert found[0] == found[1] == found[2]
    compiled, prompt = P.compile(register()), counts(1)
    for run in (
        lambda: decode(SCHEMA, Interpreter(register()), prompt, 64),
        lambda: compiled.decode(prompt, 64),
        lambda: decode_batch(SCHEMA, compiled.heads, [prompt, prompt], [1, 64]),
    ):
        with pytest.raises(OutOfRange, match=r"amount\(0\) would be held about 2\^64 times"):
            run()


# ---------------------------------------------------------------- any program


WEIGHTS = st.sampled_from([1.0, -1.0, 0.5, 3.0, 0.1, 1 / 3, 2.0**30, 2.0**-30, 2.0**53, -1e17])
SIZES = st.sampled_from([0, 1, -1, 2, 3, 2**26, -(2**27) + 1, 2**53, 1 - 2**53, 2**62 + 1])


@st.composite
def programs(draw):
    instructions = []
    for _ in range(draw(st.integers(1, 3))):
        write = draw(st.sampled_from([AMOUNT(A), MARK(A), KEY(A)]))
        field = Field(write, AMOUNT(A), draw(WEIGHTS))
        if draw(st.booleans()):
            instructions.append(P.Register(field, FLAG, FLAG))
        else:
            asked = draw(st.sampled_from([KEY(B), MARK(B)]))
            instructions.append(P.Lookup(field, match=asked, query=asked))
    if draw(st.booleans()):
        instructions.append(P.Lookup(FLAG << FLAG, match=FLAG, query=FLAG))
    return P.Program(SCHEMA, instructions)


@st.composite
def prompts(draw):
    def token():
        content = {"amount": {0: draw(SIZES), 1: draw(SIZES)}}
        content |= {name: draw(st.integers(0, 1)) for name in ("key", "mark")}
        return SCHEMA.token(**content, **({"flag": ()} if draw(st.booleans()) else {}))

    return [token() for _ in range(draw(st.integers(1, 4)))]


def compare(program, prompt):
    expected = exact_tokens(program, prompt, LIMIT)
    if all(abs(times) < 2**63 for token in expected for times in token.values()):
        for found in all_ways(program, prompt):
            assert found == expected
    else:
        with pytest.raises(OutOfRange):
            P.compile(program).decode(prompt, LIMIT)


@settings(max_examples=150)
@given(programs(), prompts())
def test_everything_that_runs_gives_the_exact_sums(program, prompt):
    compare(program, prompt)


@pytest.mark.slow
@settings(max_examples=5000)
@given(programs(), prompts())
def test_everything_that_runs_gives_the_exact_sums_often(program, prompt):
    compare(program, prompt)


# ---------------------------------------------------------------- what is refused


def test_a_weight_that_float64_would_round_is_refused():
    with pytest.raises(ProgramRefused, match=r"9007199254740993 would be rounded"):
        P.compile(register(2**53 + 1))
    assert P.compile(register(2**53)).decode(counts(1), 1).tokens[0]["amount", (0,)] == 2**53


def test_counts_beyond_64_bits_are_refused():
    for prompt in (counts(2**63), counts(-(2**63))):
        with pytest.raises(OutOfRange, match=r"at most 2\^63 - 1 times"):
            P.compile(register()).decode(prompt, 1)
    for most in (2**63 - 1, 1 - 2**63):
        for found in all_ways(register(), counts(most), 1):
            assert found[0]["amount", (0,)] == most


def test_learning_refuses_counts_whose_products_float64_cannot_hold():
    def trace(most):
        rows = SCHEMA.encode(counts(most, 1))
        return Trace(SCHEMA, rows[:1], rows[1:], None)

    assert list(require_traces("traces", [trace(2**17)], SCHEMA))
    with pytest.raises(InvalidInput, match=r"2 tokens that hold values up to 262144 times"):
        list(require_traces("traces", [trace(2**18)], SCHEMA))


def test_every_order_of_a_few_large_counts():
    program = register(0.5)
    for amounts in product((2**53 + 1, -(2**53), 1, 3), repeat=3):
        expected = exact_tokens(program, counts(*amounts), 1)
        for found in all_ways(program, counts(*amounts), 1):
            assert found == expected, amounts


def test_the_judge_can_tell():
    """Sums in float64 differ from exact ones on these prompts."""
    assert np.float64(2**53) + 1.0 == 2**53
    prompt = counts(2**53, 1)
    assert exact_tokens(register(), prompt, 1)[0]["amount", (0,)] == 2**53 + 1
