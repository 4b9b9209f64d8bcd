"""Learning curves: every point is a fit, the peak is where it belongs, and words follow risks."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, OutOfRange
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


def test_nearly_equal_coordinates_are_fitted_as_by_fit():
    """Sums alone would take them for equal."""
    X = TASK.X[:80] * 1.0
    X[..., 2] = X[..., 1] * (1 + 1e-4 * np.random.default_rng(0).standard_normal(X.shape[:2]))
    given = {"X_test": FRESH.X, "Y_test": FRESH.Y, "n_repeats": 2, "random_state": 3}
    curve = pa.learning_curve(X, TASK.Y[:80], [30, 60], **given)
    part = np.random.default_rng(3).permutation(80)[:60]
    alone = pa.fit(X[part], TASK.Y[part])
    assert curve.test_risks[0, 1] == pytest.approx(squared(alone.predict(FRESH.X), FRESH.Y))


def test_means_errors_and_the_peak():
    curve = pa.learning_curve(TASK.X, TASK.Y, n_repeats=8)
    assert curve.n_features == 18
    # The size at which rows are as many as coefficients is among the default ones, and highest.
    assert curve.sizes[np.argmax(curve.test_risk)] == 18
    assert "highest" in curve.outcome.sentence
    np.testing.assert_allclose(curve.test_risk, curve.test_risks.mean(axis=0))
    over_repeats = curve.test_risks.var(axis=0, ddof=1) / 8
    np.testing.assert_allclose(curve.test_error**2, over_repeats + np.diag(curve.test_covariance))
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
    return replace(
        made, sizes=sizes, n_rows=sizes * 1.0, test_risks=risks, train_risks=risks / 2,
        test_covariance=np.zeros((count, count)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "risks"),
    [
        ("falling", ([3.0, 2.0, 1.0], [3.1, 2.0, 1.1])),
        ("levelled", ([3.0, 1.0, 1.01], [3.0, 1.02, 1.0])),
        ("above_least", ([3.0, 1.0, 2.0], [3.0, 1.1, 2.2])),
        # The least of all is not sure, but the last step up is.
        ("above_least", ([1.0, 3.0, 4.0], [4.0, 3.0, 4.01])),
        ("undecided", ([3.0, 90.0, 1.0], [3.0, 2.0, 1.1])),
    ],
)
def test_outcomes(name, risks):
    outcome = curve_of(*risks).outcome
    assert outcome.name == name
    assert outcome.ok is (name not in ("above_least", "undecided"))


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
        ("test_covariance", -record.arrays["test_covariance"]),
        ("test_covariance", np.array([[1.0, 0.0], [0.5, 1.0]])),
    ):
        with pytest.raises(FileFormatError, match=r"risks|sizes|covariance"):
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
        ({"context_test": FRESH.X}, "context_test belongs to X_test"),
        ({"X": TASK.X[:3], "Y": TASK.Y[:3]}, "at least 3 sequences beside"),
        ({"X": TASK.X[:1], "Y": TASK.Y[:1]}, "at least 3 sequences beside"),
        ({"X_test": FRESH.X[..., :2], "Y_test": FRESH.Y}, "coordinates"),
        ({"X_test": FRESH.X, "Y_test": FRESH.Y[:, :1]}, "Y"),
        ({"ridge": -1.0}, "ridge"),
        ({"mode": "first"}, "mode"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InvalidInput, match=message):
        pa.learning_curve(**({"X": TASK.X, "Y": TASK.Y} | change))


def test_risks_beyond_float64_are_refused():
    with pytest.raises(OutOfRange, match="divide the targets"):
        pa.learning_curve(TASK.X, TASK.Y * 1e100, [20, 100], n_repeats=2)


def test_a_step_within_its_error_is_stated_with_both():
    outcome = curve_of([3.0, 1.0, 1.03], [3.0, 1.02, 1.0]).outcome
    assert "changed it by 0.005, no more than 2 times its error of 0.025" in outcome.sentence


def test_error_bars_count_the_sequences_held_out():
    """A fit of all sequences is the same in every repeat: what is left is the test sample."""
    given = {"X_test": FRESH.X, "Y_test": FRESH.Y, "n_repeats": 2}
    curve = pa.learning_curve(TASK.X, TASK.Y, [400, 600], **given)
    errors = np.sum((pa.fit(TASK.X, TASK.Y).predict(FRESH.X) - FRESH.Y) ** 2, axis=1)
    assert curve.test_error[-1] == pytest.approx(errors.std(ddof=1) / np.sqrt(200), rel=1e-6)
    # Both sizes are tested on the same sequences, whose errors go together.
    (small, both), (_, large) = curve.test_covariance
    assert both > 0.8 * np.sqrt(small * large)


def test_error_bars_of_tokens_are_over_sequences():
    """Errors of one sequence go together: copies of its only token say nothing new."""
    task = pa.data.planted(120, 1, 2, mode="causal", noise=0.3)
    once, often = (
        pa.learning_curve(
            task.X[:80], task.Y[:80], [40, 80], form=pa.Form(mode="causal", window=1),
            X_test=np.repeat(task.X[80:], copies, axis=1),
            Y_test=np.repeat(task.Y[80:], copies, axis=1), n_repeats=2,
        )
        for copies in (1, 7)
    )  # fmt: skip
    np.testing.assert_allclose(often.test_error, once.test_error)


def test_error_bars_are_as_large_as_the_spread_over_data_sets():
    """Independent data sets of one task: bars over repeats alone were half as large."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((120, 3, 1))
        Y = X[:, -1] * np.sum(X**2, axis=1) + rng.standard_normal((120, 1))
        curve = pa.learning_curve(X, Y, [40, 90], random_state=seed)
        over_repeats = curve.test_risks.std(axis=0, ddof=1) / np.sqrt(5)
        found.append((curve.test_risk[-1], curve.test_error[-1], over_repeats[-1]))
    risks, bars, over_repeats = np.array(found).T
    assert 0.9 < np.sqrt(np.mean(bars**2)) / risks.std() < 1.6
    assert np.sqrt(np.mean(over_repeats**2)) / risks.std() < 0.8


def test_one_held_out_sequence_is_said_to_show_no_spread():
    curve = pa.learning_curve(TASK.X, TASK.Y, [50, 200], X_test=FRESH.X[:1], Y_test=FRESH.Y[:1])
    assert "one that is held out does not show" in curve.outcome.sentence


def test_the_same_seed_gives_the_same_curve():
    one, two = (pa.learning_curve(TASK.X, TASK.Y, [10, 50], random_state=5) for _ in range(2))
    np.testing.assert_array_equal(one.test_risks, two.test_risks)
