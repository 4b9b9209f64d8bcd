"""What the experiments hold their figures against, where the answer is known in other ways."""

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn_papers.letey2025.layer import fit_paper, gamma_of, paper_units
from polyattn_papers.letey2025.limit import limit_error
from polyattn_papers.letey2025.theory import PromptMoments, paper_error_of
from polyattn_papers.tasks import turing_histories
from polyattn_papers.tasks.in_context import Expected, bayes_prediction
from polyattn_papers.yau2024.associative_memory.without_own_token import best_layer


def population(scales, task_scales, n_examples, noise):
    """Prompts (N, n + 1, d + 1), targets (N, 1) and weights: all moments of low degree, exactly.

    Gauss and Hermite's nodes, 3 for tasks, examples and noise, 4 for the question, whose sixth
    moments count.  Inputs are scales * N(0, I), tasks are task_scales * N(0, I).
    """
    d = len(scales)
    n_nodes = [3] * (d + n_examples * d) + [4] * d + [3] * (n_examples * (noise > 0))
    rules = [np.polynomial.hermite_e.hermegauss(each) for each in n_nodes]
    z = np.stack([m.ravel() for m in np.meshgrid(*[x for x, _ in rules], indexing="ij")], axis=1)
    weights = np.ones(1)
    for _, shares in rules:
        weights = np.outer(weights, shares / shares.sum()).ravel()
    w, x = z[:, :d] * task_scales, z[:, d : d * (n_examples + 2)].reshape(len(z), -1, d) * scales
    labels = np.einsum("nsd,nd->ns", x, w)
    target = labels[:, -1:].copy()
    labels[:, -1] = 0.0
    if noise > 0:
        labels[:, :-1] += noise * z[:, d * (n_examples + 2) :]
    return np.concatenate([x, labels[..., None]], axis=2), target, weights


@pytest.mark.parametrize(
    ("scales", "task_scales", "n_examples", "noise"),
    [((1,), (1,), 3, 0.5), ((2, 1), (0.5, 3), 1, 1), ((1, 1), (2, 0), 2, 0)],
)
def test_the_optimum_in_context_is_the_fit_of_the_population(
    scales, task_scales, n_examples, noise
):
    """All features, all heads: no symmetry and no formula for Wishart matrices is assumed."""
    X, Y, weights = population(scales, task_scales, n_examples, noise)
    covariance, moment = (np.diag(np.square(each, dtype=float)) for each in (scales, task_scales))
    optimum = pa.data.OneStep.of(covariance, n_examples, noise, moment)
    fitted = pa.fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(fitted.coef, optimum.layer.coef, atol=1e-8)
    assert fitted.risk == pytest.approx(optimum.risk, rel=1e-8)
    other = pa.data.OneStep.of(covariance, n_examples, noise + 0.5, moment)
    assert np.abs(other.layer.coef - fitted.coef).max() > 1e-3


def test_the_bayes_prediction_is_the_conditional_mean_and_least_squares_expects_its_noise():
    task = pa.data.in_context_regression(3, 2, np.diag([2.0, 1, 0.5, 1]), noise=0.7)
    for sequence, predicted in zip(task.X, bayes_prediction(task.X, 0.7), strict=True):
        A, y, x = sequence[:-1, :4], sequence[:-1, 4], sequence[-1, :4]
        direct = x @ A.T @ np.linalg.solve(A @ A.T + 0.49 * np.eye(2), y)
        assert predicted == pytest.approx(direct, rel=1e-9)
    # Noise of one size: C = variance * Lambda^-1, and the excess is p * variance.
    gram = np.diag([1.0, 4.0])
    expected, variances = Expected.of(gram, 0.25 * gram, size=2.0), np.array([0.25, 0.0625]) / 4
    assert expected.distance(100) == pytest.approx(np.sqrt(0.25 * 1.25 / 400))
    assert expected.square_spread == pytest.approx(np.sqrt(2 * np.sum(variances**2)))
    assert expected.largest_gap(100) == pytest.approx((0.5 + 4 * 0.25 * 2) / 100)


@pytest.mark.parametrize(("tau", "summarised"), [(0.5, False), (2.0, False), (2.0, True)])
def test_the_form_is_the_papers_regression(tau, summarised):
    """Explicit features, their Gram matrix, one solution; prompts of either kind."""
    d, ridge = 6, 1e-3
    task = pa.data.proportional_regression(d, tau, 2.0, 1.0, summarised=summarised)
    examples, question = task.X[:, :-1], task.X[:, -1, :d]
    sums = np.mean(examples[..., d:] * examples * [*[d] * d, 1], axis=1)
    features = np.einsum("nl,nj->nlj", question, sums).reshape(len(sums), -1)
    gram = features.T @ features + len(sums) / d * ridge * np.eye(d * (d + 1))
    known = np.linalg.solve(gram, features.T @ task.Y[:, 0])
    found = fit_paper(task, ridge)
    np.testing.assert_allclose(gamma_of(found).ravel(), known, rtol=1e-7, atol=1e-9)
    outputs = found.predict(paper_units(task.X))[:, 0]
    np.testing.assert_allclose(outputs, features @ known, atol=1e-8)


