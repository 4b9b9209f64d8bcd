"""Random linear attention: the plan, its cells, what is read from rows, and gates that fail."""

import json
from collections import Counter
from importlib.util import find_spec

import pytest

from polyattn_papers.reproduction import find
from polyattn_papers.yau2024.random_attention.cells import (
    CLOSED,
    HEADS,
    LAYERS,
    TRANSFORMER,
    cells,
)
from polyattn_papers.yau2024.random_attention.findings import summaries

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
needs_plots = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib is not installed"
)

EXPERIMENT = find("yau2024-fig1")

# Enough for a few steps of any model.
SECONDS = 0.1


def invented_rows():
    """Rows as the smoke profile has them, with errors that are made up."""
    errors = {CLOSED: 1e-32, HEADS: 1e-9, LAYERS: 1e-5, TRANSFORMER: 1e-4}
    rows = []
    for cell in cells("smoke"):
        closed = cell["method"] == CLOSED
        rows.append(
            cell
            | {
                "validation_error": errors[cell["method"]] * 10.0 ** cell["seed"],
                "target_power": 0.1,
                "seconds": 0.1,
                "best_after": None if closed else 0.1,
                "n_steps": None if closed else 10,
                "distance": 1e-15 if closed else None,
                "heads_found": 1 if closed else None,
                "verdict": "identifiable" if closed else None,
                "after_10": None if closed else 1e-2,
                "after_30": None if closed else 1e-3 * 100.0 ** cell["seed"],
                # One seed did not get there.
                "after_100": None if closed or cell["seed"] == 2 else 1e-4,
                **dict.fromkeys(("after_300", "after_1000", "after_3000", "after_10000")),
            }
        )
    return rows


def doctored(rows, method, **changes):
    """The rows with the first one of a method changed."""
    place = next(i for i, row in enumerate(rows) if row["method"] == method)
    return [row | changes if i == place else row for i, row in enumerate(rows)]


def failing(rows):
    return [i for i, gate in enumerate(EXPERIMENT.gates(rows)) if not gate.passed]


def test_the_full_plan_is_the_papers():
    plan = cells("full")
    data = {(cell["n_dims"], cell["n_sequences"]) for cell in plan}
    assert data == {(d, n) for d in (2, 4, 8, 16) for n in (512, 1024, 2048)}
    trained = [cell for cell in plan if cell["method"] != CLOSED]
    assert {(cell["learning_rate"], cell["batch_size"]) for cell in trained} == {
        (0.01, 32), (0.01, 64), (0.001, 32), (0.001, 64),
    }  # fmt: skip
    models = Counter((cell["method"], cell["n_heads"], cell["n_layers"]) for cell in trained)
    assert set(models) == {
        *((HEADS, n_heads, 1) for n_heads in (1, 2, 4, 8, 16)),
        *((LAYERS, 1, n_layers) for n_layers in (2, 4)),
        *((TRANSFORMER, 4, n_layers) for n_layers in (1, 2)),
    }
    # Every model sees all data, all seeds and the whole grid.
    assert set(models.values()) == {12 * 3 * 4}


@pytest.mark.parametrize("profile", ["smoke", "full"])
def test_cells_differ_and_have_the_same_names(profile):
    plan = cells(profile)
    assert len({json.dumps(cell, sort_keys=True) for cell in plan}) == len(plan)
    assert len({tuple(cell) for cell in plan}) == 1
    closed = [cell for cell in plan if cell["method"] == CLOSED]
    data = {(cell["n_dims"], cell["n_sequences"], cell["seed"]) for cell in plan}
    assert len(closed) == len(data)
    assert {cell["seed"] for cell in plan} == {0, 1, 2}


def test_the_closed_form_is_exact():
    cell = cells("smoke")[0] | {"n_sequences": 64, "n_tokens": 12}
    (row,) = EXPERIMENT.run(cell)
    assert row["validation_error"] < 1e-25
    assert row["heads_found"] == 1
    assert row["verdict"] == "identifiable"
    assert row["distance"] < 1e-10
    assert row["n_steps"] is None


@needs_torch
@pytest.mark.parametrize("method", [HEADS, LAYERS, TRANSFORMER])
def test_a_trained_cell(method):
    first = next(cell for cell in cells("smoke") if cell["method"] == method)
    (row,) = EXPERIMENT.run(first | {"n_tokens": 12, "allowed_seconds": SECONDS})
    (closed,) = EXPERIMENT.run(cells("smoke")[0] | {"n_tokens": 12})
    assert tuple(row) == tuple(closed)
    assert closed["validation_error"] < row["validation_error"]
    assert row["target_power"] == closed["target_power"]
    assert row["n_steps"] > 0
    assert row["seconds"] >= SECONDS
    assert (row["distance"] is None) == (method != HEADS)
    assert (row["after_10"] is None) == (row["n_steps"] < 10)
    assert row["after_10000"] is None
    json.dumps(row, allow_nan=False)


