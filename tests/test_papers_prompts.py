"""The moments of prompts that the theory of in-context regression rests on [letey2025]."""

import numpy as np
import pytest

import polyattn as pa
from polyattn_papers.letey2025.theory import PromptMoments

TASKS = {
    "of a covariance": {"task_covariance": np.diag([3.0, 1.0, 0.0])},
    "two": {"tasks": np.array([[1.0, -2.0, 0.5], [0.5, 1.0, 2.0]])},
}


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("summarised", [False, True])
def test_moments_and_errors_of_theory_are_those_of_drawn_prompts(tasks, summarised):
    d, n, rho = 3, 5, 0.2
    task = pa.data.in_context_regression(
        40_000, n, np.eye(d) / d, rho**0.5, 2, **TASKS[tasks], noisy_target=True,
        summarised=summarised,
    )  # fmt: skip
    theory = PromptMoments.gaussian(task.optimum.task_moment, rho, n)
    if task.tasks is not None:
        theory = PromptMoments.of_tasks(task.tasks, rho, n)
        assert {tuple(row) for row in task.weights} == {tuple(row) for row in task.tasks}
    examples, questions, targets = task.X[:, :-1], task.X[:, -1, :d], task.Y[:, 0]
    sums = np.mean(examples[..., d:] * examples, axis=1) * [*[d] * d, 1]
    gamma = np.random.default_rng(0).standard_normal((d, d + 1))
    losses = (targets - np.einsum("nl,lj,nj->n", questions, gamma, sums)) ** 2
    for samples, expected in (
        (np.einsum("ni,nj->nij", sums, sums), theory.second),
        (d * np.einsum("n,nl,nj->nlj", targets, questions, sums), theory.cross),
        (targets**2, theory.power / d + rho),
        (losses, theory.error_of(gamma)),
    ):
        error = samples.std(axis=0) / np.sqrt(len(samples))
        np.testing.assert_array_less(np.abs(samples.mean(axis=0) - expected), 5 * error + 1e-12)
    wrong = abs(losses.mean() - theory.error_of(1.1 * gamma))
    assert wrong > 5 * losses.std() / np.sqrt(len(losses))
