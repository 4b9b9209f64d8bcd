"""``polyattn program``: machines run by layers, programs compiled, learned and saved."""

import json
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from oracle import parsed, printed, refused, wrong_uses

P = pa.programs
EVEN = {
    "name": "even ones",
    "accepting": ["even"],
    "transitions": {"even": {"a": "even", "b": "odd"}, "odd": {"a": "odd", "b": "even"}},
    "word": "abb",
}
INCREMENT = """
letters: [0, 1, _]
start: right
halt: done
tape: 1011
rules:
  right: {0: {move: R}, 1: {move: R}, _: {move: L, next: carry}}
  carry: {0: [done, 1, L], 1: [carry, 0, L], _: 1Ldone}
"""
RUNNER = {"rules": {"A": {"0": "1RA", "1": "1RA"}}, "max_steps": 100}
FLIP = {"rules": {"A": {"0": "1SH", "1": "0SH"}}, "tape": "000"}
TOLD = FLIP | {"position": 1}


@pytest.fixture
def program(run, monkeypatch):
    """Run a subcommand in a folder with files of machines; returns click's result."""
    monkeypatch.setenv("COLUMNS", "160")
    for name, content in {"even": EVEN, "runner": RUNNER, "flip": FLIP, "told": TOLD}.items():
        Path(f"{name}.json").write_text(json.dumps(content))
    Path("table.json").write_text("[[0, 1], [1, 0]]")
    Path("increment.yaml").write_text(INCREMENT)
    return lambda *arguments: run("program", *arguments)


AGREE = {"check": {"interpreter": True, "rules": True}}
#: What a run must say.  Tapes grow until the head does not come around, unless told how long.
RUNS = {
    "even.json b,a --check": {"states": ["odd", "odd"], "final": "odd", "accepts": False} | AGREE,
    "table.json 11": {"accepts": None},  # without accepting states there is no verdict
    "divisibility:7 1100010 --style registers": {"accepts": True},
    "divisibility:5,16 fe --check": {"accepts": False} | AGREE,
    "increment.yaml --check": {"tape": [*"1100"] + ["_"] * 28, "steps": 8, "halted": True} | AGREE,
    "bb5 --max-steps 20": {"halted": False, "steps": 20, "max_steps": 20},
    "runner.json": {"n_cells": 128, "endless": True, "position": 100},
    "runner.json --cells 50 --check": {"n_cells": 50, "endless": False} | AGREE,
    "flip.json --check": {"position": 0, "cell": 0, "tape": [*"100"] + ["0"] * 29} | AGREE,
    "flip.json --position -2 --check": {"position": -2, "cell": 30} | AGREE,
    "told.json": {"position": 1, "cell": 1},
}


@pytest.mark.parametrize("command", RUNS)
def test_machines_run_with_their_own_names_and_limits(command, program):
    assert parsed(program("run", *command.split(), "--json")).items() >= RUNS[command].items()


def test_steps_and_styles_of_runs(program):
    history = parsed(program("run", "bb5", "--steps", 3, "--json"))["history"]
    first = {"state": "A", "position": 0, "read": "0", "write": "1", "move": 1, "next": "B"}
    assert (len(history), history[0]) == (3, first)
    # Where nobody says the style, long words get the one that compiles soon.
    for word, style in (("0", "registers"), (60 * "10", "one-hot")):
        found = parsed(program("run", "divisibility:3", word, "--json"))
        assert found["layer"]["program"].endswith(style)
    printed(program("run", "increment.yaml", "--check"), "1100", "done")
    refused(program("run", "runner.json", "--cells", 50, "--no-wrap"), "50", "--cells")


def test_the_examples_of_the_list_run(program):
    for each in parsed(program("list", "--json"))["machines"]:
        words = each["example"].split()[2:]
        limit = "--max-steps" if each["kind"] == "turing" else "--steps"
        assert all(parsed(program(*words, limit, 30, "--check", "--json"))["check"].values())


