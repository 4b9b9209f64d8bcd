"""Log-loss: against the slow reference, against scikit-learn, and what is proved of it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import polyattn as pa
import test_estimators
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput, InvalidType
from polyattn.features.products import features as form_features
from polyattn.form.form import Form
from polyattn.numerics.scaling import EPS
from polyattn.reference import erm, logistic
from polyattn.reference.features import norm_weights
from polyattn.solve import curvature_model, newton
from polyattn.solve import logistic as solve_logistic
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.log_loss import LogLoss, probabilities
from polyattn.stats.rows import Rows


def task(n_sequences, n_tokens, n_dims, n_classes, seed=0, signal=2.0, mode="last"):
    """Tokens, and class numbers drawn with the chances of a random layer."""
    rng = np.random.default_rng([seed, n_sequences, n_dims, n_classes])
    X = rng.standard_normal((n_sequences, n_tokens, n_dims))
    layer = pa.data.random_layer(n_dims, n_classes, 2, mode, random_state=seed)
    outputs = layer(X)
    outputs = signal * outputs / outputs.std()
    return X, np.argmax(outputs + rng.gumbel(size=outputs.shape), axis=-1)


def design(X, mode="last"):
    """Features (rows, p) in the coordinates of the norm."""
    return erm.design(list(X), mode) / norm_weights(X[0].shape[1])


def theta_of(result):
    """Coefficients (p, e) in the coordinates of the norm."""
    return result.layout.as_theta(result.coef)


def objective(result, phi, labels, weights=None):
    """Log-loss plus penalty of a result by numpy's logaddexp alone."""
    outputs = phi @ theta_of(result)
    if outputs.shape[1] == 1:
        outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
    losses = np.logaddexp.reduce(outputs, axis=1) - outputs[np.arange(len(labels)), labels]
    total = losses.sum() if weights is None else losses @ weights
    return total + result.ridge * np.sum(theta_of(result) ** 2)


# Against others -------------------------------------------------------------------------------


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


# What is proved -------------------------------------------------------------------------------


def problem(n_classes, ridge, seed=0):
    X, labels = task(200, 5, 3, n_classes, seed)
    passes = FeaturePasses(Rows.build(X, None, Form()))
    loss = LogLoss(labels, np.ones(len(labels)), n_classes)
    gram = curvature_model.WeightedGram(*passes.weighted_gram(loss.weights))
    space = curvature_model.search_space(gram, 2 * ridge)
    inverse = space.inverse(gram, loss.first_curvature, 2 * ridge)
    return passes, loss, space, newton.minimise(passes, loss, ridge, inverse, space)


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_bounds_hold_near_and_far(n_classes, ridge):
    passes, loss, space, best = problem(n_classes, ridge)
    steps = newton._Newton(passes, loss, ridge, np.zeros_like, space)
    rng = np.random.default_rng(0)
    proved = 0
    for size in 10.0 ** np.arange(-8, 1):
        move = size * rng.standard_normal(best.theta.shape) * np.linalg.norm(best.theta)
        move -= move.mean(axis=1, keepdims=True) if n_classes > 2 else 0.0
        there = steps.at(best.theta + move)
        gap = there.objective - best.objective
        bound = solve_logistic.decrement_bound(passes, there, ridge, space)
        assert bound >= gap - 1e-12 * best.objective
        if np.isfinite(bound):
            proved += 1
            # A bound that says nothing would hold as well.
            assert bound <= 60 * gap + 1e-12 * best.objective
        if ridge > 0:
            assert np.sum(there.gradient**2) / (4 * ridge) >= gap - 1e-12 * best.objective
    assert 2 <= proved < 9


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_bound_of_a_fit_that_was_cut_short_is_true(monkeypatch, steps):
    X, labels = task(400, 5, 3, 3)
    best = objective(pa.fit(X, labels, ridge=0.1, loss="logistic"), design(X), labels)
    monkeypatch.setattr(newton, "MAX_STEPS", steps)
    result = pa.fit(X, labels, ridge=0.1, loss="logistic")
    gap = objective(result, design(X), labels) - best
    assert 0 < gap <= result.objective_bound
    assert result.outcome.name == "not_converged"
    assert not result.outcome.ok
    assert f"{result.objective_bound:.1e}" in result.outcome.sentence


