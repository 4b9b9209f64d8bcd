"""``polyattn program learn``: what it prints, what it writes, how it ends."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from command_endings import parsed, refused
from polyattn.cli.main import cli

P = pa.programs


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Run ``program learn`` inside an empty folder; returns click's result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments):
        return CliRunner().invoke(cli, ["program", "learn", *map(str, arguments)])

    return call


def test_an_automaton_is_learned_and_tested_at_larger_sizes(learn):
    found = parsed(
        learn(
            "dfa", "--traces", 15, "--test", 50, "--test-states", 8, "--test-length", 20, "--json"
        )
    )
    assert found["outcome"]["name"] == "learned"
    assert (found["kind"], found["method"], found["seed"]) == ("dfa", "rules", 0)
    assert found["sizes"] == {"states": 3, "letters": 3, "length": 6}
    assert found["test"] == {
        "sizes": {"n_states": 8, "n_letters": 3, "max_length": 20},
        "n_machines": 50, "exact": 50, "wrong": 0, "refused": 0,
    }  # fmt: skip
    program = P.universal_dfa(3, 3, 6, style="one_hot")
    traces = P.traces(program, 15, random_state=0)
    assert found["n_rows"] == sum(trace.n_rows for trace in traces)
    assert found["terms"] == [str(term) for term in P.learn(program.schema, traces).terms]


def test_the_text_says_what_was_learned(learn):
    result = learn("dfa", "--style", "registers", "--traces", 12, "--test", 5, "--certify", 20)
    assert result.exit_code == 0, result.output
    for words in (
        "Every token of all 12 traces was predicted exactly",
        "the program that was learned:",
        "5 of 5 fresh machines exact, 0 wrong, 0 refused",
        "12 traces, ",
        "dimensions",
    ):
        assert words in " ".join(result.stdout.split())


def test_seeds_give_other_traces_and_the_same_program(learn):
    one, same, other = (
        parsed(learn("dfa", "--traces", 15, "--seed", seed, "--test", 0, "--json"))
        for seed in (1, 1, 2)
    )
    assert one == same
    assert one["n_rows"] != other["n_rows"]
    assert set(one["terms"]) == set(other["terms"])
    assert "test" not in one


@pytest.mark.slow
def test_a_turing_machine_is_learned_and_run_at_a_larger_size(learn):
    found = parsed(learn("turing", "--traces", 20, "--test", 10, "--test-cells", 20, "--json"))
    assert found["outcome"]["name"] == "learned"
    assert found["test"]["sizes"] == {"n_states": 3, "n_letters": 2, "n_cells": 20}
    assert found["test"]["exact"] == 10


SMALL = ("--states", 2, "--letters", 2, "--length", 2)
COEFFICIENTS = ("--method", "coefficients")


def test_coefficients_are_learned_and_certified(learn):
    found = parsed(
        learn(
            "dfa", *COEFFICIENTS, *SMALL, "--traces", 300, "--test", 40, "--certify", 80, "--json"
        )
    )
    assert (found["method"], found["terms"]) == ("coefficients", None)
    assert found["outcome"]["name"] == "fitted"
    assert found["certificate"]["verdict"] == "saturated"
    assert found["certificate"]["n_checked_traces"] == 80
    assert found["test"]["exact"] == 40
    text = learn("dfa", *COEFFICIENTS, *SMALL, "--traces", 300, "--test", 5, "--certify", 80)
    assert "with confidence 95% at most 3.74%" in " ".join(text.stdout.split())


def test_the_layer_is_written(learn):
    found = parsed(
        learn("dfa", *SMALL, "--traces", 15, "--test", 0, "-o", "layer.safetensors", "--json")
    )
    assert found["output"] == "layer.safetensors"
    layer = pa.load("layer.safetensors")
    program = P.universal_dfa(2, 2, 2, style="one_hot")
    (trace,) = P.traces(program, 1, random_state=5, lengths=(2, 2))
    for row, wanted in enumerate(trace.completion):
        tokens = trace.tokens[: len(trace.prompt) + row].astype(float)
        assert np.allclose(layer(tokens), wanted)


def test_the_program_is_written_in_words(learn):
    arguments = ("dfa", *SMALL, "--traces", 15, "--test", 5, "-o", "found.json")
    result = learn(*arguments)
    assert result.exit_code == 0, result.output
    assert "found.json" in result.stdout
    written = json.loads(Path("found.json").read_text())
    assert written["terms"]
    printed = parsed(learn(*arguments, "--json"))
    assert {**written, "output": "found.json"} == printed


@pytest.mark.parametrize("method", ["rules", "coefficients"])
def test_too_few_traces_are_said_by_the_exit_code(learn, method):
    found = parsed(
        learn("dfa", "--method", method, *SMALL, "--traces", 1, "--test", 20, "--json"), code=4
    )
    assert found["outcome"]["name"] == "unchecked"
    test = found["test"]
    assert test["exact"] + test["wrong"] + test["refused"] == 20
    result = learn("dfa", "--method", method, *SMALL, "--traces", 1, "--test", 0)
    assert result.exit_code == 4
    assert "more traces" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dfa", "--cells", 5), "--cells says nothing about dfa"),
        (("dfa", "--test-cells", 5), "--test-cells says nothing about dfa"),
        (("turing", "--length", 5), "--length says nothing about turing"),
        (("turing", "--test-length", 5), "--test-length says nothing about turing"),
        (("turing", "--style", "one-hot"), "--style says nothing about turing"),
        (("dfa", *COEFFICIENTS, "--test-states", 5), "only rules run at other sizes"),
        (("dfa", "--traces", 0), "--traces"),
        (("dfa", "--seed", -1), "--seed"),
        (("dfa", "--style", "one_hot"), "--style"),
        (("memory",), "'memory' is not one of"),
        ((), "Missing argument"),
    ],
)
def test_wrong_usage(learn, arguments, words):
    refused(learn(*arguments), words, code=2)


def test_an_output_of_another_kind_is_refused_before_anything_is_learned(learn):
    refused(learn("dfa", "-o", "x.txt"), ".safetensors", "x.txt", code=1)
    refused(learn("dfa", "-o", "nowhere/x.json"), "nowhere", code=1)
    assert list(Path().iterdir()) == []


def test_sizes_that_no_program_has_are_refused(learn):
    refused(learn("turing", "--cells", 1), "n_cells must be an integer of at least 2", code=1)


def test_what_was_learned_is_kept_as_a_program(learn):
    found = parsed(
        learn("dfa", "--traces", 15, "--test", 0, "--program", "p.safetensors", "--json")
    )
    assert found["saved_program"] == "p.safetensors"
    dfa = P.machines.divisibility(3)
    assert pa.load("p.safetensors").run(dfa, [1, 1, 0]) == dfa.run([1, 1, 0])
    learn("dfa", *COEFFICIENTS, *SMALL, "--traces", 60, "--test", 0, "--program", "q.safetensors")
    assert isinstance(pa.load("q.safetensors"), P.LearnedCoefficients)
    refused(learn("dfa", "--program", "gone/p.safetensors"), "gone", code=1)
