"""What the experiments hold their figures against, where the answer is known in other ways."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn_papers.chen2024.lower_bounds.findings import exponent, growths
from polyattn_papers.letey2025.layer import fit_paper, gamma_of, paper_form, paper_units
from polyattn_papers.letey2025.limit import limit_error, resolvent
from polyattn_papers.letey2025.task_diversity.cells import task_covariances
from polyattn_papers.letey2025.theory import PromptMoments, expected_error, paper_error_of
from polyattn_papers.tasks import softmax_methods, turing_histories, turing_trials
from polyattn_papers.tasks.automata import Machines, fewest, first_of, least_of, share_right
from polyattn_papers.tasks.automaton_strings import StringEncoding
from polyattn_papers.tasks.in_context import Expected, bayes_prediction
from polyattn_papers.tasks.parity import parity_task, same_parity_layer
from polyattn_papers.tasks.softmax_methods import Attempt
from polyattn_papers.tasks.softmax_truth import Truth, succeeded
from polyattn_papers.yau2024.associative_memory.cells import closed_form_rows
from polyattn_papers.yau2024.associative_memory.without_own_token import best_layer
from polyattn_papers.yau2024.random_attention.task import paper_task

# ---------------------------------------------------------------- regression in context


def population(scales, task_scales, n_examples, noise):
    """Prompts (N, n + 1, d + 1), targets (N, 1) and weights: all moments of low degree, exactly.

    Gauss and Hermite's nodes, 3 for tasks, examples and noise, 4 for the question, whose sixth
    moments count.  Inputs are scales * N(0, I), tasks are task_scales * N(0, I).
    """
    d = len(scales)
    n_nodes = [3] * d + [3] * (n_examples * d) + [4] * d + [3] * (n_examples * (noise > 0))
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
    [((2,), (1,), 1, 0), ((1,), (1,), 3, 0.5), ((2, 1), (0.5, 3), 1, 1), ((1, 1), (2, 0), 2, 0)],
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
    # The best multiple of the plain step, by one number of regression.
    outputs = pa.data.OneStep.of(np.eye(len(scales)), 1).layer(X)
    assert np.average(outputs[:, 0] ** 2, weights=weights) > 0
    other = pa.data.OneStep.of(covariance, n_examples, noise + 0.5, moment)
    assert np.abs(other.layer.coef - fitted.coef).max() > 1e-3


def test_the_bayes_prediction_is_the_conditional_mean_and_least_squares_expects_its_noise():
    factor = np.random.default_rng(0).standard_normal((4, 8))
    task = pa.data.in_context_regression(3, 2, factor @ factor.T / 8, noise=0.7)
    for sequence, predicted in zip(task.X, bayes_prediction(task.X, 0.7), strict=True):
        A, y, x = sequence[:-1, :4], sequence[:-1, 4], sequence[-1, :4]
        direct = x @ A.T @ np.linalg.solve(A @ A.T + 0.49 * np.eye(2), y)
        assert predicted == pytest.approx(direct, rel=1e-9)
    exact = pa.data.in_context_regression(50, 5, np.eye(3), random_state=1)
    np.testing.assert_allclose(bayes_prediction(exact.X, 0.0), exact.Y[:, 0], atol=1e-6)
    # Noise of one size: C = variance * Lambda^-1, and the excess is p * variance.
    gram = np.diag([1.0, 4.0])
    expected, variances = Expected.of(gram, 0.25 * gram, size=2.0), np.array([0.25, 0.0625]) / 4
    assert expected.excess == pytest.approx(0.5)
    assert expected.distance(100) == pytest.approx(np.sqrt(0.25 * 1.25 / 400))
    assert expected.square_spread == pytest.approx(np.sqrt(2 * np.sum(variances**2)))
    assert expected.largest_gap(100) == pytest.approx((0.5 + 4 * 0.25 * np.sqrt(2 * 2)) / 100)


def drawn_tasks(kappa, covariance, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((int(kappa * len(covariance)), len(covariance))) @ covariance**0.5


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
    outputs = found.predict(paper_units(task.X))[:, 0]
    np.testing.assert_allclose(outputs, features @ known.ravel(), atol=1e-8)
    assert found.n_features == d * (d + 1)
    assert found.form == paper_form(d)


def test_the_papers_error_leaves_out_small_terms():
    """(1/l) tr(Gamma C Gamma^T)/d, up to the last coordinate."""
    rng = np.random.default_rng(0)
    for d in (20, 200):
        covariance = np.diag(rng.uniform(0.5, 1.5, d))
        gamma = np.hstack([np.eye(d) / 2, rng.standard_normal((d, 1)) / d])
        exact = PromptMoments.gaussian(covariance, 0.1, 2 * d).error_of(gamma)
        left_out = exact - paper_error_of(gamma, covariance, 0.1, 2.0)
        assert left_out == pytest.approx(0.25 / (2 * d), rel=0.2)


@pytest.mark.parametrize("kappa", [0.5, 3.0])
def test_resolvents_are_those_of_drawn_tasks(kappa):
    d, nu = 400, 0.3
    covariance = np.diag(np.linspace(0.1, 2.0, d))
    tasks = drawn_tasks(kappa, covariance)
    F = np.linalg.inv(tasks.T @ tasks / len(tasks) + nu * np.eye(d))
    first, second = resolvent(covariance, kappa, nu)
    for weight in (np.eye(d), covariance):
        assert np.sum(weight * first) == pytest.approx(np.sum(weight * F), rel=0.02)
        assert np.sum(weight * second) == pytest.approx(np.sum(weight * (F @ F)), rel=0.03)
    slope = (resolvent(covariance, kappa, nu + 1e-5)[0] - first) / 1e-5
    np.testing.assert_allclose(np.diag(second), -np.diag(slope), rtol=1e-3)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_limit_with_all_data_is_the_known_optimum(rho):
    """Infinitely many prompts and tasks: one step of preconditioned gradient descent."""
    alpha, powers = 2.0, np.linspace(0.1, 2.0, 200)
    limit = limit_error(np.diag(powers), np.diag(powers), 1e9, alpha, 1e9, rho)
    # OneStep for diagonal covariances, coordinate by coordinate, without its terms of order 1/l.
    noise = (np.mean(powers) + rho) / alpha
    assert limit == pytest.approx(rho + np.mean(powers * noise / (powers + noise)), rel=1e-6)
    moment = np.diag(np.linspace(0.1, 2.0, 40))
    optimum = pa.data.OneStep.of(np.eye(40) / 40, 80, rho**0.5, moment)
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


@pytest.mark.slow
@pytest.mark.parametrize(("tau", "kappa"), [(4.0, 0.5), (2.0, 2.0), (0.5, 1.0)])
def test_theory_for_finite_d_nears_the_limit(tau, kappa):
    """Its distance to the limit is of order 1/d; tasks are many draws of a covariance."""
    gaps = []
    for d in (10, 40):
        train = task_covariances(d)["aligned"]
        test, sizes = PromptMoments.gaussian(train, 0.01, 2 * d), (int(tau * d * d), 2 * d)
        found = [
            expected_error(drawn_tasks(kappa, train, s), [test], *sizes, 0.01, 1e-6)
            for s in range(80 // d)
        ]
        gaps.append(float(np.mean(found)) / limit_error(train, train, tau, 2.0, kappa, 0.01) - 1)
    assert 0 < gaps[1] < 0.6 * gaps[0]


# ---------------------------------------------------------------- associative memory


def of_weights(weights, d):
    """The layer a G_vk q + b tr(G_kk) zeta + c G_vv zeta + e tr(G_vv) zeta, head by head."""
    a, b, c, e = weights
    identity, zero = np.eye(d), np.zeros((d, d))
    heads = [(np.block([[a * identity, zero], [zero, zero]]), np.concatenate([zero, identity]))]
    heads.append((np.block([[zero, zero], [zero, c * identity]]), heads[0][1]))
    for j, output in np.ndindex(2 * d, d):
        # zeta[output] of the query times coordinate j of a key, times that coordinate again.
        attn, value = np.zeros((2 * d, 2 * d)), np.zeros((2 * d, d))
        attn[d + output, j] = b if j < d else e
        value[j, output] = 1.0
        heads.append((attn, value))
    return pa.LinearAttention(*(np.stack(part) for part in zip(*heads, strict=True)), mode="last")


@pytest.mark.parametrize(("d", "unitary"), [(1, 0.5), (2, 0.0), (2, 0.5), (2, 0.9)])
def test_the_best_layer_without_the_own_token_is_what_many_sequences_tell(d, unitary):
    expected = best_layer(d, unitary)
    task = pa.data.associative_memory(2**15, d, unitary=unitary, random_state=3, own_token=False)
    layer, fitted = of_weights(expected.weights, d), pa.fit(task.X, task.Y)
    away = np.linalg.norm(layer.coef - task.layer.coef)
    assert away == pytest.approx(expected.distance, rel=1e-12)
    assert np.linalg.norm(fitted.coef - layer.coef) < 0.15 * expected.distance
    assert np.linalg.norm(fitted.coef - task.layer.coef) == pytest.approx(away, rel=0.05)

    def losses(one):
        return np.sum((one(task.X) - task.Y) ** 2, axis=1)

    own = losses(layer)
    assert np.mean(own) == pytest.approx(expected.risk, abs=5 * np.std(own) / np.sqrt(len(own)))
    # Negative control: other weights have a larger risk, and so has the true layer.
    for place in range(4):
        other = of_weights(expected.weights + 0.2 * np.eye(4)[place], d)
        assert np.mean(losses(other)) > np.mean(own)
    assert np.mean(losses(task.layer)) > 2 * np.mean(own)


def test_sampling_and_not_the_best_layer_moves_away_from_the_truth_as_gaussian_keys_get_few():
    """The fact behind figure 2 (a); the query's own term brings all home."""
    distances = [best_layer(4, share).distance for share in (0.95, 0.97, 0.99, 0.996, 0.997)]
    assert distances == pytest.approx([0.9546743, 0.9490468, 0.9382918, 0.9373351, 0.9388174])
    # In the limit the missing term is made up for exactly.
    assert best_layer(4, 1 - 1e-9).weights[0] == pytest.approx(1.0)
    assert best_layer(4, 0.95).risk > best_layer(4, 0.99).risk > best_layer(4, 0.999).risk
    found = []
    for unitary in (0.5, 0.995, 0.996):
        task = pa.data.associative_memory(2048, 2, unitary=unitary, own_token=False)
        fits = [pa.fit(task.X, Y).coef for Y in (task.Y, task.layer(task.X))]
        printed, own = (np.linalg.norm(coef - task.layer.coef) for coef in fits)
        assert own < 1e-9
        found.append((-pa.certify(task.X).lambda_min, printed))
    assert found == sorted(found)
    # Of orthogonal keys alone the fit of least norm is exact and not the true layer:
    # b = -(d+1)/d * t and c = -e = 2/3 * t with t such that (d + 1) b - (d - 1) c = -1.
    d = 3
    task = pa.data.associative_memory(3000, d, unitary=1.0, own_token=False)
    t = 1 / ((d + 1) ** 2 / d + 2 / 3 * (d - 1))
    least = of_weights([1.0, -(d + 1) / d * t, 2 / 3 * t, -2 / 3 * t], d)
    np.testing.assert_allclose(least(task.X), task.Y, atol=1e-12)
    assert np.linalg.norm(pa.fit(task.X, task.Y).coef - least.coef) < 1e-6