def test_the_papers_error_leaves_out_small_terms():
    """(1/l) tr(Gamma C Gamma^T)/d, up to the last coordinate."""
    rng = np.random.default_rng(0)
    for d in (20, 200):
        covariance = np.diag(rng.uniform(0.5, 1.5, d))
        gamma = np.hstack([np.eye(d) / 2, rng.standard_normal((d, 1)) / d])
        exact = PromptMoments.gaussian(covariance, 0.1, 2 * d).error_of(gamma)
        left_out = exact - paper_error_of(gamma, covariance, 0.1, 2.0)
        assert left_out == pytest.approx(0.25 / (2 * d), rel=0.2)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_limit_with_all_data_is_the_known_optimum(rho):
    """One step of preconditioned gradient descent, without its terms of order 1/l."""
    powers = np.linspace(0.1, 2.0, 200)
    limit = limit_error(np.diag(powers), np.diag(powers), 1e9, 2.0, 1e9, rho)
    noise = (np.mean(powers) + rho) / 2.0
    assert limit == pytest.approx(rho + np.mean(powers * noise / (powers + noise)), rel=1e-6)
    optimum = pa.data.OneStep.of(np.eye(40) / 40, 80, rho**0.5, np.diag(powers[::5]))
    assert limit == pytest.approx(rho + optimum.risk, rel=0.05)


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


def of_weights(weights, d):
    """Coefficients of a G_vk q + b tr(G_kk) zeta + c G_vv zeta + e tr(G_vv) zeta."""
    a, b, c, e = weights
    T = np.zeros((d, 2 * d, 2 * d, 2 * d))  # output, value, key, query
    for o, j in np.ndindex(d, d):
        T[o, d + o, j, j] += a
        T[o, j, j, d + o] += b
        T[o, d + o, d + j, d + j] += c
        T[o, d + j, d + j, d + o] += e
    folded = oracle.symmetric(T)
    return np.stack([folded[:, j, k] * (1 + (j != k)) for j, k in oracle.pairs({}, 2 * d)], axis=1)


@pytest.mark.parametrize(("d", "unitary"), [(1, 0.5), (2, 0.0), (2, 0.5), (2, 0.9)])
def test_the_best_layer_without_the_own_token_is_what_many_sequences_tell(d, unitary):
    expected = best_layer(d, unitary)
    task = pa.data.associative_memory(2**15, d, unitary=unitary, random_state=3, own_token=False)
    best, fitted = of_weights(expected.weights, d), pa.fit(task.X, task.Y).coef
    away = np.linalg.norm(best - task.layer.coef)
    assert away == pytest.approx(expected.distance, rel=1e-12)
    assert np.linalg.norm(fitted - best) < 0.15 * expected.distance
    psi = oracle.plain_design(np.asarray(task.X))

    def losses(coef):
        return np.sum((psi @ oracle.features_of(coef, {}) - task.Y) ** 2, axis=1)

    own = losses(best)
    assert np.mean(own) == pytest.approx(expected.risk, abs=5 * np.std(own) / np.sqrt(len(own)))
    # Negative control: other weights have a larger risk.
    for other in 0.2 * np.eye(4):
        assert np.mean(losses(of_weights(expected.weights + other, d))) > own.mean()


def test_errors_of_histories_are_those_of_their_rows():
    """A free run differs if and only if a token is wrong; the share of these has a bound."""
    program, traces = pa.programs.universal_turing_machine(2, 2, 4), pa.programs.traces
    learned = pa.programs.learn(program.schema, traces(program, 100, 0), "coefficients")
    row = turing_histories.measure_histories(program, learned, 4, 40, [5])
    forced, free = (
        traces(program, 40, np.random.default_rng([5, 4, part]), steps=(4, 4)) for part in range(2)
    )
    errors, wrong = [], []
    for trace in forced:
        for at, wanted in enumerate(trace.completion):
            output = learned.layer(trace.tokens[: len(trace.prompt) + at].astype(float)).ravel()
            errors.append(np.sum((output - wanted) ** 2))
            wrong.append(not np.array_equal(learned.schema.round(output), wanted))
    assert row["squared_error"] == pytest.approx(np.mean(errors))
    assert row["token_error"] == pytest.approx(np.mean(wrong))
    differ = [[not right.all() for right in learned.right(each)] for each in (forced, free)]
    assert (row["forced_differ"], row["differ"]) == pytest.approx(tuple(np.mean(differ, axis=1)))
    assert [turing_histories.differs(learned, trace) for trace in free] == differ[1]
    assert row["bound"] == 9 * row["token_error"] >= row["forced_differ"] > 0
    assert 0 < row["differ"] < 1
    assert row["token_error"] <= turing_histories.MARKOV * row["squared_error"]
