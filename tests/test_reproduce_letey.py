"""Learning curves in context: both theories where their answers are known, and gates that fail."""

from itertools import product

import numpy as np
import pytest

import polyattn as pa
from polyattn_papers.letey2025 import theory
from polyattn_papers.letey2025.layer import fit_paper, gamma_of, paper_form, paper_units
from polyattn_papers.letey2025.limit import limit_error, resolvent
from polyattn_papers.letey2025.task_diversity import EXPERIMENT
from polyattn_papers.letey2025.task_diversity.cells import task_covariances
from polyattn_papers.letey2025.theory import PromptMoments, expected_error, paper_error_of


def drawn_tasks(kappa, covariance, seed=0):
    d = len(covariance)
    rng = np.random.default_rng(seed)
    return rng.standard_normal((int(kappa * d), d)) * np.sqrt(np.diag(covariance))


@pytest.mark.parametrize("tau", [0.5, 2.0])
@pytest.mark.parametrize("summarised", [False, True])
def test_the_form_is_the_papers_regression(tau, summarised):
    """Explicit features, their Gram matrix, one solution; prompts of either kind."""
    d, ridge = 6, 1e-3
    task = pa.data.proportional_regression(d, tau, 2.0, 1.0, summarised=summarised)
    examples, question = task.X[:, :-1], task.X[:, -1, :d]
    sums = np.mean(examples[..., d:] * examples * np.append(np.full(d, d), 1.0), axis=1)
    features = np.einsum("nl,nj->nlj", question, sums).reshape(len(sums), -1)
    gram = features.T @ features + len(sums) / d * ridge * np.eye(d * (d + 1))
    known = np.linalg.solve(gram, features.T @ task.Y[:, 0]).reshape(d, d + 1)
    found = fit_paper(task, ridge)
    np.testing.assert_allclose(gamma_of(found), known, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        found.predict(paper_units(task.X))[:, 0], features @ known.ravel(), atol=1e-8
    )
    assert found.n_features == d * (d + 1)
    assert found.form == paper_form(d)


def test_the_papers_error_leaves_out_small_terms():
    rng = np.random.default_rng(0)
    gaps = []
    for d in (20, 200):
        covariance = np.diag(rng.uniform(0.5, 1.5, d))
        gamma = np.hstack([np.eye(d) / 2, rng.standard_normal((d, 1)) / d])
        exact = PromptMoments.gaussian(covariance, 0.1, 2 * d).error_of(gamma)
        gaps.append(exact - paper_error_of(gamma, covariance, 0.1, 2.0))
    # (1/l) tr(Gamma C Gamma^T)/d is what the paper leaves out, up to the last coordinate.
    assert gaps[0] == pytest.approx(0.25 / 40, rel=0.2)
    assert gaps[1] == pytest.approx(0.25 / 400, rel=0.2)


@pytest.mark.parametrize("kappa", [0.5, 3.0])
def test_resolvents_of_drawn_tasks(kappa):
    d, nu = 400, 0.3
    covariance = np.diag(np.linspace(0.1, 2.0, d))
    tasks = drawn_tasks(kappa, covariance)
    F = np.linalg.inv(tasks.T @ tasks / len(tasks) + nu * np.eye(d))
    first, second = resolvent(covariance, kappa, nu)
    for weight in (np.eye(d), covariance):
        assert np.sum(weight * first) == pytest.approx(np.sum(weight * F), rel=0.02)
        assert np.sum(weight * second) == pytest.approx(np.sum(weight * (F @ F)), rel=0.03)
    step = 1e-5
    slope = (resolvent(covariance, kappa, nu + step)[0] - first) / step
    np.testing.assert_allclose(np.diag(second), -np.diag(slope), rtol=1e-3)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_limit_with_all_data_is_the_known_optimum(rho):
    """Infinitely many prompts and tasks: one step of preconditioned gradient descent."""
    d, alpha = 200, 2.0
    powers = np.linspace(0.1, 2.0, d)
    limit = limit_error(np.diag(powers), np.diag(powers), 1e9, alpha, 1e9, rho)
    # OneStep for diagonal covariances, coordinate by coordinate, without its terms of order 1/l.
    noise = (np.mean(powers) + rho) / alpha
    assert limit == pytest.approx(rho + np.mean(powers * noise / (powers + noise)), rel=1e-6)
    small = 40
    optimum = pa.data.OneStep.of(
        np.eye(small) / small, 80, rho**0.5, np.diag(np.linspace(0.1, 2.0, small))
    )
    assert limit == pytest.approx(rho + optimum.risk, rel=0.03)