def test_the_closed_form_on_memory_is_off_as_least_squares_expects():
    task = pa.data.associative_memory(4096, 2, unitary=0.5, own_token=False)
    certificate = pa.certify(task.X)
    rows = closed_form_rows(task, certificate, n_draws=6, seed=0)
    assert [row["target"] for row in rows] == ["exact", *["noisy"] * 6, "equation 14"]
    assert rows[0]["distance"] < 1e-10
    printed = np.linalg.norm(pa.fit(task.X, task.Y).coef - task.layer.coef)
    assert rows[-1]["distance"] == pytest.approx(printed, rel=1e-6)
    psi = oracle.plain_design(np.asarray(task.X))
    expected = 2 * 0.01 * np.trace(np.linalg.inv(psi.T @ psi))
    assert rows[1]["expected_distance"] ** 2 == pytest.approx(expected, rel=1e-8)
    squares = [row["distance"] ** 2 for row in rows[1:-1]]
    spread = rows[1]["expected_spread"]
    assert np.mean(squares) == pytest.approx(expected, abs=4 * spread / np.sqrt(6))
    assert all(s <= row["risk"] / certificate.lambda_min for s, row in zip(squares, rows[1:]))
    few = pa.data.associative_memory(1024, 2, unitary=1.0, own_token=False)
    other = closed_form_rows(few, pa.certify(few.X), n_draws=1, seed=0)[-1]
    assert other["target"] == "another minimiser"
    assert other["risk"] < 1e-20
    assert other["distance"] > 0.1


