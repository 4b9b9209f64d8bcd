"""What papers build of programs: lookups, a machine that rewrites its tape, deciders, few bits."""

from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from machine_oracles import HALT, Ring, configurations, endless, random_turing
from polyattn.errors import PolyattnError
from polyattn_papers.tasks.turing_constructions import SIZES, as_table, compared

P, M = pa.programs, pa.programs.machines

# [yau2024: Algorithm 3, Lemma F.1]: a lookup (source, dest, key, value, ask, write) sets
# new.dest = write[o.value] of the object o with o.key = ask[last.source].

SIZE, N_OBJECTS, N_NEW = 5, 4, 6
PLACES = N_OBJECTS + N_NEW
POSITION, SYMBOL = P.line("pos", PLACES), P.symbols("symbol", SIZE)
NAMES = ("pos", "key", "val", "state", "out")
OBJECTS = P.Schema(tuple(P.Attribute(n, (POSITION if n == "pos" else SYMBOL,)) for n in NAMES))


def algorithm_3(lookups, objects, n_new):
    """Lines 3 to 19, one new object after the other."""
    objects = list(objects)
    for r in range(len(objects) - 1, len(objects) - 1 + n_new):
        new = {"pos": r + 1}
        for source, dest, key, value, ask, write in lookups:
            table = {o[key]: o[value] for o in objects if key in o and value in o}
            if source in objects[r] and ask[objects[r][source]] in table:
                new[dest] = write[table[ask[objects[r][source]]]]
        objects.append(new)
    return objects


def compiled_lookups(lookups):
    """The same in our language: one lookup for each value that is asked."""
    t, instructions = P.variables("t")[0], []
    for *names, ask, write in lookups:
        source, dest, key, value = (getattr(OBJECTS, name) for name in names)
        fields = [dest(b) << value(a) for a, b in enumerate(write)]
        instructions += [P.Lookup(fields, key(b), source(a)) for a, b in enumerate(ask)]
    instructions.append(P.IfThen(OBJECTS.pos(t + 1), when=OBJECTS.pos(t)))
    return P.compile(P.Program(OBJECTS, instructions, "Algorithm 3"))


def test_a_program_of_algorithm_3_is_a_layer_and_a_program_of_ours():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        ask, write, places = rng.integers(SIZE, size=(3, PLACES)).tolist()
        lookups = [
            ("state", "state", "key", "val", ask[:SIZE], write[:SIZE]),
            ("pos", "out", "pos", "state", places, ask[:SIZE]),
            ("out", "val", "key", "val", write[:SIZE], places[:SIZE]),
        ]
        rest = rng.integers(SIZE, size=(N_OBJECTS, 3))
        rows = np.column_stack([np.arange(N_OBJECTS), rng.permutation(SIZE)[:N_OBJECTS], rest])
        objects = [dict(zip(NAMES, row, strict=True)) for row in rows.tolist()]
        expected = [OBJECTS.token(**each) for each in algorithm_3(lookups, objects, N_NEW)]
        rows, compiled = OBJECTS.encode(expected), compiled_lookups(lookups)
        Z = rows[:N_OBJECTS].astype(float)
        for _ in range(N_NEW):  # exact at every step, before any rounding
            Z = np.vstack([Z, compiled.layer(Z)])
        np.testing.assert_array_equal(Z, rows)
        assert compiled.decode(expected[:N_OBJECTS], N_NEW).tokens == expected[N_OBJECTS:]
    # Line 9: several objects with the same key give the sum of their values.
    same = list(range(SIZE))
    objects = [{"pos": 0, "key": 2, "val": 1}, {"pos": 1, "key": 2, "val": 3, "state": 2}]
    rows = OBJECTS.encode([OBJECTS.token(**each) for each in objects]).astype(float)
    output = compiled_lookups([("state", "out", "key", "val", same, same)]).layer(rows)
    np.testing.assert_array_equal(output[OBJECTS.blocks["out"]], [0, 1, 0, 1, 0])


@pytest.mark.parametrize("size", [1, 2, 7])
def test_rounding_is_that_of_the_paper_where_a_symbol_is_held(size):
    """Definitions G.1, G.2: argmax of <v, e_i> if its entry exceeds one half, else nothing."""
    letters = P.Schema((P.Attribute("letter", (P.symbols("letter", size),)),))
    embedded = letters.encode(letters.token(letter=value) for value in range(size))
    np.testing.assert_array_equal(embedded, np.eye(size))
    vectors = np.random.default_rng(size).uniform(-1, 1.2, size=(40, size))
    expected = np.eye(size)[np.argmax(vectors, axis=1)] * (vectors.max(axis=1) > 0.5)[:, None]
    np.testing.assert_array_equal(letters.round(vectors), expected)


