"""Log-loss without a ridge: unique, of smallest norm, or separable."""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression

import polyattn as pa
from logistic_tasks import design, task, theta_of


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
    assert "each of 15 predicted positions (without 4 that have no features)" in result.sentence
    # Their output is 0, and some of their labels are not that class.
    assert "right at these positions" in result.sentence
    assert "right on the data" not in result.sentence
    assert "right on the data" in pa.fit(X, labels, loss="logistic").sentence


@pytest.mark.parametrize("size", [1e-60, 1e-100])
def test_tiny_sequences_count(size):
    X, labels = task(15, 5, 3, 2)
    tokens, codes = np.concatenate([X, size * X[:1]]), np.append(labels, 1 - labels[0])
    assert pa.fit(tokens, codes, loss="logistic").outcome.name == "not_converged"


@pytest.mark.parametrize("n_classes", [2, 3])
def test_partly_separable_data_are_called_so(n_classes):
    """One sequence with two labels, the others separable: their loss falls for ever."""
    X, labels = task(20, 5, 4, n_classes)
    tokens, codes = np.concatenate([X, X[:1]]), np.append(labels, (labels[0] + 1) % n_classes)
    result = pa.fit(tokens, codes, loss="logistic")
    if n_classes > 2:
        # A third class can be left behind on the rows of two: not by rows alone.
        assert result.outcome.name == "not_converged"
        return
    assert result.outcome.name == "partly_separable"
    assert not result.outcome.ok
    assert "gives 19 of 21 predicted positions their own label" in result.outcome.sentence
    assert "above its infimum" in result.outcome.sentence
    assert result.optimal_risk == pytest.approx(2 * np.log(2) / 21, rel=1e-9)
    assert 0 <= (result.risk - result.optimal_risk) * 21 <= result.objective_bound <= 1e-8


def test_rows_that_are_met_do_not_hide_a_minimum():
    """Far from the border their loss is nothing: the others alone show that there is a minimum."""
    X, labels = task(100, 4, 2, 2)
    result = pa.fit(X, labels, loss="logistic")
    far = 30.0 * X[:5]
    codes = (result.predict(far)[:, 0] > 0).astype(int)
    more = pa.fit(np.concatenate([X, far]), np.append(labels, codes), loss="logistic")
    assert more.outcome.name == "unique"
    np.testing.assert_allclose(more.coef, result.coef, rtol=1e-3)


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
        "some": ("partly_separable", "not_converged"),
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


@pytest.mark.parametrize("seed", range(6))
def test_no_step_leads_uphill(seed):
    """Beside weights of many orders steps are almost singular; the loss of zeros is a bound."""
    rng = np.random.default_rng(seed)
    X, labels = rng.standard_normal((40, 2, 3)), rng.integers(0, 3, 40)
    weights = 10.0 ** rng.uniform(-6, 6, 40)
    result = pa.fit(X, labels, bias=True, sample_weight=weights, loss="logistic")
    assert result.outcome.name == "separable"
    assert np.all(result.predict(X).argmax(axis=1) == labels)
