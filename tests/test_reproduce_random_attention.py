"""Random linear attention: the plan, its cells, what is read from rows, and gates that fail."""

import json
from collections import Counter
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest

from polyattn_papers.reproduction import find
from polyattn_papers.yau2024.random_attention.cells import (
    CLOSED,
    HEADS,
    LAYERS,
    MILESTONES,
    N_HEADS,
    RATES,
    SEEDS,
    TIMES,
    TRAINED,
    TRANSFORMER,
    cells,
)
from polyattn_papers.yau2024.random_attention.curves import (
    by_heads,
    common_point,
    epochs_until,
    summaries,
    trained,
)
from polyattn_papers.yau2024.random_attention.findings import relative_times
from polyattn_papers.yau2024.random_attention.task import paper_task

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
needs_plots = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib is not installed"
)

EXPERIMENT = find("yau2024-fig1")


def invented(profile="smoke"):
    """Rows of a profile with errors that are made up: they fall faster with more heads.

    Stacks and Transformers fall slowly.
    """
    rows = []
    for cell in cells(profile):
        empty = dict.fromkeys(
            ("validation_error", "target_power", "seconds", "n_steps", "distance", "heads_found",
             "verdict", "scores_ms", "features_ms", *(f"epoch_{epoch}" for epoch in MILESTONES))
        )  # fmt: skip
        if cell["method"] == TIMES:
            rows += [
                cell | {"seed": None, "n_heads": heads, "learning_rate": None} | empty
                | {"scores_ms": 1.0 * heads, "features_ms": 0.1}
                for heads in N_HEADS
            ]  # fmt: skip
            continue
        if cell["method"] == CLOSED:
            rows += [
                cell | {"seed": seed, "n_heads": None, "learning_rate": None} | empty
                | {"validation_error": 1e-32 * 10.0**seed, "target_power": 0.1, "seconds": 0.1,
                   "distance": 1e-15, "heads_found": 1, "verdict": "identifiable"}
                for seed in SEEDS
            ]  # fmt: skip
            continue
        sizes, pace = (N_HEADS, 1.0) if cell["method"] == HEADS else ((1,), 0.2)
        for seed, rate, heads in product(SEEDS, RATES[: cell["n_rates"]], sizes):
            curve = {
                f"epoch_{epoch}": 0.01
                * 10.0 ** (seed - 1 - pace * epoch * (1 + np.log2(heads)) / 15)
                for epoch in MILESTONES
                if epoch <= cell["n_epochs"]
            }
            rows.append(
                cell | {"seed": seed, "n_heads": heads, "learning_rate": rate} | empty
                | {"validation_error": max(1e-20, min(curve.values())), "target_power": 0.1,
                   "seconds": 1.0, "n_steps": 10}
                | curve
            )  # fmt: skip
    return rows


def doctored(rows, choose, **changes):
    """The rows with those that have these values changed."""
    made = [
        row | changes if all(row[name] == value for name, value in choose.items()) else row
        for row in rows
    ]
    assert made != rows
    return made


def failing(rows):
    return [place for place, gate in enumerate(EXPERIMENT.gates(rows)) if not gate.passed]


def test_the_full_plan_is_the_papers():
    plan = cells("full")
    trainings = [cell for cell in plan if cell["method"] in TRAINED and not cell["weight_decay"]]
    models = Counter(
        (cell["method"], cell["n_layers"], cell["n_epochs"], cell["n_sequences"])
        for cell in trainings
    )
    single = {key for key in models if key[0] == HEADS}
    assert single == {(HEADS, 1, 500, 1024), (HEADS, 1, 500, 2048)}
    assert {key[:2] for key in models} - {(HEADS, 1)} == {
        (LAYERS, 2), (LAYERS, 4), (TRANSFORMER, 1),
    }  # fmt: skip
    # Every model sees d = 2 and 4, both batches and both rates.
    assert set(models.values()) == {4}
    assert {cell["n_dims"] for cell in trainings} == {2, 4}
    assert {cell["batch_size"] for cell in trainings} == {32, 64}
    assert {RATES[: cell["n_rates"]] for cell in trainings} == {(0.01, 0.001)}
    assert {cell["n_tokens"] for cell in plan} == {100}
    assert (N_HEADS, SEEDS) == ((1, 2, 4, 8, 16), (0, 1, 2))
    assert {cell["n_dims"] for cell in plan if cell["method"] == CLOSED} == {2, 4, 8, 16}


@pytest.mark.parametrize("profile", ["smoke", "full"])
def test_cells_differ_and_have_the_same_names(profile):
    plan = cells(profile)
    assert len({json.dumps(cell, sort_keys=True) for cell in plan}) == len(plan)
    assert len({tuple(cell) for cell in plan}) == 1
    # All data have a closed form beside them.
    sizes = {
        kind: {(c["n_dims"], c["n_sequences"]) for c in plan if c["method"] in kind}
        for kind in (TRAINED, (CLOSED,))
    }
    assert sizes[TRAINED] <= sizes[CLOSED,]


