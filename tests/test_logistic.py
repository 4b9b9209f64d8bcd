"""Log-loss: the minimiser, its bound, and what is said where there is none."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import oracle
import polyattn as pa
from oracle import class_task
from polyattn.errors import InvalidInput


def fit(X, labels, **options):
    return pa.fit(X, labels, **({"loss": "logistic"} | options))


def design(X, mode="last"):
    X = np.asarray(X, dtype=float)
    return oracle.plain_design(X, mode) / np.sqrt(oracle.squared_sizes({}, *X.shape[2:] * 2))


def theta_of(result, form=None, width=None):
    """Coefficients (p, e) in the coordinates of the norm."""
    width = result.coef.shape[2] if width is None else width
    sizes = oracle.squared_sizes(form or {}, width, result.coef.shape[2])
    return oracle.features_of(result.coef, form or {}) * np.sqrt(sizes)[:, None]


@given(
    oracle.forms(n_dims=2), st.integers(2, 4), st.integers(1, 16), st.integers(0, 99),
    st.sampled_from([1e-3, 1.0, 100.0]),
)  # fmt: skip
def test_the_minimiser_is_that_of_newton_with_all_matrices(form, n_classes, n, seed, ridge):
    """Of every form: the objective of the result and its minimum, both by literal means."""
    form, width = oracle.split_context({**oracle.DEFAULTS, **form})
    X, labels = class_task(n + n_classes, 3, 2, n_classes, seed, mode=form["mode"])
    labels.ravel()[:n_classes] = np.arange(n_classes)
    context = oracle.contexts_for(X, form, width)
    weights = 10.0 ** np.random.default_rng(seed).uniform(-1, 1, len(X))
    weights[n_classes + 3 :: 5] = 0.0
    by_row, codes = np.repeat(weights, labels[0].size), labels.ravel()
    psi = oracle.design(list(X), form, context)
    given = {"form": pa.Form(**form), "sample_weight": weights, "context": context}
    result = fit(X, labels, ridge=ridge * np.mean(psi**2), **given)
    theta, ridge = theta_of(result, form, width or 2), result.ridge
    phi = psi / np.sqrt(oracle.squared_sizes(form, width or 2, result.coef.shape[2]))
    wanted = oracle.log_loss_minimiser(phi, codes, by_row, ridge)
    best = oracle.log_loss(wanted, phi, codes, by_row, ridge)
    found = oracle.log_loss(theta, phi, codes, by_row, ridge)
    np.testing.assert_allclose(theta, wanted, atol=1e-6 * np.abs(wanted).max())
    assert found - best <= result.objective_bound + 1e-11 * best
    assert 0 < result.objective_bound < 1e-8 * best
    penalty = ridge * np.sum(theta**2)
    assert result.risk * by_row.sum() + penalty == pytest.approx(found, rel=1e-12)
    assert result.outcome.name == "regularised"
    chances = np.array([oracle.chances(row) for row in phi @ theta])
    proba = np.concatenate([np.atleast_2d(p) for p in result.predict_proba(X, context=context)])
    np.testing.assert_allclose(proba, chances, atol=1e-12)
    if n_classes > 2:
        # Classes do not drift together: softmax does not see it, but the penalty does.
        assert np.abs(theta.sum(axis=1)).max() <= 1e-12 * np.abs(theta).max()


@pytest.mark.parametrize(
    ("n_rows", "n_dims", "n_classes", "ridge"),
    [(30, 9, 2, 20.0), (30, 9, 3, 20.0), (30, 21, 2, 20.0), (30, 21, 3, 20.0), (1500, 21, 2, 50.0)],
)
def test_rows_of_many_features_have_their_minimiser(n_rows, n_dims, n_classes, ridge):
    """Their gradient vanishes, also where p = 4,851 is more than whose matrix is factored."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((n_rows, 2, n_dims)), rng.integers(0, n_classes, n_rows)
    weights, phi = np.append(rng.uniform(0.5, 2.0, n_rows - 2), np.zeros(2)), design(X)
    result = fit(X, labels, ridge=ridge, sample_weight=weights)
    theta = theta_of(result)
    slopes = np.array([oracle.chances(row) for row in phi @ theta]) - np.eye(n_classes)[labels]
    slopes = weights[:, None] * (slopes[:, 1:] if n_classes == 2 else slopes)
    gradient = phi.T @ slopes + 2 * ridge * theta
    # The objective is convex by 2 ridge: so near are the coefficients.
    assert np.linalg.norm(gradient) <= 1e-8 * 2 * ridge * np.linalg.norm(theta)
    assert (result.outcome.name, result.statistics is None) == ("regularised", n_dims == 21)
    assert result.objective_bound <= 1e-8 * result.risk * weights.sum()
    # Fewer rows than features: some layer gives each its own label.
    assert n_rows == 30 or fit(X, labels).outcome.name == "separable"