def test_sizes_are_those_of_the_library(program):
    sizes = ("--states", 3, "--letters", 2, "--length", 5, "--cells", 8)
    found = parsed(program("list", *sizes, "--json"))
    programs = {(one["name"], one["style"]): one for one in found["programs"]}
    for key, expected in {
        ("dfa", "registers"): P.universal_dfa(3, 2, 5),
        ("dfa", "one-hot"): P.universal_dfa(3, 2, 5, style="one_hot"),
        ("turing", None): P.universal_turing_machine(3, 2, 8),
    }.items():
        compiled = P.compile(expected)
        listed = programs[key]["n_dims"], programs[key]["n_heads"]
        assert listed == (compiled.n_dims, compiled.n_heads)
    for name in sorted({name for name, _ in programs}):
        found = parsed(program("show", name, "--json"))
        printed(program("show", name), found["terms"][0])
    sized = parsed(program("show", "dfa", "--style", "one-hot", "--machine", "even.json", "--json"))
    assert sized["sizes"] == {"n_states": 2, "n_letters": 2, "max_length": 8}


def test_machines_are_shown_and_written_alike(program, run):
    content = parsed(program("show", "increment.yaml", "--json"))
    Path("copy.json").write_text(json.dumps(content))
    assert parsed(run("show", "copy.json", "--json")) == content
    assert parsed(run("show", "increment.yaml", "--json")) == content


def test_compile_saves_the_layer_and_the_program(program, run):
    sizes = ("--states", 3, "--letters", 2, "--cells", 16)
    files = ("-o", "layer.safetensors", "--program", "turing.safetensors")
    found = parsed(program("compile", "turing", *sizes, *files, "--json"))
    layer, expected = pa.load("layer.safetensors"), P.universal_turing_machine(3, 2, 16)
    assert pa.same_function(layer, P.compile(expected).layer)
    assert (found["n_heads"], found["n_dims"]) == (layer.n_heads, layer.n_dims)
    assert found["bytes"] == layer.attn.nbytes + layer.value.nbytes
    kept, machine = pa.load("turing.safetensors"), P.machines.busy_beaver(3)
    assert kept.run(machine, [0] * 16) == machine.run([0] * 16)
    printed(run("report", "turing.safetensors", "--machine", "bb3", "-o", "bb3.html"), "bb3.html")
    refused(run("report", "turing.safetensors", "--tokens", "a"), "leave --tokens out")
    assert parsed(program("compile", "fixed-dfa", "--machine", "even.json", "--json"))["n_heads"]


def test_what_is_learned_runs_at_larger_sizes_and_is_saved(program):
    kept = ("-o", "words.json", "--program", "p.safetensors", "--json")
    larger = ("--test", 20, "--test-states", 8, "--test-length", 20)
    found = parsed(program("learn", "dfa", "--traces", 15, *larger, *kept))
    assert (found["outcome"]["name"], found["kind"], found["method"]) == ("learned", "dfa", "rules")
    assert found["sizes"] == {"states": 3, "letters": 3, "length": 6}
    tested = {"n_states": 8, "n_letters": 3, "max_length": 20}
    counts = {"n_machines": 20, "exact": 20, "wrong": 0, "refused": 0}
    assert found["test"] == {"sizes": tested} | counts
    planted = P.universal_dfa(3, 3, 6, style="one_hot")
    traces = P.traces(planted, 15, random_state=0)
    assert found["n_rows"] == sum(trace.n_rows for trace in traces)
    assert found["terms"] == [str(term) for term in P.learn(planted.schema, traces).terms]
    written = json.loads(Path("words.json").read_text())
    assert found.items() >= {**written, "output": "words.json"}.items()
    machine = P.machines.divisibility(3)
    assert pa.load("p.safetensors").run(machine, [1, 1, 0]) == machine.run([1, 1, 0])
    # Other seeds are other traces of the same program.
    other = parsed(program("learn", "dfa", "--traces", 15, "--test", 0, "--seed", 1, "--json"))
    assert other["n_rows"] != found["n_rows"]
    assert "test" not in other
    assert set(other["terms"]) == set(found["terms"])