def test_curves_go_as_far_as_all_seeds_did():
    found = [one for one in summaries(invented_rows()) if one.method != CLOSED]
    assert all([*one.curve] == [10, 30] for one in found)
    assert found[0].curve[30] == pytest.approx(1e-1)


def test_gates_hold_where_they_should():
    assert failing(invented_rows()) == []


@pytest.mark.parametrize(
    ("method", "changes", "gate"),
    [
        (CLOSED, {"validation_error": 2e-25}, 0),
        (CLOSED, {"distance": 1e-6}, 1),
        (CLOSED, {"heads_found": 2}, 1),
        (CLOSED, {"verdict": "undecided"}, 1),
        (HEADS, {"validation_error": 1e-26}, 2),
        (TRANSFORMER, {"validation_error": 0.0}, 2),
    ],
)
def test_gates_fail_on_doctored_rows(method, changes, gate):
    """Negative control."""
    assert failing(doctored(invented_rows(), method, **changes)) == [gate]


def test_a_trained_model_may_not_beat_the_closed_form_on_its_data():
    """Negative control: both above the bound, the trained one lower."""
    rows = doctored(invented_rows(), CLOSED, validation_error=1e-8)
    assert failing(doctored(rows, HEADS, validation_error=1e-9)) == [0, 2]


def test_gates_fail_without_rows_to_hold_for():
    rows = invented_rows()
    assert failing([row for row in rows if row["method"] != CLOSED]) == [0, 1, 2]
    assert failing([row for row in rows if row["method"] == CLOSED]) == [2, 3]
    lazy = [row | {"validation_error": 0.2} if row["method"] == LAYERS else row for row in rows]
    assert failing(lazy) == [3]


def test_the_best_point_of_the_grid_is_shown():
    rows = [row for row in invented_rows() if row["method"] == HEADS and row["n_heads"] == 1]
    worse = [
        row | {"learning_rate": 0.001, "validation_error": 10 * row["validation_error"]}
        for row in rows
    ]
    for order in (rows + worse, worse + rows):
        found = summaries(order)
        assert len(found) == 4
        for one in found:
            assert one.grid == (0.01, 32)
            assert one.n_seeds == 3
            # log10: -9, -8, -7, so the mean is -8 and its standard error 1/sqrt(3).
            assert one.error == pytest.approx(1e-8)
            assert one.standard_error == pytest.approx(3**-0.5)


def test_findings_say_the_numbers():
    first, *middle, heads, training, last = EXPERIMENT.findings(invented_rows())
    assert "at most 1.0e-30 on all 12 data sets" in first
    assert "at most 0.1 s at d = 2 (N = 2048), 0.1 s at d = 4 (N = 2048)" in first
    assert "more than a training had" not in first
    assert "d = 2: 1 after the whole time, 1 after 30 steps, which all reached; d = 4" in heads
    assert len(middle) == 2
    assert "linear, 16 heads: 1.0e-08" in middle[0]
    assert "Transformer, 1 layer: 1.0e-03" in middle[1]
    assert "rates 0.01, batches 32" in training
    assert "24 of 24 (heads), 12 of 12 (layers), 12 of 12 (Transformer) runs" in last


def test_findings_say_where_the_closed_form_took_longer_than_a_training():
    first, *_ = EXPERIMENT.findings(doctored(invented_rows(), CLOSED, seconds=9.0))
    assert "9 s at d = 2 (N = 512)" in first
    assert "at d = 2 that is more than a training had (0.35 s)" in first


def test_findings_say_which_number_of_heads_was_best():
    """More heads may be better after the same steps, and worse after the same time."""
    rows = [
        row | ({"validation_error": 1e-6, "after_30": 1e-9} if row["n_heads"] == 16 else {})
        for row in invented_rows()
    ]
    assert any(
        "d = 4: 1 after the whole time, 16 after 30 steps" in sentence
        for sentence in EXPERIMENT.findings(rows)
    )


@needs_plots
def test_the_picture_shows_every_model_at_every_width():
    figure = EXPERIMENT.draw(invented_rows())
    upper = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in upper] == ["d = 2", "d = 4"]
    for axis in upper:
        assert len(axis.containers) == 4
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"closed form", "linear, 1 head", "linear, 16 heads", "linear, 2 layers"} < labels
