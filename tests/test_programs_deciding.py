"""Machines that accept and reject, and deciding words within a bound on the steps."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from automata.tm import dtm as tm
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.programs.library import show_run
from polyattn.programs.machines import ACCEPT, HALT, REJECT
from polyattn.programs.machines.files import content_of, machine_from

P, M = pa.programs, pa.programs.machines


def depths_fit(word):
    depths = np.cumsum([0, *(1 if x == "1" else -1 for x in word)])
    return bool(depths.min() >= 0 and depths[-1] == 0)


# Machines that decide a language over the letters 1 and 2, and what a word of it looks like.
LANGUAGES = {
    "palindrome": (M.palindrome(), lambda w: w == w[::-1]),
    "equal_blocks": (M.equal_blocks(), lambda w: w == "1" * (len(w) // 2) + "2" * (len(w) // 2)),
    "balanced": (M.balanced(), depths_fit),
}


def words(longest):
    return ["".join(w) for n in range(longest + 1) for w in product("12", repeat=n)]


def oracle(machine):
    """The machine of automata-lib, which accepts by its final state and rejects without a rule."""
    ends = {HALT: "halt", ACCEPT: "yes", REJECT: "no"}
    moves = {-1: "L", 0: "N", 1: "R"}
    table = {str(q): {} for q in range(machine.n_states)}
    for (q, x), (after, write, move) in machine.rules.items():
        table[str(q)][str(x)] = (ends.get(after, str(after)), str(write), moves[move])
    letters = {str(x) for x in range(machine.n_letters)}
    return tm.DTM(
        states={*table, *ends.values()},
        input_symbols=letters - {"0"},
        tape_symbols=letters,
        transitions=table,
        initial_state="0",
        blank_symbol="0",
        final_states={"yes"},
    )


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_short_word_is_decided_as_automata_lib_and_the_language_say(name):
    machine, member = LANGUAGES[name]
    other, compiled = oracle(machine), P.compile(P.universal_turing_machine(7, 4, 16))
    answers = {}
    tapes = [(machine, [int(x) for x in word]) for word in words(5)]
    for word, run in zip(words(5), compiled.run_batch(tapes, max_steps=200), strict=True):
        assert run.wrapped_at is None
        answers[word] = run.verdict
        assert run.verdict == machine.run([*map(int, word), *[0] * 9], 200).verdict
        assert (run.verdict == "accepted") == other.accepts_input(word) == member(word)
    assert set(answers.values()) == {"accepted", "rejected"}


def bound(n):
    return 2 * (n + 2) ** 2


@pytest.mark.parametrize("name", LANGUAGES)
def test_decide_by_layer_and_interpreter_with_a_polynomial(name):
    machine, member = LANGUAGES[name]
    program = P.universal_turing_machine(machine.n_states, machine.n_letters, 8)
    compiled = P.compile(program)
    for word in words(3):
        letters = [int(x) for x in word]
        by_layer = P.decide(compiled, machine, letters, bound)
        assert by_layer == P.decide(program, machine, letters, bound)
        assert by_layer.answer == ("accepted" if member(word) else "rejected")
        assert by_layer.outcome.ok
        assert by_layer.bound == bound(len(word))
        assert str(by_layer.run.steps) in str(by_layer)


def test_a_bound_that_is_too_small_gives_no_answer_and_one_step_more_does():
    compiled, word = P.compile(P.universal_turing_machine(4, 3, 12)), [1, 1, 2, 2]
    steps = P.decide(compiled, M.equal_blocks(), word, 100).run.steps
    assert P.decide(compiled, M.equal_blocks(), word, steps).answer == "accepted"
    short = P.decide(compiled, M.equal_blocks(), word, steps - 1)
    assert short.answer == "undecided"
    assert not short.outcome.ok
    assert f"within {steps - 1} steps" in str(short)
    assert P.decide(compiled, M.equal_blocks(), word, 0).answer == "undecided"


def test_no_bound_is_enough_for_a_machine_that_goes_on():
    forever = P.TuringMachine({(0, 0): (0, 0, 0), (0, 1): (ACCEPT, 1, 0)}, 1, 2)
    compiled = P.compile(P.universal_turing_machine(1, 2, 4))
    assert P.decide(compiled, forever, [1], 5).answer == "accepted"
    for steps in (1, 10, 500):
        assert P.decide(compiled, forever, [0], steps).answer == "undecided"


def test_halting_alone_is_no_answer():
    compiled = P.compile(P.universal_turing_machine(2, 2, 16))
    found = P.decide(compiled, M.busy_beaver(2), [], 100, position=8)
    assert found.run.halted
    assert found.run.verdict == "halted"
    assert found.answer == "undecided"
    assert "neither accepts nor rejects" in str(found)


def test_a_tape_without_room_is_no_answer_where_the_ring_would_give_a_wrong_one():
    # Looks left of the word, where an endless tape is blank.
    rules = {(0, x): (1, x, -1) for x in range(2)} | {
        (1, 0): (ACCEPT, 0, 0),
        (1, 1): (REJECT, 1, 0),
    }
    machine, wrong = P.TuringMachine(rules, 2, 2), 0
    for n_cells in (2, 3, 4):
        compiled = P.compile(P.universal_turing_machine(2, 2, n_cells))
        for word in ([1], [1, 1], [1, 1, 1]):
            if len(word) > n_cells:
                continue
            found = P.decide(compiled, machine, word, 10)
            room = len(word) < n_cells
            assert found.answer == ("accepted" if room else "undecided")
            assert ("n_cells" in str(found)) == (not room)
            wrong += found.run.verdict == "rejected"
    # The control: the ring itself has given wrong answers.
    assert wrong == 2
    assert oracle(machine).accepts_input("11")


def test_a_move_past_the_end_after_the_verdict_does_not_matter():
    # Accepts at once and moves left, around the ring onto the letter at its other end.
    machine = P.TuringMachine({(0, 0): (REJECT, 0, 0), (0, 1): (ACCEPT, 1, -1)}, 1, 2)
    compiled = P.compile(P.universal_turing_machine(1, 2, 2))
    found = P.decide(compiled, machine, [1, 1], 5)
    assert (found.run.wrapped_at, found.run.steps, found.answer) == (1, 1, "accepted")


def test_what_cannot_be_decided_is_refused():
    compiled, machine = P.compile(P.universal_turing_machine(4, 3, 8)), M.equal_blocks()
    with pytest.raises(InvalidType, match="program must be a Program"):
        P.decide(machine, machine, [1], 5)
    with pytest.raises(InvalidInput, match="decide needs a program that runs Turing machines"):
        P.decide(P.compile(P.universal_dfa(2, 2, 3)), machine, [1], 5)
    with pytest.raises(InvalidInput, match="bound must be an integer of at least 0; got -1"):
        P.decide(compiled, machine, [1], lambda n: -n)
    with pytest.raises((InvalidInput, InvalidType), match="bound must be an integer"):
        P.decide(compiled, machine, [1], 2.5)
    with pytest.raises(InvalidInput, match="tape has 9 letters"):
        P.decide(compiled, machine, [1] * 9, 5)


# --- Endings in machines, by the layer, and in files ---


def test_endings_come_out_of_every_way_to_run():
    for ending, verdict in ((HALT, "halted"), (ACCEPT, "accepted"), (REJECT, "rejected")):
        machine = P.TuringMachine({(0, 0): (0, 1, 1), (0, 1): (ending, 0, -1)}, 1, 2)
        program = P.universal_turing_machine(1, 2, 4)
        tape = [0, 0, 1, 0]
        run = machine.run(tape)
        assert (run.state, run.verdict, run.halted) == (ending, verdict, True)
        assert P.compile(program).run(machine, tape) == program.interpret(machine, tape) == run
        assert machine.run(tape, max_steps=2).verdict == "undecided"
        assert verdict in run.show()


def test_a_layer_that_halts_where_no_rule_ends_has_only_halted():
    machine = M.equal_blocks()
    assert machine.ending(0, 0) == ACCEPT
    assert machine.ending(2, 1) == REJECT
    assert machine.ending(0, 1) == HALT
    assert machine.ending(9, 9) == HALT


def test_machines_that_differ_in_a_verdict_are_different():
    rules = {(0, 0): (HALT, 0, 0)}
    one, other = (P.TuringMachine({(0, 0): (ending, 0, 0)}, 1, 1) for ending in (ACCEPT, REJECT))
    assert len({one, other, P.TuringMachine(rules, 1, 1)}) == 3
    assert one == P.TuringMachine({(0, 0): (-2, 0, 0)}, 1, 1)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize("name", LANGUAGES)
def test_verdicts_survive_files(name, suffix, tmp_path):
    if suffix == "yaml":
        pytest.importorskip("yaml")
    machine, path = LANGUAGES[name][0], tmp_path / f"machine.{suffix}"
    M.save_machine(machine, path)
    again = M.load_machine(path)
    assert again.machine == machine
    assert set(again.halts.values()) == {"ACCEPT", "REJECT"}
    assert content_of(again)["accepting"] == ["ACCEPT"]


def test_a_file_with_names_of_its_own_for_the_verdicts():
    content = {
        "accepting": "yes", "rejecting": ["no", "never"], "letters": ["_", "a"],
        "rules": {
            "look": {"_": "---", "a": ["second", "a", "R"]},
            "second": {"_": "yes", "a": {"next": "never", "move": "R"}},
        },
    }  # fmt: skip
    named = machine_from(content)
    assert named.machine.rules[0, 0] == (HALT, 0, 0)
    assert named.machine.rules[1, 0] == (ACCEPT, 0, 0)
    assert named.machine.rules[1, 1] == (REJECT, 1, 1)
    assert named.halts == {(0, 0): "H", (1, 0): "yes", (1, 1): "never"}
    assert machine_from(json.loads(json.dumps(content_of(named)))) == named


def test_files_without_verdicts_are_what_they_were():
    content = {"halt": "done", "rules": {"A": {"0": "1Rdone", "1": "1RA"}}}
    named = machine_from(content)
    assert named.machine.rules[0, 0] == (HALT, 1, 1)
    assert {"accepting", "rejecting"}.isdisjoint(content_of(named))
    assert set(content_of(named)) == {
        "kind", "states", "letters", "blank", "start", "halt", "rules",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rejecting": "yes"}, "in another way"),
        ({"halt": "yes"}, "in another way"),
        ({"accept": "yes"}, "is it 'accepting'"),
        ({"reject": "no"}, "is it 'rejecting'"),
        ({"accepting": "A"}, "all states halt"),
    ],
)
def test_verdicts_that_contradict_are_refused(change, said, tmp_path):
    content = {"accepting": "yes", "rules": {"A": {"0": "0Ryes", "1": "1RA"}}} | change
    (tmp_path / "machine.json").write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=said):
        M.load_machine(tmp_path / "machine.json")


def test_names_of_endings_are_no_states():
    rules = {
        (0, 0): (ACCEPT, 0, 0),
        (0, 1): (REJECT, 1, 0),
        (1, 0): (HALT, 0, 0),
        (1, 1): (0, 1, 0),
    }
    named = M.NamedMachine.plain(P.TuringMachine(rules, 2, 2))
    assert named.halts == {(0, 0): "ACCEPT", (0, 1): "REJECT", (1, 0): "H"}


def test_the_page_of_the_machines_has_the_numbers_of_their_endings():
    page = (Path(__file__).parent.parent / "docs" / "api" / "programs.md").read_text("utf-8")
    for name in ("HALT", "ACCEPT", "REJECT"):
        assert f".. py:data:: {name}\n   :value: {getattr(M, name)}\n" in page


@pytest.mark.parametrize(("word", "verdict"), [("12", "accepted"), ("21", "rejected")])
def test_the_command_line_says_the_verdict(word, verdict):
    found = CliRunner().invoke(cli, ["program", "run", "equal-blocks", word, "--check", "--json"])
    assert found.exit_code == 0
    content = json.loads(found.output)
    assert content["verdict"] == verdict
    assert content["check"] == {"interpreter": True, "rules": True}
    cut = CliRunner().invoke(cli, ["program", "run", "equal-blocks", "12", "--max-steps", "1"])
    assert "undecided" in cut.output


def test_a_verdict_that_a_short_ring_gives_is_said_to_be_the_rings(tmp_path):
    """The head comes around to what it has written, where an endless tape is blank."""
    machine = {
        "kind": "turing", "letters": ["_", "1"], "accepting": "yes", "rejecting": "no", "tape": "",
        "rules": {"a": {"_": "1Rb", "1": "1Rno"}, "b": {"_": "_Rc", "1": "1Rno"},
                  "c": {"_": "_Rd", "1": "1Rno"}, "d": {"_": "_Ryes", "1": "1Rno"}},
    }  # fmt: skip
    path = tmp_path / "around.json"
    path.write_text(json.dumps(machine), encoding="utf-8")
    said = {
        cells: CliRunner().invoke(cli, ["program", "run", str(path), "--cells", cells]).output
        for cells in ("3", "16")
    }
    assert "rejected on this ring" in said["3"]
    assert "accepted" in said["16"]
    assert "on this ring" not in said["16"]


def test_a_page_about_a_run_says_the_verdict():
    compiled = P.compile(P.universal_turing_machine(4, 3, 8))
    shown = show_run(compiled, M.equal_blocks(), [1, 2])
    assert "The input is accepted." in shown.findings
    assert "The input" not in " ".join(show_run(compiled, M.busy_beaver(2), []).findings)
