"""Programs as attention: what instructions mean, and what layers, runners and traces make of it."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import chain, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, OutOfRange, PolyattnError

P = pa.programs
seeds = st.integers(0, 2**32 - 1)

# ---------------------------------------------------------------- the sums that a program means
#
#     y[write] = sum over the values of all variables
#                weight * sum_i z_i[read] z_i[match] * x[query]
#
# for tokens z_i of which x is the last.  A variable stands for the same value wherever it occurs;
# where a step leads beyond the end of a line, or a place does not have the value, there is no
# product.  Of patterns and instructions only what they are given is read.


class Prompts:
    """An encoding of one's own: a run is given a prompt and a limit, and gives its tokens."""

    sizes: dict[str, int] = {}  # noqa: RUF012 - a protocol's attribute

    def task(self, prompt, limit):
        return SimpleNamespace(prompt=prompt, limit=limit, read=lambda found: found, endless=False)


STATE, CELL, TIME = P.symbols("state", 2), P.circle("cell", 3), P.line("time", 3)
SCHEMA = P.Schema(
    (
        P.Attribute("flag"),
        P.Attribute("count", rounding="integer"),
        P.Attribute("state", (STATE,)),
        P.Attribute("next", (P.names("move", "L", "R"), STATE.plus("HALT"))),
        P.Attribute("key", (STATE, STATE), whole=("START",)),
        P.Attribute("sum", (STATE,), rounding="integer"),
        P.Attribute("pos", (TIME,)),
        P.Attribute("end", (P.line("time", 4),)),
        P.Attribute("cell", (CELL,)),
        P.Attribute("dp", (CELL,), rounding="integer"),
    ),
    encoding=Prompts(),
)
ONE_HOT = [each for each in SCHEMA.attributes if each.rounding == "one_hot"]
FLAGS = [SCHEMA.flag, SCHEMA.count]
REGISTERS = [each for each in SCHEMA.attributes if each.rounding == "integer"]


def products(instruction):
    """(write, read, match, query, weight) of each product."""
    if isinstance(instruction, P.IfThen):  # of the tokens that hold the same, ``seen`` alike
        yield instruction.write, *3 * (instruction.when,), 1 / instruction.seen
    elif isinstance(instruction, P.Conjunction):
        yield instruction.write, instruction.first, *2 * (instruction.second,), 1
    else:
        names = ("match", "query") if isinstance(instruction, P.Lookup) else ("flag", "given")
        others = [getattr(instruction, name) for name in names]
        for field in instruction.fields:
            yield field.write, field.read, *others, field.weight


def sums(program, tokens):
    """The output by atoms, exactly."""
    written = dict.fromkeys(program.schema.atoms, Fraction(0))
    for *patterns, weight in chain.from_iterable(map(products, program.instructions)):
        for known in assignments(patterns):
            places = [place(each, known) for each in patterns]
            if all(each in written for each in places):
                write, read, match, query = places
                held = sum(z.get(read, 0) * z.get(match, 0) for z in tokens)
                written[write] += Fraction(weight) * held * tokens[-1].get(query, 0)
    return written


def assignments(patterns):
    """All values of all variables, more than any place can have."""
    found = {}
    for pattern in patterns:
        for argument, sort in zip(pattern.arguments, pattern.attribute.sorts, strict=False):
            if isinstance(argument, P.Variable):
                size = 9 if sort.kind == "line" else sort.size
                found.setdefault(argument.name, set()).update(range(size), sort.named)
    for values in product(*found.values()):
        yield dict(zip(found, values, strict=True))


def place(pattern, known):
    """The atom of a pattern, or something that is no atom."""
    if pattern.whole:
        return pattern.attribute.name, pattern.whole
    parts = []
    for argument, sort in zip(pattern.arguments, pattern.attribute.sorts, strict=True):
        part = argument
        if isinstance(argument, P.Variable):
            part = known[argument.name]
            if argument.offset and isinstance(part, str):
                return None
            part = part + argument.offset if argument.offset else part
            part = part % sort.size if argument.offset and sort.kind == "circle" else part
        parts.append(part)
    return pattern.attribute.name, tuple(parts)