DEPTHS = {1: 1, 2: -1}
LANGUAGES = {
    "palindrome": (M.palindrome(), lambda w: w == w[::-1]),
    "equal_blocks": (M.equal_blocks(), lambda w: w == (1,) * (len(w) // 2) + (2,) * (len(w) // 2)),
    "balanced": (M.balanced(), lambda w: sum(depths := [DEPTHS[x] for x in w]) == 0
                 and min(np.cumsum([0, *depths])) == 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_short_word_is_decided_as_automata_lib_and_the_language_say(name):
    machine, member = LANGUAGES[name]
    program = P.universal_turing_machine(machine.n_states, machine.n_letters, 12)
    compiled, other = P.compile(program), endless(machine)
    for word in (word for n in range(6) for word in product((1, 2), repeat=n)):
        found = P.decide(compiled, machine, word, lambda n: 2 * (n + 2) ** 2)
        assert found.answer == ("accepted" if member(word) else "rejected")
        # The library accepts in "yes" and halts without a verdict in "halt", which is not reached.
        assert member(word) == other.accepts_input("".join(map(str, word)))
        assert (found.bound, found.outcome.ok) == (2 * (len(word) + 2) ** 2, True)
        assert found.run == machine.run([*word, *[0] * (12 - len(word))])
        if len(word) < 3:
            assert found == P.decide(program, machine, word, lambda n: 2 * (n + 2) ** 2)
        # One step less is no answer.
        short = P.decide(compiled, machine, word, found.run.steps - 1)
        assert (short.answer, short.outcome.ok) == ("undecided", False)


def test_a_bound_that_is_too_small_and_halting_alone_are_no_answer():
    """Neither is a verdict on a ring that was too short: ``tests/test_regressions.py``."""
    forever = P.TuringMachine({(0, 0): (0, 0, 0), (0, 1): (M.ACCEPT, 1, 0)}, 1, 2)
    compiled = P.compile(P.universal_turing_machine(2, 2, 16))
    assert P.decide(compiled, forever, [1], 5).answer == "accepted"
    assert P.decide(compiled, forever, [0], 200).answer == "undecided"
    halted = P.decide(compiled, M.busy_beaver(2), [], 100, position=8)
    assert (halted.run.verdict, halted.answer) == ("halted", "undecided")
    # On the last cell that a machine moves to it reads nothing, so that the ring may be full.
    leaves = P.TuringMachine({(0, x): (M.ACCEPT, x, -1) for x in range(2)}, 1, 2)
    full = P.compile(P.universal_turing_machine(1, 2, 2))
    assert P.decide(full, leaves, [1, 1], 10).answer == "accepted"


def drawn(rng, Q, A, N, S):
    machine, tape = random_turing(rng, Q, A), rng.integers(A, size=rng.integers(N + 1)).tolist()
    options = {"max_steps": S + 1, "position": N, "state": Q}
    return machine, tape, {name: int(rng.integers(n)) for name, n in options.items()}


@pytest.mark.parametrize("sizes", [(1, 1, 3, 2), (3, 2, 4, 4), (2, 3, 3, 4)])
def test_runs_are_those_of_a_ring_and_of_the_rules(sizes):
    Q, A, N, S = sizes
    program, rng = P.tape_rewriting_turing_machine(*sizes), np.random.default_rng(1)
    compiled = P.compile(program)
    for number in range(8):
        machine, tape, options = drawn(rng, *sizes)
        run = compiled.run(machine, tape, **options)
        assert Ring.of(run) == Ring.run(machine, tape, N, **options)
        if number < 2:
            assert run == program.interpret(machine, tape, **options)
            assert compiled.run_batch([(machine, tape)], **options) == [run]
    block = A * A + A * Q + 13 * A + 4 * Q + 15
    n_dims = N * S * block + N * (S + 1) + A * A + A * Q + 7 * A + 2 * Q + 4
    assert (compiled.n_dims, compiled.n_heads) == (n_dims, N * S * (A + 12) + 4)


def test_the_tape_is_written_anew_token_by_token():
    """[yau2024: Definition F.2]: columns q, δ(q, a) for every letter; p, x, and q at the head."""
    machine = P.TuringMachine({(0, 0): (0, 1, 1), (0, 1): (M.REJECT, 0, -1)}, 1, 2)
    compiled = P.compile(P.tape_rewriting_turing_machine(1, 2, 3, 3))
    trace = compiled.trace(machine, [0, 1])
    schema, show = compiled.schema, compiled.schema.show
    assert [show(schema.decode(row)) for row in trace.prompt] == [
        "mstate(0) next0(0) write0(1) move0(+1) next1(REJECT) write1(0) move1(-1)",
        "place(0, 0) letter(0) state(0)", "place(0, 1) letter(1)", "place(0, 2) letter(0)",
    ]  # fmt: skip
    rows = [line for line in trace.show().splitlines() if line.startswith("place")]
    assert rows == [
        "place(1, 0) letter(1)", "place(1, 1) letter(1) state(0)", "place(1, 2) letter(0)",
        "place(2, 0) letter(1) state(REJECT)", "place(2, 1) letter(0)", "place(2, 2) letter(0)",
    ]  # fmt: skip
    assert not trace.cut


def test_on_n_plus_phi_cells_it_is_an_endless_tape_and_decides_words():
    n, steps, rng = 3, 4, np.random.default_rng(2)
    compiled = P.compile(P.tape_rewriting_turing_machine(2, 2, n + steps, steps))
    for _ in range(4):
        machine, tape = random_turing(rng, 2, 2), rng.integers(2, size=n).tolist()
        run = compiled.run(machine, tape, overflow="error")
        last = configurations(machine, tape, run.steps)[-1]
        assert last.state == ("halt" if run.state == HALT else str(run.state))
        assert sum(run.tape) == sum(map(int, last.tape))
    decider = P.compile(P.tape_rewriting_turing_machine(4, 3, 4, 6))
    for word in ((), (1,), (2,), (1, 2), (2, 1)):
        answer = P.decide(decider, M.equal_blocks(), word, 6).answer
        assert answer == ("accepted" if word in ((), (1, 2)) else "rejected")


def test_the_table_of_the_derivations_has_the_counts_of_the_compiled_programs():
    page = Path(__file__).parent.parent / "docs" / "derivations" / "programs.md"
    text = page.read_text(encoding="utf-8")
    assert all(line in text for line in as_table([compared(*sizes) for sizes in SIZES]))
    row = compared(2, 2, 4, 3)
    assert (row["rewrites: tokens"], row["changes: tokens"]) == (4 * 4 * 3, 1 + 2 * 3)
    assert (row["rewrites: prompt"], row["changes: prompt"]) == (2 + 4, 2 * 2 + 4 + 2)


def share_right(compiled, sizes, bits, n_machines=8):
    rng, narrow, right = np.random.default_rng(3), P.quantise(compiled, bits), 0
    for _ in range(n_machines):
        machine, tape, options = drawn(rng, *sizes)
        options["max_steps"] = sizes[3]
        with suppress(PolyattnError):  # tokens that are no run
            run = narrow.run(machine, tape, **options)
            right += Ring.of(run) == Ring.run(machine, tape, sizes[2], **options)
    return right / n_machines


def test_the_paper_needs_two_bits_and_ours_three():
    papers = P.compile(P.tape_rewriting_turing_machine(2, 2, 3, 3))
    assert P.quantise(papers, 2).weights == (-1, 1)
    assert [share_right(papers, (2, 2, 3, 3), bits) for bits in (1, 2)] == [0.0, 1.0]
    ours, sizes = P.compile(P.universal_turing_machine(3, 3, 6)), (3, 3, 6, 20)
    assert share_right(ours, sizes, 2, 15) < 0.7
    assert share_right(ours, sizes, 3, 15) == 1.0


def test_each_operation_is_clipped_on_its_own():
    """[yau2024: Lemma B.1] Of sums that pass the bits the order matters: 2 bits hold -2 to 1."""
    x = P.Attribute("x", (P.symbols("s", 2),), rounding="integer")
    flag = P.Attribute("flag", rounding="integer")
    schema, (a,) = P.Schema((flag, x)), P.variables("a")
    compiled = P.compile(P.Program(schema, [P.Register(x(a) << x(a), flag(), flag())]))

    def total(amounts, bits, flags=(1, 1, 1)):
        held = zip(flags, amounts, strict=False)
        prompt = [schema.token(flag={(): times}, x={0: amount}) for times, amount in held]
        ((token),) = P.quantise(compiled, bits).decode(prompt, 1).tokens
        return token.get(("x", (0,)), 0)

    for amounts, bits, expected in (
        ((1, 1, -1), 2, 0), ((-1, 1, 1), 2, 1), ((-2, -2, 1), 2, -1), ((3, -1), 2, 0),
        ((3, 3, -2), 3, 1), ((1, 1, -1), 3, 1), ((2, 2, 2), 4, 7 - 1), ((1, 1), 1, 0),
    ):  # fmt: skip
        assert total(amounts, bits) == expected, (amounts, bits)
    # So are products: -2 and then -2 times -2.
    assert total((-2, -2, 0), 2, flags=(1, -2, 1)) == -1


def test_what_cannot_be_decided_or_quantised_is_refused():
    compiled, m = P.compile(P.universal_turing_machine(4, 3, 8)), M.equal_blocks()
    halves = P.compile(P.universal_dfa(2, 2, 2, style="one_hot"))
    small = P.tape_rewriting_turing_machine(4, 3, 3, 3)
    for call, given, word in (
        (P.decide, (halves, m, [1], 5), "Turing"), (P.decide, (compiled, m, [1] * 9, 5), "9"),
        (P.decide, (compiled, m, [1], lambda n: -n), "bound"),
        (P.quantise, (halves, 2), "1/2"), (P.quantise, (compiled, 0), "bits"),
        (P.tape_rewriting_turing_machine, (2, 2, 2, 3), "n_cells"),
        (lambda: small.interpret(m, [], max_steps=4), (), "3 steps"),
    ):  # fmt: skip
        with pytest.raises(PolyattnError, match=word):
            call(*given)
