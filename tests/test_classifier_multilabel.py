"""Several labels at once: indicator columns, with both losses, against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import accuracy_score, average_precision_score
from sklearn.model_selection import KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

import polyattn as pa
from estimator_cases import CLASSIFIER, tokens
from logistic_tasks import design
from polyattn.errors import InvalidInput

X = tokens(n=110)[..., :2]
RNG = np.random.default_rng(5)
OUTPUTS = pa.data.random_layer(2, 4, 2, "last", random_state=2)(X)
Y = (OUTPUTS / OUTPUTS.std() + RNG.logistic(size=OUTPUTS.shape) > 0.5).astype(int)
PHI = design(X)
WEIGHTS = RNG.random(110)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_squared_error_is_that_of_ridge_classifier(weights):
    model = CLASSIFIER(ridge=2.0, bias=False).fit(X, Y, sample_weight=weights)
    oracle = RidgeClassifier(alpha=2.0, fit_intercept=False).fit(PHI, Y, sample_weight=weights)
    assert np.allclose(model.decision_function(X), oracle.decision_function(PHI), atol=1e-9)
    assert np.array_equal(model.predict(X), oracle.predict(PHI))
    assert model.score(X, Y) == oracle.score(PHI, Y)
    expected = oracle.score(PHI, Y, sample_weight=WEIGHTS)
    assert model.score(X, Y, sample_weight=WEIGHTS) == pytest.approx(expected)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_log_loss_is_that_of_one_logistic_regression_for_each_label(weights):
    model = CLASSIFIER(loss="logistic", ridge=0.5, bias=False).fit(X, Y, sample_weight=weights)
    found = model.predict_proba(X)
    assert found.shape == Y.shape
    for label in range(4):
        oracle = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=2000)
        oracle.fit(PHI, Y[:, label], sample_weight=weights)
        assert np.allclose(found[:, label], oracle.predict_proba(PHI)[:, 1], atol=1e-5)
    assert not np.allclose(found.sum(axis=1), 1.0, atol=0.1)
    assert np.array_equal(model.predict(X), found > 0.5)


def test_it_is_one_against_the_rest_of_scikit_learn():
    oracle = OneVsRestClassifier(LogisticRegression(fit_intercept=False, tol=1e-10, max_iter=2000))
    oracle.fit(PHI, Y)
    model = CLASSIFIER(loss="logistic", ridge=0.5, bias=False).fit(X, Y)
    assert np.allclose(model.predict_proba(X), oracle.predict_proba(PHI), atol=1e-5)
    assert np.array_equal(model.classes_, oracle.classes_)
    assert np.array_equal(model.predict(X), oracle.predict(PHI))


def test_each_label_is_a_fit_of_two_classes():
    model = CLASSIFIER(loss="logistic", ridge=0.3).fit(X, Y)
    alone = [CLASSIFIER(loss="logistic", ridge=0.3).fit(X, column) for column in Y.T]
    assert np.array_equal(model.coef_, np.concatenate([each.coef_ for each in alone]))
    chances = np.stack([each.predict_proba(X)[:, 1] for each in alone], axis=1)
    assert np.allclose(model.predict_proba(X), chances, rtol=1e-13)
    assert model.result_.risk == pytest.approx(sum(each.result_.risk for each in alone))
    result = model.result_
    assert result.loss == "logistic_per_output"
    assert np.array_equal(result.predict_proba(X), model.predict_proba(X))
    assert "Each of 4 labels" in str(model.outcome_)
    assert model.outcome_.name == "regularised"
    assert np.allclose(model.layer_(X), model.decision_function(X))


def test_risks_are_held_against_the_shares_of_labels():
    model = CLASSIFIER(loss="logistic", ridge=0.3).fit(X, Y)
    alone = [CLASSIFIER(loss="logistic", ridge=0.3).fit(X, column).result_ for column in Y.T]
    assert model.result_.baseline_risk == pytest.approx(sum(e.baseline_risk for e in alone))
    assert 0 < model.result_.r2 < 1
    assert model.outcome_.ok
    assert model.majority_share_ is None
    noise = np.random.default_rng(0).random((110, 2)) > 0.5
    useless = CLASSIFIER(loss="logistic", ridge=1e12).fit(X, noise)
    assert not useless.outcome_.ok
    assert "shares of the classes" in str(useless.outcome_)


def test_what_it_says_of_itself():
    model = CLASSIFIER(ridge=1.0).fit(X, Y)
    assert model.multilabel_
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.predict(X).dtype == np.int64
    assert model.score(X, Y) == accuracy_score(Y, model.predict(X))
    assert "any of 4 labels from tokens of 2 coordinates" in str(model)
    assert not CLASSIFIER(ridge=1.0).fit(X, Y[:, 0]).multilabel_
    assert average_precision_score(Y, model.decision_function(X)) > 0.5
    assert cross_val_score(model, X, Y, cv=KFold(3)).shape == (3,)
    bounded = model.decision_function(X, return_bound=True)
    assert bounded[0].shape == Y.shape


@pytest.mark.parametrize("kind", [bool, np.uint8, float, list])
def test_kinds_of_indicators(kind):
    given = Y.tolist() if kind is list else Y.astype(kind)
    model = CLASSIFIER(ridge=1.0).fit(X, given)
    assert np.array_equal(model.coef_, CLASSIFIER(ridge=1.0).fit(X, Y).coef_)
    assert model.score(X, given) == model.score(X, Y)


def test_two_labels_are_not_two_classes():
    model = CLASSIFIER(ridge=1.0).fit(X, Y[:, :2])
    assert model.decision_function(X).shape == (110, 2)
    assert model.predict(X).shape == (110, 2)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_labels_that_never_or_always_occur(loss):
    """As in a fold of a rare label."""
    given = Y.copy()
    given[:, 1], given[:, 2] = 0, 1
    model = CLASSIFIER(loss=loss, ridge=0.5).fit(X, given)
    predicted = model.predict(X)
    assert predicted[:, 1].mean() < 0.05
    assert predicted[:, 2].mean() > 0.95


def test_separable_labels_without_a_ridge_are_said():
    given = np.stack([X[:, -1, 0] > 0, Y[:, 0] > 0], axis=1)
    model = CLASSIFIER(loss="logistic", ridge=0.0, form=pa.Form(skip=True)).fit(X, given)
    assert model.outcome_.name == "separable"
    assert not model.outcome_.ok
    assert "Of label 0, as of 1 of them" in str(model.outcome_)


def test_a_stream_adds_up():
    model = CLASSIFIER(ridge=1.0)
    model.partial_fit(X[:40], Y[:40]).partial_fit(X[40:], Y[40:], classes=[0, 1, 2, 3])
    whole = CLASSIFIER(ridge=1.0).fit(X, Y)
    assert np.allclose(model.coef_, whole.coef_, rtol=1e-9, atol=1e-12)
    with pytest.raises(InvalidInput, match="of one kind in all calls"):
        model.partial_fit(X, Y[:, 0])
    with pytest.raises(InvalidInput, match="of one kind in all calls"):
        model.partial_fit(X, Y[:, :3])
    with pytest.raises(InvalidInput, match="of one kind in all calls"):
        CLASSIFIER(ridge=1.0).partial_fit(X, Y, classes=["a", "b", "c", "d"])
    with pytest.raises(InvalidInput, match="log-loss is no function"):
        CLASSIFIER(loss="logistic").partial_fit(X, Y)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_it_is_saved(loss, tmp_path):
    model = CLASSIFIER(loss=loss, ridge=1.0).fit(X, Y)
    pa.save(model, tmp_path / "model")
    loaded = pa.load(tmp_path / "model")
    assert loaded.multilabel_
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert np.array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.score(X, Y) == model.score(X, Y)
    pa.save(model.result_, tmp_path / "result")
    if loss == "logistic":
        assert np.array_equal(pa.load(tmp_path / "result").predict_proba(X), model.predict_proba(X))
        with pytest.raises(InvalidInput, match="squared error"):
            pa.audit(model.result_, X, Y)


# Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "pattern"),
    [
        (2 * Y, r"columns of 0 and 1; got 2 for sequence \d+, label \d"),
        (Y - 1, "got -1 for"), (Y + 0.5, r"got [01]\.5 for sequence 0, label 0"),
        (np.where(Y, np.nan, 0.0), "got nan for"), (Y[:, :1], "y has one column"),
        (Y[:, :, None], "not indicator columns"), (Y[:5], "X has 110 sequences but Y has 5"),
        (np.where(Y, "yes", "no"), "not indicator columns"), (Y[:, :0], "shape"),
    ],
)  # fmt: skip
def test_bad_indicators_are_named(y, pattern):
    with pytest.raises(InvalidInput, match=pattern):
        CLASSIFIER().fit(X, y)


def test_modes_of_tokens_take_labels_themselves():
    with pytest.raises(InvalidInput, match="not indicator columns, which only mode='last' takes"):
        CLASSIFIER(mode="full").fit(X, np.zeros((110, 5, 3)))
    model = CLASSIFIER(mode="full", ridge=1.0).fit(X, (X[..., 0] > 0).astype(int))
    assert not model.multilabel_  # two axes: one label for each token
    assert model.predict(X).shape == (110, 5)


def test_the_score_needs_indicators_too():
    model = CLASSIFIER(ridge=1.0).fit(X, Y)
    for y in (Y[:, 0], ["a"] * 110, None):
        with pytest.raises(InvalidInput, match=r"indicator columns of 0 and 1.*\(n_sequences, 4\)"):
            model.score(X, y)
    with pytest.raises(InvalidInput, match="Y must have 4 outputs; got 3"):
        model.score(X, Y[:, :3])


def test_fit_takes_them_by_name():
    found = pa.fit(X, Y, loss="logistic_per_output", ridge=0.5)
    expected = CLASSIFIER(loss="logistic", ridge=0.5, bias=False).fit(X, Y).coef_
    assert np.array_equal(found.coef, expected)
    with pytest.raises(InvalidInput, match="holds 0 and 1, one for each label; got 2"):
        pa.fit(X, 2 * Y, loss="logistic_per_output", ridge=0.5)
    with pytest.raises(InvalidInput, match="chooses the ridge for squared error"):
        pa.fit(X, Y, loss="logistic_per_output", ridge="loo")