SMALL = ("--states", 2, "--letters", 2, "--length", 2)


def test_coefficients_are_learned_certified_and_written_as_a_layer(program, run):
    given = ("learn", "dfa", "--method", "coefficients", *SMALL, "--traces", 300, "--test", 20)
    found = parsed(program(*given, "--certify", 80, "-o", "layer.safetensors", "--json"))
    assert (found["outcome"]["name"], found["terms"]) == ("fitted", None)
    assert found["certificate"]["verdict"] == "saturated"
    assert found["certificate"]["n_checked_traces"] == 80
    assert found["test"]["exact"] == 20
    (trace,) = P.traces(P.universal_dfa(2, 2, 2, style="one_hot"), 1, lengths=(2, 2))
    for row, wanted in enumerate(trace.completion):
        tokens = trace.tokens[: len(trace.prompt) + row].astype(float)
        assert np.allclose(pa.load("layer.safetensors")(tokens), wanted)
    for method in ("rules", "coefficients"):
        few = ("learn", "dfa", "--method", method, *SMALL, "--traces", 1, "--test", 9)
        test = parsed(program(*few, "--json"), code=4)["test"]
        assert test["exact"] + test["wrong"] + test["refused"] == 9
        printed(program(*few, "-o", "w.json"), "traces", "w.json", code=4)
    assert parsed(run("show", "w.json", "--json"))["method"] == "coefficients"


#: Behind each subcommand one wrong use after the other; see ``oracle.wrong_uses``.
MISUSES = {
    "run": "gone.json - gone.json; nonsense - nonsense; parity - parity; parity 012 - '2'; "
    "1RB1LB_1LA1RX - 1RX; divisibility:0 - divisor; divisibility:7,10,2 - divisibility; "
    "divisibility:10000000 - 1000; bad.json - 'b'; worse.yaml - line 1; machine.txt - .json",
    "run bb2": "x0 - 'x'; 00000 --cells 4 - 5 cells; --cells 4 --position 4 - 5 cells; "
    "--position -5000 - 4096",
    "show": "bad.json - 'b'; worse.yaml - line 1; nonsense - nonsense",
    "compile turing": "--cells 1",
    "compile associative-memory": "--keys 12000 -o m.safetensors - GB",
    "learn turing": "--cells 1",
    "learn dfa": "-o x.txt - x.txt",
}
WRONG_USAGE = {
    "run": "- MACHINE",
    "run parity 1": "--cells 4; --no-wrap; --max-steps 0; --position 1",
    "run bb2": "--style one-hot; --max-steps 1000000000; --cells 5000; --position middle",
    "compile": "nonsense - nonsense",
    "compile dfa": "--cells 4; --states 0",
    "compile turing": "--style one-hot; --machine parity - parity",
    "compile fixed-dfa": "--machine bb2 - bb2",
    "show bb2": "--states 3",
    "list": "--style one-hot; --machine bb2",
    "learn": "memory - memory",
    "learn dfa": "--cells 5; --test-cells 5; --style one_hot; --traces 0; --seed -1; "
    "--method coefficients --test-states 5 - --test-",
    "learn turing": "--length 5; --test-length 5; --style one-hot",
    "": "frobnicate - frobnicate",
}


def test_misuses_are_one_line_that_names_the_option(program):
    Path("bad.json").write_text('{"transitions": {"a": {"0": "b"}}}')
    Path("worse.yaml").write_text("rules: {A: {0: 1RB}")
    Path("machine.txt").write_text("[[0]]")
    before = sorted(Path().iterdir())
    for code, table in ((1, MISUSES), (2, WRONG_USAGE)):
        for command, word in wrong_uses(table):
            refused(program(*command), word, code=code)
    assert sorted(Path().iterdir()) == before
