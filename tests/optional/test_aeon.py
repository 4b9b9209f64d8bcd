"""The adapters for aeon: its own checks, its data and the types it takes."""

import doctest
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("aeon")

from aeon.datasets import (
    load_basic_motions,
    load_cardano_sentiment,
    load_italy_power_demand,
    load_japanese_vowels,
)
from aeon.testing.estimator_checking import check_estimator
from aeon.utils.conversion import convert_collection
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import polyattn as pa
import polyattn.interop.aeon
from polyattn.interop.aeon import AeonAttentionClassifier, AeonAttentionRegressor
from toolbox_checks import early_returns, failures, require_on_page, row_of

NUMBERS = {AeonAttentionClassifier: 42, AeonAttentionRegressor: 42}


@pytest.fixture(scope="module")
def vowels():
    """Lists of series (12 channels, 7 to 29 times), training and test set."""
    return *load_japanese_vowels("train"), *load_japanese_vowels("test")


@pytest.mark.parametrize("adapter", NUMBERS, ids=lambda one: one.__name__)
def test_all_checks_of_aeon_pass(adapter):
    with early_returns("/estimator_checking/_yield") as idle:
        results = check_estimator(adapter)
    assert failures(results) == {}
    assert len(results) == NUMBERS[adapter]
    require_on_page(row_of(adapter.__name__, results, idle))


def test_checks_can_fail():
    """Negative control."""

    class Stuck(AeonAttentionClassifier):
        def _predict(self, X):
            return super()._predict(X)[:-1]

    failed = failures(check_estimator(Stuck))
    assert any(name.startswith("check_classifier_output") for name in failed)


def test_loaded_series_give_what_our_estimators_give(vowels):
    X, y, X_test, y_test = vowels
    adapter = AeonAttentionClassifier().fit(X, y)
    ours = make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier())
    ours.fit([x.T for x in X], y)
    assert np.array_equal(adapter.predict(X_test), ours.predict([x.T for x in X_test]))
    assert adapter.score(X_test, y_test) > 0.97
    channels = pa.LinearAttentionClassifier(layout="channels_first").fit(X, y)
    plain = AeonAttentionClassifier(standardise=False).fit(X, y)
    assert np.array_equal(plain.predict(X_test), channels.predict(X_test))


def test_arrays_are_read_channels_first():
    X, y = load_basic_motions("train")
    assert X.shape == (40, 6, 100)
    adapter = AeonAttentionClassifier(unit_norm=True, loss="logistic").fit(X, y)
    assert adapter.model_[-1].n_features_in_ == 6
    assert "40 sequences" in str(adapter.model_[-1].certificate_)
    X_test, y_test = load_basic_motions("test")
    assert adapter.score(X_test, y_test) >= 0.9
    probabilities = adapter.predict_proba(X_test)
    assert probabilities.shape == (40, 4)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    assert np.array_equal(adapter.classes_[probabilities.argmax(axis=1)], adapter.predict(X_test))


@pytest.mark.parametrize("kind", ["np-list", "df-list", "pd-multiindex"])
def test_types_of_collections_agree(kind):
    X, y = load_cardano_sentiment("train")
    expected = AeonAttentionRegressor().fit(X, y).predict(X)
    converted = convert_collection(X, kind)
    given = AeonAttentionRegressor().fit(converted, y).predict(converted)
    assert given == pytest.approx(expected, abs=1e-9)


def test_one_channel_is_seen_through_windows():
    X, y = load_italy_power_demand("train")
    X_test, y_test = load_italy_power_demand("test")
    assert AeonAttentionClassifier().fit(X, y).score(X_test, y_test) > 0.95
    assert AeonAttentionClassifier(steps_per_token=1).fit(X, y).score(X_test, y_test) < 0.7


@pytest.mark.parametrize("kind", [int, float, object, str])
def test_labels_keep_their_type(kind):
    X, y = load_italy_power_demand("train")
    labels = y.astype(kind)
    adapter = AeonAttentionClassifier().fit(X, labels)
    assert adapter.score(X, labels) > 0.95
    assert set(adapter.predict(X)) == set(labels)


def test_one_channel_may_have_no_axis():
    X, y = load_cardano_sentiment("train")
    flat = X[:, 0]
    expected = AeonAttentionRegressor().fit(X[:, :1], y).predict(X[:, :1])
    assert AeonAttentionRegressor().fit(flat, y).predict(flat) == pytest.approx(expected)
    rows = list(flat)
    assert AeonAttentionRegressor().fit(rows, y).predict(rows) == pytest.approx(expected)


def test_gaps_need_an_imputer():
    X, y = load_cardano_sentiment("train")
    gaps = X.copy()
    gaps[3, 1, 4:7] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        AeonAttentionRegressor().fit(gaps, y)
    adapter = AeonAttentionRegressor(impute="linear")
    assert adapter.get_tag("capability:missing_values")
    ours = make_pipeline(
        pa.SequenceImputer("linear"),
        pa.SequenceScaler(),
        pa.LinearAttentionRegressor(ridge="loo", bias=True),
    )
    tokens = np.swapaxes(gaps, 1, 2)
    assert np.array_equal(adapter.fit(gaps, y).predict(gaps), ours.fit(tokens, y).predict(tokens))
    # Parameters that are set later count, too.
    assert np.array_equal(
        AeonAttentionRegressor().set_params(impute="linear").fit(gaps, y).predict(gaps),
        adapter.predict(gaps),
    )


def test_searches_choose_parameters(vowels):
    X, y, X_test, y_test = vowels
    first = pa.Form(query=[0], key=[0], value=[0])
    grid = {"form": [None, first], "unit_norm": [False, True]}
    search = GridSearchCV(AeonAttentionClassifier(ridge=1.0), grid, cv=3).fit(X, y)
    assert search.best_params_["form"] is None
    assert search.score(X_test, y_test) > 0.95
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_what_was_fitted_is_saved(vowels, tmp_path):
    X, y, X_test, _ = vowels
    adapter = AeonAttentionClassifier(loss="logistic", ridge=1.0).fit(X, y)
    pa.save(adapter.model_, tmp_path / "model.safetensors")
    loaded = pa.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict([x.T for x in X_test]), adapter.predict(X_test))


def test_other_numbers_of_channels_are_refused(vowels):
    X, y, X_test, _ = vowels
    adapter = AeonAttentionClassifier(ridge=1.0).fit(X, y)
    with pytest.raises(ValueError, match="number of channels"):
        adapter.predict([x[:5] for x in X_test])


def test_toolboxes_wait_until_they_are_asked_for():
    loaded = loaded_after("import polyattn.interop.series, polyattn as pa; pa.interop")
    assert "polyattn.interop.series" in loaded
    assert loaded.isdisjoint({"aeon", "sktime"})
    assert "aeon" in loaded_after("import polyattn.interop.aeon")


def loaded_after(statement):
    """The modules that a fresh interpreter has loaded after the statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_examples_in_docstrings_run():
    results = doctest.testmod(polyattn.interop.aeon)
    assert results.attempted >= 10
    assert results.failed == 0