def test_the_task_of_random_attention_is_the_papers():
    """V (1, d), Q (d, d), entries 1/sqrt(d) and tokens 1/sqrt(T) in size, whatever is drawn."""
    task = paper_task(3, 5, 7, seed=2, n_validation=4)
    assert (task.X.shape, task.Y.shape) == ((5, 7, 3), (5, 7, 1))
    assert task.X_validation.shape == (4, 7, 3)
    layer = oracle.fields_of_layer(task.layer)
    for X, Y in zip(task.X, task.Y, strict=True):
        np.testing.assert_allclose(oracle.forward(layer, X, {"mode": "causal"}), Y, atol=1e-14)
    many = [paper_task(4, 2, 9, seed, 1) for seed in range(300)]
    assert np.std([task.layer.attn for task in many]) == pytest.approx(0.5, rel=0.05)
    assert np.std([task.layer.value for task in many]) == pytest.approx(0.5, rel=0.1)
    assert np.std([task.X for task in many]) == pytest.approx(1 / 3, rel=0.02)


# ---------------------------------------------------------------- programs

TINY = (2, 2, 2)


def test_searches_end_at_the_least_number_that_is_enough():
    for threshold in (1, 2, 3, 9, 10, 11, 57, 99, 100):
        for first in (1, 4):
            tried = []
            found = fewest(lambda n: tried.append(n) or min(1.0, n / threshold), 1.0, first, 100)
            assert found == max(threshold, first)
            assert len(tried) == len(set(tried)) <= 30
        assert first_of(lambda n: n >= threshold, 1.0, most=100) == threshold
    for threshold in (1, 16, 17, 60, 64, 128):
        for first in (16, 64, 128):
            found = least_of((16, 32, 64, 128), lambda n: float(n >= threshold), 1.0, first)
            assert found == next(n for n in (16, 32, 64, 128) if n >= threshold)
    assert fewest(lambda _: 0.5, 1.0, 1, most=50) is None
    assert first_of(lambda _: 0.5, 1.0, most=5) is None
    assert least_of((16, 32), lambda _: 0.5, 1.0, 16) is None
    assert 1000 <= fewest(lambda n: float(n >= 1000), 1.0, 10, 5000, 0.03) <= 1031


