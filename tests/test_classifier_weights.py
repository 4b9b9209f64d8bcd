"""class_weight: scikit-learn's meaning, with both losses, times the weights of sequences."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.utils.class_weight import compute_class_weight

import polyattn as pa
from estimator_cases import CLASSIFIER, planted_labels
from logistic_tasks import design, task, theta_of
from polyattn.errors import InvalidInput, InvalidType
from polyattn.estimators.class_weights import class_weights

X, CODES = task(120, 5, 2, 3, seed=3)
KEPT = (CODES == 0) | (np.arange(120) % 3 == 0)  # classes of unequal size
X, CODES = X[KEPT], CODES[KEPT]
NAMES = np.array(["a", "b", "c"])[CODES]
PHI = design(X)
WEIGHTS = np.random.default_rng(1).random(len(X)) + 0.2
CHOICES = ["balanced", {"a": 1.0, "b": 4.0, "c": 0.5}, {"b": 3.0}]


@pytest.mark.parametrize("class_weight", CHOICES, ids=str)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_log_loss_is_that_of_logistic_regression(class_weight, weights):
    model = CLASSIFIER(loss="logistic", ridge=0.5, bias=False, class_weight=class_weight)
    model.fit(X, NAMES, sample_weight=weights)
    oracle = LogisticRegression(
        C=1.0, fit_intercept=False, class_weight=class_weight, tol=1e-10, max_iter=2000
    ).fit(PHI, NAMES, sample_weight=weights)
    assert np.allclose(model.predict_proba(X), oracle.predict_proba(PHI), atol=1e-5)
    plain = CLASSIFIER(loss="logistic", ridge=0.5, bias=False).fit(X, NAMES, weights)
    assert not np.allclose(plain.predict_proba(X), oracle.predict_proba(PHI), atol=1e-3)


@pytest.mark.parametrize("class_weight", CHOICES, ids=str)
def test_squared_error_is_that_of_ridge_classifier(class_weight):
    model = CLASSIFIER(ridge=2.0, bias=False, class_weight=class_weight).fit(X, NAMES)
    oracle = RidgeClassifier(alpha=2.0, fit_intercept=False, class_weight=class_weight)
    # Their indicators are -1 and 1, and ours 0 and 1.
    oracle.fit(PHI, NAMES)
    of_ones = PHI @ np.linalg.solve(
        PHI.T @ (PHI * sample_weights(class_weight)[:, None]) + 2.0 * np.eye(PHI.shape[1]),
        PHI.T @ sample_weights(class_weight),
    )
    scores = 2.0 * model.decision_function(X) - of_ones[:, None]
    assert np.allclose(scores, oracle.decision_function(PHI), atol=1e-8)
    weights = sample_weights(class_weight)
    same = CLASSIFIER(ridge=2.0, bias=False).fit(X, NAMES, sample_weight=weights)
    assert np.allclose(model.coef_, same.coef_, rtol=1e-11)


def sample_weights(class_weight):
    classes = np.unique(NAMES)
    by_class = compute_class_weight(class_weight, classes=classes, y=NAMES)
    return by_class[CODES]


def test_balanced_is_repeating_the_rare_class():
    """Weights are counts: a sequence given twice weighs as one of weight 2."""
    twice = np.where(CODES == 2, 2, 1)
    repeated = CLASSIFIER(ridge=1.0, class_weight="balanced").fit(
        np.repeat(X, twice, axis=0), np.repeat(NAMES, twice)
    )
    weighted = CLASSIFIER(ridge=1.0, class_weight="balanced").fit(X, NAMES, sample_weight=twice)
    assert np.allclose(repeated.coef_, weighted.coef_, rtol=1e-9)


@pytest.mark.parametrize("labels", [[3, 5], [False, True], ["no", "yes"]], ids=str)
def test_labels_of_every_kind_can_be_named(labels):
    tokens, y = planted_labels("last", labels)
    weights = {labels[1]: 5.0, labels[0]: 0.5}
    found = CLASSIFIER(ridge=1.0, class_weight=weights).fit(tokens, y)
    by_hand = np.where(y == labels[1], 5.0, 0.5)
    assert np.array_equal(found.coef_, CLASSIFIER(ridge=1.0).fit(tokens, y, by_hand).coef_)
    numpy_keys = {np.asarray(labels)[1]: 5.0, np.asarray(labels)[0]: np.float32(0.5)}
    again = CLASSIFIER(ridge=1.0, class_weight=numpy_keys).fit(tokens, y)
    assert np.array_equal(found.coef_, again.coef_)


def test_a_class_of_weight_zero_is_not_learned():
    found = CLASSIFIER(ridge=1.0, class_weight={"c": 0.0}).fit(X, NAMES)
    assert found.classes_.tolist() == ["a", "b", "c"]
    assert "c" not in found.predict(X)


def test_parts_and_layouts_count_alike():
    weights = {"b": 3.0}
    whole = CLASSIFIER(ridge=1.0, class_weight=weights).fit(X, NAMES, sample_weight=WEIGHTS)
    parts = CLASSIFIER(ridge=1.0, class_weight=weights)
    parts.partial_fit(X[:30], NAMES[:30], ["a", "b", "c"], sample_weight=WEIGHTS[:30])
    parts.partial_fit(X[30:], NAMES[30:], sample_weight=WEIGHTS[30:])
    assert np.allclose(parts.coef_, whole.coef_, rtol=1e-8, atol=1e-10)
    turned = CLASSIFIER(ridge=1.0, class_weight=weights, layout="channels_first")
    turned.fit(X.swapaxes(1, 2), NAMES, sample_weight=WEIGHTS)
    assert np.array_equal(turned.coef_, whole.coef_)


def test_it_can_be_searched_and_saved(tmp_path):
    search = GridSearchCV(CLASSIFIER(ridge=1.0), {"class_weight": [None, *CHOICES]}, cv=2)
    search.fit(X, NAMES)
    for choice in CHOICES:
        model = CLASSIFIER(ridge=1.0, class_weight=choice).fit(X, NAMES)
        pa.save(model, tmp_path / "model")
        loaded = pa.load(tmp_path / "model")
        assert loaded.class_weight == choice
        assert np.array_equal(loaded.fit(X, NAMES).coef_, model.coef_)


def test_the_majority_is_that_of_the_weights():
    model = CLASSIFIER(ridge=1.0, class_weight="balanced").fit(X, NAMES)
    assert model.majority_share_ == pytest.approx(1 / 3)
    right = model.predict(X) == NAMES
    mean = np.mean([right[code == CODES].mean() for code in range(3)])
    assert model.training_accuracy_ == pytest.approx(mean)
    assert model.score(X, NAMES) == right.mean()


@pytest.mark.parametrize(
    ("class_weight", "error", "pattern"),
    [
        ("even", InvalidInput, "class_weight must be None, 'balanced' or a dict"),
        ([1, 2], InvalidInput, "class_weight must be None, 'balanced' or a dict"),
        ({"z": 1.0}, InvalidInput, r"names \['z'\].*\['a', 'b', 'c'\]"),
        ({0: 1.0, "a": 2.0}, InvalidInput, r"names \[0\]"),
        ({"a": -1.0}, InvalidInput, r"class_weight\['a'\] must be finite and not negative"),
        ({"a": np.nan}, InvalidInput, r"class_weight\['a'\] must be finite"),
        ({"a": "much"}, InvalidType, r"class_weight\['a'\] must be a number"),
        ({"a": 0, "b": 0, "c": 0}, InvalidInput, "zero everywhere"),
    ],
)
def test_bad_weights_are_named(class_weight, error, pattern):
    with pytest.raises(error, match=pattern):
        CLASSIFIER(class_weight=class_weight).fit(X, NAMES)


def test_absent_classes_may_be_named():
    """A fold may lack a class that others have."""
    some = CODES < 2
    weights = {"a": 1.0, "b": 2.0, "c": 3.0}
    found = CLASSIFIER(ridge=1.0, class_weight=weights).fit(X[some], NAMES[some])
    assert found.classes_.tolist() == ["a", "b"]


def test_what_it_cannot_weigh_is_said():
    with pytest.raises(InvalidInput, match="'balanced' counts the labels of all data"):
        CLASSIFIER(ridge=1.0, class_weight="balanced").partial_fit(X, NAMES, ["a", "b", "c"])
    with pytest.raises(InvalidInput, match=r"class_weight weighs whole sequences.*mode='full'"):
        CLASSIFIER(mode="full", class_weight="balanced").fit(X, X[..., 0] > 0)
    with pytest.raises(InvalidInput, match="a source has weights of its own"):
        CLASSIFIER(class_weight="balanced").fit(pa.scan(X, CODES))
    with pytest.raises(InvalidInput, match=r"X has .* sequences but y has 2 labels"):
        CLASSIFIER(class_weight="balanced").fit(X, ["a", "b"])
    with pytest.raises(InvalidInput, match="indicator columns weigh sequences by sample_weight"):
        CLASSIFIER(class_weight="balanced").fit(X, np.eye(3)[CODES])
    with pytest.raises(InvalidInput, match="one weight per sequence"):
        CLASSIFIER(class_weight="balanced").fit(X, NAMES, sample_weight=[1.0])


def test_weights_of_any_size_balance():
    codes = np.array([0, 0, 0, 1])
    for size in (1e-300, 1.0, 1e300):
        found = class_weights("balanced", codes, np.arange(2), np.full(4, size))
        assert np.allclose(found, [2 / 3, 2.0])
    absent = class_weights("balanced", codes, np.arange(2), np.array([1.0, 1.0, 1.0, 0.0]))
    assert np.isfinite(absent).all()
    assert theta_of(CLASSIFIER(ridge=1.0).fit(X, NAMES).result_).shape[1] == 3