def test_rounding_of_the_gradient_is_bounded():
    passes, loss, _, found = problem(2, 0.1)
    phi = design(task(200, 5, 3, 2)[0]).astype(np.longdouble)
    theta = found.theta.astype(np.longdouble)
    signs = np.where(loss.codes == 1, 1.0, -1.0)
    wrong = 1 / (1 + np.exp(signs * (phi @ theta)[:, 0]))
    exact = -(phi.T @ (signs * wrong))[:, None] + 0.2 * theta
    error = float(np.linalg.norm(exact - found.gradient))
    assert (
        0
        < error
        <= solve_logistic.gradient_rounding(passes, found, 0.1, np.ones(passes.n_features))
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_third_derivatives_are_bounded_by_second(n_classes):
    rng = np.random.default_rng(2)
    codes = rng.integers(0, n_classes, 500)
    loss = LogLoss(codes, np.ones(500), n_classes)
    outputs, move = 3 * rng.standard_normal((2, loss.n_outputs, 500))
    h = 1e-5

    def second(t):
        return np.sum(move * loss.at(outputs + t * move).curved(move), axis=0)

    third = (second(h) - second(-h)) / (2 * h)
    size = loss.third_derivative_factor * np.linalg.norm(move, axis=0)
    assert np.all(np.abs(third) <= size * second(0.0) + 1e-8)
    least = loss.at(outputs).least_curvature
    centred = move - (move.mean(axis=0) if n_classes > 2 else 0.0)
    assert np.all(second(0.0) >= least * np.sum(centred**2, axis=0) * (1 - 1e-12))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_derivatives_are_those_of_the_loss(n_classes):
    rng = np.random.default_rng(3)
    codes, weights = rng.integers(0, n_classes, 50), rng.random(50)
    loss = LogLoss(codes, weights, n_classes)
    outputs, move = rng.standard_normal((2, loss.n_outputs, 50))
    h = 1e-6
    ahead, behind = loss.at(outputs + h * move), loss.at(outputs - h * move)
    point = loss.at(outputs)
    slope = (ahead.value - behind.value) / (2 * h)
    assert slope == pytest.approx(np.sum(point.slopes * move), rel=1e-7)
    curved = (ahead.slopes - behind.slopes) / (2 * h)
    np.testing.assert_allclose(point.curved(move), curved, atol=1e-8)
    np.testing.assert_allclose(point.curved(move[:, 20:30], 20), curved[:, 20:30], atol=1e-8)
    expected = [
        -np.log(logistic.chances(row)[code]) for row, code in zip(outputs.T, codes, strict=True)
    ]
    np.testing.assert_allclose(point.losses, expected, atol=1e-13)


def test_large_outputs_neither_overflow_nor_lose_digits():
    outputs = np.array([[800.0, -800.0, 0.0], [-800.0, 40.0, 0.0], [0.0, 0.0, 0.0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        point = LogLoss(np.array([0, 1, 2]), np.ones(3), 3).at(outputs)
        pair = LogLoss(np.array([1, 1, 0]), np.ones(3), 2).at(np.array([[800.0, -800.0, 40.0]]))
        chances = probabilities(np.array([[800.0], [-800.0]]))
    assert point.losses[1] == pytest.approx(np.exp(-40.0), rel=1e-12)
    assert np.sum(point.slopes[:, 1]) == pytest.approx(0.0, abs=1e-30)
    np.testing.assert_allclose(pair.losses, [0.0, 800.0, 40.0], atol=1e-15)
    np.testing.assert_allclose(chances, [[0.0, 1.0], [1.0, 0.0]], atol=1e-300)


# Without a ridge ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_overlapping_classes_have_a_unique_minimiser(n_classes):
    X, labels = task(400, 5, 3, n_classes)
    result = pa.fit(X, labels, loss="logistic")
    assert result.outcome.name == "unique"
    assert "not separable" in result.outcome.sentence
    assert result.rank == result.n_features == 18
    assert result.objective_bound <= 1e-12
    phi, theta = design(X), theta_of(result)
    chances = result.predict_proba(X) - np.eye(n_classes)[labels]
    slopes = chances[:, 1:] if n_classes == 2 else chances
    assert np.linalg.norm(phi.T @ slopes) <= 1e-9 * np.linalg.norm(phi)
    if n_classes > 2:
        assert np.abs(theta.sum(axis=1)).max() <= 1e-12


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("n_sequences", "noise"), [(15, "any"), (300, "none")])
def test_separable_data_are_called_separable(n_classes, n_sequences, noise):
    X, labels = task(n_sequences, 5, 3, n_classes, signal=2.0 if noise == "any" else 1e9)
    result = pa.fit(X, labels, loss="logistic")
    assert result.outcome.name == "separable"
    assert not result.outcome.ok
    assert "ridge > 0" in result.outcome.next_step
    outputs = design(X) @ theta_of(result)
    if n_classes == 2:
        margins = np.where(labels == 1, outputs[:, 0], -outputs[:, 0])
    else:
        own = outputs[np.arange(len(labels)), labels]
        outputs[np.arange(len(labels)), labels] = -np.inf
        margins = own - outputs.max(axis=1)
    assert margins.min() == pytest.approx(1.0)
    assert result.optimal_risk == 0.0
    assert result.objective_bound is None
    # With a ridge the same data have a minimiser.
    assert pa.fit(X, labels, ridge=1e-6, loss="logistic").outcome.name == "regularised"


def test_rows_that_say_nothing_do_not_hide_that_others_are_separable():
    X, labels = task(15, 5, 3, 2)
    empty = np.zeros((4, 5, 3))
    wrong = X[:3]
    tokens = np.concatenate([X, empty, wrong])
    codes = np.concatenate([labels, [0, 1, 0, 1], 1 - labels[:3]])
    weights = np.concatenate([np.ones(19), np.zeros(3)])
    result = pa.fit(tokens, codes, sample_weight=weights, loss="logistic")
    assert result.outcome.name == "separable"
    assert result.optimal_risk == pytest.approx(4 / 19 * np.log(2))


@pytest.mark.parametrize("size", [1e-60, 1e-100])
def test_tiny_sequences_count(size):
    X, labels = task(15, 5, 3, 2)
    tokens, codes = np.concatenate([X, size * X[:1]]), np.append(labels, 1 - labels[0])
    assert pa.fit(tokens, codes, loss="logistic").outcome.name == "not_converged"


def test_partly_separable_data_are_not_called_solved():
    X, labels = task(20, 5, 4, 2)
    tokens, codes = np.concatenate([X, X[:1]]), np.append(labels, 1 - labels[0])
    result = pa.fit(tokens, codes, loss="logistic")
    assert result.outcome.name == "not_converged"
    assert result.objective_bound is None
    assert "perhaps one does so for some" in result.outcome.sentence


def how_separable(phi, labels):
    """Which rows can lead without harm to others: "all", "some" or "none", by a linear program."""
    n_classes, p = labels.max() + 1, phi.shape[1]
    leads = []
    for row, label in zip(phi / np.abs(phi).max(axis=1, keepdims=True), labels, strict=True):
        for other in set(range(n_classes)) - {label}:
            signs = np.zeros(n_classes)
            signs[[label, other]] = 1.0, -1.0
            leads.append(np.outer(row, signs).ravel())
    count = len(leads)
    # The largest sum of s with  leads theta >= s,  0 <= s <= 1.
    found = linprog(
        np.append(np.zeros(p * n_classes), -np.ones(count)),
        A_ub=np.hstack([-np.array(leads), np.eye(count)]), b_ub=np.zeros(count),
        bounds=[(-1e4, 1e4)] * (p * n_classes) + [(0, 1)] * count,
    ).x[-count:]  # fmt: skip
    return "all" if found.min() > 1e-6 else "some" if found.max() > 1e-6 else "none"


@pytest.mark.parametrize("seed", range(24))
def test_a_linear_program_agrees_about_what_is_separable(seed):
    rng = np.random.default_rng(seed)
    n_classes, n_sequences = 2 + seed % 2, int(rng.integers(5, 26))
    X = rng.integers(1, 4, (n_sequences, 2, 2)) * rng.choice([-1.0, 1.0], (n_sequences, 2, 2))
    labels = np.append(np.arange(n_classes), rng.integers(0, n_classes, n_sequences - n_classes))
    name = pa.fit(X, labels, loss="logistic").outcome.name
    allowed = {
        "all": ("separable",),
        "some": ("not_converged",),
        "none": ("unique", "minimum_norm"),
    }
    assert name in allowed[how_separable(design(X), labels)]


@pytest.mark.parametrize("change", ["zero", "equal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_of_many_minimisers_the_smallest_is_taken(change, n_classes):
    X, labels = task(400, 5, 3, n_classes)
    X[..., 2] = 0.0 if change == "zero" else X[..., 1]
    result = pa.fit(X, labels, loss="logistic")
    assert result.outcome.name == "minimum_norm"
    assert result.rank == np.linalg.matrix_rank(design(X)) < result.n_features
    phi, theta = design(X), theta_of(result)
    # No other theta with the same outputs is smaller.
    np.testing.assert_allclose(np.linalg.pinv(phi, 1e-10) @ (phi @ theta), theta, atol=1e-11)
    small = pa.fit(X, labels, loss="logistic", ridge=1e-6)
    np.testing.assert_allclose(result.predict(X), small.predict(X), atol=1e-5)
    assert result.risk <= small.risk * (1 + 1e-13)
    assert result.objective_bound <= 1e-10


def test_zero_tokens_leave_the_prior():
    labels = np.array([0, 1, 2, 1])
    for ridge, name in ((0.0, "minimum_norm"), (1.0, "regularised")):
        result = pa.fit(np.zeros((4, 3, 2)), labels, loss="logistic", ridge=ridge)
        assert result.outcome.name == name
        assert result.risk == pytest.approx(np.log(3))
        assert not np.any(result.coef)


def test_nearly_separable_data_refresh_the_preconditioner():
    X, labels = task(300, 5, 3, 2, signal=30.0)
    result = pa.fit(X, labels, loss="logistic", ridge=1e-5)
    model = LogisticRegression(C=0.5e5, fit_intercept=False, solver="newton-cholesky", tol=1e-12)
    theirs = model.fit(design(X), labels)
    np.testing.assert_allclose(theta_of(result)[:, 0], theirs.coef_[0], rtol=1e-5)
    assert result.outcome.ok


# Units, weights, kinds of numbers -------------------------------------------------------------


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


# Results --------------------------------------------------------------------------------------


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
    result.report(tmp_path / "page.html", X, labels)
    assert "log-odds" in (tmp_path / "page.html").read_text(encoding="utf-8")


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


# The classifier -------------------------------------------------------------------------------

CLASSIFIER = pa.LinearAttentionClassifier
CASES = {
    "two": (
        CLASSIFIER(loss="logistic", ridge=10.0),
        *test_estimators._labels("last", ["no", "yes"]),
    ),
    "three, full": (
        CLASSIFIER(loss="logistic", ridge=10.0, mode="full"),
        *test_estimators._labels("full", ["a", "b", "c"]),
    ),
}
# Log-loss does not stream.
CHECKS = [
    check
    for check in test_estimators.CHECKS
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
