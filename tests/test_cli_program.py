"""``polyattn program``: what each subcommand prints, what it writes, how it ends."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from command_endings import parsed, refused
from polyattn.cli.main import cli
from polyattn.programs.library import PROGRAMS
from polyattn.programs.machines import DFA, NamedMachine, TuringMachine, load_machine
from polyattn.programs.machines.ready import READY, find_machine

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


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a subcommand inside a folder with two machine files; returns click's result."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    Path("even.json").write_text(json.dumps(EVEN))
    Path("increment.yaml").write_text(INCREMENT)

    def call(*arguments):
        return CliRunner().invoke(cli, ["program", *map(str, arguments)])

    return call


def printed(result, *words):
    """Ended well, with the words on stdout."""
    assert result.exit_code == 0, result.output
    for word in words:
        assert word in result.stdout, result.stdout
    return result.stdout


# list, show, compile


def test_list_has_programs_at_the_sizes_given_and_ready_machines(run):
    printed(run("list"), *PROGRAMS, *READY, "divisibility:N", "--style one-hot", "heads")
    found = parsed(
        run("list", "--states", 3, "--letters", 2, "--length", 5, "--cells", 8, "--json")
    )
    programs = {(one["name"], one["style"]): one for one in found["programs"]}
    assert programs["dfa", "registers"]["n_dims"] == 5 + 4 + 2 * 2 + 9 + 3
    assert programs["dfa", "registers"]["n_heads"] == 3 + 3
    assert programs["dfa", "one-hot"]["n_dims"] == 10 + 6 + 3 + 6
    assert programs["dfa", "one-hot"]["n_heads"] == 2 + 3
    assert programs["turing", None]["n_dims"] == 2 * 8 + 4 * 2 + 3 * 2 + 3 * 3 + 5
    assert programs["turing", None]["n_heads"] == 3 * 3 + 5
    assert programs["associative-memory", None]["n_heads"] == 1
    assert {one["name"] for one in found["machines"]} > set(READY)


def test_the_examples_of_the_list_run(run):
    for one in parsed(run("list", "--json"))["machines"]:
        arguments = one["example"].split()[2:]
        printed(run(*arguments, "--check", "--max-steps" if one["kind"] == "turing" else "--steps",
                    60), "agree")  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_show_prints_attributes_instructions_and_terms(run, name):
    found = parsed(run("show", name, "--json"))
    text = printed(run("show", name), "attributes of a token", "instructions:", "terms")
    assert found["instructions"][0] in text
    assert found["terms"][0] in text
    assert sum(each["n_values"] for each in found["attributes"]) == found["n_dims"]
    assert len(found["terms"]) == found["n_terms"]


def test_show_takes_sizes_and_cuts_long_lists(run):
    found = parsed(run("show", "dfa", "--style", "one-hot", "--machine", "even.json", "--json"))
    assert found["sizes"] == {"n_states": 2, "n_letters": 2, "max_length": 8}
    assert found["n_heads"] == 5
    cut = printed(run("show", "fixed-dfa", "--machine", "divisibility:40"))
    assert "... 40 more (--json prints all)" in cut


def test_show_prints_machines(run):
    text = printed(run("show", "even.json"), "even ones", "> even (accepting)", "odd", "abb")
    assert "blank" not in text
    printed(run("show", "increment.yaml"), "> right", "_ L carry", "halts in", "done", "1011")
    printed(run("show", "bb3"), "bb3, Turing machine with 3 states, 2 letters", "1 R B", "1 R H")
    content = parsed(run("show", "increment.yaml", "--json"))
    Path("copy.json").write_text(json.dumps(content))
    assert load_machine("copy.json") == load_machine("increment.yaml")


def test_compile_saves_the_layer(run):
    sizes = ("--states", 2, "--letters", 2, "--cells", 6)
    found = parsed(run("compile", "turing", *sizes, "-o", "layer.safetensors", "--json"))
    layer = pa.load("layer.safetensors")
    expected = P.compile(P.universal_turing_machine(2, 2, 6)).layer
    assert np.array_equal(layer.attn, expected.attn)
    assert np.array_equal(layer.value, expected.value)
    assert (found["n_heads"], found["n_dims"]) == (layer.n_heads, layer.n_dims)
    assert found["layer"] == "layer.safetensors"
    assert found["bytes"] == layer.attn.nbytes + layer.value.nbytes
    printed(run("compile", "fixed-dfa", "--machine", "even.json"), "fixed DFA", "heads")
    printed(run("compile", "associative-memory", "--keys", 3, "-o", "m.safetensors"), "m.safetens")
    assert pa.load("m.safetensors").n_heads == 1


def test_compile_saves_the_program(run):
    sizes = ("--states", 3, "--letters", 2, "--cells", 16)
    found = parsed(run("compile", "turing", *sizes, "--program", "turing.safetensors", "--json"))
    assert found["saved_program"] == "turing.safetensors"
    program = pa.load("turing.safetensors")
    machine = P.machines.busy_beaver(3)
    assert program.run(machine, [0] * 16) == machine.run([0] * 16)
    done = CliRunner().invoke(
        cli, ["report", "turing.safetensors", "--machine", "bb3", "-o", "bb3.html"]
    )
    assert done.exit_code == 0, done.output
    assert "bb3" in Path("bb3.html").read_text()


# run: automata


def test_run_of_an_automaton(run):
    text = printed(run("run", "even.json", "--check"), "even ones", "accepted", "yes", "agree")
    assert text.splitlines()[:4] == [
        "    0        even", "    1  a  -> even", "    2  b  -> odd", "    3  b  -> even",
    ]  # fmt: skip
    found = parsed(run("run", "even.json", "b,a", "--json", "--check"))
    assert found["states"] == ["odd", "odd"]
    assert found["word"] == ["b", "a"]
    assert (found["start"], found["final"], found["accepts"]) == ("even", "odd", False)
    assert found["check"] == {"interpreter": True, "rules": True}
    assert found["layer"]["sizes"] == {"n_states": 2, "n_letters": 2, "max_length": 2}


@pytest.mark.parametrize("style", ["registers", "one-hot"])
@pytest.mark.parametrize("word", ["", "1", "10101", "1100010"])
def test_divisibility_in_both_styles(run, style, word):
    found = parsed(run("run", "divisibility:7", word, "--style", style, "--check", "--json"))
    assert found["accepts"] == (int(word or "0", 2) % 7 == 0)
    assert found["layer"]["program"].endswith(style)


def test_long_words_and_other_bases(run):
    word = "10" * 60
    found = parsed(run("run", "divisibility:3", word, "--json"))
    assert found["layer"]["program"].endswith("one-hot")
    assert found["accepts"] == (int(word, 2) % 3 == 0)
    assert parsed(run("run", "divisibility:7,10", "343", "--json"))["accepts"]
    assert parsed(run("run", "divisibility:5,16", "ff", "--json"))["accepts"]
    printed(run("run", "divisibility:3", word, "--steps", 2), "118 letters more (--steps)")


def test_an_automaton_that_decides_nothing_has_no_verdict(run):
    Path("table.json").write_text("[[0, 1], [1, 0]]")
    assert parsed(run("run", "table.json", "11", "--json"))["accepts"] is None
    assert "accepted" not in printed(run("run", "table.json", "11"))


# run: Turing machines


def test_run_of_a_turing_machine_with_its_own_names(run):
    text = printed(run("run", "increment.yaml", "--check"), "halted in done", "1100", "agree")
    assert text.splitlines()[4] == "    4   1  0  1  1 [_]  right: read _, write _, left, carry"
    found = parsed(run("run", "increment.yaml", "--json"))
    assert found["part"] == {"first": 0, "letters": ["1", "1", "0", "0", "_"]}
    assert (found["state"], found["position"], found["cell"]) == ("done", 0, 0)
    assert (found["steps"], found["halted"], found["endless"]) == (8, True, True)
    assert found["tape"] == ["1", "1", "0", "0"] + ["_"] * 28
    assert found["history"][0] == {
        "state": "right", "position": 0, "read": "1", "write": "1", "move": 1, "next": "right",
    }  # fmt: skip
    assert found["history"][-1]["next"] == "done"


@pytest.mark.parametrize(
    ("name", "steps", "ones"), [("bb2", 6, 4), ("bb3", 21, 5), ("bb4", 107, 13)]
)
def test_busy_beavers(run, name, steps, ones):
    found = parsed(run("run", name, "--check", "--json"))
    assert (found["steps"], found["halted"], found["state"]) == (steps, True, "H")
    assert found["tape"].count("1") == ones
    assert found["n_tokens"] == 2 * steps + 1


def test_the_short_form_is_a_machine(run):
    short = parsed(run("run", "1RB1LB_1LA1RH", "--json"))
    ready = parsed(run("run", "bb2", "--json"))
    assert short | {"machine": ""} == ready | {"machine": ""}


def test_the_limit_of_steps_is_told_and_no_error(run):
    text = printed(run("run", "bb5", "--max-steps", 20, "--steps", 3), "no: the limit of steps")
    assert "17 steps more" in text
    found = parsed(run("run", "bb5", "--max-steps", 20, "--json", "--steps", 3))
    assert (found["halted"], found["steps"], found["max_steps"]) == (False, 20, 20)
    assert len(found["history"]) == 3
    nothing = parsed(run("run", "bb5", "--max-steps", 0, "--json"))
    assert (nothing["steps"], nothing["state"]) == (0, "A")


def test_the_tape_grows_until_the_head_does_not_come_around(run):
    runner = {"rules": {"A": {"0": "1RA", "1": "1RA"}}, "max_steps": 100}
    Path("runner.json").write_text(json.dumps(runner))
    found = parsed(run("run", "runner.json", "--json"))
    assert (found["n_cells"], found["endless"], found["position"]) == (128, True, 100)
    left = {"rules": {"A": {"0": "1LA", "1": "1LA"}}, "tape": "0" * 10 + "1" * 10, "max_steps": 20}
    Path("left.json").write_text(json.dumps(left))
    # On a ring of 32 cells the head would meet the end of its own input.
    assert parsed(run("run", "left.json", "--json"))["n_cells"] == 40
    found = parsed(run("run", "left.json", "--json", "--cells", 32, "--check"))
    assert not found["endless"]
    refused(run("run", "left.json", "--cells", 32, "--no-wrap"), "leaves the tape of 32 cells")
    refused(run("run", "runner.json", "--max-steps", 2000, "--no-wrap"), "1024 cells", "--cells")
    printed(run("run", "runner.json", "--cells", 50), "which is a ring")


@pytest.mark.parametrize(
    ("position", "cell"), [("first", 0), ("last", 2), (1, 1), (-2, -2), (5, 5)]
)
def test_the_head_starts_where_it_is_told(run, position, cell):
    machine = {"rules": {"A": {"0": "1SH", "1": "0SH"}}, "tape": "000"}
    Path("flip.json").write_text(json.dumps(machine))
    found = parsed(run("run", "flip.json", "--position", position, "--check", "--json"))
    assert found["position"] == cell
    assert found["part"]["letters"][cell - found["part"]["first"]] == "1"
    assert found["cell"] == cell % found["n_cells"]
    Path("flip.json").write_text(json.dumps(machine | {"position": position}))
    assert parsed(run("run", "flip.json", "--json"))["position"] == cell


def test_tokens_are_printed_with_the_names(run):
    tokens = parsed(run("run", "even.json", "b", "--tokens", "--json"))["tokens"]
    assert tokens[-1].endswith("state(odd)")
    assert "T(even, odd)" in " ".join(tokens)
    text = printed(run("run", "bb4", "--show-tokens", "--steps", 2), "tokens:", "key(A, 0)")
    assert "210 more (--steps)" in text
    halting = parsed(run("run", "bb2", "--tokens", "--json"))["tokens"]
    assert "mq(+1, HALT)" in halting[-1]


# run: when ways differ


def test_a_run_that_differs_is_found(run, monkeypatch):
    """Negative control of --check: another meaning, and other rules, are told apart."""
    monkeypatch.setattr(P.Program, "interpret", lambda *_, **__: [1, 0, 0])
    result = run("run", "even.json", "--check")
    assert result.exit_code == 1
    assert "CHECK FAILED: the layer differs from the interpreter." in result.stdout
    found = parsed(run("run", "bb2", "--check", "--json"), code=1)
    assert found["check"] == {"interpreter": False, "rules": True}
    monkeypatch.undo()


def test_rules_that_differ_are_found(run, monkeypatch, tmp_path):
    """Negative control."""
    right = TuringMachine.run
    monkeypatch.setattr(
        TuringMachine, "run", lambda self, *a, **k: right(self, *a, **k | {"state": 1})
    )
    monkeypatch.setattr(DFA, "run", lambda *_: [0])
    for machine in ("bb2", "even.json"):
        found = parsed(run("run", tmp_path / machine if "." in machine else machine, "--check",
                           "--json"), code=1)  # fmt: skip
        assert found["check"] == {"interpreter": True, "rules": False}


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "gone.json"], ["no file", "gone.json"]),
        (["run", "nonsense"], ["'nonsense' is no machine", "bb5", "divisibility:N"]),
        (["run", "parity"], ["no word to run parity on"]),
        (["run", "parity", "012"], ["'2' at place 2", "'0', '1'"]),
        (["run", "bb2", "0 x"], ["tape has 'x' at place 1"]),
        (["run", "bb2", "--cells", 4, "00000"], ["needs 5 cells"]),
        (["run", "bb2", "--cells", 4, "--position", 4], ["needs 5 cells"]),
        (["run", "bb2", "--position", -5000], ["at most 4096"]),
        (["run", "1RB1LB_1LA1R"], ["no machine"]),
        (["run", "1RB1LB_1LA1RX"], ["'1RX' is no rule"]),
        (["run", "divisibility:0"], ["divisor must be an integer of at least 1"]),
        (["run", "divisibility:x"], ["divisibility:7"]),
        (["run", "divisibility:7,10,2"], ["divisibility:7"]),
        (["run", "divisibility:10000000"], ["up to divisor 1000"]),
        (["show", "nonsense"], ["no machine"]),
        (["compile", "turing", "-o", "gone/layer.safetensors"], ["gone"]),
        (["compile", "turing", "--cells", 1], ["n_cells"]),
        (["compile", "associative-memory", "--keys", 12000, "-o", "m.safetensors"], ["GB"]),
    ],
)  # fmt: skip
def test_errors_are_one_line(run, arguments, words):
    refused(run(*arguments), *words)
    refused(run(*arguments, "--json"), *words)
    assert not list(Path().glob("*.safetensors"))


def test_files_that_cannot_be_used_are_one_line(run):
    Path("bad.json").write_text('{"transitions": {"a": {"0": "b"}}}')
    Path("worse.yaml").write_text("rules: {A: {0: 1RB}")
    for verb in ("run", "show"):
        refused(run(verb, "bad.json"), "bad.json", "'a' at letter '0'", "no state 'b'")
        refused(run(verb, "worse.yaml"), "worse.yaml", "line 1, column")
    Path("machine.txt").write_text("[[0]]")
    refused(run("run", "machine.txt"), ".json, .yaml, .yml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], []),
        (["frobnicate"], []),
        (["run"], []),
        (["run", "parity", "1", "--cells", 4], ["--cells says nothing about a DFA"]),
        (["run", "parity", "1", "--no-wrap"], ["--no-wrap"]),
        (["run", "parity", "1", "--max-steps", 0], ["--max-steps"]),
        (["run", "bb2", "--style", "one-hot"], ["--style says nothing about a Turing machine"]),
        (["run", "bb2", "--max-steps", -1], ["max-steps"]),
        (["run", "bb2", "--max-steps", 10**9], ["max-steps"]),
        (["run", "bb2", "--cells", 5000], ["cells"]),
        (["run", "bb2", "--position", "middle"], ["first"]),
        (["compile", "nonsense"], ["turing"]),
        (["compile", "dfa", "--cells", 4], ["dfa has no --cells", "--states, --letters, --length"]),
        (["compile", "turing", "--style", "one-hot"], ["no --style"]),
        (["compile", "turing", "--machine", "parity"], ["does not run parity"]),
        (["compile", "fixed-dfa", "--machine", "bb2"], ["bb2 is none"]),
        (["compile", "dfa", "--states", 0], ["states"]),
        (["show", "bb2", "--states", 3], ["--states is for programs"]),
        (["list", "--style", "one-hot"], ["leave --style"]),
    ],
)
def test_wrong_usage_is_code_two(run, arguments, words):
    refused(run(*arguments), *words, code=2)


def test_every_subcommand_has_help_and_json(run):
    for name in ("list", "show", "compile", "run", "learn"):
        assert name in run("--help").stdout
        assert "--json" in run(name, "--help").stdout


def test_importing_the_command_line_leaves_yaml_alone():
    code = "import polyattn.cli.main, sys; print('yaml' in sys.modules, 'sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_progress_goes_to_the_terminal_and_json_stays_alone(run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("run", "bb2", "--json")
    assert json.loads(result.stdout)["steps"] == 6
    assert "running" in result.stderr


def test_every_ready_machine_is_named(run):  # noqa: ARG001 - the folder has no such files
    for name in READY:
        named = find_machine(name)
        assert isinstance(named, NamedMachine)
        assert named.name == name
