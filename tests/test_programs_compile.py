"""The compiler and the runner: what a layer computes is the sum that the terms say."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.programs.language.attributes import Field
from polyattn.programs.language.program import Interpreter
from polyattn.programs.language.schema import decode
from polyattn.programs.language.terms import Beyond, Unequal
from polyattn.programs.lowering import assemble, lower, to_layer
from polyattn.programs.running.engine import BatchEngine, Engine, decode_batch
from program_cases import CASES, dfa_case, plain, random_turing, turing_case
from program_reference import CELL, SCHEMA, TIME, programs, prompts, reference_outputs

P = pa.programs

every_case = pytest.mark.parametrize("case", CASES, ids=str)
EXACT = {"rtol": 0, "atol": 1e-12}


# ---------------------------------------------------------------- the formula of terms


@settings(max_examples=80)
@given(programs, prompts)
def test_layer_and_engines_compute_the_sum_of_the_terms(program, prompt):
    compiled = P.compile(program)
    X = SCHEMA.encode(prompt)
    expected = reference_outputs(SCHEMA, program.terms(), X)
    np.testing.assert_allclose(compiled.layer(X.astype(float)), expected, **EXACT)
    engine = Engine(SCHEMA, compiled.heads)
    engine.start(prompt)
    np.testing.assert_allclose(engine.output(), expected, **EXACT)
    batch = BatchEngine(SCHEMA, compiled.heads)
    outputs = batch.outputs(batch.gram(X)[None], X[-1:])
    np.testing.assert_allclose(outputs[0], expected, **EXACT)


@settings(max_examples=80)
@given(programs, prompts)
def test_the_interpreter_means_the_sum_of_the_terms(program, prompt):
    expected = SCHEMA.round(reference_outputs(SCHEMA, program.terms(), SCHEMA.encode(prompt)))
    try:
        (token,) = decode(SCHEMA, Interpreter(program), prompt, 1).tokens
    except InvalidInput as error:  # an assumption does not hold here
        assert "assumes that" in str(error)  # noqa: PT017 - most prompts meet all assumptions
        assume(False)
    np.testing.assert_array_equal(SCHEMA.encode([token])[0], expected)


@settings(max_examples=50)
@given(programs, st.lists(prompts, min_size=1, max_size=4), st.integers(0, 4))
def test_runner_batch_and_interpreter_decode_the_same(program, given_prompts, limit):
    compiled = P.compile(program)
    limits = [1 + limit, *(max(0, limit - i) for i in range(len(given_prompts) - 1))]
    pairs = [*zip(given_prompts, limits, strict=True)]
    singly = [compiled.decode(prompt, most) for prompt, most in pairs]
    assert decode_batch(SCHEMA, compiled.heads, given_prompts, limits) == singly
    for (prompt, most), found in zip(pairs, singly, strict=True):
        try:
            assert decode(SCHEMA, Interpreter(program), prompt, most) == found
        except InvalidInput as error:
            assert "assumes that" in str(error)  # noqa: PT017 - not an error of this test


@settings(max_examples=40)
@given(programs)
def test_assembling_changes_no_coefficient(program):
    heads = [head for term in program.terms() for head in lower(term, SCHEMA)]
    merged = assemble(heads)
    assert len(merged) <= max(1, sum(len(head.attn) for head in heads))
    before, after = to_layer(heads, SCHEMA.n_dims), to_layer(merged, SCHEMA.n_dims)
    np.testing.assert_allclose(after.coef, before.coef, **EXACT)


@settings(max_examples=80)
@given(programs)
def test_entries_of_terms_are_the_products_of_their_heads(program):
    for term in program.terms():
        products = Counter()
        for head in lower(term, SCHEMA):
            for (query, match), weight in head.attn.items():
                for (read, write), share in head.value.items():
                    products[write, read, match, query] += weight * share
        expected = Counter()
        for values in term.entries():
            atoms = zip((p.attribute.name for p in term.patterns), values, strict=True)
            expected[tuple(SCHEMA.coordinates[atom] for atom in atoms)] += term.weight
        assert products == expected


q, r, s = P.variables("q r s")

ACROSS = [
    # Conditions between what is read and what is asked: heads for each value of the latter.
    (SCHEMA.state(r) << SCHEMA.state(r), SCHEMA.key(q, s), SCHEMA.key(q, s), (Unequal(r, q),)),
    (SCHEMA.pos(r) << SCHEMA.pos(r), SCHEMA.end(q), SCHEMA.end(q), (Beyond(q, r, 1, TIME),)),
    (SCHEMA.cell(r) << SCHEMA.cell(r), SCHEMA.dp(q), SCHEMA.dp(q), (Beyond(q, r, 0, CELL),)),
    (
        SCHEMA.sum(r) << SCHEMA.state(r),
        SCHEMA.flag(),
        SCHEMA.key(q, s),
        (Unequal(r, q), Unequal(r, s)),
    ),
]


@pytest.mark.parametrize(("field", "match", "query", "where"), ACROSS)
def test_conditions_between_what_is_read_and_what_is_asked(field, match, query, where):
    program = P.Program(SCHEMA, [P.Lookup(field, match, query, where)])
    layer, rng, n_written = P.compile(program).layer, np.random.default_rng(0), 0
    for _ in range(50):
        prompt = [_full_token(rng) for _ in range(4)]
        X = SCHEMA.encode(prompt)
        expected = reference_outputs(SCHEMA, program.terms(), X)
        np.testing.assert_array_equal(layer(X.astype(float)), expected)
        (token,) = decode(SCHEMA, Interpreter(program), prompt, 1).tokens
        np.testing.assert_array_equal(SCHEMA.encode([token])[0], SCHEMA.round(expected))
        n_written += expected.any()
    assert n_written > 10


def _full_token(rng):
    """A token that holds a value of every attribute."""
    return SCHEMA.token(
        **{each.name: each.values[rng.integers(len(each.values))] for each in SCHEMA.attributes}
    )


def test_what_cancels_leaves_no_head():
    state = SCHEMA.state
    (q,) = P.variables("q")
    both = [
        P.Lookup(field, match=state(q), query=state(q)) for field in _opposite(state(q) << state(q))
    ]
    compiled = P.compile(P.Program(SCHEMA, both))
    assert compiled.n_heads == 0
    assert not compiled.layer.coef.any()
    prompt = [SCHEMA.token(state=1)]
    found = compiled.decode(prompt, 3)
    assert (found.tokens, found.stopped) == ([{}], True)
    assert decode_batch(SCHEMA, compiled.heads, [prompt, prompt], [3, 0])[0] == found


def _opposite(field):
    return field, -field


def test_integer_weights_stay_exact():
    state, total = SCHEMA.state, SCHEMA.sum
    (q,) = P.variables("q")
    fields = [Field(total(0), state(0), 49.0), Field(total(1), state(0), 1.0)]
    layer = P.compile(P.Program(SCHEMA, [P.Lookup(fields, state(q), state(q))])).layer
    X = SCHEMA.encode([SCHEMA.token(state=0)]).astype(float)
    assert SCHEMA.decode(layer(X)) == SCHEMA.token(sum={0: 49, 1: 1})


# ---------------------------------------------------------------- sizes and entries


@every_case
def test_sizes_are_those_of_the_formulas(case):
    assert (case.compiled.n_dims, case.compiled.n_heads) == (case.n_dims, case.n_heads)
    layer = case.compiled.layer
    assert (layer.n_dims, layer.n_outputs, layer.n_heads) == (
        case.n_dims,
        case.n_dims,
        case.n_heads,
    )
    assert layer.mode == "last"


@pytest.mark.parametrize("style", ["registers", "one_hot"])
def test_sizes_of_many_universal_automata(style):
    for sizes in np.ndindex(5, 4, 4):
        case = dfa_case(*(size + 1 for size in sizes), style)
        assert (case.compiled.n_dims, case.compiled.n_heads) == (case.n_dims, case.n_heads), case


def test_sizes_of_many_universal_turing_machines():
    for sizes in np.ndindex(4, 3, 6):
        case = turing_case(*(size + least for size, least in zip(sizes, (1, 1, 2), strict=True)))
        assert (case.compiled.n_dims, case.compiled.n_heads) == (case.n_dims, case.n_heads), case


def test_sizes_that_were_quoted():
    assert P.compile(P.universal_dfa(4, 4, 4, style="one_hot")).n_dims == 41
    assert P.compile(P.universal_dfa(4, 4, 4)).n_dims == 36
    assert P.compile(P.universal_turing_machine(2, 2, 8)).n_dims == 39
    assert P.compile(P.universal_turing_machine(4, 3, 32)).n_dims == 105


def test_states_with_the_same_row_share_the_heads_of_a_fixed_automaton():
    compiled = P.compile(P.fixed_dfa(P.DFA([[1, 2], [1, 2], [0, 0]]), 5))
    assert compiled.n_heads == 5 * 2


@every_case
def test_entries_are_integers_or_halves(case):
    for entries in (case.compiled.layer.attn, case.compiled.layer.value):
        np.testing.assert_array_equal(2 * entries, np.rint(2 * entries))
        assert 1 <= np.abs(entries).max() <= 2


# ---------------------------------------------------------------- batches


def test_batches_of_machines_that_halt_at_different_times():
    case = turing_case(3, 2, 9)
    rng = np.random.default_rng(0)
    machines = [
        random_turing(rng, 3, 2, halting=h) for h in (0.0, 0.1, 0.5, 1.0) for _ in range(15)
    ]
    given = [(machine, [1] * int(rng.integers(10))) for machine in machines]
    for max_steps in (0, 1, 40):
        runs = case.compiled.run_batch(given, max_steps=max_steps)
        assert runs == [case.compiled.run(*each, max_steps=max_steps) for each in given]
        assert [plain(r) for r in runs] == [case.truth(*g, max_steps=max_steps) for g in given]
    assert len({run.steps for run in runs}) > 4
    assert {run.halted for run in runs} == {True, False}


@every_case
def test_batches_of_one(case):
    for arguments, options in case.drawn(5, seed=1):
        if arguments == ([],):  # nothing to do: see below
            continue
        alone = case.compiled.run_batch([arguments], **options)
        assert alone == [case.compiled.run(*arguments, **options)]


@pytest.mark.parametrize("given", [[], [([],), ([],)]])
def test_batches_with_nothing_to_do(given):
    assert P.compile(P.fixed_dfa(P.DFA([[0]]), 2)).run_batch(given) == [[] for _ in given]


def test_mixed_lengths_in_one_batch():
    for style in ("registers", "one_hot"):
        case = dfa_case(3, 2, 7, style)
        given = sorted((a for a, _ in case.drawn(40)), key=lambda each: -len(each[1]))
        assert case.compiled.run_batch(given) == [case.truth(*each) for each in given]
        assert {len(word) for _, word in given} == {*range(8)}


# ---------------------------------------------------------------- running


def test_runs_do_not_remember_each_other():
    case = turing_case(2, 2, 8)
    (first, _), (second, _) = case.drawn(2)
    once = case.compiled.run(*first, max_steps=20)
    case.compiled.run(*second, max_steps=5)
    assert case.compiled.run(*first, max_steps=20) == once


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (1.0, {"state": 0, "sum": {0: 1, 1: 1}}),  # the first of two that are found as often
        (0.5, {}),  # one half is not held, and rounds to even
        (1.5, {"state": 0, "sum": {0: 2, 1: 2}}),
        (-2.5, {"sum": {0: -2, 1: -2}}),
    ],
)
def test_all_runners_round_alike(order, weight, expected):
    state, total, flag = SCHEMA.state, SCHEMA.sum, SCHEMA.flag
    fields = [Field(write, state(q), weight) for write in (state(q), total(q))]
    program = P.Program(SCHEMA, [P.Lookup(fields, flag(), flag())])
    compiled = P.compile(program)
    prompt = [SCHEMA.token(flag=(), state=each) for each in order] + [SCHEMA.token(flag=())]
    for found in (
        compiled.decode(prompt, 1),
        decode(SCHEMA, Interpreter(program), prompt, 1),
        *decode_batch(SCHEMA, compiled.heads, [prompt] * 2, [1, 1]),
    ):
        assert found.tokens == [SCHEMA.token(**expected)]


def test_prompts_are_checked_by_the_runner():
    compiled = P.compile(P.associative_memory(2, 2))
    asked = compiled.schema.token(key=0)
    nothing_stored = {("key", (0,)): 1, ("value", (1,)): 0}
    assert compiled.decode([nothing_stored, asked], 1).tokens == [{}]
    with pytest.raises(InvalidInput, match="is no attribute and value of this schema"):
        compiled.decode([{("colour", (0,)): 1}, asked], 1)


def test_the_limit_and_the_stop_rule_end_a_run():
    schema = SCHEMA
    (t,) = P.variables("t")
    stopping = P.Schema(schema.attributes, stop=(schema.pos(2),))
    for made, n_tokens, stopped in [(schema, 3, True), (stopping, 2, True)]:
        compiled = P.compile(P.Program(made, [P.IfThen(made.pos(t + 1), when=made.pos(t))]))
        prompt = [made.token(pos=0)]
        for limit in range(6):
            found = compiled.decode(prompt, limit)
            assert len(found.tokens) == min(limit, n_tokens)
            assert found.stopped == (stopped and limit >= n_tokens)
            both = decode_batch(made, compiled.heads, [prompt, prompt], [limit, 1])
            assert both == [found, compiled.decode(prompt, 1)]


def test_a_token_without_what_it_needs_is_the_last():
    schema = P.Schema(SCHEMA.attributes, stop_without=("pos", "key"))
    q, t = P.variables("q t")
    state, pos = schema.state, schema.pos
    program = P.Program(
        schema,
        [P.IfThen(pos(t + 1), when=pos(t)), P.IfThen(state(q), when=state(q), seen=1)],
    )
    found = P.compile(program).decode([schema.token(pos=1, state=0)], 5)
    assert (len(found.tokens), found.stopped) == (2, True)
    # One token more than IfThen allows for: seen grows with every copy of the state.
    assert found.tokens == [schema.token(pos=2, state=0), schema.token(state=0)]


def test_traces_show_what_happened():
    compiled = P.compile(P.associative_memory(3, 2))
    trace = compiled.trace({0: 1, 2: 0}, 2)
    assert (trace.prompt.shape, trace.n_rows, trace.show()) == ((3, 7), 1, "out(0)")
    np.testing.assert_array_equal(trace.tokens, np.vstack([trace.prompt, trace.completion]))
    assert "associative memory, 1 heads" in repr(compiled)


def test_traces_are_repeatable_and_take_what_is_given():
    program = P.universal_dfa(3, 2, 5)
    dfa = P.DFA([[1, 0], [2, 1], [0, 2]])
    one, two = (P.traces(program, 6, random_state=4, machines=[dfa]) for _ in range(2))
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(one, two, strict=True))
    assert all(trace.source[0] is dfa for trace in one)
    (given_word,) = P.traces(program, machines=[dfa], inputs=[[0, 1]])
    assert given_word.source == (dfa, [0, 1])
    short = P.traces(program, 30, lengths=(1, 2))
    assert {len(trace.source[1]) for trace in short} == {1, 2}
    assert len({len(trace.source[1]) for trace in P.traces(program, 60)}) == 5


def test_all_traces_are_all():
    program = P.universal_dfa(2, 2, 2)
    found = [*P.all_traces(program)]
    assert len(found) == 2**4 * (2 + 4)
    assert len({trace.tokens.tobytes() for trace in found}) == len(found)
    assert len([*P.all_traces(program, lengths=(2, 2))]) == 64
    assert len([*P.all_traces(P.associative_memory(2, 2))]) == 2 * 2 * 1 + 4 * 2
    with pytest.raises(InvalidInput, match="cannot list all machines"):
        next(iter(P.all_traces(P.universal_turing_machine(1, 1, 2))))