def test_theory_with_all_prompts_is_the_best_fit_of_its_tasks():
    tasks = drawn_tasks(2.0, np.eye(5))
    train = PromptMoments.of_tasks(tasks, 0.1, 10)
    best = train.cross @ np.linalg.inv(train.second)
    (found,) = expected_error(tasks, [train], 10**9, 10, 0.1, 1e-9)
    # Rows are drawn: their mean |x|^2 is 1 up to the root of 2 over d and their number.
    assert found == pytest.approx(train.error_of(best), rel=3e-3)
    (few,) = expected_error(tasks, [train], 60, 10, 0.1, 1e-9)
    assert few > 1.2 * found


@pytest.mark.parametrize(("tau", "kappa"), [(4.0, 0.5), (2.0, 2.0), (0.5, 1.0)])
def test_theory_for_finite_d_nears_the_limit(tau, kappa):
    """Its distance to the limit is of order 1/d; tasks are many draws of a covariance."""
    gaps = []
    for d in (10, 40):
        train = task_covariances(d)["aligned"]
        test = PromptMoments.gaussian(train, 0.01, 2 * d)
        found = [
            expected_error(
                drawn_tasks(kappa, train, s), [test], int(tau * d * d), 2 * d, 0.01, 1e-6
            )
            for s in range(80 // d)
        ]
        gaps.append(float(np.mean(found)) / limit_error(train, train, tau, 2.0, kappa, 0.01) - 1)
    assert 0 < gaps[1] < 0.6 * gaps[0]


@pytest.fixture(autouse=True, scope="module")
def few_rows():
    """Theory by fewer drawn rows: faster, and good enough for small d."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theory, "N_ROWS", 1 << 12)
        yield


@pytest.fixture(scope="module")
def rows():
    cells = [
        {"n_dims": d, "tau": tau, "alpha": 2.0, "kappa": kappa, "n_seeds": 4, "n_fresh": 2000}
        for d, (tau, kappa) in product(
            (5, 10), ((4.0, 0.5), (4.0, 2.0), (0.25, 1.0), (0.5, 1.0), (2.0, 1.0), (4.0, 1.0))
        )
    ]
    return [cell | row for cell in cells for row in EXPERIMENT.run(cell)]


def test_gates_hold(rows):
    assert [gate for gate in EXPERIMENT.gates(rows) if not gate.passed] == []
    assert all("nan" not in sentence for sentence in EXPERIMENT.findings(rows))
    assert EXPERIMENT.draw(rows).axes


@pytest.mark.parametrize(
    ("column", "doctored", "claim"),
    [
        ("fresh_error", lambda row: row["error"] + 9 * row["fresh_deviation"], "fresh prompts"),
        ("expected", lambda row: row["error"] * 1.5, "finite d"),
        ("limit", lambda row: row["limit"] * 20, "limit"),
        ("error", lambda row: row["error"] * row["kappa"] ** 2, "more tasks"),
        ("error", lambda row: row["error"] / row["tau"] ** 2, "rise towards"),
        ("test", lambda row: row["test"].replace("aligned", "other"), "aligned"),
    ],
)
def test_each_gate_fails_on_doctored_rows(rows, column, doctored, claim):
    wrong = [row | {column: doctored(row)} for row in rows]
    failed = [gate.claim for gate in EXPERIMENT.gates(wrong) if not gate.passed]
    assert any(claim in one for one in failed)


def test_one_number_of_prompts_on_a_side_shows_no_peak(rows):
    for missing in (0.25, 2.0):
        some = [row for row in rows if row["tau"] != missing]
        failed = [gate.claim for gate in EXPERIMENT.gates(some) if not gate.passed]
        assert any("rise towards" in claim for claim in failed)


def test_gates_fail_on_no_rows():
    assert not any(gate.passed for gate in EXPERIMENT.gates([]))
