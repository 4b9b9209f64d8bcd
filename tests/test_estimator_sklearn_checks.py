"""scikit-learn's own ``check_estimator``, whose tables are read as sequences of one token each.

Every check of scikit-learn is run and passes, or is named with the reason why it does not apply;
how many there are is part of the test, and of docs/conformance.md.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

import polyattn as pa

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"


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


# A fit leaves sums to go on with if it is asked for them.
keeps_sums = available_if(lambda self: self.solver == "primal")


class TableRegressor(Tables, pa.LinearAttentionRegressor):
    @keeps_sums
    def partial_fit(self, X, y, sample_weight=None):
        first = not self.__sklearn_is_fitted__()
        return super().partial_fit(self._sequences(X, reset=first), y, sample_weight)


def labels_or_sets(y):
    """A single column is a mistake that scikit-learn warns of; several are labels at once."""
    array = np.asarray(y)
    return y if array.ndim == 2 and array.shape[1] > 1 else column_or_1d(y, warn=True)


class TableClassifier(Tables, pa.LinearAttentionClassifier):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, labels_or_sets(y), sample_weight)

    @keeps_sums
    def partial_fit(self, X, y, classes=None, sample_weight=None):
        first = not self.__sklearn_is_fitted__()
        X = self._sequences(X, reset=first)
        return super().partial_fit(X, labels_or_sets(y), classes, sample_weight)

    def decision_function(self, X):
        return super().decision_function(self._sequences(X))

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X):
        return super().predict_proba(self._sequences(X))


class TableTransformer:
    """A transformer of tables: what comes out is a table again."""

    def _sequences(self, X, reset=False):
        if not reset:
            check_is_fitted(self)
        finite = "allow-nan" if get_tags(self).input_tags.allow_nan else True
        return validate_data(self, X, reset=reset, ensure_all_finite=finite)[:, None, :]

    def transform(self, X):
        return super().transform(self._sequences(X))[:, 0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags


class TableScaler(TableTransformer, pa.SequenceScaler):
    def fit(self, X, y=None, sample_weight=None):
        return super().fit(self._sequences(X, reset=True), y, sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None):
        first = not self.__sklearn_is_fitted__()
        return super().partial_fit(self._sequences(X, reset=first), y, sample_weight)

    # Ours refuses to give norms back in words; the checks take a method to work if it is there.
    @available_if(lambda self: not self.unit_norm)
    def inverse_transform(self, X):
        return super().inverse_transform(self._sequences(X))[:, 0]


class TableImputer(TableTransformer, pa.SequenceImputer):
    def fit(self, X, y=None):
        return super().fit(self._sequences(X, reset=True), y)


FORM = pa.Form(skip=True, intercept=True)
NARROW = pa.Form(key=[0], value=[0], skip=True, intercept=True)
# With the number of checks that scikit-learn 1.9 has for each of them; all pass.
ESTIMATORS = {
    "regressor": (TableRegressor(ridge=1e-3, bias=True), 60),
    "regressor, streams": (TableRegressor(ridge=1e-3, form=NARROW, solver="primal"), 60),
    "regressor of a form": (TableRegressor(ridge=1e-3, form=FORM), 60),
    "classifier": (TableClassifier(ridge=1.0), 66),
    "classifier, streams": (TableClassifier(ridge=1.0, form=NARROW, solver="primal"), 66),
    "classifier by log-loss": (TableClassifier(loss="logistic", form=NARROW), 67),
    "scaler": (TableScaler(), 54),
    "scaler to norm one": (TableScaler(unit_norm=True), 54),
    "imputer": (TableImputer(), 46),
    "imputer by medians": (TableImputer("median"), 46),
}
DO_NOT_APPLY = {
    "tables that transformers give back: ours give sequences": """
        check_global_output_transform_pandas check_global_set_output_transform_polars
        check_set_output_transform check_set_output_transform_pandas
        check_set_output_transform_polars""",
    "transformers that need no fit": "check_transformers_unfitted_stateless",
    "estimators that cluster or find outliers": """
        check_clusterer_compute_labels_predict check_clustering check_outlier_contamination
        check_outlier_corruption check_outliers_fit_predict check_outliers_train""",
    "arrays of other libraries than numpy, for estimators that compute with them": """
        check_array_api_input_and_values check_array_api_mixed_inputs
        check_array_api_same_namespace""",
    "class_weight of scikit-learn's own linear classifiers": """
        check_class_weight_balanced_classifiers check_class_weight_balanced_linear_classifier""",
    "classifiers of several labels with several classes each": "check_classifier_multioutput",
    "classifiers of two classes only": "check_classifier_not_supporting_multiclass",
    "sparse tables, which are no sequences": """
        check_sample_weight_equivalence_on_sparse_data check_sparsify_coefficients""",
    "matrices of distances": "check_nonsquare_error",
    "tables without negative numbers": "check_fit_non_negative",
    "called for scikit-learn's own estimators only, whose messages and names it compares": """
        check_dataframe_column_names_consistency check_get_feature_names_out_error
        check_inplace_ensure_writeable check_param_validation
        check_transformer_get_feature_names_out check_transformer_get_feature_names_out_pandas""",
    "a part of other checks, or all of them": """
        check_classifiers_predictions check_estimators_data_not_an_array check_estimator""",
}
# Scores of squared error are no probabilities.
SKIPPED = {
    name: ["check_classifiers_multilabel_output_format_predict_proba"]
    for name in ("classifier", "classifier, streams")
}
NAMED = {name for names in DO_NOT_APPLY.values() for name in names.split()}


def results_of(estimator):
    return check_estimator(estimator, on_skip=None, on_fail=None)


@pytest.fixture(scope="module")
def results():
    with pytest.MonkeyPatch.context() as patch:
        # One check asks for it.
        patch.setenv("SCIPY_ARRAY_API", "1")
        return {name: results_of(estimator) for name, (estimator, _) in ESTIMATORS.items()}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_checks_that_apply_pass(name, results):
    others = [(each["check_name"], each["status"], each["exception"])
              for each in results[name] if each["status"] != "passed"]  # fmt: skip
    assert [each[:2] for each in others] == [(each, "skipped") for each in SKIPPED.get(name, [])]
    assert len(results[name]) - len(others) == ESTIMATORS[name][1]


def test_each_check_is_run_or_does_not_apply(results):
    known = {
        name
        for name, function in vars(estimator_checks).items()
        if name.startswith("check_") and getattr(function, "__module__", "").endswith("_checks")
    }
    run = {each["check_name"] for some in results.values() for each in some}
    assert known - run == NAMED
    assert run <= known
    assert len(run) == 74


def test_the_page_has_these_numbers():
    text = PAGE.read_text(encoding="utf-8")
    for name, (_, number) in ESTIMATORS.items():
        assert f"| {name} | {number} | {len(SKIPPED.get(name, []))} |" in text
    skipped = {check for checks in SKIPPED.values() for check in checks}
    assert set(re.findall(r"`(check_\w+)`", text)) == NAMED | skipped


class Forgetful(TableRegressor):
    """Predicts with what was never fitted, and changes its parameters."""

    def fit(self, X, y, sample_weight=None):
        self.ridge = 2.0
        return super().fit(X, y, sample_weight)

    def predict(self, X):
        return np.zeros(len(X))


def test_checks_can_fail():
    """Negative control."""
    failed = {each["check_name"] for each in results_of(Forgetful()) if each["status"] == "failed"}
    assert failed >= {"check_estimators_unfitted", "check_estimators_overwrite_params"}