def test_the_task_is_the_papers():
    """V (1, d), Q (d, d): y_t = V Z_{1:t} (Z_{1:t}^T Q z_t), by the definition."""
    task = paper_task(3, 5, 7, seed=2, n_validation=4)
    assert (task.X.shape, task.Y.shape) == ((5, 7, 3), (5, 7, 1))
    assert task.X_validation.shape == (4, 7, 3)
    Q, V = task.layer.attn[0].T, task.layer.value[0].T
    assert V.shape == (1, 3)
    for X, Y in zip(task.X, task.Y, strict=True):
        for t in range(7):
            Z = X[: t + 1].T
            np.testing.assert_allclose(Y[t], V @ Z @ (Z.T @ Q @ Z[:, t]), atol=1e-14)
    # Standard deviations 1/sqrt(d) and 1/sqrt(T), whatever else is drawn.
    many = [paper_task(4, 2, 9, seed, 1) for seed in range(300)]
    entries = np.concatenate([task.layer.attn.ravel() for task in many])
    assert np.std(entries) == pytest.approx(0.5, rel=0.05)
    assert np.std([task.layer.value for task in many]) == pytest.approx(0.5, rel=0.1)
    assert np.std([task.X for task in many]) == pytest.approx(1 / 3, rel=0.02)


def test_the_closed_form_is_exact():
    cell = cells("smoke")[0] | {"n_sequences": 64, "n_tokens": 12}
    rows = EXPERIMENT.run(cell)
    assert [row["seed"] for row in rows] == [0, 1, 2]
    for row in rows:
        assert row["validation_error"] < 1e-25
        assert row["heads_found"] == 1
        assert row["verdict"] == "identifiable"
        assert row["distance"] < 1e-10
        assert row["n_steps"] is None


@needs_torch
@pytest.mark.parametrize("method", [HEADS, LAYERS, TRANSFORMER])
def test_a_trained_cell(method):
    first = next(cell for cell in cells("full") if cell["method"] == method)
    small = {"n_tokens": 8, "n_sequences": 64, "n_epochs": 2}
    rows = EXPERIMENT.run(first | small)
    sizes = len(N_HEADS) if method == HEADS else 1
    assert len(rows) == 3 * 2 * sizes
    assert len({(row["seed"], row["learning_rate"], row["n_heads"]) for row in rows}) == len(rows)
    closed = EXPERIMENT.run(cells("smoke")[0] | {"n_tokens": 8, "n_sequences": 64})
    for row in rows:
        assert tuple(row) == tuple(closed[0])
        assert row["n_steps"] == 2 * 64 // first["batch_size"]
        assert row["validation_error"] == min(row["epoch_1"], row["epoch_2"])
        assert row["epoch_3"] is None
        assert (row["distance"] is None) == (method != HEADS)
        assert row["target_power"] == closed[row["seed"]]["target_power"]
    json.dumps(rows, allow_nan=False)


@needs_torch
def test_times_of_steps():
    cell = next(cell for cell in cells("smoke") if cell["method"] == TIMES)
    rows = EXPERIMENT.run(cell | {"n_tokens": 4})
    assert [row["n_heads"] for row in rows] == [*N_HEADS]
    assert all(row["scores_ms"] > 0 and row["features_ms"] > 0 for row in rows)


@pytest.mark.parametrize("profile", ["smoke", "full"])
def test_gates_hold_where_they_should(profile):
    assert failing(invented(profile)) == []
    assert all("nan" not in sentence for sentence in EXPERIMENT.findings(invented(profile)))


@pytest.mark.parametrize(
    ("choose", "changes", "gate"),
    [
        ({"method": CLOSED, "seed": 1}, {"validation_error": 2e-25}, 0),
        ({"method": CLOSED, "seed": 1}, {"distance": 1e-6}, 1),
        ({"method": CLOSED, "n_dims": 4}, {"heads_found": 2}, 1),
        ({"method": CLOSED, "n_dims": 4}, {"verdict": "undecided"}, 1),
        ({"method": HEADS, "n_heads": 8}, {"validation_error": 1e-26}, 2),
        ({"method": LAYERS}, {"validation_error": 0.08}, 3),
        ({"method": TRANSFORMER}, {"validation_error": None}, 3),
        # Sixteen heads that learn as late as one.
        ({"n_heads": 16, "n_dims": 4}, {f"epoch_{one}": 0.01 for one in MILESTONES}, 4),
        ({"method": LAYERS, "n_dims": 2}, {"validation_error": 1e-21}, 5),
    ],
)
def test_gates_fail_on_doctored_rows(choose, changes, gate):
    """Negative control."""
    assert failing(doctored(invented(), choose, **changes)) == [gate]


