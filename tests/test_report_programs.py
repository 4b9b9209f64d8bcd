"""Pages about programs: what they say, and the runs that their script plays."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.programs import machines
from polyattn.programs.machines import NamedMachine
from polyattn.programs.running.engine import margins
from polyattn.programs.running.runnable import MarginKeeper
from polyattn.report.page import render_page
from polyattn.report.programs import program_sections

P = pa.programs

EVEN = NamedMachine(machines.parity(), ("even", "odd"), ("0", "1"), "parity", decides=True)
EVIL = ("</script><script>alert(1)</script>", "<!--", "\u2028&amp;\r\n")


def run_of(script):
    """What the script plays."""
    return json.loads(script[script.rindex("\nplay(") + 6 : script.rindex(")")])


def made(*arguments, **options):
    """The text of the sections and the run_data."""
    sections, script = program_sections(*arguments, **options)
    body = "\n".join(str(section.body) for section in sections)
    return [section.title for section in sections], body, run_of(script) if script else None


def tape_at(run_data, number):
    cells = list(run_data["cells"])
    for shown in run_data["steps"][1 : number + 1]:
        if shown["changed"]:
            cells[shown["changed"][0]] = shown["changed"][1]
    return cells


@pytest.fixture(scope="module")
def turing():
    return P.compile(P.universal_turing_machine(4, 2, 32))


def test_the_steps_of_a_turing_machine_is_its_run(turing):
    beaver = machines.busy_beaver(4)
    titles, body, run_data = made(turing, beaver)
    run = beaver.run([0] * 32)
    assert len(run_data["steps"]) == run.steps + 1
    names = NamedMachine.plain(beaver).states
    for shown, step in zip(run_data["steps"], run.history, strict=False):
        assert shown["state"] == names[step.state]
        assert shown["rule"] == [step.state, step.read]
        assert f"reads {step.read}, writes {step.write}" in shown["text"]
    final = tape_at(run_data, run.steps)
    first = -run_data["steps"][0]["head"]
    assert final == [str(run.tape[(first + at) % 32]) for at in range(len(final))]
    assert "halts in H after 107 steps" in body
    assert "Held against the machine&#39;s own rules: the same." in body
    assert titles == [
        "What the program is",
        "The program, term by term",
        "The machine",
        "A run, step by step",
        "The first steps",
    ]


def test_each_step_shows_its_own_tokens(turing):
    *_, run_data = made(turing, machines.busy_beaver(3))
    numbers = [[token[0] for token in shown["written"]] for shown in run_data["steps"]]
    assert numbers[:3] == [[0, 1, 2], [3, 4], [5, 6]]
    assert numbers[-1] == []
    for shown in run_data["steps"][:-1]:
        look, act = (dict(token[2]) for token in shown["written"][-2:])
        assert look["key"] == f"{shown['state']}, {shown['text'].split(' reads ')[1][0]}"
        assert {"cell", "mq"} <= set(act)


@pytest.mark.parametrize("style", ["registers", "one_hot"])
def test_the_tokens_of_automata_hold_the_state_of_their_frame(style):
    *_, body, run_data = made(P.universal_dfa(3, 2, 9, style=style), EVEN, "1101001")
    assert "".join(run_data["cells"]) == "1101001"
    assert [shown["head"] for shown in run_data["steps"]] == [*range(7), None]
    states = ["even", *(EVEN.states[q] for q in EVEN.machine.run(EVEN.read("1101001")))]
    assert [shown["state"] for shown in run_data["steps"]] == states
    for shown in run_data["steps"]:
        held = dict(pair for token in shown["written"] for pair in token[2])
        assert held["state"] == shown["state"]
    assert "It ends in even, which accepts." in body


def test_a_fixed_automaton_reads_a_random_word_if_none_is_given():
    *_, body, run_data = made(P.fixed_dfa(machines.divisibility(3), 6))
    word = [int(letter) for letter in run_data["cells"]]
    states = [0, *machines.divisibility(3).run(word)]
    assert [int(shown["state"]) for shown in run_data["steps"]] == states
    assert "The input of this run was drawn at random." in body
    with pytest.raises(InvalidInput, match="built in"):
        program_sections(P.fixed_dfa(machines.divisibility(3), 6), machines.parity(), "01")


def test_a_memory_is_seen_token_by_token():
    titles, body, run_data = made(P.associative_memory(8, 8), {0: 3, 5: 7}, 5)
    assert run_data["prompt"] == [
        [["key", "0"], ["value", "3"]],
        [["key", "5"], ["value", "7"]],
        [["key", "5"]],
    ]
    assert run_data["steps"][1]["written"] == [[0, "0.5", [["out", "7"]]]]
    assert "Held against the table itself: the same." in body
    assert "The machine" not in titles


def test_a_program_of_ones_own_runs_on_a_prompt():
    node = P.symbols("node", 6)
    schema = P.Schema((P.Attribute("cell", (node,)), P.Attribute("next", (node,))))
    i, j = P.variables("i j")
    follow = P.Lookup(schema.cell(j) << schema.next(j), match=schema.cell(i), query=schema.cell(i))
    program = P.Program(schema, [follow], "linked list")
    links = [schema.token(cell=a, next=b) for a, b in ((0, 3), (3, 1))]
    *_, body, run_data = made(program, inputs=[*links, schema.token(cell=0)])
    assert [shown["written"][0][2] for shown in run_data["steps"][1:]] == [
        [["cell", "3"]],
        [["cell", "1"]],
        [],
    ]
    assert "one instruction" in body
    titles, _, run_data = made(program)
    assert (titles, run_data) == (["What the program is", "The program, term by term"], None)
    with pytest.raises(InvalidInput, match="machine must be left out"):
        program_sections(program, machines.parity(), links)


def test_inputs_by_names_and_by_numbers(turing):
    *_, by_text = made(P.universal_dfa(2, 2, 4), EVEN, "101")
    for given_letters in (["1", "0", "1"], [1, 0, 1], np.array([1, 0, 1])):
        assert made(P.universal_dfa(2, 2, 4), EVEN, given_letters)[2] == by_text
    memory = P.associative_memory(8, 8)
    assert made(memory, {0: 3, 5: 7}, "5") == made(memory, {0: 3, 5: 7}, 5)
    last = replace(NamedMachine.plain(machines.binary_increment()), position="last", max_steps=2)
    *_, body, run_data = made(turing, last, "0111")
    assert (run_data["steps"][0]["head"], len(run_data["steps"])) == (3, 3)
    assert "still in state A after 2 steps" in body


def test_random_machines_where_none_is_given(turing):
    *_, body, run_data = made(turing, max_steps=40)
    assert "The machine and the input of this run were drawn at random." in body
    assert 1 < len(run_data["steps"]) <= 41


def test_long_runs_are_cut_and_say_so():
    endless = P.TuringMachine.parse("1RA1RA")
    *_, body, run_data = made(P.universal_turing_machine(1, 2, 8), endless, max_steps=20)
    assert len(run_data["steps"]) == 21
    assert "still in state A after 20 steps" in body
    assert "which is a ring" in body
    word = "01" * 15
    *_, body, run_data = made(P.universal_dfa(2, 2, 30), EVEN, word, max_steps=10)
    assert len(run_data["steps"]) == 10
    assert "The run has 30 steps; this page shows the first 10." in body
    assert "rejects" in body
    # Tokens that are no run are counted without the prompt, with which their run_data begins.
    turing = P.compile(P.universal_turing_machine(4, 2, 32))
    broken = replace(turing, terms=turing.terms[:-6])
    *_, body, run_data = made(broken, machines.busy_beaver(4), max_steps=3)
    assert [shown["state"] for shown in run_data["steps"]][1:] == ["token 0", "token 1", "token 2"]
    assert "this page shows the first 3." in body


def test_names_cannot_break_out_of_the_page():
    named = NamedMachine(machines.parity(), EVIL[:2], ("0", EVIL[2]), EVIL[0], decides=True)
    sections, script = program_sections(P.universal_dfa(2, 2, 3), named, [1, 0, 1])
    assert run_of(script)["steps"][1]["state"] == EVIL[1]
    html = render_page("A page", "lead", sections, script)
    assert html.count("<script>") == html.count("</script>") == 1
    assert "<!--" not in html
    assert "\r" not in script
    assert script.isascii()


def test_half_a_character_in_a_name_is_no_reason_for_no_page(tmp_path):
    named = NamedMachine(machines.parity(), ("\ud800", "odd"), ("0", "1"))
    P.compile(P.universal_dfa(2, 2, 3)).report(tmp_path / "page.html", named, [1, 0, 1])
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "In state &#55296; it reads 1" in html
    assert "In state \\ud800 it reads 1" in html[html.index("<script>") :]


def test_no_part_of_the_policy_is_left_to_others():
    policy = re.search(r'Policy" content="([^"]*)"', render_page("A page", "lead", []))[1]
    parts = {part.split()[0] for part in policy.replace("&#39;", "'").split(";")}
    assert parts == {"default-src", "style-src", "img-src", "base-uri", "form-action"}


def test_a_learned_program_says_what_is_known_of_it():
    program = P.universal_dfa(2, 2, 3, style="one_hot")
    few = P.learn(program.schema, P.traces(program, 5, random_state=0), "coefficients")
    _, body, _ = made(few, P.DFA([[1, 0], [1, 1]]), [0, 1, 1])
    for said in (few.outcome.sentence, few.certificate.sentence, "one by one", "not the same"):
        assert said in body
    assert "are no run of this machine" in body
    rules = P.learn(program.schema, P.traces(program, 20, random_state=0))
    _, body, run_data = made(rules, EVEN, "101")
    assert "rules that hold for all states" in body
    assert "not certified here" in body
    assert [shown["state"] for shown in run_data["steps"]] == ["even", "odd", "odd", "even"]
    found = rules.certify(fresh=P.traces(program, 60, random_state=1))
    assert found.sentence in made(rules, EVEN, "101", certificate=found)[1]


def test_a_layer_that_is_wrong_is_called_wrong(turing):
    """Negative control: a layer without its last terms writes tokens that are no run."""
    broken = replace(turing, terms=turing.terms[:-6])
    *_, body, run_data = made(broken, machines.busy_beaver(4))
    assert "machine&#39;s own rules: not the same." in body
    assert run_data["prompt"]


def test_a_run_that_goes_another_way_is_shown_and_called_wrong():
    """Negative control: the table of one automaton, held against that of another."""
    program = P.compile(P.fixed_dfa(machines.parity(), 4))
    other = P.fixed_dfa(P.DFA([[0, 0], [1, 1]], accepting=[0]), 4)
    wrong = replace(program, schema=other.schema)
    *_, body, run_data = made(wrong, inputs=[1, 0, 1])
    assert [shown["state"] for shown in run_data["steps"]] == ["0", "1", "1", "0"]
    assert "machine&#39;s own rules: not the same." in body


def test_misuse_is_refused(turing):
    with pytest.raises(InvalidType, match="program must be"):
        program_sections(machines.parity())
    with pytest.raises(InvalidType, match="runs a TuringMachine"):
        program_sections(turing, machines.parity())
    with pytest.raises(InvalidType, match="inputs must be"):
        program_sections(turing, machines.busy_beaver(2), 7)
    with pytest.raises(InvalidInput, match="need 40 cells"):
        program_sections(turing, machines.busy_beaver(2), [1] * 40)
    with pytest.raises(InvalidInput, match="max_steps"):
        program_sections(turing, machines.busy_beaver(2), max_steps=0)


def test_the_player_is_short_and_asks_for_nothing():
    _, script = program_sections(P.associative_memory(2, 2))
    player = script[: script.rindex("\nplay(")]
    assert player.count("\n") < 120
    assert not re.search(r"\beval\b|fetch|http|innerHTML|\bon[a-z]+=", player)


@given(st.lists(st.floats(-2, 2), min_size=9, max_size=9), st.integers(0, 2**32 - 1))
def test_within_the_margin_the_token_stays_and_beyond_it_does_not(numbers, seed):
    schema = P.Schema(
        (
            P.Attribute("one", (P.symbols("a", 4),)),
            P.Attribute("flag"),
            P.Attribute("sum", (P.symbols("a", 4),), rounding="integer"),
        )
    )
    output = np.array(numbers)
    found = float(margins(schema, output))
    rng = np.random.default_rng(seed)
    moves = rng.choice([-1.0, 1.0], size=(64, 9))
    rounded = schema.round(output)
    if found > 1e-9:
        inside = output + 0.999 * found * moves
        assert (schema.round(inside) == rounded).all()
    every = np.array(np.meshgrid(*[[-1.0, 1.0]] * 9)).reshape(9, -1).T
    beyond = output + (1.001 * found + 1e-9) * every
    assert (schema.round(beyond) != rounded).any()


def test_margins_are_those_of_the_layer(turing):
    """The sparse engine and the layer itself, multiplied out, have the same margins."""
    machine = machines.busy_beaver(2)
    keeper = MarginKeeper(turing.schema, turing.predictor())
    trace = turing.trace(machine, [])
    keeper.start([turing.schema.decode(row) for row in trace.prompt])
    tokens = trace.tokens.astype(float)
    for number in range(trace.n_rows):
        keeper.next_token()
        output = turing.layer(tokens[: len(trace.prompt) + number])
        assert keeper.margins[-1] == pytest.approx(margins(turing.schema, output), abs=1e-9)