def test_fewer_traces_are_the_beginning_of_more_and_shares_are_those_of_single_tokens():
    machines, again = Machines(TINY, 0), Machines(TINY, 0)
    few, many = machines.first(3), machines.first(12)
    assert few == many[:3]
    assert [t.tokens.tolist() for t in many] == [t.tokens.tolist() for t in again.first(12)]
    large = Machines((4, 4, 4), 0)
    seen = {trace.tokens.tobytes() for trace in large.first(50)}
    assert not seen & {trace.tokens.tobytes() for trace in large.fresh}
    learned, fresh = pa.programs.learn(machines.program.schema, few[:1]), machines.fresh[:20]
    right = []
    for trace in fresh:
        for at in range(trace.n_rows):
            before = trace.tokens[: len(trace.prompt) + at].astype(float)
            said = learned.schema.round(learned.layer(before))
            right.append(np.array_equal(said.ravel(), trace.completion[at]))
    assert share_right(learned, fresh) == np.mean(right) < 1


def test_errors_of_histories_are_those_of_their_rows():
    """A free run differs if and only if a token is wrong; the share of these has a bound."""
    program = pa.programs.universal_turing_machine(2, 2, 4)
    traces = pa.programs.traces
    learned = pa.programs.learn(program.schema, traces(program, 100, 0), "coefficients")
    row = turing_histories.measure_histories(program, learned, 4, 80, [5])
    shares = []
    for part in range(2):
        fresh = traces(program, 80, np.random.default_rng([5, 4, part]), steps=(4, 4))
        errors, wrong = [], []
        for trace in fresh:
            for at in range(trace.n_rows):
                before = trace.tokens[: len(trace.prompt) + at].astype(float)
                output = learned.layer(before).ravel()
                errors.append(np.sum((output - trace.completion[at]) ** 2))
                wrong.append(not np.array_equal(learned.schema.round(output), trace.completion[at]))
        whole = [not right.all() for right in learned.right(fresh)]
        shares.append((np.mean(errors), np.mean(wrong), np.mean(whole)))
    assert [turing_histories.differs(learned, trace) for trace in fresh] == whole
    assert 0 < sum(whole) < len(whole)
    assert row["squared_error"] == pytest.approx(shares[0][0])
    assert (row["token_error"], row["forced_differ"]) == pytest.approx(shares[0][1:])
    assert row["differ"] == shares[1][2]
    assert row["bound"] == 9 * row["token_error"] >= row["forced_differ"]
    assert row["token_error"] <= turing_histories.MARKOV * row["squared_error"]
    # The constant is attained: an entry that is not above one half holds nothing.
    schema = pa.programs.universal_dfa(2, 2, 2, style="one_hot").schema
    token = schema.encode([schema.token(state=1)])[0].astype(float)
    output = token.copy()
    output[schema.blocks["state"]] = [0.0, 0.5]
    assert not np.array_equal(schema.round(output), token)
    assert np.sum((output - token) ** 2) == 1 / turing_histories.MARKOV
    walker = pa.programs.TuringMachine({(0, x): (0, x, 1) for x in range(2)}, 1, 2)
    small = pa.programs.compile(pa.programs.universal_turing_machine(1, 2, 3))
    assert small.trace(walker, max_steps=20).n_rows == turing_histories.most_tokens(20)


