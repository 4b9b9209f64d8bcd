"""Log-loss: against the slow reference, against scikit-learn, in any units."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import polyattn as pa
from logistic_tasks import design, objective, task, theta_of
from polyattn.errors import InvalidInput
from polyattn.features.products import features as form_features
from polyattn.form.form import Form
from polyattn.reference import logistic
from polyattn.solve import logistic as solve_logistic
from polyattn.stats.rows import Rows


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("mode", ["last", "causal", "full"])
@pytest.mark.parametrize("ridge", [1e-3, 1.0])
def test_the_minimiser_is_that_of_the_reference(mode, n_classes, ridge):
    X, labels = task(14 if mode != "last" else 40, 3, 2, n_classes, mode=mode)
    weights = np.random.default_rng(1).integers(0, 4, len(X)).astype(float)
    result = pa.fit(X, labels, mode=mode, ridge=ridge, sample_weight=weights, loss="logistic")
    by_row = weights if mode == "last" else np.repeat(weights, 3)
    expected = logistic.minimiser(design(X, mode), labels.ravel(), by_row, ridge)
    np.testing.assert_allclose(theta_of(result), expected, rtol=1e-8, atol=1e-9)
    best = logistic.objective(expected, design(X, mode), labels.ravel(), by_row, ridge)
    assert objective(result, design(X, mode), labels.ravel(), by_row) == pytest.approx(best)
    assert result.outcome.name == "regularised"
    assert result.outcome.ok
    assert result.risk * by_row.sum() + ridge * np.sum(expected**2) == pytest.approx(best)


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cholesky"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_objective_is_that_of_scikit_learn(solver, n_classes):
    X, labels = task(600, 6, 4, n_classes)
    phi = design(X)
    result = pa.fit(X, labels, ridge=0.7, loss="logistic")
    model = LogisticRegression(
        C=1 / (2 * 0.7), fit_intercept=False, solver=solver, tol=1e-10, max_iter=5000
    )
    theirs = model.fit(phi, labels)
    penalty = 0.7 * np.sum(theirs.coef_**2)
    chances = theirs.predict_proba(phi)[np.arange(len(labels)), labels]
    best = -np.log(chances).sum() + penalty
    ours = objective(result, phi, labels)
    assert ours == pytest.approx(best, rel=1e-10)
    assert ours <= best * (1 + 1e-13)
    np.testing.assert_allclose(result.predict_proba(X), theirs.predict_proba(phi), atol=1e-6)


FORMS = {
    "intercept": Form(intercept=True),
    "skip": Form(skip=True, intercept=True),
    "decay": Form(mode="causal", decay=0.7),
    "coordinates": Form(query=[0, 1], key=[0, 2], value=[1], mean=True),
    "others": Form(mode="full", include_query=False),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_form_has_log_loss(form, n_classes):
    X, labels = task(120, 4, 3, n_classes, mode=form.mode)
    rows = Rows.build(X, None, form)
    phi = np.concatenate(
        [form_features(rows.layout, block.sums, block.queries).T for block in rows.blocks()]
    )
    phi = phi / rows.layout.feature_weights
    result = pa.fit(X, labels, form=form, ridge=0.3, loss="logistic")
    expected = LogisticRegression(
        C=1 / 0.6, fit_intercept=False, solver="newton-cholesky", tol=1e-12
    ).fit(phi, labels.ravel())
    np.testing.assert_allclose(theta_of(result), expected.coef_.T, atol=1e-6)


def test_many_features_are_solved_without_their_gram(monkeypatch):
    X, labels = task(300, 5, 4, 3)
    expected = pa.fit(X, labels, ridge=0.5, loss="logistic", bias=True)
    monkeypatch.setattr(solve_logistic, "GRAM_FEATURES", 0)
    result = pa.fit(X, labels, ridge=0.5, loss="logistic", bias=True)
    np.testing.assert_allclose(result.coef, expected.coef, atol=1e-8)
    assert result.outcome.name == "regularised"
    assert result.statistics is None
    form = Form(skip=True, intercept=True)
    with_form = pa.fit(X, labels, ridge=0.5, loss="logistic", form=form)
    monkeypatch.undo()
    other = pa.fit(X, labels, ridge=0.5, loss="logistic", form=form)
    np.testing.assert_allclose(with_form.coef, other.coef, atol=1e-8)
    monkeypatch.setattr(solve_logistic, "GRAM_FEATURES", 0)
    plain = pa.fit(X, labels, loss="logistic")
    assert plain.outcome.name == "iterative"
    assert plain.objective_bound is None


@pytest.mark.parametrize("power", [-333, -40, 40, 333])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_powers_of_two_in_the_tokens_change_nothing(power, ridge):
    X, labels = task(200, 5, 3, 3)
    expected = pa.fit(X, labels, loss="logistic", ridge=ridge)
    if ridge and abs(power) > 100:
        return  # such a ridge is no float64
    other = pa.fit(
        np.ldexp(X, power), labels, loss="logistic", ridge=float(np.ldexp(ridge, 6 * power))
    )
    assert other.outcome.name == expected.outcome.name
    np.testing.assert_allclose(np.ldexp(other.coef, 3 * power), expected.coef, rtol=1e-9)
    assert other.risk == pytest.approx(expected.risk, rel=1e-13)


def test_a_ridge_that_vanishes_beside_the_tokens_is_mentioned():
    X, labels = task(15, 5, 3, 2)
    result = pa.fit(np.ldexp(X, 300), labels, loss="logistic", ridge=1.0)
    assert result.outcome.name == "separable"
    assert "The ridge, 1, vanishes" in result.outcome.sentence


@pytest.mark.parametrize("weight", [1e-200, 1e200])
def test_weights_and_ridge_of_any_size(weight):
    X, labels = task(200, 5, 3, 3)
    expected = pa.fit(X, labels, loss="logistic", ridge=1.0)
    weights = np.full(len(X), weight)
    other = pa.fit(X, labels, loss="logistic", ridge=weight, sample_weight=weights)
    np.testing.assert_allclose(other.coef, expected.coef, atol=1e-12)
    assert 0 < other.objective_bound <= 1e-10 * weight
    with pytest.raises(pa.errors.OutOfRange, match="beside a sample_weight of 1e-200"):
        pa.fit(X, labels, loss="logistic", ridge=1e200, sample_weight=np.full(len(X), 1e-200))


def test_weights_count_sequences():
    X, labels = task(100, 5, 3, 2)
    counts = np.random.default_rng(0).integers(0, 3, len(X))
    repeated = np.repeat(np.arange(len(X)), counts)
    one = pa.fit(X, labels, loss="logistic", ridge=0.1, sample_weight=counts)
    other = pa.fit(X[repeated], labels[repeated], loss="logistic", ridge=0.1)
    np.testing.assert_allclose(one.coef, other.coef, atol=1e-9)
    assert one.risk == pytest.approx(other.risk)


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, float])
def test_kinds_of_class_numbers_and_tokens(kind):
    X, labels = task(100, 5, 3, 2)
    X = X.astype(np.float32)
    expected = pa.fit(X.astype(float), labels, loss="logistic", ridge=0.1)
    result = pa.fit(X, labels.astype(kind), loss="logistic", ridge=0.1)
    np.testing.assert_array_equal(result.coef, expected.coef)
    column = pa.fit(X, labels[:, None].astype(kind), loss="logistic", ridge=0.1)
    np.testing.assert_array_equal(column.coef, expected.coef)


WRONG = {
    "fractions": ({"Y": np.linspace(0, 1, 40)}, "class numbers 0, 1"),
    "signs": ({"Y": np.where(np.arange(40) % 2, 1, -1)}, "got -1"),
    "one class": ({"Y": np.zeros(40, int)}, "at least two classes"),
    "gap": ({"Y": np.arange(40) % 2 * 2}, "up to 2, but 1 does not occur"),
    "indicators": ({"Y": np.eye(2)[np.arange(40) % 2]}, "argmax"),
    "NaN": ({"Y": np.full(40, np.nan)}, "NaN"),
    "loss": ({"loss": "hinge"}, "loss must be one of 'squared', 'logistic'"),
    "rule": ({"ridge": "loo"}, "GridSearchCV"),
    "gcv": ({"ridge": "gcv"}, "give a number"),
    "grid": ({"ridge_grid": [1.0]}, "ridge_grid is used only"),
    "heads": ({"n_heads": 1}, "n_heads=1 with loss='logistic'"),
    "solver": ({"solver": "primal"}, "solver='primal' with loss='logistic'"),
    "weights": ({"sample_weight": np.zeros(40)}, "zero everywhere"),
    "negative": ({"ridge": -1.0}, "not negative"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_log_loss_cannot_do_is_refused(case):
    options, words = WRONG[case]
    X, labels = task(40, 3, 2, 2)
    with pytest.raises(InvalidInput, match=words):
        pa.fit(X, **({"Y": labels, "loss": "logistic"} | options))


def test_sums_are_refused():
    moments = pa.Moments(2, 1).update(*task(40, 3, 2, 2))
    with pytest.raises(InvalidInput, match="no function of sums"):
        pa.fit(statistics=moments, loss="logistic")
