"""The automaton and the Turing machine as experiments: search, judging, gates, baseline."""

from dataclasses import replace

import numpy as np
import pytest

from polyattn import programs
from polyattn.errors import InvalidInput
from polyattn.programs.learning.coefficients import learn_coefficients
from polyattn_papers.reproduction import find
from polyattn_papers.tasks import turing_trials
from polyattn_papers.tasks.automata import Machines, fewest, first_of, share_right
from polyattn_papers.yau2024.turing_machine import cells as turing_machine
from polyattn_papers.yau2024.universal_automaton import cells as universal_automaton

TINY = (2, 2, 2)


# --- The search for the number of traces ---


def accuracy(machines, count):
    found = learn_coefficients(machines.program.schema, machines.first(count))
    return float(np.mean(found.right(machines.fresh)))


def test_the_search_finds_what_a_scan_finds(monkeypatch):
    monkeypatch.setattr(universal_automaton, "FEWEST_TRACES", 1)
    monkeypatch.setattr(universal_automaton, "RESOLUTION", 0.0)
    machines = Machines(TINY, 3)
    scan = [accuracy(machines, count) for count in range(1, 41)]
    first = next(count for count, share in enumerate(scan, start=1) if share >= 0.99)
    assert all(share >= 0.99 for share in scan[first - 1 :])  # so that halving gaps is allowed
    row = universal_automaton.by_coefficients(TINY, 3)
    assert row["traces"] == first > 2
    assert row["rows"] == sum(trace.n_rows for trace in machines.first(first)) == 5 * first
    assert row["accuracy"] == scan[first - 1]
    assert row["rows"] <= row["rows_for_histories"]


@pytest.mark.parametrize("threshold", [1, 2, 3, 9, 10, 11, 57, 99, 100])
@pytest.mark.parametrize("first", [1, 4])
def test_the_search_is_exact_on_a_staircase(threshold, first):
    tried = []

    def score(number):
        tried.append(number)
        return min(1.0, number / threshold)

    expected = max(threshold, first)
    assert fewest(score, 1.0, first, most=100) == expected
    assert len(tried) == len(set(tried)) <= 30
    assert first_of(score, 1.0, most=100) == threshold


def test_the_search_says_when_nothing_is_enough():
    tried = []
    assert fewest(lambda n: tried.append(n) or 0.5, 1.0, 1, most=50) is None
    assert tried[-1] == 50
    assert first_of(lambda _: 0.5, 1.0, most=5) is None


def test_a_coarse_search_ends_near_the_threshold():
    tried = []
    found = fewest(lambda n: tried.append(n) or float(n >= 1000), 1.0, 10, 5000, 0.03)
    assert 1000 <= found <= 1031
    assert max(n for n in tried if n < 1000) >= 0.97 * found


