"""Log-loss in results, files, commands and the classifier."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import polyattn as pa
import test_estimator_conformance
from estimator_cases import planted_labels
from logistic_tasks import design, task
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput, InvalidType
from polyattn.numerics.scaling import EPS


def test_probabilities_of_all_forms_of_sequences():
    X, labels = task(60, 4, 3, 3, mode="full")
    result = pa.fit(X, labels, mode="full", loss="logistic", ridge=1.0)
    chances = result.predict_proba(X)
    assert chances.shape == (60, 4, 3)
    np.testing.assert_allclose(chances.sum(axis=-1), 1.0, atol=4 * EPS)
    for one, other in zip(result.predict_proba(list(X)), chances, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(np.log(chances[..., 1] / chances[..., 0]),
                               np.diff(result.predict(X), axis=-1)[..., 0], atol=1e-12)  # fmt: skip
    with pytest.raises(InvalidInput, match="loss='logistic'"):
        pa.fit(X, labels, mode="full").predict_proba(X)


def test_the_layer_computes_the_logits():
    X, labels = task(200, 4, 3, 3)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    np.testing.assert_allclose(result.layer(X), result.predict(X), atol=1e-7)


def test_results_are_saved_and_described(tmp_path):
    X, labels = task(60, 4, 2, 2)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    pa.save(result, tmp_path / "fit.safetensors")
    loaded = pa.load(tmp_path / "fit.safetensors")
    assert (loaded.loss, loaded.objective_bound) == ("logistic", result.objective_bound)
    np.testing.assert_array_equal(loaded.predict_proba(X), result.predict_proba(X))
    assert str(loaded.outcome) == str(result.outcome)
    assert loaded.describe().facts["objective_bound"] == result.objective_bound
    record = pa.fit(X, labels).to_record()
    assert "loss" not in record.metadata
    assert pa.FitResult.from_record(record).loss == "squared"


def test_the_command_fits_log_loss(tmp_path):
    X, labels = task(60, 4, 2, 2)
    np.savez(tmp_path / "data.npz", X=X, Y=labels)
    base = ["fit", str(tmp_path / "data.npz"), "--loss", "logistic", "--json"]
    run = CliRunner().invoke(cli, [*base, "--ridge", "1"])
    assert run.exit_code == 0, run.output
    content = json.loads(run.output)
    assert content["loss"] == "logistic"
    assert content["outcome"]["name"] == "regularised"
    assert json.loads(CliRunner().invoke(cli, [*base, "--explain"]).output)["solver"] == "newton"
    refused = CliRunner().invoke(cli, [*base, "--ridge", "loo"])
    assert refused.exit_code != 0


CLASSIFIER = pa.LinearAttentionClassifier
CASES = {
    "two": (
        CLASSIFIER(loss="logistic", ridge=10.0),
        *planted_labels("last", ["no", "yes"]),
    ),
    "three, full": (
        CLASSIFIER(loss="logistic", ridge=10.0, mode="full"),
        *planted_labels("full", ["a", "b", "c"]),
    ),
}
# Log-loss does not stream.
CHECKS = [
    check
    for check in test_estimator_conformance.CHECKS
    if check.__name__ not in ("check_streaming_equals_fitting", "check_bad_parameters_are_named")
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, case):
    estimator, X, y = CASES[case]
    check(clone(estimator), X.copy(), y.copy())


@pytest.mark.parametrize("case", CASES)
def test_the_classifier_gives_probabilities(case):
    estimator, X, y = CASES[case]
    with pytest.raises(NotFittedError):
        clone(estimator).predict_proba(X)
    model = clone(estimator).fit(X, y)
    chances = model.predict_proba(X)
    assert chances.shape == (*y.shape, len(model.classes_))
    np.testing.assert_allclose(chances.sum(axis=-1), 1.0, atol=4 * EPS)
    assert np.array_equal(model.classes_[chances.argmax(axis=-1)], model.predict(X))
    scores = model.decision_function(X)
    if len(model.classes_) == 2:
        assert scores.shape == y.shape
        np.testing.assert_allclose(scores, np.log(chances[..., 1] / chances[..., 0]), atol=1e-9)
    else:
        assert scores.shape == chances.shape
    codes = np.searchsorted(model.classes_, y)
    mean = -np.log(np.take_along_axis(chances, codes[..., None], -1)).mean()
    assert model.result_.risk == pytest.approx(mean)


def test_the_classifier_is_logistic_regression():
    X, labels = task(300, 5, 3, 3)
    names = np.array(["c", "a", "b"])[labels]
    model = CLASSIFIER(loss="logistic", bias=False).fit(X, names)
    theirs = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-9, max_iter=5000)
    theirs.fit(design(X), names)
    assert model.result_.ridge == 0.5
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(design(X)), atol=1e-5)


def test_ragged_tokens_have_probabilities():
    task_ = pa.data.planted(80, (2, 8), 3, n_outputs=1, mode="causal", random_state=7)
    X, y = list(task_.X), [np.where(values[:, 0] > 0, "up", "down") for values in task_.Y]
    model = CLASSIFIER(mode="causal", loss="logistic", bias=False).fit(X, y)
    assert [each.shape for each in model.predict_proba(X)] == [(len(each), 2) for each in y]
    assert model.score(X, y) > 0.9


def test_a_certificate_comes_from_the_sums_of_log_loss():
    X, labels = task(300, 5, 3, 2)
    model = CLASSIFIER(loss="logistic").fit(X, labels)
    assert model.certificate_.identifiable
    assert model.certificate_.verdict == pa.certify(X, bias=True).verdict


def test_log_loss_is_not_audited_by_squared_error(tmp_path):
    X, labels = task(60, 4, 2, 2)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    for layer in (result, CLASSIFIER(loss="logistic").fit(X, labels)):
        with pytest.raises(InvalidInput, match=r"fitted by log-loss.*logarithms of odds"):
            pa.audit(layer, X, labels)
    pa.save(result, tmp_path / "fit.safetensors")
    np.savez(tmp_path / "data.npz", X=X, Y=labels)
    paths = [str(tmp_path / name) for name in ("fit.safetensors", "data.npz")]
    run = CliRunner().invoke(cli, ["audit", *paths])
    assert run.exit_code == 1
    assert "fitted by log-loss" in run.output


def test_what_the_classifier_cannot_do_with_log_loss():
    X, labels = task(60, 5, 3, 2)
    with pytest.raises(InvalidInput, match="log-loss is no function"):
        CLASSIFIER(loss="logistic").partial_fit(X, labels, classes=[0, 1])
    with pytest.raises(InvalidInput, match="loss must be one of"):
        CLASSIFIER(loss="hinge").fit(X, labels)
    with pytest.raises(InvalidInput, match="GridSearchCV"):
        CLASSIFIER(loss="logistic", ridge="loo").fit(X, labels)
    with pytest.raises(InvalidType, match="ridge must be"):
        CLASSIFIER(loss="logistic", ridge="cv").fit(X, labels)
    model = CLASSIFIER(loss="logistic").fit(X, labels)
    with pytest.raises(InvalidInput, match="return_bound"):
        model.decision_function(X, return_bound=True)
    with pytest.raises(InvalidInput, match="'newton', which keeps no sums"):
        model.set_params(loss="squared", ridge=1.0).partial_fit(X, labels, classes=[0, 1])
    squared = CLASSIFIER(ridge=1.0).fit(X, labels)
    assert not hasattr(squared, "predict_proba")
    with pytest.raises(InvalidInput, match="fitted by squared error"):
        squared.set_params(loss="logistic").predict_proba(X)
