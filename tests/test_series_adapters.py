"""Adapters for toolboxes of time series, behind a base class that stands in for a toolbox.

tests/optional holds them against aeon and sktime themselves, where those are installed.
"""

import importlib
import inspect
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import polyattn as pa
from estimator_cases import planted_labels, planted_numbers
from polyattn.errors import InvalidInput, InvalidType, MissingExtra
from polyattn.interop.series import SeriesClassifier, SeriesRegressor

TOOLBOXES = ("aeon", "sktime")


class Toolbox:
    """What both toolboxes have in common, as far as an adapter uses it."""

    def __init__(self):
        self.tags = {}

    def set_tags(self, **tags):
        self.tags |= tags

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self._fit(X, y)

    def predict(self, X):
        return self._predict(X)

    def predict_proba(self, X):
        return self._predict_proba(X)

    def _predict_proba(self, X):
        return (self._predict(X)[:, None] == self.classes_).astype(float)


class StandInClassifier(SeriesClassifier, Toolbox):
    pass


class StandInRegressor(SeriesRegressor, Toolbox):
    pass


X, NUMBERS = planted_numbers("last")
_, LABELS = planted_labels("last", ["down", "level", "up"])
SERIES = np.ascontiguousarray(np.swapaxes(X, 1, 2))
RAGGED = [x[: 2 + i % 4] for i, x in enumerate(X)]
RAGGED_SERIES = [x.T for x in RAGGED]


def test_classifiers_are_those_on_exchanged_axes():
    expected = pa.LinearAttentionClassifier().fit(X, LABELS)
    adapter = StandInClassifier(standardise=False).fit(SERIES, LABELS)
    assert np.array_equal(adapter.predict(SERIES), expected.predict(X))
    assert np.array_equal(adapter.model_[-1].coef_, expected.coef_)
    ragged = StandInClassifier(standardise=False).fit(RAGGED_SERIES, LABELS)
    assert np.array_equal(
        ragged.model_[-1].coef_, pa.LinearAttentionClassifier().fit(RAGGED, LABELS).coef_
    )


def test_regressors_are_those_on_exchanged_axes():
    adapter = StandInRegressor(ridge=0.1, bias=False, standardise=False).fit(SERIES, NUMBERS)
    expected = pa.LinearAttentionRegressor(ridge=0.1).fit(X, NUMBERS)
    assert np.array_equal(adapter.predict(SERIES), expected.predict(X))
    assert adapter.predict(RAGGED_SERIES) == pytest.approx(expected.predict(RAGGED), abs=1e-12)


def test_axes_are_not_confused():
    """Negative control: as many channels as times, and still not the same."""
    square = X[:, :3]
    adapter = StandInRegressor(ridge=0.1, bias=False, standardise=False).fit(square, NUMBERS)
    expected = pa.LinearAttentionRegressor(ridge=0.1).fit(square, NUMBERS)
    assert not np.allclose(adapter.predict(square), expected.predict(square))


def test_series_are_scaled_by_default():
    units = np.array([1e-3, 1.0, 1e4])[:, None] * SERIES + 5.0
    expected = make_pipeline(
        pa.SequenceScaler(), pa.LinearAttentionRegressor("last", "loo", bias=True)
    )
    expected.fit(np.swapaxes(units, 1, 2), NUMBERS)
    adapter = StandInRegressor().fit(units, NUMBERS)
    assert np.array_equal(adapter.predict(units), expected.predict(np.swapaxes(units, 1, 2)))
    assert adapter.predict(units) == pytest.approx(
        StandInRegressor().fit(SERIES, NUMBERS).predict(SERIES), rel=1e-6, abs=1e-6
    )


def test_norms_can_be_made_one():
    adapter = StandInClassifier(unit_norm=True).fit(SERIES, LABELS)
    tokens = adapter.model_[:-1].transform(X)
    assert np.linalg.norm(tokens, axis=2) == pytest.approx(1.0)
    alone = StandInClassifier(standardise=False, unit_norm=True).fit(SERIES, LABELS).model_[:-1]
    assert alone.transform(X) == pytest.approx(X / np.linalg.norm(X, axis=2, keepdims=True))


def test_gaps_are_filled_if_asked_for():
    gaps = SERIES.copy()
    gaps[4, 1, 2:4] = np.nan
    adapter = StandInRegressor(impute="linear").fit(gaps, NUMBERS)
    assert adapter.tags == {"capability:missing_values": True}
    assert np.all(np.isfinite(adapter.predict(gaps)))
    filled = gaps.copy()
    filled[4, 1] = np.interp(np.arange(5), [0, 1, 4], gaps[4, 1, [0, 1, 4]])
    assert adapter.predict(gaps) == pytest.approx(adapter.predict(filled))
    without = StandInRegressor()
    assert without.tags == {"capability:missing_values": False}
    with pytest.raises(InvalidInput, match="sequence 4, token 2, coordinate 1"):
        without.fit(gaps, NUMBERS)


