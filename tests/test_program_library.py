"""Programs of the library: every way to run them, the tokens they write, traces of them."""

import re
from collections import namedtuple
from functools import partial
from itertools import product

import numpy as np
import pytest

import polyattn as pa
from machine_oracles import Ring, dfa_states, random_dfa, random_turing
from polyattn.errors import PolyattnError

P = pa.programs


#: A program, machines and inputs (rng -> arguments, options), what must come out of these, and
#: the sizes of its formulas.
Case = namedtuple("Case", "name program draw truth n_dims n_heads")


def memory_case(K, V):
    def draw(rng):
        keys = rng.permutation(K)[: rng.integers(1, K + 1)].tolist()
        table = {key: int(rng.integers(V)) for key in keys}
        return (table, int(rng.choice(keys))), {}

    program = P.associative_memory(K, V)
    return Case(f"memory {K} {V}", program, draw, lambda t, key: t[key], K + 2 * V, 1)


def fixed_case(Q, V, L):
    # States of the same row share their heads.
    dfa = P.DFA([[(q // 2 + x) % Q for x in range(V)] for q in range(Q)])
    sizes = L + V + (L + 1) * Q, L * len(np.unique(dfa.transitions, axis=0))

    def draw(rng):
        return (rng.integers(V, size=rng.integers(L + 1)).tolist(),), {}

    program, truth = P.fixed_dfa(dfa, L), partial(dfa_states, dfa)
    return Case(f"fixed {Q} {V} {L}", program, draw, truth, *sizes)


def dfa_case(Q, V, L, style):
    def draw(rng):
        dfa = random_dfa(rng, int(rng.integers(max(1, Q - 1), Q + 1)), V)
        return (dfa, rng.integers(V, size=rng.integers(L + 1)).tolist()), {}

    program, one_hot = P.universal_dfa(Q, V, L, style=style), style == "one_hot"
    n_dims = L * V + L + 1 + Q + Q * V if one_hot else L + 4 + 2 * V + Q * Q + Q
    n_heads = V + 3 if one_hot else Q + 3
    return Case(f"{style} {Q} {V} {L}", program, draw, dfa_states, n_dims, n_heads)


def turing_case(Q, A, C, steps=30):
    def draw(rng):
        machine = random_turing(rng, int(rng.integers(max(1, Q - 1), Q + 1)), A)
        tape = rng.integers(A, size=rng.integers(C + 1)).tolist()
        options = {"max_steps": steps + 1, "position": C, "state": machine.n_states}
        return (machine, tape), {name: int(rng.integers(n)) for name, n in options.items()}

    def truth(machine, tape, **options):
        return Ring.run(machine, tape, C, **options).facts

    # On two cells, left and right of the head is the same cell, and two heads are one.
    program, n_dims = P.universal_turing_machine(Q, A, C), 2 * C + 4 * A + Q * A + 3 * Q + 5
    return Case(f"turing {Q} {A} {C}", program, draw, truth, n_dims, 3 * Q + 5 - (C == 2))


SIZES_OF = {
    memory_case: [(1, 1), (4, 1), (8, 6)],
    fixed_case: [(1, 1, 1), (2, 2, 4), (5, 4, 9)],
    dfa_case: [
        (*sizes, style)
        for style in ("registers", "one_hot")
        for sizes in [(1, 1, 1), (1, 3, 4), (3, 1, 4), (5, 3, 8)]
    ],
    turing_case: [(1, 1, 2), (2, 2, 2), (2, 2, 3), (2, 2, 8), (4, 3, 12)],
}
CASES = [make(*sizes) for make, table in SIZES_OF.items() for sizes in table]


def plain(answer):
    return Ring.of(answer).facts if isinstance(answer, P.TuringRun) else answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_way_to_run_a_program_of_the_library_gives_the_truth(case):
    rng, compiled = np.random.default_rng(len(case.name)), P.compile(case.program)
    layer = compiled.layer
    causal = pa.LinearAttention(layer.attn, layer.value, mode="causal")
    for number in range(40):
        arguments, options = case.draw(rng)
        truth = case.truth(*arguments, **options)
        assert plain(compiled.run(*arguments, **options)) == truth
        if number < 12:
            assert plain(case.program.interpret(*arguments, **options)) == truth
            # The layer alone, before any rounding: every token exactly.
            trace = compiled.trace(*arguments, **options)
            if trace.n_rows:
                outputs = causal(trace.tokens.astype(float))[len(trace.prompt) - 1 : -1]
                np.testing.assert_array_equal(outputs, trace.completion)
    drawn = [case.draw(rng)[0] for _ in range(30)]
    shared = {"max_steps": 20} if "turing" in case.name else {}
    answers = compiled.run_batch(drawn, **shared)
    assert [plain(each) for each in answers] == [case.truth(*each, **shared) for each in drawn]
    assert compiled.run_batch([], **shared) == []
    assert (compiled.n_dims, compiled.n_heads) == (case.n_dims, case.n_heads)
    assert layer.mode == "last"
    assert layer.attn.shape == layer.value.shape == (case.n_heads, case.n_dims, case.n_dims)
    for entries in (layer.attn, layer.value):
        np.testing.assert_array_equal(2 * entries, np.rint(2 * entries))
        assert 1 <= np.abs(entries).max() <= 2


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_entries_are_the_numbers_of_the_layer_that_are_not_zero(case):
    compiled, names_of = P.compile(case.program), case.program.schema.coordinate_names
    found = {name: np.zeros(getattr(compiled.layer, name).shape) for name in ("attn", "value")}
    for each in compiled.entries:
        assert (each.start, each.end) == (names_of[each.row], names_of[each.column])
        assert each.weight
        found[each.matrix][each.head, each.row, each.column] += each.weight
    for name, matrix in found.items():
        np.testing.assert_array_equal(getattr(compiled.layer, name), matrix)


ZERO, STEP = P.DFA([[0, 0], [0, 0]]), P.DFA([[1, 0], [1, 1]])
PROGRAMS = {
    "memory": P.associative_memory(3, 3),
    "fixed": P.fixed_dfa(STEP, 3),
    "one_hot": P.universal_dfa(2, 2, 3, style="one_hot"),
    "registers": P.universal_dfa(2, 2, 3),
    "turing": P.universal_turing_machine(2, 2, 4),
}
DFA = PROGRAMS["one_hot"]


def words(traces):
    return [list(trace.source[-1]) for trace in traces]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_traces_are_what_the_compiled_program_writes_and_a_seed_is_a_seed(program):
    def drawn(n_traces, seed):
        return [trace.tokens.tolist() for trace in P.traces(program, n_traces, random_state=seed)]

    assert drawn(12, 3) == drawn(12, np.int64(3)) != drawn(12, 4)
    rng, compiled = np.random.default_rng(3), P.compile(program)
    assert drawn(5, rng) + drawn(7, rng) == drawn(12, 3)
    for trace in P.traces(program, 12):
        prompt = [program.schema.decode(row) for row in trace.prompt]
        tokens = compiled.decode(prompt, limit=trace.n_rows).tokens
        np.testing.assert_array_equal(program.schema.encode(tokens), trace.completion)
        assert trace.show().splitlines() == [program.schema.show(token) for token in tokens]
        np.testing.assert_array_equal(trace.tokens, np.vstack([trace.prompt, trace.targets]))


def test_words_tables_and_runs_have_all_lengths_and_no_others():
    for name in ("fixed", "one_hot", "registers"):
        drawn = [len(word) for word in words(P.traces(PROGRAMS[name], 90, random_state=0))]
        assert set(drawn) == {1, 2, 3}
        assert min(map(drawn.count, (1, 2, 3))) > 15
        assert {len(w) for w in words(P.traces(PROGRAMS[name], 20, lengths=(2, 3)))} == {2, 3}
    keyed = P.traces(PROGRAMS["memory"], 40, inputs=[2])
    assert all(key == 2 and key in table for table, key in (trace.source for trace in keyed))
    assert {len(trace.source[0]) for trace in keyed} == {1, 2, 3}
    traces = P.traces(PROGRAMS["turing"], 60, random_state=0, steps=(2, 20))
    steps = [(trace.n_rows - 1) // 2 for trace in traces]
    assert min(steps) <= 2
    assert 12 < max(steps) <= 20
    assert {trace.cut for trace in traces} == {True, False}
    assert {t.n_rows for t in P.traces(PROGRAMS["turing"], 5, steps=(0, 0))} == {1}


def test_machines_and_inputs_are_taken_in_turn():
    inputs = [[0], [1], [0, 1]]
    found = P.traces(DFA, 7, machines=[ZERO, STEP], inputs=inputs)
    assert [trace.source[0] for trace in found] == [ZERO, STEP, ZERO, STEP, ZERO, STEP, ZERO]
    assert words(found) == [*inputs, *inputs, [0]]
    assert len(P.traces(DFA, machines=[ZERO, STEP], inputs=inputs)) == 3
    assert [t.source[0] for t in P.traces(DFA, machines=iter([STEP, ZERO]))] == [STEP, ZERO]


def test_all_traces_are_all_there_are():
    everything = list(P.all_traces(DFA))
    tables = {(trace.source[0], tuple(trace.source[1])) for trace in everything}
    machines = [P.DFA(np.reshape(table, (2, 2))) for table in product(range(2), repeat=4)]
    inputs = [word for n in (1, 2, 3) for word in product(range(2), repeat=n)]
    assert tables == {*product(machines, inputs)}
    assert len(everything) == len(machines) * len(inputs)
    for trace in everything[::7]:
        dfa, word = trace.source
        block = trace.schema.blocks["state"]
        assert trace.completion[2::2, block].argmax(axis=1).tolist() == dfa.run(word)
    for name, options, n_traces in (
        ("one_hot", {"lengths": (3, 3)}, 16 * 8), ("fixed", {"lengths": (1, 3)}, 14),
        ("registers", {"lengths": (1, 1)}, 32), ("memory", {}, 144),
    ):  # fmt: skip
        found = [trace.tokens.tobytes() for trace in P.all_traces(PROGRAMS[name], **options)]
        assert len(found) == len(set(found)) == n_traces


LETTERS = (([0, 2], "[1]"), ([-1], "[0]"), ([0, True], "[1]"))
DFA2, BEAVER = P.DFA([[0, 1], [1, 0]]), P.machines.busy_beaver(2)
REFUSED_RUNS = [
    *(("registers", (DFA2, word), {}, f"word{at}") for word, at in LETTERS),
    ("one_hot", (DFA2, [0] * 4), {}, "max_length"),
    ("fixed", ([0] * 4,), {}, "max_length"),
    ("turing", (BEAVER, [0, 2]), {}, "tape[1]"),
    ("turing", (BEAVER, [0] * 5), {}, "n_cells"),
    ("registers", (P.DFA([[0, 1]] * 3), [0]), {}, "3 states"),
    ("turing", (P.machines.busy_beaver(3), []), {}, "3 states"),
    ("registers", (BEAVER, [0]), {}, "DFA"),
    ("turing", (DFA2, [0]), {}, "TuringMachine"),
    *(("turing", (BEAVER,), {name: value}, name) for name, value in (
        ("max_steps", -1), ("position", 4), ("state", 2), ("overflow", "grow"))),
    ("memory", ({}, 0), {}, "table"),
    ("memory", ({1: 1}, 0), {}, "key 0"),
    ("memory", ({3: 1}, 3), {}, "keys[0]"),
]  # fmt: skip


def test_wrong_input_is_refused_alike_by_all_ways_to_run():
    compiled = {name: P.compile(program) for name, program in PROGRAMS.items()}
    for name, arguments, options, word in REFUSED_RUNS:
        for run in (
            PROGRAMS[name].interpret, compiled[name].run, compiled[name].trace,
            lambda *given, n=name, **options: compiled[n].run_batch([given], **options),
        ):  # fmt: skip
            with pytest.raises(PolyattnError, match=re.escape(word)):
                run(*arguments, **options)
    right = P.TuringMachine.parse("1RA1RA")
    for run in (compiled["turing"].run, PROGRAMS["turing"].interpret):
        assert run(right, max_steps=3, overflow="error").wrapped_at is None
        with pytest.raises(PolyattnError, match="at step 4"):
            run(right, max_steps=9, overflow="error")


def drawing(name, **options):
    return lambda: P.traces(PROGRAMS[name], **options)


REFUSED = [
    (lambda: P.universal_dfa(1, 1, 0), "max_length"),
    (lambda: P.universal_turing_machine(1, 1, 1), "n_cells"),
    *((lambda f=f, v=v: f(DFA, lengths=v), "lengths") for f in (P.traces, P.all_traces)
      for v in ((0, 3), (1, 4), (3, 1), (2,))),
    *((drawing("turing", steps=steps), "steps") for steps in ((-1, 2), (3, 1))),
    (lambda: P.all_traces(PROGRAMS["turing"]), "all machines"),
    (lambda: P.all_traces(PROGRAMS["memory"], lengths=(1, 1)), "lengths"),
    (drawing("one_hot", machines=[P.DFA([[0, 1], [1, 2], [0, 0]])]), "3 states"),
    (drawing("one_hot", machines=[]), "machines"),
    (drawing("one_hot", steps=(1, 2)), "steps"),
    (drawing("fixed", machines=[ZERO]), "built in"),
    (drawing("memory", machines=[{0: 1}], inputs=[2]), "key 2"),
]  # fmt: skip


def test_wrong_sizes_and_what_cannot_be_drawn_are_refused_by_their_names():
    for make, word in REFUSED:
        with pytest.raises(PolyattnError, match=word):
            make()
