"""The Turing machine that rewrites its tape, beside ours: runs, counts, and bits."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, PolyattnError
from polyattn.programs.library.tape_rewriting import END_NAMES, RewritingEncoding
from polyattn.programs.machines import ACCEPT, HALT, REJECT
from polyattn_papers.tasks.turing_constructions import SIZES, as_table, compared
from program_cases import (
    facts,
    history,
    oracle_configurations,
    outputs_along,
    random_turing,
    rewriting_case,
    ring,
)

P, M = pa.programs, pa.programs.machines
ROOT = Path(__file__).parent.parent


def drawn(rng, n_states, n_letters, n_cells, n_steps):
    machine = random_turing(rng, n_states, n_letters)
    tape = rng.integers(n_letters, size=rng.integers(n_cells + 1)).tolist()
    options = {"max_steps": int(rng.integers(n_steps + 1)), "position": int(rng.integers(n_cells))}
    return machine, tape, options | {"state": int(rng.integers(n_states))}


def test_the_embedding_has_a_token_for_each_state_and_each_cell():
    """[yau2024: Definition F.2]: columns q, δ(q, a) for every letter; p, x, and q at the head."""
    encoding = RewritingEncoding(3, 2, 4, 5)
    machine = random_turing(np.random.default_rng(0), 3, 2)
    prompt = encoding.task(machine, [1, 0, 1], position=2, state=1).prompt
    token = encoding.schema.token
    for q, column in enumerate(prompt[:3]):
        row = {"mstate": q}
        for a in range(2):
            after, write, move = machine.rules[q, a]
            row |= {f"next{a}": after if after >= 0 else END_NAMES[after], f"write{a}": write}
            row |= {f"move{a}": f"{move:+d}" if move else "0"}
        assert column == token(**row)
    assert prompt[3:] == [
        token(place=(0, p), letter=x, **({"state": 1} if p == 2 else {}))
        for p, x in enumerate((1, 0, 1, 0))
    ]


@pytest.mark.parametrize("sizes", [(1, 1, 3, 2), (2, 2, 4, 6), (3, 2, 4, 8), (2, 3, 3, 5)])
def test_runs_are_those_of_a_ring_the_rules_and_our_own_machine(sizes):
    *own, n_steps = sizes
    compiled = P.compile(P.tape_rewriting_turing_machine(*sizes))
    ours, rng = P.compile(P.universal_turing_machine(*own)), np.random.default_rng(1)
    tasks = [drawn(rng, *sizes) for _ in range(14)]
    halted = 0
    for machine, tape, options in tasks:
        run = compiled.run(machine, tape, **options)
        assert facts(run) == ring(machine, tape, sizes[2], **options)
        assert run == ours.run(machine, tape, **options)
        halted += run.halted
    if n_steps > 4:
        assert 0 < halted < len(tasks)
    machine, tape, options = tasks[0]
    assert compiled.run_batch([(machine, tape)], **options) == [ours.run(machine, tape, **options)]


def test_the_interpreter_writes_the_tokens_that_the_layer_writes():
    program, rng = P.tape_rewriting_turing_machine(2, 2, 4, 4), np.random.default_rng(1)
    compiled = P.compile(program)
    for _ in range(6):
        machine, tape, options = drawn(rng, 2, 2, 4, 4)
        assert program.interpret(machine, tape, **options) == compiled.run(machine, tape, **options)


def test_before_rounding_the_layer_gives_every_token_exactly():
    """The heads as a LinearAttention, and nothing of the runner."""
    case = rewriting_case(2, 2, 3, 1)
    rng = np.random.default_rng(9)
    for _ in range(4):
        machine, tape, options = drawn(rng, 2, 2, 3, 1)
        prompt, completion = history(case.program, (machine, tape), options | {"max_steps": 1})
        outputs = outputs_along(case.compiled.layer, prompt, completion)
        np.testing.assert_array_equal(outputs, completion)
        assert len(completion) == 12


def test_on_n_plus_phi_cells_it_does_what_automata_lib_does_on_an_endless_tape():
    n, steps = 3, 5
    compiled = P.compile(P.tape_rewriting_turing_machine(2, 2, n + steps, steps))
    rng = np.random.default_rng(2)
    for _ in range(8):
        machine = random_turing(rng, 2, 2)
        tape = rng.integers(2, size=n).tolist()
        run = compiled.run(machine, tape, overflow="error")
        configurations = oracle_configurations(machine, tape, run.steps)
        for step, seen in zip(run.history, configurations, strict=False):
            assert (seen.state, seen.tape.read_symbol()) == (str(step.state), str(step.read))
        last = configurations[run.steps]
        assert last.state == ("halt" if run.halted else str(run.state))
        origin = run.position - last.tape.current_position
        around = [run.tape[(origin + i) % (n + steps)] for i in range(len(last.tape))]
        assert around == [int(x) for x in last.tape]


def test_the_layer_itself_writes_how_a_run_ends():
    compiled = P.compile(P.tape_rewriting_turing_machine(1, 2, 3, 3))
    for ending, name in ((HALT, "HALT"), (ACCEPT, "ACCEPT"), (REJECT, "REJECT")):
        machine = P.TuringMachine({(0, 0): (0, 1, 1), (0, 1): (ending, 0, -1)}, 1, 2)
        run = compiled.run(machine, [0, 1, 1])
        assert run == machine.run([0, 1, 1], max_steps=3)
        assert run.state == ending
        trace = compiled.trace(machine, [0, 1, 1])
        assert f"state({name})" in trace.show()
        # Two whole rows of three blocks, and the token that ends it.
        assert trace.n_rows == 4 * 3 * 2 + 1
        assert not trace.cut


def test_words_are_decided_by_the_layer_of_the_paper():
    compiled = P.compile(P.tape_rewriting_turing_machine(4, 3, 4, 6))
    machine = M.equal_blocks()
    for word in ((), (1,), (2,), (1, 2), (2, 1)):
        found = P.decide(compiled, machine, word, 6)
        assert found.answer == ("accepted" if word in ((), (1, 2)) else "rejected")
    assert P.decide(compiled, machine, (1, 2), 2).answer == "undecided"


def test_what_does_not_fit_is_refused():
    program = P.tape_rewriting_turing_machine(2, 2, 4, 3)
    with pytest.raises(InvalidInput, match="up to 3 steps"):
        program.interpret(M.busy_beaver(2), [], max_steps=4)
    with pytest.raises(InvalidInput, match="n_cells must be an integer of at least 3"):
        P.tape_rewriting_turing_machine(2, 2, 2, 3)
    with pytest.raises(InvalidInput, match="made for up to 2 and 2"):
        program.interpret(M.busy_beaver(3), [])
    right = P.TuringMachine({(0, 0): (0, 0, 1), (0, 1): (0, 1, 1)}, 1, 2)
    assert program.interpret(right, [1, 0, 0, 0], max_steps=3).wrapped_at is None
    with pytest.raises(InvalidInput, match="leaves the tape of 4 cells at step 1"):
        program.interpret(right, [1, 0, 0, 0], position=3, overflow="error")
    assert program.interpret(right, [1]).steps == 3  # as many as there can be
    assert program.interpret(right, [1], max_steps=0).history == []


def test_its_traces_are_drawn_saved_and_shown(tmp_path):
    program = P.tape_rewriting_turing_machine(2, 2, 3, 2)
    traces = P.traces(program, 6, random_state=0)
    assert {trace.n_rows for trace in traces} <= {0, 12, 13, 24, 25}
    pa.save(P.compile(program), tmp_path / "program.safetensors")
    again = pa.load(tmp_path / "program.safetensors")
    machine = random_turing(np.random.default_rng(0), 2, 2)
    assert again.run(machine, [1, 0]) == machine.run([1, 0, 0], max_steps=2)
    from polyattn.programs.library import show_run

    shown = show_run(again, machine, [1, 0])
    assert shown.agrees
    assert len(shown.steps[0].written) == 12


# --- The pseudocode as printed ---


def printed(left, here, right, rules, second_move="L", far=False):
    """The cell that Algorithm 7 returns: (letter, state), None where it sets nothing.

    left, here, right: (letter, state or None).  As printed, lines 13 and 17 test the same move,
    and no branch is for cells that the head is not next to.
    """
    if right[1] is not None:
        after, _, move = rules[right[1], right[0]]
        if move == "L":
            # Both ifs fire, and the second one unsets the state.
            return here[0], (None if second_move == "L" else after)
        return (here[0], None) if move == second_move else (None, None)
    if here[1] is not None:
        return rules[here[1], here[0]][1], None
    if left[1] is not None:
        after, _, move = rules[left[1], left[0]]
        return here[0], (after if move == "R" else None)
    return (here[0], None) if far else (None, None)


@pytest.mark.parametrize(
    ("changes", "right_steps"), [({}, False), ({"second_move": "R"}, False), ({"far": True}, False),
                                 ({"second_move": "R", "far": True}, True)],
)  # fmt: skip
def test_as_printed_the_tape_is_lost_and_both_corrections_are_needed(changes, right_steps):
    """Line 17 must test R, and cells away from the head need a branch of their own."""
    same = True
    for moves in product("LR", repeat=2):
        rules = {(0, x): (0, 1 - x, move) for x, move in enumerate(moves)}
        machine = P.TuringMachine(
            {pair: (q, w, 1 if m == "R" else -1) for pair, (q, w, m) in rules.items()}, 1, 2
        )
        for tape in product((0, 1), repeat=5):
            row = [(x, 0 if p == 2 else None) for p, x in enumerate(tape)]
            near = [(None, None), *row, (None, None)]
            after = [printed(*near[p : p + 3], rules, **changes) for p in range(5)]
            run = machine.run(tape, max_steps=1, position=2)
            same &= after == [(x, 0 if p == run.position else None) for p, x in enumerate(run.tape)]
    assert same == right_steps


# --- What its data determine ---


@pytest.mark.parametrize(
    "program", [P.universal_turing_machine(2, 2, 4), P.tape_rewriting_turing_machine(1, 2, 3, 2)],
    ids=["changes", "rewrites"],
)  # fmt: skip
def test_no_traces_of_either_construction_have_a_regular_second_moment(program):
    """Two values of a one-hot attribute never meet in a token: that feature is always 0."""
    schema = program.schema
    letters = schema.blocks["mq" if "mq" in schema.blocks else "letter"]
    met = np.zeros((schema.n_dims, schema.n_dims), dtype=np.int64)
    for trace in P.traces(program, 30, random_state=0):
        tokens = trace.tokens[:, letters]
        met[letters, letters] += np.abs(tokens.T) @ np.abs(tokens)
    block = met[letters, letters]
    assert np.diag(block).all()  # both values do occur
    assert not block[~np.eye(len(block), dtype=bool)].any()


# --- Counts ---


def n_dims(Q, A, N, S):
    block = A * A + A * Q + 13 * A + 4 * Q + 15
    return N * S * block + N * (S + 1) + A * A + A * Q + 7 * A + 2 * Q + 4


@pytest.mark.parametrize(
    "sizes", [(1, 1, 3, 1), (2, 2, 3, 3), (2, 2, 6, 3), (2, 2, 3, 6), (5, 2, 3, 2), (2, 5, 3, 2)]
)
def test_heads_and_coordinates_are_those_of_the_formulas(sizes):
    _, A, N, S = sizes
    compiled = P.compile(P.tape_rewriting_turing_machine(*sizes))
    assert compiled.n_dims == n_dims(*sizes)
    assert compiled.n_heads == N * S * (A + 12) + 4


def test_counts_grow_no_faster_than_the_lemma_says():
    """d / (N S A max(A, Q)) and H / (N S A) stay bounded, and fall as each size grows."""
    sizes = (1, 2, 4, 8, 16, 32, 64)
    for Q, A, N, S in product(sizes, sizes, (3, 6, 48), (1, 7, 49)):
        assert n_dims(Q, A, N, S) <= 60 * N * S * A * max(A, Q)
        assert N * S * (A + 12) + 4 <= 17 * N * S * A
    # Far from the corner they are of that order, and not of a smaller one.
    assert n_dims(64, 64, 48, 49) >= 48 * 49 * 64 * 64
    assert 48 * 49 * (64 + 12) >= 48 * 49 * 64


def test_the_table_of_the_derivations_has_the_counts_of_the_compiled_programs():
    page = (ROOT / "docs" / "derivations" / "programs.md").read_text(encoding="utf-8")
    for line in as_table([compared(*sizes) for sizes in SIZES]):
        assert line in page


def test_a_step_is_a_whole_tape_of_tokens_where_ours_is_two():
    row = compared(2, 2, 4, 3)
    assert row["rewrites: tokens"] == 4 * 4 * 3
    assert row["changes: tokens"] == 1 + 2 * 3
    assert row["rewrites: prompt"] == 2 + 4
    assert row["changes: prompt"] == 2 * 2 + 4 + 2


# --- Bits ---


def shares_right(compiled, sizes, bits, n_machines=8):
    rng, narrow = np.random.default_rng(3), P.quantise(compiled, bits)
    right = 0
    for _ in range(n_machines):
        machine, tape, options = drawn(rng, *sizes)
        options["max_steps"] = sizes[3]
        full = [*tape, *[0] * (sizes[2] - len(tape))]
        try:
            right += narrow.run(machine, tape, **options) == machine.run(full, **options)
        except PolyattnError:
            continue  # tokens that are no run
    return right / n_machines


def test_the_paper_needs_two_bits_and_ours_three():
    sizes = (2, 2, 3, 3)
    papers = P.compile(P.tape_rewriting_turing_machine(*sizes))
    assert P.quantise(papers, 2).weights == (-1, 1)
    assert shares_right(papers, sizes, 2) == 1.0
    assert shares_right(papers, sizes, 1) == 0.0
    sizes = (3, 3, 6, 20)
    ours = P.compile(P.universal_turing_machine(*sizes[:3]))
    assert P.quantise(ours, 2).weights == (-1, 1)
    assert shares_right(ours, sizes, 3, 15) == 1.0
    assert 0.0 < shares_right(ours, sizes, 2, 15) < 0.7
    assert shares_right(ours, sizes, 1) == 0.0


def parts(compiled, machine, tape, max_steps):
    """The least sum of negative products of an output, and the largest of positive ones."""
    trace = compiled.trace(machine, tape, max_steps=max_steps)
    tokens, n_given, least, most = trace.tokens, len(trace.prompt), 0, 0
    for n in range(n_given, len(tokens)):
        found = np.zeros((2, compiled.n_dims))
        for head in compiled.heads:
            for (query, match), weight in head.attn.items():
                scores = tokens[n - 1, query] * int(weight) * tokens[:n, match]
                for (read, write), share in head.value.items() if scores.any() else ():
                    products = scores * tokens[:n, read] * int(share)
                    found[0, write] += products[products < 0].sum()
                    found[1, write] += products[products > 0].sum()
        least, most = min(least, found[0].min()), max(most, found[1].max())
    return least, most


def test_in_any_order_the_sums_of_the_paper_stay_within_two_bits_and_ours_do_not():
    rng = np.random.default_rng(0)
    papers = P.compile(P.tape_rewriting_turing_machine(2, 2, 3, 2))
    for _ in range(3):
        tape = rng.integers(2, size=3).tolist()
        assert parts(papers, random_turing(rng, 2, 2), tape, 2) == (-1, 1)
    ours = P.compile(P.universal_turing_machine(1, 2, 3))
    walker = P.TuringMachine({(0, 0): (0, 1, 1), (0, 1): (0, 0, 1)}, 1, 2)
    assert parts(ours, walker, [0, 0, 0], 6)[1] < parts(ours, walker, [0, 0, 0], 12)[1]


def test_with_many_bits_outputs_are_those_of_the_layer():
    compiled = P.compile(P.universal_turing_machine(2, 2, 4))
    machine = random_turing(np.random.default_rng(5), 2, 2, halting=0.0)
    exact, narrow = compiled.predictor(), P.quantise(compiled, 20).predictor()
    prompt = compiled.schema.encoding.task(machine, [1, 0, 1]).prompt
    for predictor in (exact, narrow):
        predictor.start(prompt)
    for _ in range(30):
        np.testing.assert_array_equal(exact.output(), narrow.output())
        assert exact.next_token() == narrow.next_token()


def test_no_number_is_wider_than_its_bits():
    compiled = P.compile(P.universal_turing_machine(2, 2, 4))
    machine = random_turing(np.random.default_rng(6), 2, 2, halting=0.0)
    for bits in (1, 2, 3):
        predictor = P.quantise(compiled, bits).predictor()
        predictor.start(compiled.schema.encoding.task(machine, [1, 0, 1]).prompt)
        for _ in range(20):
            output = predictor.output()
            assert output.min() >= -(2 ** (bits - 1))
            assert output.max() <= 2 ** (bits - 1) - 1
            predictor.next_token()


def test_what_cannot_be_quantised_is_refused():
    halves = P.compile(P.universal_dfa(2, 2, 2, style="one_hot"))
    with pytest.raises(InvalidInput, match=r"weights are integers; .* has 1/2"):
        P.quantise(halves, 2)
    compiled = P.compile(P.universal_turing_machine(2, 2, 4))
    with pytest.raises(InvalidInput, match="bits must be an integer of at least 1; got 0"):
        P.quantise(compiled, 0)
    with pytest.raises(InvalidType, match="compiled program"):
        P.quantise(P.universal_turing_machine(2, 2, 4), 2)
    assert repr(P.quantise(compiled, 2)) == "Quantised(2 bits, 11 heads, 31 coordinates)"


def test_the_command_line_knows_it():
    from click.testing import CliRunner

    from polyattn.cli.main import cli

    sizes = ["--states", "2", "--letters", "2", "--cells", "3", "--run-steps", "2", "--json"]
    found = CliRunner().invoke(cli, ["program", "show", "turing-rewriting", *sizes])
    assert found.exit_code == 0
    said = dict(re.findall(r'"(n_dims|n_heads)": (\d+)', found.output))
    assert said == {"n_dims": str(n_dims(2, 2, 3, 2)), "n_heads": str(3 * 2 * 14 + 4)}


@pytest.mark.slow
def test_every_machine_of_one_state_and_two_letters_on_every_tape():
    """All there are: 576 machines with all three endings, 8 tapes, 3 places, two steps."""
    compiled = P.compile(P.tape_rewriting_turing_machine(1, 2, 3, 2))
    rules = [*product((0, HALT, ACCEPT, REJECT), range(2), (-1, 0, 1))]
    machines = [P.TuringMachine({(0, 0): a, (0, 1): b}, 1, 2) for a, b in product(rules, rules)]
    assert len(machines) == 576
    tasks = [(m, list(tape)) for m in machines for tape in product(range(2), repeat=3)]
    ends = set()
    for position in range(3):
        runs = compiled.run_batch(tasks, position=position)
        for (machine, tape), run in zip(tasks, runs, strict=True):
            assert run == machine.run(tape, max_steps=2, position=position)
            ends.add(run.verdict)
    assert ends == {"accepted", "rejected", "halted", "undecided"}