class Compiled:
    """A compiled program where a learned one is expected: it is right at every size."""

    def __init__(self, program, spoilt=False):
        self.schema, self.spoilt = program.schema, spoilt
        self._compiled = pa.programs.compile(program)

    def resize(self, **sizes):
        return Compiled(pa.programs.universal_turing_machine(**sizes), self.spoilt)

    def run(self, machine, tape, **options):
        run = self._compiled.run(machine, tape, **options)
        return replace(run, position=(run.position + 1) % len(run.tape)) if self.spoilt else run


def test_the_judge_of_machines_passes_what_is_right_and_sees_a_head_in_the_wrong_place():
    program = pa.programs.universal_turing_machine(3, 3, 9)
    row, wrong = (
        turing_trials.judge(Compiled(program, spoilt), True, 0) for spoilt in (False, True)
    )
    assert row["exact"]
    assert row["fresh_right"] == row["fresh_machines"] == 120
    assert all(row[name] for name in turing_trials.TRIALS)
    assert (row["beaver_4_steps"], row["beaver_4_ones"]) == (107, 13)
    assert not wrong["exact"]
    assert wrong["fresh_right"] == 0
    assert not any(wrong[name] for name in turing_trials.TRIALS)
    few = turing_trials.judge(Compiled(pa.programs.universal_turing_machine(3, 2, 8)), False, 0)
    open_ = {name for name in turing_trials.TRIALS if few[name] is None}
    assert open_ == {"beaver_4", "beaver_5", "palindrome"}
    assert few["exact"]


def test_one_layer_of_linear_attention_cannot_read_the_papers_strings():
    """Two machines, the same symbols in other places, the same last one: other states follow."""
    encoding = StringEncoding(2, 2, 1)
    tables, words = np.array([[[0, 1], [0, 0]], [[1, 0], [0, 0]]]), np.array([[0], [0]])
    strings = encoding.encode(tables, words)
    prompts, answers = strings[:, :-2], strings[:, -2]
    assert answers[0] != answers[1]
    assert prompts[0, -1] == prompts[1, -1]
    tokens = np.eye(encoding.n_symbols)[prompts]
    one, other = pa.data.random_layer(encoding.n_symbols, n_heads=3, mode="causal")(tokens)[:, -1]
    np.testing.assert_allclose(one, other, rtol=1e-12)


# ---------------------------------------------------------------- softmax attention


