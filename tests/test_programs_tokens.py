"""The tokens of the library's programs against a second transcription, written by hand."""

import numpy as np
import pytest

import polyattn as pa
from program_traces import dfa_trace, turing_trace

P = pa.programs


@pytest.mark.parametrize("seed", range(20))
def test_automata_write_the_tokens_that_were_meant(seed):
    program = P.universal_dfa(3, 4, 5, style="one_hot")
    (found,) = P.traces(program, 1, random_state=seed)
    dfa, word = found.source
    meant = dfa_trace(program.schema, dfa.transitions, word)
    np.testing.assert_array_equal(found.tokens, meant.tokens)
    np.testing.assert_array_equal(P.compile(program).trace(dfa, word).tokens, meant.tokens)


@pytest.mark.parametrize("seed", range(20))
def test_turing_machines_write_the_tokens_that_were_meant(seed):
    program, rng = P.universal_turing_machine(3, 3, 5), np.random.default_rng(seed)
    (machine, tape), options = program.schema.encoding.sample(rng)
    meant = turing_trace(
        program.schema, machine.rules, tape, options["position"], options["state"],
        options["max_steps"],
    )  # fmt: skip
    found = P.compile(program).trace(machine, tape, **options)
    np.testing.assert_array_equal(found.tokens, meant.tokens)
    halted = machine.run(tape, **options).halted
    assert found.cut is not halted


def test_only_runs_that_would_go_on_are_cut():
    assert not any(trace.cut for trace in P.traces(P.universal_dfa(2, 2, 3), 5))
    found = P.traces(P.universal_turing_machine(2, 2, 4), 20, random_state=0)
    assert {trace.cut for trace in found} == {True, False}
