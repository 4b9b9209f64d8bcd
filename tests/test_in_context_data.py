"""Prompts in context: their distribution, the known optimum, and its error on other tasks."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn_papers.letey2025.theory import PromptMoments

# Standard errors by which a mean may be off; over all entries below about one in 1e5 is.
ALLOWED = 5.0

SQUARES = {
    "isotropic": np.eye(3),
    "anisotropic": np.array([[2.0, 0.4, 0.0], [0.4, 1.0, -0.2], [0.0, -0.2, 0.3]]),
}
TASKS = {
    "own": {},
    "of a covariance": {"task_covariance": np.diag([3.0, 1.0, 0.0])},
    "two": {"tasks": np.array([[1.0, -2.0, 0.5], [0.5, 1.0, 2.0]])},
    "five drawn": {"tasks": 5},
}


def means(samples):
    """Means over the first axis, and their standard errors."""
    return samples.mean(axis=0), samples.std(axis=0) / np.sqrt(len(samples))


def assert_mean(samples, expected):
    found, error = means(samples)
    np.testing.assert_array_less(np.abs(found - expected), ALLOWED * error + 1e-12)


def prompt_sums(task):
    """Per prompt: the means of y x and y^2 over examples (N, d + 1), and the question (N, d)."""
    examples, d = task.X[:, :-1], task.X.shape[2] - 1
    labels = examples[..., d:]
    sums = np.mean(labels * examples, axis=1)
    return sums, task.X[:, -1, :d]


@pytest.mark.parametrize("covariance", SQUARES)
@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("summarised", [False, True])
def test_a_fit_is_the_known_optimum_up_to_noise(covariance, tasks, summarised):
    """Every coefficient within its error bar: theta - theta* = H^-1 mean(r psi)."""
    task = pa.data.in_context_regression(
        30_000, 6, SQUARES[covariance], 0.5, 1, **TASKS[tasks], summarised=summarised
    )
    optimum = task.optimum
    found = pa.fit(task.X, task.Y, form=optimum.form)
    assert found.coef.shape == optimum.mean_layer.coef.shape == (1, 3, 3)
    np.testing.assert_allclose(optimum.mean_layer.coef[0].T, optimum.mean_step, atol=1e-14)
    sums, questions = prompt_sums(task)
    features = np.einsum("ni,nl->nil", sums[:, :3], questions).reshape(len(sums), -1)
    residuals = task.Y[:, 0] - features @ optimum.mean_layer.coef.ravel()
    scores = features * residuals[:, None]
    influences = scores @ np.linalg.inv(features.T @ features / len(features))
    away, spread = (found.coef - optimum.mean_layer.coef).ravel(), means(influences)[1]
    np.testing.assert_allclose(influences.mean(axis=0), away, atol=1e-8)
    assert np.all(np.abs(away) < ALLOWED * spread)
    # Negative control: the step for prompts of thrice the length is outside of the error bars.
    longer = pa.data.OneStep.of(SQUARES[covariance], 18, 0.5, optimum.task_moment)
    assert np.any(np.abs((found.coef - longer.mean_layer.coef).ravel()) > ALLOWED * spread)
    assert_mean(scores, 0.0)
    assert_mean(residuals**2, optimum.risk)


@pytest.mark.parametrize("tasks", TASKS)
def test_both_layers_of_the_optimum_are_one_function(tasks):
    task = pa.data.in_context_regression(5, 4, SQUARES["anisotropic"], 0.3, **TASKS[tasks])
    one, other = task.optimum.layer(task.X), task.optimum.mean_layer(task.X)
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("summarised", [False, True])
def test_prompts_have_the_moments_of_theory(tasks, summarised):
    """The means that a layer sees, their squares, and their products with the target."""
    d, n, rho = 3, 5, 0.2
    task = pa.data.in_context_regression(
        40_000, n, np.eye(d) / d, rho**0.5, 2, **TASKS[tasks], noisy_target=True,
        summarised=summarised,
    )  # fmt: skip
    covariance = TASKS[tasks].get("task_covariance", np.eye(d))
    theory = PromptMoments.gaussian(covariance, rho, n)
    if task.tasks is not None:
        theory = PromptMoments.of_tasks(task.tasks, rho, n)
    sums, questions = prompt_sums(task)
    sums[:, :d] *= d
    assert_mean(np.einsum("ni,nj->nij", sums, sums), theory.second)
    assert_mean(d * np.einsum("n,nl,nj->nlj", task.Y[:, 0], questions, sums), theory.cross)
    assert_mean(task.Y[:, 0] ** 2, theory.power / d + rho)
    gamma = np.random.default_rng(0).standard_normal((d, d + 1))
    losses = (task.Y[:, 0] - np.einsum("nl,lj,nj->n", questions, gamma, sums)) ** 2
    assert_mean(losses, theory.error_of(gamma))
    assert not np.all(
        np.abs(losses.mean() - theory.error_of(1.1 * gamma)) < ALLOWED * means(losses)[1]
    )


def test_the_risk_of_any_step_on_any_tasks():
    train, test = np.diag([1.0, 2.0, 0.1]), np.diag([0.1, 0.5, 3.0])
    S = SQUARES["anisotropic"]
    step = pa.data.OneStep.of(S, 6, 0.5, train).mean_step
    other = pa.data.in_context_regression(30_000, 6, S, 0.5, 3, task_covariance=test)
    sums, questions = prompt_sums(other)
    predicted = np.einsum("nl,lj,nj->n", questions, step, sums[:, :3])
    assert_mean((predicted - other.Y[:, 0]) ** 2, other.optimum.risk_of(step))
    assert other.optimum.risk < other.optimum.risk_of(step)
    assert other.optimum.risk <= other.optimum.plain_risk


def test_streams_of_the_default_are_those_of_before():
    """Numbers drawn by the release before tasks could be chosen."""
    task = pa.data.in_context_regression(2, 1, np.eye(2), 0.5, 3)
    rng = np.random.default_rng(3)
    inputs, weights = rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2, 1))
    labels = (inputs @ weights)[..., 0]
    np.testing.assert_array_equal(task.X[..., :2], inputs)
    np.testing.assert_array_equal(task.Y, labels[:, 1:])
    np.testing.assert_allclose(
        task.X[:, 0, 2], labels[:, 0] + 0.5 * rng.standard_normal((2, 1))[:, 0]
    )


def test_sizes_in_proportion():
    task = pa.data.proportional_regression(6, 1.5, 2, 0.5, rho=0.04, summarised=False)
    assert (task.X.shape, task.Y.shape) == ((54, 13, 7), (54, 1))
    assert task.tasks.shape == (3, 6)
    assert (task.optimum.n_examples, task.optimum.noise) == (12, 0.2)
    np.testing.assert_array_equal(task.optimum.covariance, np.eye(6) / 6)
    fresh = pa.data.proportional_regression(6, 1.5, 2)
    assert fresh.tasks is None
    assert fresh.X.shape == (54, 2, 7)
    # Products like 0.29 * 100 and (1 / 49) * 49 are a little less than these integers.
    assert len(pa.data.proportional_regression(10, 0.29, 1).X) == 29
    assert len(pa.data.proportional_regression(7, 1 / 49, 1).X) == 1
    chosen = pa.data.proportional_regression(6, 1.5, 2, 1.0, random_state=1)
    assert len(np.unique(chosen.X[:, 1], axis=0)) == 54


def test_tasks_that_are_zero():
    """Without noise labels are zero, and nothing is divided by them."""
    for summarised in (False, True):
        task = pa.data.in_context_regression(
            4, 3, np.eye(2), tasks=np.zeros((1, 2)), summarised=summarised
        )
        assert np.all(task.Y == 0.0)
        assert np.all(np.isfinite(task.X))
        assert task.optimum.risk == 0.0
        assert task.optimum.plain_rate == task.optimum.plain_risk == 0.0


@pytest.mark.parametrize("unit", [1e-120, 1e-6, 1e6, 1e120])
def test_units_of_inputs_change_steps_and_nothing_else(unit):
    """Inputs times a number: a prompt of the same random numbers, and the same learning."""
    tasks = {"tasks": np.array([[1.0, -2.0, 0.5]]), "summarised": True}
    one = pa.data.in_context_regression(4, 3, SQUARES["anisotropic"], **tasks)
    other = pa.data.in_context_regression(4, 3, unit * SQUARES["anisotropic"], **tasks)
    root = np.sqrt(unit)
    np.testing.assert_allclose(other.X / root, one.X, rtol=1e-10)
    np.testing.assert_allclose(other.optimum.mean_step * unit, one.optimum.mean_step, rtol=1e-10)
    assert other.optimum.plain_rate * unit == pytest.approx(one.optimum.plain_rate)
    assert other.optimum.plain_risk / unit == pytest.approx(one.optimum.plain_risk)


def test_coordinates_may_have_units_of_their_own():
    wide = pa.data.OneStep.of(np.diag([1e10, 1e-3]), 4, task_moment=np.diag([1e-10, 1e3]))
    np.testing.assert_allclose(wide.risk, pa.data.OneStep.of(np.eye(2), 4).risk)
    with pytest.raises(InvalidInput, match="positive definite"):
        pa.data.OneStep.of(np.diag([1e10, -1e-3]), 4)
    with pytest.raises(InvalidInput, match="semidefinite"):
        pa.data.OneStep.of(np.eye(1), 4, task_moment=[[-1e-14]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": 0}, "tasks"),
        ({"tasks": np.ones((3, 4))}, "tasks must be"),
        ({"tasks": np.ones(2)}, "tasks must be"),
        ({"tasks": 5.0}, "tasks must be"),
        ({"tasks": np.full((1, 2), np.nan)}, "tasks"),
        ({"tasks": np.ones((3, 2)), "task_covariance": np.eye(2)}, "these are given"),
        ({"task_covariance": np.eye(3)}, "task_covariance"),
        ({"task_covariance": -np.eye(2)}, "semidefinite"),
        ({"task_covariance": 1j * np.eye(2)}, "real numbers"),
        ({"noisy_target": 1}, "noisy_target"),
        ({"summarised": "yes"}, "summarised"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(pa.errors.PolyattnError, match=message):
        pa.data.in_context_regression(3, 2, np.eye(2), **change)


@pytest.mark.parametrize("change", [{"tau": 0.001}, {"alpha": 0}, {"kappa": 0.1}, {"rho": -1}])
def test_refusals_of_proportions(change):
    arguments = {"n_dims": 5, "tau": 1.0, "alpha": 1.0, "kappa": 1.0} | change
    with pytest.raises(InvalidInput, match=next(iter(change))):
        pa.data.proportional_regression(**arguments)