def test_sizes_of_tokens_weights_and_ridges_are_units():
    X, labels = class_task(200, 5, 3, 3)
    one, free = fit(X, labels, ridge=1.0), fit(X, labels)
    for power, ridge, known in ((40, np.ldexp(1.0, 240), one), (-333, 0.0, free)):
        other = fit(np.ldexp(X, power), labels, ridge=float(ridge))
        assert other.outcome.name == known.outcome.name
        np.testing.assert_allclose(np.ldexp(other.coef, 3 * power), known.coef, rtol=1e-9)
    other = fit(X, labels, ridge=1e9, sample_weight=np.full(200, 1e9))
    np.testing.assert_allclose(other.coef, one.coef, atol=1e-12)
    assert 0 < other.objective_bound <= 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_overlapping_classes_have_a_unique_minimiser(n_classes):
    X, labels = class_task(400, 5, 3, n_classes)
    result, phi = fit(X, labels), design(X)
    assert result.outcome.name == "unique"
    assert result.rank == result.n_features == 18
    assert result.objective_bound <= 1e-12
    # Near the minimum each step doubles the digits.
    assert int(re.search(r"(\d+) steps", str(result.outcome))[1]) < 20
    chances = result.predict_proba(X) - np.eye(n_classes)[labels]
    slopes = chances[:, 1:] if n_classes == 2 else chances
    assert np.linalg.norm(phi.T @ slopes) <= 1e-9 * np.linalg.norm(phi)
    # Rows that are met do not hide the minimum that the others show.
    far = 30.0 * X[:5]
    codes = result.predict_proba(far).argmax(axis=1)
    more = fit(np.concatenate([X, far]), np.append(labels, codes))
    assert more.outcome.name == "unique"
    np.testing.assert_allclose(more.coef, result.coef, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("change", ["zero", "equal", "zero and sum"])
def test_of_many_minimisers_the_smallest_is_taken(change, n_classes):
    X, labels = class_task(400, 5, 4 if "sum" in change else 3, n_classes)
    X[..., 2] = X[..., 1] if change == "equal" else 0.0
    if "sum" in change:
        X[..., 3] = X[..., 0] + X[..., 1]
    result, phi = fit(X, labels), design(X)
    assert result.outcome.name == "minimum_norm"
    assert result.rank == np.linalg.matrix_rank(phi) < result.n_features
    theta = theta_of(result)
    np.testing.assert_allclose(np.linalg.pinv(phi, 1e-10) @ (phi @ theta), theta, atol=1e-11)
    small = fit(X, labels, ridge=1e-6)
    np.testing.assert_allclose(result.predict(X), small.predict(X), atol=1e-5)
    assert result.risk <= small.risk * (1 + 1e-13)
    assert result.objective_bound <= 1e-10


@pytest.mark.parametrize("n_classes", [2, 3])
def test_separable_data_are_called_separable(n_classes):
    X, labels = class_task(300, 5, 3, n_classes, signal=1e9)
    result = fit(X, labels)
    assert (result.outcome.name, result.outcome.ok) == ("separable", False)
    assert "ridge" in result.outcome.next_step
    # The row that leads least leads by one.
    outputs = result.predict(X)
    outputs = np.hstack([np.zeros((300, 1)), outputs]) if n_classes == 2 else outputs
    own = np.eye(n_classes)[labels] > 0
    leads = outputs[own] - np.where(own, -np.inf, outputs).max(axis=1)
    assert leads.min() == pytest.approx(1.0)
    assert result.optimal_risk == 0.0
    assert result.objective_bound is None
    # With a ridge the same data have a minimiser.
    assert fit(X, labels, ridge=1e-6).outcome.name == "regularised"


def test_rows_that_say_nothing_do_not_hide_that_others_are_separable():
    X, labels = class_task(15, 5, 3, 2)
    tokens = np.concatenate([X, np.zeros((4, 5, 3)), X[:3]])
    codes = np.concatenate([labels, [0, 1, 0, 1], 1 - labels[:3]])
    result = fit(tokens, codes, sample_weight=np.append(np.ones(19), np.zeros(3)))
    assert result.outcome.name == "separable"
    assert result.optimal_risk == pytest.approx(4 / 19 * np.log(2))
    # Of one sequence with two labels the loss falls for ever, to that of both.
    X, labels = class_task(20, 5, 4, 2)
    result = fit(np.concatenate([X, X[:1]]), np.append(labels, 1 - labels[0]))
    assert (result.outcome.name, result.outcome.ok) == ("partly_separable", False)
    assert "19" in result.outcome.sentence
    assert result.optimal_risk == pytest.approx(2 * np.log(2) / 21, rel=1e-9)
    assert 0 <= (result.risk - result.optimal_risk) * 21 <= result.objective_bound <= 1e-8


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


@given(st.integers(2, 3), st.integers(5, 25), st.integers(0, 999))
def test_a_linear_program_agrees_about_what_is_separable(n_classes, n_sequences, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(1, 4, (n_sequences, 2, 2)) * rng.choice([-1.0, 1.0], (n_sequences, 2, 2))
    labels = np.append(np.arange(n_classes), rng.integers(0, n_classes, n_sequences - n_classes))
    allowed = {
        "all": ("separable",),
        "some": ("partly_separable", "not_converged"),
        "none": ("unique", "minimum_norm"),
    }
    found = fit(X, labels)
    if np.ptp(found.predict(X), axis=1).max() > 36:  # a share below eps has no slope to descend
        allowed["none"] += ("not_converged",)
    assert found.outcome.name in allowed[how_separable(design(X), labels)]


def test_zero_tokens_leave_the_prior():
    for ridge, name in ((0.0, "minimum_norm"), (1.0, "regularised")):
        result = fit(np.zeros((4, 3, 2)), np.array([0, 1, 2, 1]), ridge=ridge)
        assert (result.outcome.name, result.coef.any()) == (name, False)
        assert result.risk == pytest.approx(np.log(3))


@pytest.mark.parametrize(("apart", "n_classes"), [(1e-4, 3), (1e-7, 2), (1e-9, 2)])
def test_nearly_equal_coordinates_are_not_taken_for_equal(apart, n_classes):
    """Their differences are lost in second moments, and lower the loss all the same."""
    rng = np.random.default_rng(1)
    X, labels = rng.standard_normal((60, 4, 2)), rng.integers(0, n_classes, 60)
    X[..., 1] = X[..., 0] * (1 + apart * rng.standard_normal((60, 4)))
    result, ones = fit(X, labels), np.ones(60)
    scaled = design(X) / np.linalg.norm(design(X), axis=0)
    left, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    basis = 10 * left[:, sizes > 1e-14]
    best = oracle.log_loss_minimiser(basis, labels, ones, 1e-9)
    gap = result.risk * 60 - oracle.log_loss(best, basis, labels, ones, 1e-9)
    assert gap <= 1e-2
    assert result.objective_bound is None or gap <= result.objective_bound + 1e-12


@pytest.mark.parametrize("size", [100.0, 1e3, 1e4])
def test_a_large_sequence_does_not_hide_the_others(size):
    """Up to condition numbers of 1e9; beyond, what is not the minimiser is not called so."""
    X, labels = class_task(80, 4, 3, 2)
    X[0] *= size
    result, small = fit(X, labels), fit(X, labels, ridge=1e-9)
    assert result.rank == 18
    assert result.outcome.name == "unique" or size >= 1e3
    if result.outcome.name == "unique":
        assert result.risk <= small.risk * (1 + 1e-9)
    if small.outcome.name == "regularised":
        penalised = small.risk * 80 + 1e-9 * np.sum(theta_of(small) ** 2)
        assert penalised <= result.risk * 80 + 1e-9 * np.sum(theta_of(result) ** 2) + 1e-6


MISUSE = (
    ({"labels": np.linspace(0, 1, 40)}, "class numbers"),
    ({"labels": np.where(np.arange(40) % 2, 1, -1)}, "-1"),
    ({"labels": np.zeros(40, int)}, "two classes"),
    ({"labels": np.arange(40) % 2 * 2}, "1 does not occur"),
    ({"labels": np.eye(2)[np.arange(40) % 2]}, "argmax"),
    ({"labels": 2 * np.ones((40, 2)), "loss": "logistic_per_output"}, "Y"),
    *(({name: value}, name) for name, value in (
        ("ridge", "loo"), ("ridge_grid", [1.0]), ("n_heads", 1), ("solver", "primal"))),
    ({"form": pa.Form(decay="loo")}, "decay"),
    ({"X": None, "labels": None, "statistics": pa.Moments(2, 1)}, "statistics"),
)  # fmt: skip


def test_misuse_is_named():
    X, labels = class_task(40, 3, 2, 2)
    for options, words in MISUSE:
        with pytest.raises(InvalidInput, match=words):
            fit(**({"X": X, "labels": labels} | options))
