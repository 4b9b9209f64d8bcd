"""The adapters for sktime: its own checks, its data and the types it takes."""

import doctest

import numpy as np
import pytest

pytest.importorskip("sktime")

from sklearn.pipeline import make_pipeline
from sktime.datasets import load_basic_motions, load_japanese_vowels
from sktime.datatypes import convert_to
from sktime.utils.estimator_checks import check_estimator

import polyattn as pa
import polyattn.interop.sktime
from polyattn.interop.sktime import SktimeAttentionClassifier, SktimeAttentionRegressor
from toolbox_checks import early_returns, failures, require_on_page, row_of

NUMBERS = {SktimeAttentionClassifier: 258, SktimeAttentionRegressor: 146}
KINDS = ["pd-multiindex", "df-list", "nested_univ", "numpy3D"]


@pytest.fixture(scope="module")
def motions():
    """Arrays (40, 6 channels, 100 times) and labels, training and test set."""
    return (
        *load_basic_motions("train", return_X_y=True, return_type="numpy3D"),
        *load_basic_motions("test", return_X_y=True, return_type="numpy3D"),
    )


@pytest.mark.parametrize("adapter", NUMBERS, ids=lambda one: one.__name__)
def test_all_checks_of_sktime_pass(adapter):
    with early_returns("/tests/") as idle:
        results = check_estimator(adapter, verbose=False)
    assert failures(results) == {}
    assert len(results) == NUMBERS[adapter]
    require_on_page(row_of(adapter.__name__, results, idle))


def test_checks_can_fail():
    """Negative control."""

    class Stuck(SktimeAttentionClassifier):
        """Without an example, and with fewer predictions than series."""

        def _predict(self, X):
            return super()._predict(X)[:-1]

    tests = ["test_class_has_doctest_example", "test_classifier_output"]
    failed = failures(check_estimator(Stuck, verbose=False, tests_to_run=tests))
    assert {name.split("[")[0] for name in failed} == set(tests)


def test_arrays_give_what_our_estimators_give(motions):
    X, y, X_test, y_test = motions
    assert X.shape == (40, 6, 100)
    adapter = SktimeAttentionClassifier(unit_norm=True).fit(X, y)
    ours = make_pipeline(pa.SequenceScaler(unit_norm=True), pa.LinearAttentionClassifier())
    ours.fit(np.swapaxes(X, 1, 2), y)
    assert np.array_equal(adapter.predict(X_test), ours.predict(np.swapaxes(X_test, 1, 2)))
    assert adapter.score(X_test, y_test) >= 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_types_of_panels_agree(kind, motions):
    X, y, X_test, _ = motions
    expected = SktimeAttentionClassifier(loss="logistic").fit(X, y).predict_proba(X_test)
    X, X_test = (convert_to(each, kind) for each in (X, X_test))
    adapter = SktimeAttentionClassifier(loss="logistic").fit(X, y)
    assert adapter.predict_proba(X_test) == pytest.approx(expected, abs=1e-9)


def test_series_may_have_any_length():
    X, y = load_japanese_vowels("train", return_X_y=True)
    X_test, y_test = load_japanese_vowels("test", return_X_y=True)
    adapter = SktimeAttentionClassifier().fit(X, y)
    assert adapter.score(X_test, y_test) > 0.97
    tokens = [frame.to_numpy() for frame in convert_to(X, "df-list")]
    ours = make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier()).fit(tokens, y)
    assert np.array_equal(ours.predict(tokens), adapter.predict(X))


def test_gaps_need_an_imputer(motions):
    X = motions[0]
    numbers = X[:, 0].mean(axis=1)
    gaps = X.copy()
    gaps[3, 1, 4:7] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        SktimeAttentionRegressor().fit(gaps, numbers)
    adapter = SktimeAttentionRegressor(impute="previous")
    assert adapter.get_tag("capability:missing_values")
    assert not SktimeAttentionRegressor().get_tag("capability:missing_values")
    filled = gaps.copy()
    filled[3, 1, 4:7] = gaps[3, 1, 3]
    fitted = adapter.fit(gaps, numbers)
    assert fitted.predict(gaps) == pytest.approx(fitted.predict(filled))


def test_tags_say_whether_there_are_probabilities():
    tag = "capability:predict_proba"
    assert SktimeAttentionClassifier(loss="logistic").get_tag(tag)
    assert not SktimeAttentionClassifier().get_tag(tag)
    assert SktimeAttentionClassifier().set_params(loss="logistic").get_tag(tag)


def test_examples_in_docstrings_run():
    results = doctest.testmod(polyattn.interop.sktime)
    assert results.attempted >= 10
    assert results.failed == 0