def test_fewer_traces_are_the_beginning_of_more():
    machines, again = Machines(TINY, 0), Machines(TINY, 0)
    few, many = machines.first(3), machines.first(12)
    assert few == many[:3]
    for one, other in zip(many, again.first(12), strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
    seen = {trace.tokens.tobytes() for trace in Machines((4, 4, 4), 0).first(50)}
    assert not seen & {t.tokens.tobytes() for t in Machines((4, 4, 4), 0).fresh}


# --- Rules at larger sizes ---


def test_rules_need_few_traces_and_counts_only_claims():
    row = universal_automaton.by_rules((5, 4, 6), 0)
    assert row["traces"] <= 15
    assert row["accuracy"] == 1.0
    assert row["wrong_claims"] == 0


def test_the_share_of_right_tokens_is_that_of_free_runs():
    program = programs.universal_dfa(3, 2, 4, style="one_hot")
    small = programs.traces(program, 2, random_state=4)
    learned = programs.learn(program.schema, small)
    fresh = programs.traces(program, 20, random_state=5, lengths=(4, 4))
    share = share_right(learned, fresh)
    teacher_forced = []
    for trace in fresh:
        for at in range(trace.n_rows):
            before = trace.tokens[: len(trace.prompt) + at]
            said = learned.schema.round(learned.layer(before.astype(float)))
            teacher_forced.append(np.array_equal(said.ravel(), trace.completion[at]))
    assert share == np.mean(teacher_forced)


# --- Gates, and that they can fail ---


def automaton_rows():
    empty = dict.fromkeys(universal_automaton.COLUMNS)
    sizes = {"n_states": 4, "n_letters": 4, "length": 4, "seed": 0}
    by_coefficients = {"learner": "untied"} | sizes | empty
    by_coefficients |= {"traces": 421, "rows": 3789, "tokens": 12630}
    by_rules = {"learner": "tied"} | sizes | empty
    by_rules |= {"traces": 5, "rows": 31, "tokens": 90, "wrong_claims": 0}
    other = {"learner": "transformer"} | sizes | empty | {"accuracy": 0.8}
    return [by_coefficients, by_rules, other]


def failing(experiment, rows):
    return [gate.claim for gate in experiment.gates(rows) if not gate.passed]


@pytest.mark.parametrize(
    ("number", "column", "value", "claim"),
    [
        (0, "rows", 4200, "at most 3,789 rows"),
        (0, "rows", None, "99 % is reached"),
        (1, "traces", 16, "at most 15 traces"),
        (1, "traces", None, "at most 15 traces"),
        (1, "wrong_claims", 1, "calls learned is right"),
    ],
)
def test_automaton_gates_fail_on_doctored_rows(number, column, value, claim):
    experiment, rows = find("yau2024-fig4"), automaton_rows()
    assert failing(experiment, rows) == []
    rows[number][column] = value
    assert any(claim in failed for failed in failing(experiment, rows))


def test_what_is_said_of_the_transformer_says_how_it_was_trained():
    said = " ".join(find("yau2024-fig4").findings(automaton_rows()))
    assert "at most 600 steps with 32 runs each, fewer where 300 steps bring nothing" in said


def test_automaton_gates_fail_where_a_learner_is_missing():
    experiment, rows = find("yau2024-fig4"), automaton_rows()
    assert len(failing(experiment, rows[:1])) == 2
    assert len(failing(experiment, rows[1:])) == 1


def test_known_rows_are_judged_by_the_worst_seed():
    experiment, rows = find("yau2024-fig4"), automaton_rows()
    assert failing(experiment, [*rows, rows[0] | {"seed": 1, "rows": 4100}]) == []
    assert len(failing(experiment, [*rows, rows[0] | {"seed": 1, "rows": 4200}])) == 1


def test_findings_say_what_was_not_reached():
    said = " ".join(find("yau2024-fig4").findings(automaton_rows()))
    assert "3,789 predicted tokens (12,630 with the prompts)" in said
    assert "reaches 99 % at 0 of 1 sizes" in said


def test_findings_are_about_every_seed_not_the_middle_one():
    rows = automaton_rows()
    rows += [rows[1] | {"seed": seed, "rows": n} for seed, n in ((1, 19), (2, 52))]
    said = " ".join(find("yau2024-fig4").findings(rows))
    assert "19 to 52 predicted tokens are enough at 1 of 1 sizes" in said


def turing_rows():
    known = dict.fromkeys(turing_trials.TRIALS, True)
    row = {"learner": "tied", "traces": 40, "seed": 0, "rows": 664, "terms": 15}
    row |= {"outcome": "learned", "claimed": True, "fresh_machines": 120, "fresh_right": 120}
    row |= known | {"beaver_4_steps": 107, "beaver_4_ones": 13, "exact": True, "seconds": 9.0}
    lost = row | {"traces": 10, "claimed": False, "exact": False, "fresh_right": 30}
    return [row, lost | {"beaver_4": False, "beaver_4_steps": None, "beaver_4_ones": None}]


@pytest.mark.parametrize(
    ("number", "changes", "claim"),
    [
        (0, {"exact": False}, "every seed is learned and exact"),
        (0, {"claimed": False}, "every seed is learned and exact"),
        (0, {"beaver_4_steps": 106}, "runs 107 steps"),
        (0, {"beaver_4_ones": None}, "runs 107 steps"),
        (0, {"traces": 20}, "every seed is learned and exact"),
        (1, {"claimed": True}, "called learned is exact"),
        (1, {"learner": "untied", "claimed": None, "beaver_3": False}, "busy beaver of 3 states"),
    ],
)
def test_turing_gates_fail_on_doctored_rows(number, changes, claim):
    experiment, rows = find("yau2024-utm"), turing_rows()
    assert failing(experiment, rows) == []
    rows[number] |= changes
    assert any(claim in failed for failed in failing(experiment, rows))


def test_pictures_are_drawn_of_either_table():
    for name, rows in (("yau2024-fig4", automaton_rows()), ("yau2024-utm", turing_rows())):
        figure = find(name).draw(rows)
        assert all(axis.has_data() for axis in figure.axes)


# --- Judging Turing machines ---


class Compiled:
    """A compiled program where a learned one is expected: it is right at every size."""

    def __init__(self, program, spoilt=False):
        self.schema, self.spoilt = program.schema, spoilt
        self._compiled = programs.compile(program)

    def resize(self, **sizes):
        return Compiled(programs.universal_turing_machine(**sizes), self.spoilt)

    def run(self, machine, tape, **options):
        run = self._compiled.run(machine, tape, **options)
        return replace(run, position=(run.position + 1) % len(run.tape)) if self.spoilt else run


def test_the_judge_passes_the_compiled_program():
    row = turing_trials.judge(Compiled(programs.universal_turing_machine(3, 3, 9)), True, 0)
    assert row["exact"]
    assert row["fresh_right"] == row["fresh_machines"] == 120
    assert all(row[name] for name in turing_trials.TRIALS)
    assert (row["beaver_4_steps"], row["beaver_4_ones"]) == (107, 13)


def test_the_judge_sees_a_head_in_the_wrong_place():
    spoilt = Compiled(programs.universal_turing_machine(3, 3, 9), spoilt=True)
    row = turing_trials.judge(spoilt, True, 0)
    assert not row["exact"]
    assert row["fresh_right"] == 0
    assert not any(row[name] for name in turing_trials.TRIALS)


def test_a_program_of_coefficients_is_tried_on_what_fits():
    row = turing_trials.judge(Compiled(programs.universal_turing_machine(3, 2, 8)), False, 0)
    open_ = {name for name in turing_trials.TRIALS if row[name] is None}
    assert open_ == {"beaver_4", "beaver_5", "palindrome"}
    assert row["exact"]


def test_known_machines_compute_what_they_are_known_for():
    runs = {}
    for name, (start, n_cells) in turing_trials.TRIALS.items():
        trial = start(n_cells)
        assert len(trial.tape) == n_cells
        runs[name] = trial.machine.run(
            trial.tape, max_steps=trial.max_steps, position=trial.position
        )
    assert [runs[f"beaver_{n}"].steps for n in (2, 3, 4, 5)] == [6, 21, 107, 3000]
    before = turing_trials.increment(32).tape
    as_number = [int("".join(map(str, tape)), 2) for tape in (before, runs["increment"].tape)]
    assert as_number[1] == as_number[0] + 1
    assert sum(runs["addition"].tape) == sum(turing_trials.addition(32).tape)
    assert sum(runs["palindrome"].tape) == 1
    assert all(run.halted for name, run in runs.items() if name != "beaver_5")


# --- Cells ---


def test_cells_differ_and_cover_what_is_asked():
    for module, name in ((universal_automaton, "yau2024-fig4"), (turing_machine, "yau2024-utm")):
        for profile in ("smoke", "full"):
            cells = module.cells(profile)
            assert len({tuple(cell.items()) for cell in cells}) == len(cells)
            assert len({tuple(cell) for cell in cells}) == 1
        assert find(name).cells is module.cells
    full = universal_automaton.cells("full")
    assert {cell["learner"] for cell in full} == {"untied", "tied", "transformer"}
    assert len({(c["n_states"], c["n_letters"], c["length"]) for c in full}) == 19
    assert {c["learner"] for c in universal_automaton.cells("smoke")} == {"untied", "tied"}


# --- The baseline ---


@pytest.fixture(scope="module")
def torch():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


@pytest.fixture(scope="module")
def baseline(torch):  # noqa: ARG001 – without torch there is no baseline
    from polyattn_papers.baselines import train_transformer

    return train_transformer


def tiny_settings(baseline, **changes):
    sizes = {"n_layers": 2, "width": 32, "n_heads": 2, "n_steps": 250, "learning_rate": 5e-3}
    chosen = universal_automaton.TRANSFORMER | {"enough": 0.99} | sizes | changes
    return baseline.TransformerSettings(**chosen)


def test_the_baseline_learns_a_tiny_automaton_and_repeats_itself(baseline, torch):
    machines = Machines(TINY, 0)
    train, settings = machines.first(120), tiny_settings(baseline)
    state = torch.get_rng_state()
    first = baseline.train_transformer(train, machines.fresh, settings)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.accuracy >= 0.99
    assert baseline.train_transformer(train, machines.fresh, settings) == first
    short = tiny_settings(baseline, n_steps=10, look=5)
    untaught = baseline.train_transformer(train, machines.fresh, short)
    assert untaught.accuracy < 0.9
    other = baseline.train_transformer(train, machines.fresh, replace(short, seed=1))
    assert other.accuracy != untaught.accuracy


def test_the_baseline_does_not_learn_from_wrong_tokens(baseline):
    machines = Machines(TINY, 0)
    rng = np.random.default_rng(0)
    wrong = [
        replace(trace, completion=trace.completion[rng.permutation(trace.n_rows)])
        for trace in machines.first(60)
    ]
    found = baseline.train_transformer(wrong, machines.fresh, tiny_settings(baseline, n_steps=100))
    assert found.accuracy < 0.6


def test_the_baseline_sees_no_later_token(baseline, torch):
    settings = tiny_settings(baseline)
    model = baseline.TraceTransformer(10, 7, (3, 4), settings)
    tokens = torch.randn(2, 10, 7, generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 6:] += 1
    for before, after in zip(model(tokens), model(changed), strict=True):
        assert torch.equal(before[:, :6], after[:, :6])
        assert not torch.equal(before[:, 6:], after[:, 6:])


def test_the_baseline_refuses_traces_it_cannot_take(baseline):
    program = programs.universal_dfa(2, 2, 3, style="one_hot")
    mixed = programs.traces(program, 10, random_state=0)
    with pytest.raises(InvalidInput, match="lengths"):
        baseline.train_transformer(mixed, mixed, tiny_settings(baseline))
    registers = programs.universal_dfa(2, 2, 3, style="registers")
    found = programs.traces(registers, 3, lengths=(3, 3))
    with pytest.raises(InvalidInput, match="one-hot"):
        baseline.train_transformer(found, found, tiny_settings(baseline))
