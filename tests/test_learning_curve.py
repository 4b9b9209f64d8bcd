"""Learning curves: every point is a fit, the peak is where it belongs, and words follow risks."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput
from polyattn.fitting.curve_result import LearningCurve

ALL = pa.data.planted(800, 6, 3, 2, n_heads=2, mode="last", noise=0.3, random_state=1)
TASK = replace(ALL, X=ALL.X[:600], Y=ALL.Y[:600])
FRESH = replace(ALL, X=ALL.X[600:], Y=ALL.Y[600:])


def squared(outputs, targets):
    return np.mean(np.sum((np.asarray(outputs) - targets) ** 2, axis=-1))


@pytest.mark.parametrize("ridge", [0.0, 0.5, "gcv", "loo"])
def test_every_point_is_the_fit_of_so_many_sequences(ridge):
    sizes = [5, 18, 60, 300]
    curve = pa.learning_curve(
        TASK.X, TASK.Y, sizes, ridge=ridge, X_test=FRESH.X, Y_test=FRESH.Y, n_repeats=2,
        random_state=3,
    )  # fmt: skip
    rng = np.random.default_rng(3)
    for train_risks, test_risks in zip(curve.train_risks, curve.test_risks, strict=True):
        order = rng.permutation(len(TASK.X))
        for size, train, test in zip(sizes, train_risks, test_risks, strict=True):
            part = order[:size]
            alone = pa.fit(TASK.X[part], TASK.Y[part], ridge=ridge, try_exact=False)
            # With as many rows as coefficients risks are lost in rounding.
            loose = size == 18 and ridge == 0.0
            assert test == pytest.approx(
                squared(alone.predict(FRESH.X), FRESH.Y), rel=1e-3 if loose else 1e-8
            )
            assert train == pytest.approx(alone.risk, rel=1e-6, abs=1e-6 if loose else 1e-10)
    np.testing.assert_array_equal(curve.sizes, sizes)
    np.testing.assert_array_equal(curve.n_rows, sizes)


def test_means_errors_and_the_peak():
    curve = pa.learning_curve(TASK.X, TASK.Y, n_repeats=8)
    assert curve.n_features == 18
    # The size at which rows are as many as coefficients is among the default ones, and highest.
    assert curve.sizes[np.argmax(curve.test_risk)] == 18
    assert "highest" in curve.outcome.sentence
    np.testing.assert_allclose(curve.test_risk, curve.test_risks.mean(axis=0))
    np.testing.assert_allclose(curve.test_error, curve.test_risks.std(axis=0, ddof=1) / np.sqrt(8))
    np.testing.assert_allclose(
        curve.train_error, curve.train_risks.std(axis=0, ddof=1) / np.sqrt(8)
    )
    rows = curve.table()
    assert [row["sizes"] for row in rows] == curve.sizes.tolist()
    assert rows[-1]["test_risk"] == curve.test_risk[-1]
    # A quarter is held out, and the last size is all the rest.
    assert (curve.sizes[-1], curve.n_test) == (450, 150)
    # Far beyond the peak the excess over the noise is p/N of it, in training with another sign.
    noise = 2 * 0.3**2
    assert curve.test_risk[-1] == pytest.approx(noise * (1 + 18 / 450), rel=0.15)
    assert curve.train_risk[-1] == pytest.approx(noise * (1 - 18 / 450), rel=0.15)


@pytest.mark.parametrize("mode", ["causal", "full"])
def test_sequences_with_many_positions(mode):
    task = pa.data.planted(60, (2, 5), 2, mode=mode, noise=0.1)
    curve = pa.learning_curve(task.X, task.Y, [2, 10, 40], mode=mode, n_repeats=2)
    assert np.all(curve.n_rows > 1.5 * curve.sizes)
    assert curve.n_features == 6
    assert curve.test_risk[-1] < 0.05


def test_forms_and_contexts():
    prompts = pa.data.in_context_regression(400, 8, np.eye(3), 0.2)
    curve = pa.learning_curve(
        prompts.X, prompts.Y, [4, 9, 30, 200], form=prompts.optimum.form, n_repeats=3
    )
    assert curve.n_features == 9
    assert curve.sizes[np.argmax(curve.test_risk)] == 9
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((80, 1, 2)), rng.standard_normal((80, 4, 3))
    Y = np.einsum("ni,nsj,nsk->n", X[:, 0, :1], Z[..., :1], Z[..., 1:2])[:, None]
    crossed = pa.learning_curve(X, Y, [20, 50], form=pa.Form(), context=Z, n_repeats=2)
    assert crossed.layout.n_context_dims == 3
    assert crossed.test_risk[-1] < 1e-12
    apart = pa.learning_curve(
        X[:60], Y[:60], [20, 50], form=pa.Form(), context=Z[:60], X_test=X[60:], Y_test=Y[60:],
        context_test=Z[60:], n_repeats=2,
    )  # fmt: skip
    assert apart.test_risk[-1] < 1e-12


def curve_of(*test_risks):
    """A curve with these test risks over sizes, one list for each repeat."""
    made = pa.learning_curve(TASK.X, TASK.Y, [10, 100], n_repeats=2)
    risks, count = np.array(test_risks), len(test_risks[0])
    sizes = np.arange(1, count + 1) * 100
    return replace(made, sizes=sizes, n_rows=sizes * 1.0, test_risks=risks, train_risks=risks / 2)


@pytest.mark.parametrize(
    ("name", "risks"),
    [
        ("falling", ([3.0, 2.0, 1.0], [3.1, 2.0, 1.1])),
        ("levelled", ([3.0, 1.0, 1.01], [3.0, 1.02, 1.0])),
        ("above_least", ([3.0, 1.0, 2.0], [3.0, 1.1, 2.2])),
    ],
)
def test_outcomes(name, risks):
    outcome = curve_of(*risks).outcome
    assert outcome.name == name
    assert outcome.ok is (name != "above_least")


def test_files_hold_the_form_and_are_checked(tmp_path):
    prompts = pa.data.in_context_regression(60, 5, np.eye(2))
    curve = pa.learning_curve(prompts.X, prompts.Y, [4, 20], form=prompts.optimum.form, n_repeats=2)
    pa.save(curve, tmp_path / "curve")
    loaded = pa.load(tmp_path / "curve")
    assert loaded.form == curve.form
    np.testing.assert_array_equal(loaded.test_risks, curve.test_risks)
    record = curve.to_record()
    for name, wrong in (
        ("test_risks", record.arrays["test_risks"][:, :1]),
        ("train_risks", -1 - record.arrays["train_risks"]),
        ("sizes", record.arrays["sizes"] * 1.0),
        ("sizes", record.arrays["sizes"][::-1]),
        ("train_risks", record.arrays["train_risks"] + 1e200),
    ):
        with pytest.raises(FileFormatError, match=r"risks|sizes"):
            LearningCurve.from_record(replace(record, arrays=record.arrays | {name: wrong}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_sizes": [5]}, "at least two"),
        ({"train_sizes": [5, 451]}, "up to 450"),
        ({"train_sizes": 7}, "train_sizes must be"),
        ({"train_sizes": [0, 5]}, "train_sizes must be an integer"),
        ({"n_repeats": 1}, "n_repeats"),
        ({"X_test": FRESH.X}, "X_test and Y_test"),
        ({"X_test": FRESH.X[..., :2], "Y_test": FRESH.Y}, "coordinates"),
        ({"X_test": FRESH.X, "Y_test": FRESH.Y[:, :1]}, "Y"),
        ({"ridge": -1.0}, "ridge"),
        ({"mode": "first"}, "mode"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InvalidInput, match=message):
        pa.learning_curve(TASK.X, TASK.Y, **change)


def test_the_same_seed_gives_the_same_curve():
    one, two = (pa.learning_curve(TASK.X, TASK.Y, [10, 50], random_state=5) for _ in range(2))
    np.testing.assert_array_equal(one.test_risks, two.test_risks)
