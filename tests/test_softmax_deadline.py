"""max_seconds holds inside the phases too, not only between them."""

from math import inf
from time import monotonic

import numpy as np
import pytest

import polyattn as pa
from polyattn.softmax import recorder as recorder_module
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.moments import initialise
from polyattn.softmax.polish import polish
from polyattn.softmax.recorder import (
    OutOfTime,
    Recorder,
    end_after,
    require_time,
    seconds_left,
    until,
)
from polyattn.softmax.sculpting.carve import carve
from polyattn.softmax.sculpting.find_span import find_span
from polyattn.softmax.sculpting.row_patterns import views
from polyattn.softmax.sculpting.search_span import search_span
from polyattn.softmax.sculpting.slab_programs import depth_program, linear_program, norm_program
from polyattn.softmax.sculpting.sum_of_values import crude_sum, sculpt_again, sharp_sum


class Prepared:
    """What each phase starts from, made while there was time."""

    def __init__(self):
        task = pa.data.planted_softmax(600, 4, 5, n_heads=2, random_state=0)
        self.rng = np.random.default_rng(0)
        self.examples = Examples((ExampleBlock(task.X, task.Y, None),))
        self.held_out, self.fitting = self.examples.split(60)
        self.blocks = views(self.fitting)
        self.S = crude_sum(self.blocks)[0]
        self.carved = carve(self.blocks, self.S)
        self.span = find_span(self.carved, 2, self.rng)


@pytest.fixture(scope="module")
def prepared():
    return Prepared()


PHASES = {
    "sculpt": lambda w: carve(w.blocks, w.S),
    "minimum norm": lambda w: sharp_sum(w.blocks, w.S, w.carved),
    "sculpt again": lambda w: sculpt_again(w.blocks, w.S, 2),
    "span": lambda w: find_span(w.carved, 2, w.rng),
    "search": lambda w: search_span(w.fitting, w.held_out, w.span, 2, w.rng),
    "moments": lambda w: initialise(w.examples, 2, w.rng),
    "polish": lambda w: polish(w.examples, np.zeros((1, 5, 5))),
}


@pytest.mark.parametrize("name", PHASES)
def test_every_long_phase_ends_when_the_time_is_over(prepared, name):
    PHASES[name](prepared)
    with until(monotonic()), pytest.raises(OutOfTime):
        PHASES[name](prepared)


@pytest.mark.parametrize("program", [depth_program, norm_program, linear_program])
def test_a_program_that_is_cut_short_is_undecided(program):
    rng = np.random.default_rng(0)
    normals, slack = rng.standard_normal((400, 60)), np.ones(400)
    arguments = (normals, normals @ rng.standard_normal(60), slack)
    if program is linear_program:
        arguments = (rng.standard_normal(60), *arguments)
    assert program(*arguments)[0] == "found"
    with until(monotonic()):
        assert program(*arguments) == ("undecided", None)


def test_without_an_end_there_is_all_the_time():
    assert seconds_left() == inf
    require_time()
    with until(monotonic() + 1000):
        assert 900 < seconds_left() <= 1000
        require_time()
    assert seconds_left() == inf


def test_an_end_is_forgotten_with_its_block_even_after_an_error():
    with pytest.raises(OutOfTime), until(monotonic()):
        require_time()
    assert seconds_left() == inf


@pytest.mark.parametrize("n_looks", [1, 4, 16])
def test_sculpting_stops_inside_its_phases_and_keeps_a_layer(monkeypatch, n_looks):
    """The clock jumps to the end after so many checks, wherever sculpting is by then."""
    task = pa.data.planted_softmax(600, 4, 5, n_heads=2, random_state=0)
    looks = []

    def jumping():
        looks.append(None)
        return 0.0 if len(looks) <= 1 + n_looks else inf

    monkeypatch.setattr(recorder_module, "monotonic", jumping)
    found = pa.learn_softmax(task.X, task.Y, 2, method="sculpt", max_seconds=1e9)
    assert len(looks) == n_looks + 2
    assert found.outcome.name == "out_of_time"
    assert np.isfinite(found.validation_error)


class Reached:
    """A candidate of a search: an error and a number of heads."""

    def __init__(self, error, n_heads=1):
        self.error, self.n_heads = error, n_heads


def test_the_recorder_keeps_the_best_and_informs_the_callback():
    received = []
    recorder = Recorder(lambda *step: received.append(step))
    with recorder.phase("growth") as note:
        for error in (0.5, 0.1, 0.3):
            recorder(Reached(error, 2))
        note.say("Grew.", n_heads=2)
    assert (recorder.best.error, recorder.best_phase) == (0.1, "growth")
    assert received == [("growth", 2, 0.5), ("growth", 2, 0.1), ("growth", 2, 0.3)]
    assert recorder.phases[0].to_dict() | {"seconds": 0.0} == {
        "name": "growth", "sentence": "Grew.", "figures": {"n_heads": 2}, "seconds": 0.0,
    }  # fmt: skip


def test_a_phase_that_is_cut_short_is_kept():
    recorder = Recorder()
    with pytest.raises(OutOfTime), recorder.phase("polish"):
        raise OutOfTime
    assert str(recorder.phases[0]) == "polish: Not finished."
    assert recorder.present == "start"


def test_phases_without_candidates_take_the_time_since_the_one_before(monkeypatch):
    readings = iter([10.0, 12.0, 15.0])
    monkeypatch.setattr(recorder_module, "perf_counter", lambda: next(readings))
    recorder = Recorder(_last_end=recorder_module.perf_counter())
    recorder.ended("sum of values", "7 queries so far.", n_queries=7)
    recorder.ended("sizes", "9 queries so far.", n_queries=9)
    assert [phase.seconds for phase in recorder.phases] == [2.0, 3.0]
    assert [phase.figures["n_queries"] for phase in recorder.phases] == [7, 9]
    assert recorder.best is None


@pytest.mark.parametrize("seconds", [0, -1.0, True, "5", float("nan")])
def test_a_time_that_is_no_time_is_refused(seconds):
    with pytest.raises(pa.errors.InvalidInput, match="max_seconds must be a positive number"):
        end_after(seconds)