def test_a_trained_model_may_not_beat_the_closed_form_on_its_data():
    """Negative control: both above the bound, the trained one lower."""
    rows = doctored(invented(), {"method": CLOSED, "n_dims": 2}, validation_error=1e-8)
    assert failing(rows) == [0, 2]


def test_gates_fail_without_rows_to_hold_for():
    rows = invented()
    assert failing([row for row in rows if row["method"] != CLOSED]) == [0, 1, 2]
    assert failing([row for row in rows if row["method"] == CLOSED]) == [2, 3, 4, 5]


def test_the_best_point_of_the_grid_is_shown():
    rows = [row for row in invented("full") if row["method"] == HEADS and row["n_heads"] == 1]
    rows = doctored(rows, {"learning_rate": 0.001, "batch_size": 64}, validation_error=1e-22)
    for order in (rows, rows[::-1]):
        found = [one for one in summaries(order) if not one.weight_decay]
        assert len(found) == 4
        for one in found:
            assert one.grid == (0.001, 64)
            assert one.n_seeds == 3
            assert one.error == pytest.approx(1e-22)
            # log10 of the seeds' errors differ by one: the standard error is 1/sqrt(3).
            assert one.curve[10] == pytest.approx((-2 - 10 / 15, 3**-0.5))
    ran_away = doctored(rows, {"n_sequences": 1024}, validation_error=None, epoch_500=None)
    assert max(one.log_error for one in summaries(ran_away)) == 10


def test_epochs_until_an_error_is_reached():
    one = next(one for one in summaries(trained(invented())) if one.n_heads == 1)
    # Linear in the epochs here, so between looks the interpolation is near, and exact at looks.
    assert epochs_until(one, -2 - 30 / 15) == pytest.approx(30)
    assert 20 < epochs_until(one, -2 - 25 / 15) < 30
    assert epochs_until(one, 0.0) == 1.0
    assert epochs_until(one, -50.0) == float("inf")


def test_heads_are_compared_at_the_same_point_of_the_grid():
    points = by_heads(invented("full"), 4, 2048)
    assert set(points) == set(product(RATES, (32, 64)))
    assert all([one.n_heads for one in same] == [*N_HEADS] for same in points.values())


def test_time_is_epochs_times_the_time_of_a_step():
    """Here a step of h heads takes h times as long, and 1 + log2(h) times fewer are needed."""
    times = relative_times(invented("full"), 4, 2048)
    assert times[1] == 1.0
    # Epochs are interpolated between looks, so only nearly.
    expected = [heads / (1 + np.log2(heads)) for heads in N_HEADS]
    assert list(times.values()) == pytest.approx(expected, rel=0.15)
    never = doctored(
        invented("full"), {"method": HEADS, "n_heads": 8},
        **{f"epoch_{one}": 0.01 for one in MILESTONES},
    )  # fmt: skip
    assert relative_times(never, 4, 2048)[8] is None


def test_the_common_point_is_the_best_of_the_most_heads():
    chosen = {"n_heads": 16, "n_dims": 2, "n_sequences": 1024, "batch_size": 64}
    rows = doctored(invented("full"), chosen | {"learning_rate": 0.001}, validation_error=1e-22)
    assert common_point(rows, 2, 1024) == (0.001, 64)


def test_findings_say_the_numbers():
    said = " ".join(EXPERIMENT.findings(invented()))
    assert "at most 1.0e-30 on all 6 data sets" in said
    assert "linear, 16 heads: 1.0e-20 (60 epochs); linear, 2 layers: 7.4e-03 (10 epochs)" in said
    assert "rate 0.01, batches of 32, epochs of 16 steps" in said
    assert "stacks of layers of one head for 10 and Transformers for 3" in said
    assert "weight decay" not in said
    assert "every step to more heads helped" in said
    worse = doctored(invented(), {"n_heads": 4, "n_dims": 4}, validation_error=1e-3)
    said = " ".join(EXPERIMENT.findings(worse))
    assert "more are above fewer here: d = 4, N = 512: 1e-03 with 4, " in said
    full = " ".join(EXPERIMENT.findings(invented("full")))
    assert "Single layers were trained for 500 epochs" in full
    assert "With a weight decay of 0.01" in full
    assert "read as standard deviations" in full


@needs_plots
def test_the_picture_shows_every_model_at_every_size():
    figure = EXPERIMENT.draw(invented("full"))
    assert [axis.get_title() for axis in figure.axes] == [
        f"d = {d}, N = {count}" for count in (2048, 1024) for d in (2, 4)
    ]
    # A line for each model, and two levels.
    assert [len(axis.lines) for axis in figure.axes] == [10, 10, 7, 7]
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"closed form", "linear, 1 head", "linear, 16 heads", "Transformer, 1 layer"} < labels