def nearest(schema, written):
    """The token: of one-hot attributes the first largest value above one half, else integers."""
    token = {}
    for each in schema.attributes:
        block = {(each.name, value): written[each.name, value] for value in each.values}
        if each.rounding == "integer":
            token |= {atom: round(x) for atom, x in block.items() if round(x)}
            continue
        best = max(block, key=lambda atom: block[atom])
        token |= {best: 1} if block[best] > Fraction(1, 2) else {}
    return token


def meant(program, prompt, limit):
    """The tokens after a prompt; the last one may hold more than 64 bits do."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit:
        tokens.append(nearest(program.schema, sums(program, tokens)))
        if not tokens[-1] or any(abs(times) >= 2**63 for times in tokens[-1].values()):
            break
    return tokens[len(prompt) :]


WEIGHTS = (1.0, 1.0, -1.0, 2.0, 0.5, -0.5)
LARGE = (1.0, -1.0, 0.5, 3.0, 0.1, 1 / 3, 2.0**30, 2.0**-30, 2.0**53, -1e17)
SIZES = (1, -1, 2, -2)
HUGE = (1, -1, 3, 2**26, -(2**27) + 1, 2**53, 2**53 + 1, 1 - 2**53, 2**62 + 1, 2**63 - 1)


def names(*patterns):
    return {a.name for each in patterns for a in each.arguments if isinstance(a, P.Variable)}


def random_pattern(rng, attributes=SCHEMA.attributes, only=None):
    """A pattern; ``only`` names the variables that it may have."""
    attribute = attributes[rng.integers(len(attributes))]
    if attribute.whole and rng.random() < 0.5:
        return attribute("START")
    arguments = []
    for sort in attribute.sorts:
        known = [n for n in (f"{sort.name}0", f"{sort.name}1") if only is None or n in only]
        if not known or rng.random() < 0.15:
            arguments.append(sort.parts[rng.integers(len(sort.parts))])
        else:
            step = int(rng.choice([0, 0, 1, -1, 2, -2, 3])) if sort.is_ordered else 0
            arguments.append(P.Variable(known[rng.integers(len(known))], step))
    return attribute(*arguments)


def random_instruction(rng, weights):
    kind = rng.choice([P.Lookup, P.Lookup, P.Register, P.IfThen, P.Conjunction])
    last = random_pattern(rng, ONE_HOT if kind in (P.IfThen, P.Conjunction) else SCHEMA.attributes)
    if kind is P.IfThen:
        return kind(random_pattern(rng, only=names(last)), last, int(rng.integers(1, 3)))
    if kind is P.Conjunction:
        first = random_pattern(rng)
        return kind(random_pattern(rng, only=names(first, last)), first, last)
    other = random_pattern(rng, SCHEMA.attributes if kind is P.Lookup else FLAGS)
    fields = []
    for _ in range(rng.integers(1, 3)):
        read = random_pattern(rng, SCHEMA.attributes if kind is P.Lookup else REGISTERS)
        write = random_pattern(rng, only=names(read, other, last))
        fields.append(replace(write << read, weight=float(rng.choice(weights))))
    return kind(fields, other, last)


def random_program(rng, weights=WEIGHTS):
    n_instructions = rng.integers(1, 4)
    return P.Program(SCHEMA, [random_instruction(rng, weights) for _ in range(n_instructions)])


def random_prompt(rng, sizes=SIZES):
    """Tokens that hold most things, since otherwise most products are zero."""
    tokens = []
    for _ in range(rng.integers(1, 6)):
        content = {}
        for each in SCHEMA.attributes:
            values = [each.values[i] for i in rng.permutation(len(each.values))[:2]]
            if rng.random() < 0.85:
                registers = {value: sizes[rng.integers(len(sizes))] for value in values}
                content[each.name] = values[0] if each.rounding == "one_hot" else registers
        tokens.append(SCHEMA.token(**content))
    return tokens


@pytest.mark.parametrize(("weights", "sizes"), [(WEIGHTS, SIZES), (LARGE, HUGE)])
@given(seed=seeds)
def test_layers_and_everything_that_runs_compute_the_sums_that_are_meant(weights, sizes, seed):
    """Exactly: of counts and weights of any size, sums in float64 would mostly differ."""
    rng, n_written, small = np.random.default_rng(seed), 0, sizes is SIZES
    while n_written < 4:
        program = random_program(rng, weights)
        compiled, prompt = P.compile(program), random_prompt(rng, sizes)
        limit = int(rng.integers(1, 4))
        tokens = meant(program, prompt, limit)
        n_written += any(tokens)
        others = [(random_prompt(rng), 3 * small), (prompt, limit)]
        if any(abs(times) >= 2**63 for token in tokens for times in token.values()):
            with pytest.raises(OutOfRange, match=r"2\^"):
                compiled.decode(prompt, limit)
            with pytest.raises(OutOfRange, match=r"2\^"):
                compiled.run_batch(others)
            with pytest.raises(PolyattnError, match=r"2\^|assumes"):
                program.interpret(prompt, limit)
            continue
        assert compiled.decode(prompt, limit).tokens == tokens
        batch = compiled.run_batch(others)
        assert batch == [compiled.run(*each) for each in others]
        assert batch[1].tokens == tokens
        try:
            assert program.interpret(prompt, limit).tokens == tokens
        except InvalidInput as error:  # the assumption of an instruction does not hold
            assert "assumes" in str(error)  # noqa: PT017 - any other error is a failure
        if small:
            expected = [float(each) for each in sums(program, prompt).values()]
            output = compiled.layer(SCHEMA.encode(prompt).astype(float))
            np.testing.assert_allclose(output, expected, rtol=0, atol=1e-12)


@given(seeds)
def test_a_saved_program_of_ones_own_goes_on_alike(tmp_path_factory, seed):
    rng, path = np.random.default_rng(seed), tmp_path_factory.mktemp("p") / "program"
    bare = replace(SCHEMA, encoding=None, stop=(SCHEMA.key(0, P.Variable("a")),))
    program = P.Program(bare, random_program(rng).instructions, "own")
    compiled, prompt = P.compile(program), random_prompt(rng)
    pa.save(compiled, path)
    again = pa.load(path)
    assert (again.schema, again.terms, again.name) == (bare, compiled.terms, "own")
    assert again.decode(prompt, 2) == compiled.decode(prompt, 2)


def test_counts_end_at_64_bits():
    a, flag, amount = P.Variable("a"), SCHEMA.flag(), SCHEMA.sum
    doubling = [P.Register(amount(a) << amount(a), flag, flag), P.Lookup(flag << flag, flag, flag)]
    program, prompt = P.Program(SCHEMA, doubling), [SCHEMA.token(flag=(), sum={0: 1})]
    compiled = P.compile(program)
    for way in (program.interpret, compiled.decode, lambda p, n: compiled.run_batch([(p, n)])[0]):
        assert way(prompt, 63).tokens[-1]["sum", (0,)] == 2**62
        with pytest.raises(OutOfRange, match="sum"):
            way(prompt, 64)


@given(seeds)
def test_tokens_and_rows_are_the_same_and_noise_is_rounded_away(seed):
    rng = np.random.default_rng(seed)
    tokens = random_prompt(rng)
    rows = SCHEMA.encode(tokens)
    assert [SCHEMA.decode(row) for row in rows] == [
        {atom: token[atom] for atom in SCHEMA.atoms if atom in token} for token in tokens
    ]
    noisy = rows + rng.uniform(-0.24, 0.24, size=rows.shape)
    np.testing.assert_array_equal(SCHEMA.round(noisy), rows)
    # Any numbers: block by block the nearest, as the meaning of a token says.
    written = rng.choice([0.0, 0.5, 0.6, 1.0, 1.5, -2.0, -0.5, 2.5], size=SCHEMA.n_dims)
    amounts = dict(zip(SCHEMA.atoms, map(Fraction, written.tolist()), strict=True))
    assert SCHEMA.decode(SCHEMA.round(written)) == nearest(SCHEMA, amounts)


def test_blocks_names_values_and_sizes_of_attributes():
    assert [SCHEMA.coordinates[atom] for atom in SCHEMA.atoms] == [*range(SCHEMA.n_dims)]
    assert sum((SCHEMA.atoms[block] for block in SCHEMA.blocks.values()), ()) == SCHEMA.atoms
    assert SCHEMA.coordinate_names[SCHEMA.blocks["key"]][-2:] == ("key(1, 1)", "key(START)")
    assert SCHEMA.next.values == tuple(product("LR", (0, 1, "HALT")))
    # Lines of the same name keep their differences.
    schema = replace(SCHEMA, encoding=None, stop=(SCHEMA.next("L", "HALT"),))
    larger = schema.resize(state=5, time=9, cell=4)
    sizes = [len(each.values) for each in larger.attributes]
    assert sizes == [1, 1, 5, 2 * 6, 26, 5, 8, 9, 4, 4]
    assert larger.stop[0].attribute == larger.next
    assert larger.resize(state=2, time=4, cell=3) == schema


def test_stop_rules_and_limits_end_runs():
    t, a, pos, key = *P.variables("t a"), SCHEMA.pos, SCHEMA.key
    bare = [P.IfThen(pos(t + 1), when=pos(t))]
    prompt = [SCHEMA.token(pos=0)]
    for stop, length in (((), 3), ((pos(2),), 2), ((key(0, a),), 3)):
        compiled = P.compile(P.Program(replace(SCHEMA, stop=stop), bare))
        for limit in range(6):
            found = compiled.decode(prompt, limit)
            assert len(found.tokens) == min(limit, length)
            assert found.stopped == (limit >= length)
            assert compiled.run_batch([(prompt, limit), (prompt, 1)])[0] == found
    schema = replace(SCHEMA, stop_without=("pos", "key"))
    both = [*bare, P.IfThen(SCHEMA.state(a), when=SCHEMA.state(a))]
    compiled, prompt = P.compile(P.Program(schema, both)), [schema.token(pos=1, state=0)]
    (found,) = compiled.run_batch([(prompt, 5)])
    assert found.tokens == [schema.token(pos=2, state=0), schema.token(state=0)]
    assert found.stopped
    assert compiled.decode(prompt, 5) == found


def test_assumptions_are_checked_by_the_interpreter():
    state, cell, token, (q, p) = SCHEMA.state, SCHEMA.cell, SCHEMA.token, P.variables("q p")
    one, both = token(state=1), token(state=1, cell=0)
    conjunction = P.Conjunction(SCHEMA.dp(p), state(q), cell(p))
    for instruction, prompt, words in (
        (P.IfThen(cell(0), when=state(q), seen=1), [one, one], "assumes that 1 .* 2 do"),
        (P.IfThen(cell(0), when=state(q), seen=3), [one, one], "assumes that 3 .* 2 do"),
        (conjunction, [token(state=0, cell=0), both], "assumes .* 2 tokens do"),
        (conjunction, [both, token(cell=0)], "assumes .* 1 tokens do"),
    ):
        with pytest.raises(InvalidInput, match=words):
            P.Program(SCHEMA, [instruction]).interpret(prompt, 1)


S3, L2 = P.symbols("state", 3), P.symbols("letter", 2)
flag, pos = P.Attribute("flag"), P.Attribute("pos", (P.line("time", 4),))
state, letter = P.Attribute("state", (S3,)), P.Attribute("letter", (L2,))
key = P.Attribute("key", (S3, L2), whole=("START",))
total = P.Attribute("total", (S3,), rounding="integer")
small, large = (P.Attribute(f"c{n}", (P.circle("cell", n),)) for n in (3, 5))
stranger = P.Attribute("stranger", (S3,))
OTHER = P.Schema((flag, pos, state, letter, key, total, small, large))
t, q, r, x, p = P.variables("t q r x p")
found = state(r) << state(r)
AT = {"match": key(q, x), "query": key(q, x)}
FINE, STAY = P.Program(OTHER, [P.Lookup(found, **AT)]), P.IfThen(state(q), when=state(q))


def weighted(weight):
    return P.Lookup(replace(found, weight=weight), **AT)


# Instructions, and words of the reasons against each of them.
REFUSED_PROGRAMS = [
    ((), ["no instructions"]),
    ((None, 3, P.Lookup), ["1: None", "2: 3", "3: .*Lookup"]),
    ((P.Lookup(stranger(r) << state(r), **AT),), ["'stranger'"]),
    ((P.Lookup(state(r) << P.Attribute("state", (L2,))(r), **AT),), ["another", "a letter"]),
    ((P.Lookup(found, match=key(q), query=key(q, x)),), [r"key\(q\) has 1 parts"]),
    ((P.Lookup(state(3) << state("HALT"), **AT),), ["3 in", "'HALT' in"]),
    ((P.Lookup(found, match=small(p), query=large(p)),), ["p is one of .*3.*5"]),
    ((P.Lookup(state(r + 1) << state(r), match=letter(x), query=letter(x)),), [r"r\+1 in"]),
    ((P.Lookup(key(q, x) << state(q), match=pos(t), query=pos(t)),), ["x in key"]),
    ((weighted(0.0), weighted(np.nan), weighted("2"), weighted(2**53 + 1)),
     ["got 0.0", "got nan", "got '2'", "9007199254740993"]),
    ((P.Lookup(found, match=(state(q), letter(x)), query=key(q, x)),), ["match"]),
    ((P.Copy(found, **AT),), ["no position"]),
    ((P.Register(found, flag=flag(), given=state(q)),), ["integer"]),
    ((P.Register(state(r) << total(r), flag=letter(x), given=state(q)),), ["flag"]),
    ((P.IfThen(state(q), when=total(q)),), [r"total\(q\)"]),
    ((P.Constant(state(q), when=key(q, x)),), [r"state\(q\)"]),
    ((P.Lookup(found, **AT), P.IfThen(stranger(q), when=state(q)),
      P.Copy(found, match=key(q), query=key(q, x))), ["2: ", "3: copying", r"3: key\(q\)"]),
]  # fmt: skip


def test_a_program_is_refused_with_all_its_reasons():
    for instructions, words in REFUSED_PROGRAMS:
        with pytest.raises(P.ProgramRefused, match="the program") as refused:
            P.compile(P.Program(OTHER, instructions, "the program"))
        reasons = refused.value.reasons
        assert len(reasons) == len(words), reasons
        for word in words:
            assert any(re.search(word, each) for each in reasons), (word, reasons)
        assert all(reason in str(refused.value) for reason in reasons)


REFUSED_PARTS = [
    (lambda: P.Schema(()), "at least one attribute"),
    (lambda: P.Schema((state, state)), "different names"),
    (lambda: P.Schema((P.Attribute("token"),)), "token"),
    (lambda: P.Schema((state,), stop=(letter(0),)), "letter"),
    (lambda: P.Schema((state,), stop_without=("letter",)), "letter"),
    (lambda: P.compile(P.Program(P.Schema((state,), stop=(state(7),)), [STAY])), "state"),
    (lambda: P.Attribute("a", rounding="half"), "rounding"),
    (lambda: P.names("s", "a", "a"), "'s'"),
    (lambda: OTHER.token(colour=1), "colour"),
    *((lambda v=v: OTHER.token(state=v), "state") for v in (3, np.nan, {0: 1, 1: 1}, {0: -1})),
    (lambda: OTHER.token(total={0: 0.5}), "total"),
    (lambda: OTHER.encode([{("colour", (1,)): 1}]), "colour"),
    (lambda: P.compile(FINE).decode([], 1), "prompt"),
    (lambda: OTHER.resize(colour=3), "colour"),
    (lambda: FINE.interpret(1), "encoding"),
    (lambda: P.compile(FINE).run(1), "encoding"),
    *((lambda v=v: OTHER.round(np.full(OTHER.n_dims, v)), "total") for v in (1e25, np.nan)),
]


def test_wrong_parts_are_refused_by_their_names():
    for make, word in REFUSED_PARTS:
        with pytest.raises(PolyattnError, match=word):
            make()