def test_tokens_are_windows_of_time():
    """By hand: token t has the numbers of times t .. t + 2, channel by channel."""
    adapter = StandInRegressor(steps_per_token=3, standardise=False, ridge=0.1).fit(SERIES, NUMBERS)
    windows = np.array(
        [[[x[t + k, j] for j in range(3) for k in range(3)] for t in range(3)] for x in X]
    )
    expected = pa.LinearAttentionRegressor(ridge=0.1, bias=True).fit(windows, NUMBERS)
    assert np.array_equal(adapter.predict(SERIES), expected.predict(windows))
    # A shorter series begins with copies of its first step.
    short = SERIES[:1, :, :1]
    repeated = np.repeat(short, 3, axis=2)
    assert np.array_equal(adapter.predict(short), adapter.predict(repeated))
    assert np.array_equal(adapter.predict([short[0]]), adapter.predict([repeated[0]]))


def test_one_channel_is_seen_through_six_steps():
    """Single numbers say little: here both classes have the same, at other distances."""
    rng = np.random.default_rng(0)
    waves = {"quick": np.tile([0.0, 3.0], 20), "slow": np.tile([0.0, 0.0, 3.0, 3.0], 10)}
    labels = np.repeat(list(waves), 30)
    shifted = [np.roll(waves[one], rng.integers(4)) for one in labels]
    series = np.array(shifted)[:, None] + 0.3 * rng.standard_normal((60, 1, 40))
    adapter = StandInClassifier().fit(series, labels)
    assert adapter.model_["attention"].n_features_in_ == 6
    assert np.mean(adapter.predict(series) == labels) > 0.9
    one = StandInClassifier(steps_per_token=1).fit(series, labels)
    assert np.mean(one.predict(series) == labels) < 0.8
    few = StandInClassifier().fit(list(series[:, :, :4]), labels)
    assert few.model_["attention"].n_features_in_ == 4


def test_probabilities_are_those_of_log_loss():
    adapter = StandInClassifier(loss="logistic", standardise=False).fit(SERIES, LABELS)
    expected = pa.LinearAttentionClassifier(loss="logistic").fit(X, LABELS)
    assert np.array_equal(adapter.predict_proba(SERIES), expected.predict_proba(X))
    adapter.loss = "squared"  # what was fitted is what counts
    assert np.array_equal(adapter.predict_proba(SERIES), expected.predict_proba(X))
    scores = StandInClassifier().fit(SERIES, LABELS)
    assert np.array_equal(np.unique(scores.predict_proba(SERIES)), [0.0, 1.0])


def test_a_form_predicts_one_value_for_each_series():
    form = pa.Form(decay=0.8, skip=True, intercept=True)
    adapter = StandInRegressor(form=form, ridge=0.1, standardise=False).fit(SERIES, NUMBERS)
    expected = pa.LinearAttentionRegressor(form=form, ridge=0.1).fit(X, NUMBERS)
    assert np.array_equal(adapter.predict(SERIES), expected.predict(X))
    with pytest.raises(InvalidInput, match=r"form must have mode='last'.*got mode='causal'"):
        StandInRegressor(form=pa.Form(mode="causal")).fit(SERIES, NUMBERS)


@pytest.mark.parametrize(
    ("wrong", "error", "pattern"),
    [
        ({"standardise": "yes"}, InvalidType, "standardise must be True or False; got 'yes'"),
        ({"unit_norm": 1}, InvalidType, "unit_norm must be True or False; got 1"),
        ({"impute": "next"}, InvalidInput, "impute must be one of 'previous', 'linear'.*'next'"),
        ({"ridge": -1.0}, InvalidInput, "ridge must be finite and not negative"),
        ({"n_heads": 0}, InvalidInput, "n_heads"),
        ({"steps_per_token": 0}, InvalidInput, "steps_per_token must be an integer of at least 1"),
        ({"form": "causal"}, InvalidType, "form must be"),
    ],
)
def test_bad_parameters_are_named(wrong, error, pattern):
    with pytest.raises(error, match=pattern):
        StandInRegressor(**wrong).fit(SERIES, NUMBERS)


@pytest.mark.parametrize("kind", [SeriesClassifier, SeriesRegressor])
def test_parameters_and_defaults_are_those_of_the_estimators(kind):
    """But for those of preparation, the mode, the layout, and two defaults of the regressor."""
    classifier = kind is SeriesClassifier
    estimator = pa.LinearAttentionClassifier if classifier else pa.LinearAttentionRegressor
    own, theirs = (
        {name: each.default for name, each in inspect.signature(one).parameters.items()}
        for one in (kind, estimator)
    )
    assert own.keys() - theirs.keys() == {"standardise", "unit_norm", "impute", "steps_per_token"}
    assert theirs.keys() - own.keys() == {"mode", "layout"}
    other = {name for name in own.keys() & theirs.keys() if own[name] != theirs[name]}
    assert other == (set() if classifier else {"ridge", "bias"})


@pytest.mark.parametrize("toolbox", TOOLBOXES)
def test_an_absent_toolbox_is_named(toolbox):
    if find_spec(toolbox):
        pytest.skip(f"{toolbox} is installed")
    with pytest.raises(MissingExtra, match=f"'{toolbox}', which is not .* pip install {toolbox}"):
        importlib.import_module(f"polyattn.interop.{toolbox}")
