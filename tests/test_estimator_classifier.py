"""The classifier: indicators, labels of every kind, streams of them."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold, cross_val_score

import polyattn as pa
from estimator_cases import CLASSIFIER, LENGTH, N, planted_labels, tokens
from polyattn.errors import InvalidInput, InvalidType


def test_classifier_is_least_squares_on_indicators():
    X, y = planted_labels("last", ["a", "b", "c"])
    model = CLASSIFIER(ridge=0.5).fit(X, y)
    targets = (y[:, None] == np.array(["a", "b", "c"])).astype(float)
    assert np.allclose(model.coef_, pa.fit(X, targets, ridge=0.5, bias=True).coef)
    assert np.allclose(model.decision_function(X), model.layer_(X))
    assert np.array_equal(model.predict(X), model.classes_[np.argmax(model.layer_(X), axis=1)])


def test_two_classes_need_one_column():
    X, y = planted_labels("last", ["no", "yes"])
    model = CLASSIFIER(ridge=0.5).fit(X, y)
    assert model.n_outputs_ == 1
    assert model.decision_function(X).shape == (N,)
    assert np.array_equal(model.predict(X) == "yes", model.decision_function(X) > 0)
    targets = (y[:, None] == model.classes_).astype(float)
    two = pa.fit(X, targets, ridge=0.5, bias=True).predict(X)
    assert np.allclose(two[:, 1] - two[:, 0], model.decision_function(X))


def test_classifier_scores_accuracy_also_on_unknown_labels():
    X, y = planted_labels("full", ["a", "b", "c"])
    model = CLASSIFIER(mode="full").fit(X, y)
    weights = np.arange(N) + 1.0
    expected = accuracy_score(
        y.ravel(), model.predict(X).ravel(), sample_weight=np.repeat(weights, LENGTH)
    )
    assert model.score(X, y, sample_weight=weights) == pytest.approx(expected)
    assert model.score(X, np.full(y.shape, "z")) == 0.0


@pytest.mark.parametrize("kind", [bool, np.int8, float, str, object])
def test_kinds_of_labels(kind):
    X, y = planted_labels("last", [0, 1])
    labels = y.astype(str).astype(object) if kind is object else y.astype(kind)
    model = CLASSIFIER().fit(X, labels)
    assert model.score(X, labels) > 0.8
    assert set(model.predict(X)) <= set(labels)


def test_the_default_ridge_is_chosen_and_probabilities_are_not_claimed():
    X, y = planted_labels("last", ["no", "yes"])
    model = CLASSIFIER().fit(X, y)
    assert model.result_.ridge > 0
    assert model.result_.ridge_path is not None
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match="predict_proba needs loss='logistic'; got") as refused:
        model.predict_proba(X)
    assert refused.value.__cause__ is None
    # Of the class it is a function like any other, for documentation and subclasses.
    assert "Probabilities" in CLASSIFIER.predict_proba.__doc__


def test_classifier_labels_tokens_of_ragged_sequences():
    task = pa.data.planted(80, (2, 8), 3, n_outputs=1, mode="causal", random_state=7)
    X, y = list(task.X), [np.where(values[:, 0] > 0, "up", "down") for values in task.Y]
    model = CLASSIFIER(mode="causal", ridge=1e-4, bias=False).fit(X, y)
    assert model.score(X, y) > 0.8
    assert [labels.shape for labels in model.predict(X)] == [labels.shape for labels in y]
    assert [scores.shape for scores in model.decision_function(X)] == [v.shape for v in y]
    assert np.all(cross_val_score(model, X, y, cv=KFold(3)) > 0.6)


def test_classes_of_a_stream():
    X, y = planted_labels("last", [1, 2, 3])
    model = CLASSIFIER(ridge="gcv")
    with pytest.raises(InvalidInput, match="needs classes="):
        model.partial_fit(X, y)
    with pytest.raises(InvalidInput, match=r"not among the classes \[1, 2\]: \[3\]"):
        model.partial_fit(X, y, classes=[1, 2])
    two = y < 3
    model.partial_fit(X[two], y[two], classes=[3, 1, 2]).partial_fit(X[~two], y[~two])
    assert model.classes_.tolist() == [1, 2, 3]
    assert np.allclose(model.coef_, CLASSIFIER(ridge="gcv").fit(X, y).coef_)
    model.partial_fit(X, y, classes=[1, 2, 3])
    with pytest.raises(InvalidInput, match="classes must be those of the first call"):
        model.partial_fit(X, y, classes=[1, 2, 4])
    with pytest.raises(InvalidInput, match="ridge='gcv'"):
        CLASSIFIER().partial_fit(X, y, classes=[1, 2, 3])


@pytest.mark.parametrize(
    ("labels", "error", "pattern"),
    [
        (np.zeros(N), InvalidInput, "at least two classes"),
        (np.linspace(0, 1, N), InvalidInput, "fractions"),
        (np.full(N, np.nan), InvalidInput, "NaN"),
        (np.eye(3)[np.arange(N) % 3, None], InvalidInput, "not indicator columns"),
        (np.arange(N) % 2 + 0j, InvalidType, "complex"),
        (np.array([b"a", "b"] * (N // 2), dtype=object), InvalidType, "text, integers or booleans"),
        (np.array(["a", None] * (N // 2)), InvalidInput, r"y\[1\] is missing \(got None\), and"),
        (["a", "b"] * (N // 2 - 1) + ["a", np.nan], InvalidInput, rf"y\[{N - 1}\] is .*nan\); eve"),
        ([True, None] * (N // 2), InvalidInput, r"y\[1\] is missing \(got None\)"),
        ((np.arange(N) % 2)[:, None], InvalidInput, rf"one column, shape \({N}, 1\): give np.rav"),
        ([["a"], ["b"]] * (N // 2), InvalidInput, r"one column.*give np.ravel\(y\), shape \(n_seq"),
        ([["a"], ["a", "b"]] * (N // 2), InvalidInput, "not rectangular"),
        (["a", "b"], InvalidInput, f"X has {N} sequences but Y has 2"),
    ],
)
def test_bad_labels_are_named(labels, error, pattern):
    with pytest.raises(error, match=pattern):
        CLASSIFIER().fit(tokens(), labels)


def test_labels_of_another_kind_are_refused():
    X, y = planted_labels("last", ["no", "yes"])
    with pytest.raises(InvalidType, match="labels must be of one kind"):
        CLASSIFIER().fit(X, y).score(X, np.zeros(N, int))
    tokens = CLASSIFIER(mode="full")
    with pytest.raises(InvalidInput, match="y is empty"):
        tokens.fit(X, [])


def test_missing_labels_of_frames_and_of_tokens_are_named():
    pandas = pytest.importorskip("pandas")
    y = np.where(np.arange(N) % 2, "a", "b").astype(object)
    y[7] = None
    for labels in (pandas.Series(y), pandas.Series(y, dtype="string"), y.tolist()):
        with pytest.raises(InvalidInput, match=r"y\[7\] is missing"):
            CLASSIFIER().fit(tokens(), labels)
    X = tokens()
    per_token = np.where(X[..., 0] > 0, "a", "b").astype(object)
    with pytest.raises(InvalidInput, match=r"one column.*give np.asarray\(y\)\[..., 0\]"):
        CLASSIFIER(mode="causal").fit(X, per_token[..., None])
    per_token[3, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"y\[3, 1\] is missing \(got nan\)"):
        CLASSIFIER(mode="causal").fit(X, per_token)
    with pytest.raises(InvalidInput, match=r"y\[3\]\[1\] is missing"):
        CLASSIFIER(mode="causal").fit(list(X), list(per_token))


def test_the_word_nan_is_a_label_like_any_other():
    X, y = planted_labels("last", ["nan", "None"])
    assert CLASSIFIER().fit(X, y).classes_.tolist() == ["None", "nan"]
