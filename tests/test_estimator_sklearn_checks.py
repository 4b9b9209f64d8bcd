"""scikit-learn's own ``check_estimator``, whose tables are read as sequences of one token each."""

import pytest
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

import polyattn as pa


class Tables:
    """An estimator that takes tables (rows, columns); the checks give no other X."""

    def _sequences(self, X, reset=False):
        if not reset:
            check_is_fitted(self)
        return validate_data(self, X, reset=reset)[:, None, :]

    def fit(self, X, y, sample_weight=None):
        return super().fit(self._sequences(X, reset=True), y, sample_weight)

    def predict(self, X):
        return super().predict(self._sequences(X))

    def score(self, X, y, sample_weight=None):
        return super().score(self._sequences(X), y, sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags

    # Streams have checks of their own in test_estimator_conformance.py.
    partial_fit = available_if(lambda _: False)(lambda _: None)


class TableRegressor(Tables, pa.LinearAttentionRegressor):
    pass


class TableClassifier(Tables, pa.LinearAttentionClassifier):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, column_or_1d(y, warn=True), sample_weight)

    def decision_function(self, X):
        return super().decision_function(self._sequences(X))

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X):
        return super().predict_proba(self._sequences(X))


FORM = pa.Form(skip=True, intercept=True)
NARROW = pa.Form(key=[0], value=[0], skip=True, intercept=True)
ESTIMATORS = {
    "regressor": TableRegressor(ridge=1e-3, bias=True),
    "regressor of a form": TableRegressor(ridge=1e-3, form=FORM),
    "classifier": TableClassifier(ridge=1.0),
    "classifier by log-loss": TableClassifier(loss="logistic", form=NARROW),
}
EXPECTED = {
    "check_requires_y_none": "the message has words of its own",
    "check_dtype_object": "the message has words of its own",
    "check_estimators_overwrite_params": "a form keeps what it worked out, and is still equal",
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_checks_of_scikit_learn(name):
    results = check_estimator(
        ESTIMATORS[name], expected_failed_checks=EXPECTED, on_skip=None, on_fail=None
    )
    failed = [(each["check_name"], each["exception"]) for each in results
              if each["status"] == "failed"]  # fmt: skip
    assert failed == []
    assert sum(each["status"] == "passed" for each in results) >= 50