def test_attempts_are_judged_by_heads_or_of_parities_by_the_function():
    """A layer whose numbers are rounded to float32 has the parity, whatever trained it."""
    task = parity_task(1, 0.5, 20, 4, 8, seed=4)
    truth = Truth.of(task, 4)
    for off, learned in ((2e-6, True), (0.1, False)):
        layer = pa.SoftmaxAttention((1 + off) * task.layer.attn, (1 + off) * task.layer.value)
        row = {"family": "parity"} | truth.row("adam", Attempt(layer, "no_claim", False, 1.0, 20))
        assert row["function_error"] > off / 2
        assert succeeded(row) == learned
    refused = truth.row("auto", Attempt(None, "refused", False, 1.0, 20))
    assert not succeeded({"family": "parity"} | refused)
    task = pa.data.planted_softmax(60, 3, 4, n_heads=2, random_state=3)
    truth, own = Truth.of(task, 3), task.layer
    for attn, value, right in (
        (own.attn[::-1], own.value[::-1], True), (1.01 * own.attn, own.value, False),
        (own.attn[:1], own.value[:1], False),
    ):  # fmt: skip
        layer = pa.SoftmaxAttention(attn, value)
        assert truth.heads_right(Attempt(layer, "recovered", True, 0.0, 60)) == right
        assert truth.solved(layer) == right
    noisy = Truth.of(replace(task, noise=0.1), 3)
    moved = Attempt(pa.SoftmaxAttention(1.01 * own.attn, own.value), "recovered", True, 0.0, 60)
    assert noisy.heads_right(moved) is None  # nothing says how far noise may have moved them
    assert noisy.heads_right(replace(moved, attn_bar=0.003, value_bar=0.003))
    assert not noisy.heads_right(replace(moved, attn_bar=0.001, value_bar=0.001))


def test_the_control_uses_its_time_and_counts_what_is_the_planted_function(monkeypatch):
    """By a clock that moves by one when it is looked at: first, after each start, and last."""
    ticks = count()
    clock = type("Clock", (), {"perf_counter": staticmethod(lambda: float(next(ticks)))})
    monkeypatch.setattr(softmax_methods, "time", clock)
    task = pa.data.planted_softmax(60, 3, 4, random_state=1)
    truth = Truth.of(task, 1)
    one, many = (
        softmax_methods.by_random_starts(task, 1, limit, 1, truth.solved) for limit in (0.0, 2.5)
    )
    assert (one.n_starts, many.n_starts, many.seconds) == (1, 3, 4.0)
    assert many.n_solved <= many.n_starts
    # Six examples are fitted exactly by heads that are not the planted ones.
    task = pa.data.planted_softmax(6, 4, 8, n_heads=2, random_state=2)
    truth = Truth.of(task, 2)
    chance = softmax_methods.by_random_starts(task, 2, 0.5, 2, truth.solved)
    assert np.linalg.norm(chance.layer(task.X) - task.Y) < 1e-6 * np.linalg.norm(task.Y)
    assert chance.n_solved == 0
    assert not truth.row("control", chance)["right"]


def test_other_heads_of_a_parity_agree_on_boolean_tokens_alone():
    task = parity_task(3, 1.0, 50, 4, 8, seed=4)
    other_heads = same_parity_layer(task.layer)
    np.testing.assert_allclose(other_heads(task.X), task.Y, atol=1e-14)
    other = np.random.default_rng(4).standard_normal((50, 4, 8))
    assert np.abs(other_heads(other) - task.layer(other)).max() > 0.1


def test_growth_is_fitted_as_planted():
    base = {"part": "attack", "n_dims": 32, "noise": 0.1, "method": "halves"}
    (found,) = growths([base | {"n_heads": s, "work": 5 * 2**s} for s in (3, 5, 7)])
    assert found.bits == pytest.approx(1.0)
    assert found.expected == pytest.approx(1.152, abs=1e-3)
    bounds = [
        {"part": "bound", "beta": None, "n_heads": 3, "method": "row_sign", "n_dims": d}
        | {"n_queries": d**4}
        for d in (8, 64, 128)
    ]
    assert exponent(bounds, 3, "row_sign") == pytest.approx(4.0)
    assert np.isnan(exponent(bounds[:2], 3, "row_sign"))
