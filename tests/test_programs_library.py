"""The constructions: interpreter, runner, batch, layer and an oracle from elsewhere all agree."""

import numpy as np
import pytest

import polyattn as pa
from program_cases import (
    CASES,
    HALT,
    by_layer,
    dfa_case,
    facts,
    history,
    oracle_configurations,
    oracle_states,
    outputs_along,
    plain,
    random_dfa,
    random_turing,
    ring,
    turing_case,
)

P = pa.programs

every_case = pytest.mark.parametrize("case", CASES, ids=str)


# ---------------------------------------------------------------- all meanings agree


@every_case
def test_compiled_runs_give_the_truth(case):
    for arguments, options in case.drawn(200):
        assert plain(case.compiled.run(*arguments, **options)) == case.truth(*arguments, **options)


@every_case
def test_the_interpreter_gives_the_truth(case):
    for arguments, options in case.drawn(200):
        answer = plain(case.program.interpret(*arguments, **options))
        assert answer == case.truth(*arguments, **options)


@every_case
def test_batches_give_the_truth(case):
    drawn = case.drawn(200)
    # All of a batch share their options: those that allow the most steps, and none at all.
    for options in (max((each for _, each in drawn), key=lambda o: o.get("max_steps", 0)), {}):
        shared = options or ({"max_steps": 0} if "max_steps" in drawn[0][1] else {})
        fitting = [a for a, _ in drawn if shared.get("state", 0) < _n_states(a)]
        answers = case.compiled.run_batch(fitting, **shared)
        assert [plain(each) for each in answers] == [
            case.truth(*a, **_full(shared)) for a in fitting
        ]


@every_case
def test_the_layer_alone_gives_the_truth(case):
    for arguments, options in case.drawn(8):
        assert plain(by_layer(case, arguments, options)) == case.truth(*arguments, **options)


@every_case
def test_before_rounding_the_layer_gives_every_token_exactly(case):
    for arguments, options in case.drawn(60):
        prompt, completion = history(case.program, arguments, options)
        if len(completion):
            outputs = outputs_along(case.compiled.layer, prompt, completion)
            np.testing.assert_array_equal(outputs, completion)


@every_case
def test_machines_give_the_truth_by_their_own_rules(case):
    for arguments, options in case.drawn(200):
        if isinstance(arguments[0], P.DFA):
            assert arguments[0].run(arguments[1]) == case.truth(*arguments)
        elif isinstance(arguments[0], P.TuringMachine):
            machine, tape = arguments
            n_cells = case.program.schema.encoding.n_cells
            run = machine.run([*tape, *[0] * (n_cells - len(tape))], **options)
            assert facts(run) == case.truth(*arguments, **options)


@every_case
def test_traces_are_what_the_compiled_program_writes(case):
    for trace in P.traces(case.program, n_traces=10, random_state=3):
        found = case.compiled.decode(
            [case.program.schema.decode(row) for row in trace.prompt], trace.n_rows
        )
        np.testing.assert_array_equal(case.program.schema.encode(found.tokens), trace.completion)


def _n_states(arguments):
    return getattr(arguments[0], "n_states", 1)


def _full(options):
    return {"max_steps": options["max_steps"]} | options if "max_steps" in options else {}


# ---------------------------------------------------------------- the endless tape


@pytest.mark.parametrize("sizes", [(2, 2, 40), (3, 2, 33), (4, 3, 64)])
def test_turing_machines_do_what_automata_lib_does_on_an_endless_tape(sizes):
    compared = _compare_on_the_endless_tape(sizes, n_machines=200, max_steps=60, seed=0)
    assert compared > 2000


def _compare_on_the_endless_tape(sizes, n_machines, max_steps, seed):
    """Steps compared: up to the first at which the head comes to a cell from its other side."""
    compiled, rng = P.compile(P.universal_turing_machine(*sizes)), np.random.default_rng(seed)
    tasks = []
    for _ in range(n_machines):
        machine = random_turing(rng, *sizes[:2])
        tasks.append((machine, rng.integers(sizes[1], size=rng.integers(1, 9)).tolist()))
    compared = 0
    for (machine, tape), run in zip(
        tasks, compiled.run_batch(tasks, max_steps=max_steps), strict=True
    ):
        steps = _steps_like_endless(run, len(tape), sizes[2])
        configurations = oracle_configurations(machine, tape, steps)
        assert len(configurations) == steps + 1
        for step, configuration in zip(run.history[:steps], configurations, strict=False):
            assert configuration.state == str(step.state)
            assert configuration.tape.read_symbol() == str(step.read)
        if steps == run.steps:
            last = configurations[-1]
            assert last.state == ("halt" if run.state == HALT else str(run.state))
            origin = run.position - last.tape.current_position
            around = [run.tape[(origin + i) % sizes[2]] for i in range(len(last.tape))]
            assert around == [int(x) for x in last.tape]
            assert sum(map(bool, run.tape)) == sum(map(bool, around))
        compared += steps
    return compared


def _steps_like_endless(run, n_given, n_cells):
    """How many steps an endless tape shows the same, by whose cell each cell is."""
    owner, travelled = {place: place for place in range(n_given)}, 0
    for number, step in enumerate(run.history):
        if owner.setdefault(travelled % n_cells, travelled) != travelled:
            return number
        travelled += step.move
    # The head of the endless tape ends on a cell, too.
    fresh = owner.setdefault(travelled % n_cells, travelled) == travelled
    return run.steps if fresh else max(0, run.steps - 1)


# ---------------------------------------------------------------- long runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "sizes", "n_words"),
    [
        ("registers", (5, 4, 64), 7000),
        ("registers", (8, 6, 12), 20_000),
        ("one_hot", (5, 4, 12), 32_000),
    ],
)
def test_a_million_letters_without_a_disagreement(style, sizes, n_words):
    compiled, rng = dfa_case(*sizes, style).compiled, np.random.default_rng(0)
    letters = 0
    for _ in range(n_words):
        dfa = random_dfa(rng, *sizes[:2])
        word = rng.integers(sizes[1], size=sizes[2]).tolist()
        assert compiled.run(dfa, word) == oracle_states(dfa, word)
        letters += len(word)
    assert letters >= {"registers": 240_000, "one_hot": 380_000}[style]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 2, 48), (4, 3, 64), (6, 4, 96)])
def test_many_turing_steps_on_the_endless_tape_without_a_disagreement(sizes):
    compared = sum(
        _compare_on_the_endless_tape(sizes, n_machines=500, max_steps=200, seed=seed)
        for seed in range(2)
    )
    assert compared >= 35_000


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(3, 2, 5), (4, 3, 12), (6, 5, 20)])
def test_many_turing_steps_around_the_ring_without_a_disagreement(sizes):
    compiled, rng = turing_case(*sizes).compiled, np.random.default_rng(1)
    steps = wrapped = 0
    while steps < 35_000:
        machine = random_turing(rng, *sizes[:2], halting=0.02)
        tape = rng.integers(sizes[1], size=sizes[2]).tolist()
        run = compiled.run(machine, tape, max_steps=500)
        assert facts(run) == ring(machine, tape, sizes[2], 500)
        steps, wrapped = steps + run.steps, wrapped + (run.wrapped_at is not None)
    assert wrapped > 10
