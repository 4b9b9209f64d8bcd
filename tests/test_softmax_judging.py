"""The judge: error bars against a dense inverse, tests for noise that can fail, what is visible."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.reference.layer import softmax_jacobian, softmax_weights
from polyattn.sequences import as_batch
from polyattn.softmax.examples import Examples, prepare
from polyattn.softmax.identifiability.other_layers import rearranged
from polyattn.softmax.judging.alternatives import smaller_heads, visible
from polyattn.softmax.judging.judge import Judge
from polyattn.softmax.judging.residuals import (
    ALARM,
    Residuals,
    alarms,
    gain_score,
    noise_scores,
    residuals,
    structure_scores,
)
from polyattn.softmax.judging.uncertainty import uncertainty
from polyattn.softmax.polish import polish, project
from polyattn.targets import as_targets


def examples_of(X, Y, mode="full") -> Examples:
    batch = as_batch(X)
    rng = np.random.default_rng(0)
    return prepare(batch, as_targets(Y, batch, mode), mode, rng)[0]


def blocks_in_order(examples):
    return [
        (keys, block.hidden is not None, block.targets.shape[1])
        for block in examples.groups
        for keys in block.keys
    ]


# Error bars ------------------------------------------------------------------------------------


def dense_deviations(examples, projection, mode):
    """Square roots of the diagonal of (J^T J)^-1 over attn and value together, by the reference."""
    rows = []
    n_heads, d, e = projection.value.shape
    for keys, _, n_rows in blocks_in_order(examples):
        for t in range(len(keys) - n_rows, len(keys)):
            of_attn = [
                softmax_jacobian(A, V, keys, t, mode).reshape(d * d, e)
                for A, V in zip(projection.attn, projection.value, strict=True)
            ]
            of_value = [
                np.kron((softmax_weights(A, keys, t, mode) @ keys)[:, None], np.eye(e))
                for A in projection.attn
            ]
            rows.append(np.concatenate([*of_attn, *of_value]).T)
    J = np.concatenate(rows)
    deviations = np.sqrt(np.diag(np.linalg.inv(J.T @ J)))
    split = n_heads * d * d
    return deviations[:split].reshape(n_heads, d, d), deviations[split:].reshape(n_heads, d, e)


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
def test_error_bars_are_those_of_the_dense_jacobian(mode):
    task = pa.data.planted_softmax(60, 3, 3, 2, n_heads=2, mode=mode, random_state=1)
    examples = examples_of(task.X, task.Y, mode)
    here = polish(examples, np.random.default_rng(2).standard_normal((2, 3, 3)) / 3)
    # Beside such noise the step that descent has left is nothing.
    bars = uncertainty(examples, here, 1e4)
    attn, value = dense_deviations(examples, here, mode)
    np.testing.assert_allclose(bars.attn, 1e4 * attn, rtol=1e-6)
    np.testing.assert_allclose(bars.value, 1e4 * value, rtol=1e-6)
    sizes = np.linalg.norm(here.attn, axis=(1, 2))
    np.testing.assert_allclose(bars.attn_error, np.linalg.norm(bars.attn, axis=(1, 2)) / sizes)


def test_heads_that_are_equal_have_no_finite_error():
    task = pa.data.planted_softmax(60, 3, 3, random_state=1)
    examples = examples_of(task.X, task.Y)
    twice = project(examples, np.repeat(task.layer.attn, 2, axis=0))
    assert np.all(np.isinf(uncertainty(examples, twice, 1e-9).attn_error))


def test_error_bars_of_values_are_right():
    ratios = []
    for seed in range(8):
        task = pa.data.planted_softmax(200, 3, 3, n_heads=2, noise=0.05, random_state=seed)
        found = pa.learn_softmax(task.X, task.Y, 2, noise=0.05)
        order = pa.match_heads(found.layer, task.layer).order
        apart = found.layer.value[order] - task.layer.value
        ratios.append(np.linalg.norm(apart) / np.linalg.norm(found.value_std))
    assert 0.8 < np.sqrt(np.mean(np.square(ratios))) < 1.25


# Tests for noise -------------------------------------------------------------------------------


def residuals_of(values) -> Residuals:
    return Residuals(tuple(values), 1.0)


def test_noise_passes_every_test_as_often_as_it_should():
    raised = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        training, held_out = rng.standard_normal((90, 4, 5)), rng.standard_normal((10, 4, 5))
        raised += bool(alarms(noise_scores(residuals_of(training), residuals_of(held_out), 0)))
    assert raised <= 3


CORRELATED = np.array([[1.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("tails", lambda rng, n: rng.standard_t(4, (n, 4, 2))),
        ("tails", lambda rng, n: rng.choice([-1.0, 1.0], (n, 4, 2))),
        ("skew", lambda rng, n: rng.standard_exponential((n, 4, 2)) - 1),
        ("sizes", lambda rng, n: rng.standard_normal((n, 4, 2)) * rng.uniform(0.2, 2, (n, 1, 1))),
        ("outputs", lambda rng, n: rng.standard_normal((n, 4, 2)) @ CORRELATED),
        ("generalises", lambda rng, n: rng.standard_normal((n, 4, 2)) * (3 if n < 100 else 1)),
    ],
)
def test_what_is_not_noise_fails_the_test_made_for_it(name, make):
    rng = np.random.default_rng(0)
    training, held_out = make(rng, 400), make(rng, 50)
    assert name in alarms(noise_scores(residuals_of(training), residuals_of(held_out), 10))


def test_a_residual_of_zero_is_no_noise_to_test():
    nothing = residuals_of(np.zeros((5, 2, 2)))
    assert noise_scores(nothing, nothing, 1) == {}
    assert gain_score(nothing, nothing) == 0.0
    assert gain_score(residuals_of(np.ones((5, 2, 2))), nothing) == np.inf


def test_residuals_are_targets_minus_outputs():
    task = pa.data.planted_softmax(20, 3, 3, noise=0.1, random_state=3)
    examples = examples_of(task.X, task.Y)
    here = project(examples, np.zeros((1, 3, 3)))
    left = residuals(examples, here)
    (block,) = examples.groups
    layer = pa.SoftmaxAttention(here.attn, here.value)
    np.testing.assert_allclose(left.values.reshape(20, 3, 3), block.targets - layer(block.keys))
    assert left.error == pytest.approx(here.error)


def test_the_judge_takes_what_is_exact_and_refuses_what_is_not():
    task = pa.data.planted_softmax(100, 3, 4, n_heads=2, random_state=4)
    held_out, training = examples_of(task.X, task.Y).split(10)
    judge = Judge(training, held_out, 2.0**-53, None)
    (unit,) = {float(np.abs(block.keys).max()) for block in training.groups}
    right = project(training, task.layer.attn / unit**2)
    assert judge.fit(right).kind == "exact"
    off = project(training, 1.001 * right.attn)
    assert not judge.fit(off).explained
    # Far smaller than the noise that was declared: that is no noise of this size.
    declared = Judge(training, held_out, 2.0**-53, 10.0)
    assert declared.fit(off).below_declared
    assert not declared.fit(off).explained
    assert declared.fit(right).kind == "exact"


# What cannot be seen ---------------------------------------------------------------------------


def test_visible_directions():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((30, 4, 5))
    assert visible(examples_of(X, X)).complete
    X[:, :, 2] = 1.0
    seen = visible(examples_of(X, X))
    assert (round(np.trace(seen.queries)), round(np.trace(seen.keys))) == (5, 4)
    assert not seen.complete
    np.testing.assert_allclose(seen.part(np.ones((1, 5, 5)))[0, :, 2], 0.0, atol=1e-12)
    flat = rng.standard_normal((30, 4, 2)) @ rng.standard_normal((2, 5))
    seen = visible(examples_of(flat, flat))
    assert (round(np.trace(seen.queries)), round(np.trace(seen.keys))) == (2, 2)


def test_one_head_fewer():
    rng = np.random.default_rng(6)
    attn = rng.standard_normal((3, 2, 2))
    attn[2] = attn[0] + 1e-3
    X = rng.standard_normal((50, 3, 2))
    here = project(examples_of(X, X), attn)
    (joined, sentence), *dropped = smaller_heads(here)
    assert "merged" in sentence
    assert joined.shape == (2, 2, 2)
    assert np.abs(joined[0] - attn[0]).max() < 1e-2
    assert len(dropped) == 3
    assert smaller_heads(project(examples_of(X, X), attn[:1])) == []


def pairings(layer: pa.SoftmaxAttention, queries: np.ndarray) -> list[tuple[int, ...]]:
    others = rearranged(layer.attn, layer.value, queries, 1e-6)
    return sorted({other.heads for other in others})


def test_only_heads_with_another_coordinate_to_use_are_rearranged():
    layer = pa.softmax.parity_layer((0, 1, 2), marker=3, output=0, n_dims=5, beta=1.0)
    boolean = pa.data.boolean_sequences(50, 3, 5, random_state=0).reshape(-1, 5)
    assert pairings(layer, boolean) == [(0, 2)]
    real = np.random.default_rng(0).standard_normal((50, 5))
    assert pairings(layer, real) == []
    alone = real.copy()
    alone[:, 3] = boolean[:50, 3]
    assert pairings(layer, alone) == []
    generic = pa.data.hard_softmax_layer("same_value", 5, 3, 2.0)
    assert pairings(generic, boolean) == []


# Functions that are no noise -------------------------------------------------------------------


def scaled(X, Y, attn):
    """Examples of full mode, and heads in their units."""
    batch = as_batch(X)
    rows = as_targets(Y, batch, "full")
    examples, units = prepare(batch, rows, "full", np.random.default_rng(0))
    exponents = units.of_tokens[:, None] + units.of_tokens
    return examples, np.ldexp(attn, exponents)


def structured(extra, noise=0.02, tokens="boolean"):
    """Scores of the right heads on targets to which something was added, and of plain ones."""
    task = pa.data.planted_softmax(300, 4, 4, n_heads=2, distribution=tokens, random_state=3)
    rng = np.random.default_rng(3)
    noisy = task.Y + noise * rng.standard_normal(task.Y.shape)
    scores = []
    for Y in (noisy, noisy + extra(task.X, task.Y)):
        examples, attn = scaled(task.X, Y, task.layer.attn)
        here = polish(examples, attn, 10)
        left = residuals(examples, here)
        sigma = np.sqrt(left.power / (left.values.size - here.attn.size - here.value.size))
        scores.append(structure_scores(examples, left, here, sigma))
    return scores


@pytest.mark.parametrize(
    ("name", "extra", "tokens"),
    [
        ("linear", lambda X, _: 0.05 * X, "boolean"),
        ("linear", lambda X, _: 0.05 * np.roll(X.mean(axis=1, keepdims=True), 1), "boolean"),
        ("products", lambda X, _: 0.05 * X * np.roll(X, 1, axis=2), "boolean"),
        ("curves", lambda X, _: 0.1 * np.tanh(X), "gaussian"),
        ("bends", lambda _, Y: 0.1 * np.tanh(3 * Y), "gaussian"),
    ],
)
def test_a_function_of_the_input_fails_the_test_made_for_it(name, extra, tokens):
    plain, spoiled = structured(extra, tokens=tokens)
    assert spoiled[name] > ALARM
    assert max(plain.values()) < ALARM


def test_noise_of_any_distribution_passes_the_tests_for_structure():
    task = pa.data.planted_softmax(100, 4, 4, n_heads=2, random_state=5)
    raised = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        draw = (rng.standard_t(5, task.Y.shape), rng.choice([-1.0, 1.0], task.Y.shape))[seed % 2]
        examples, attn = scaled(task.X, task.Y + 0.05 * draw, task.layer.attn)
        here = project(examples, attn)
        left = residuals(examples, here)
        scores = structure_scores(examples, left, here, np.sqrt(left.power / left.values.size))
        raised += max(scores.values()) > ALARM
    assert raised <= 1


def test_residuals_below_the_declared_noise_are_judged_without_it():
    task = pa.data.planted_softmax(300, 4, 4, n_heads=2, noise=0.02, random_state=6)
    found = pa.learn_softmax(task.X, task.Y, 2, noise=0.2)
    assert found.recovered
    assert "smaller than the noise that was declared" in str(found.outcome)
    above_the_signal = pa.learn_softmax(task.X, task.Y, 1, noise=3.0, method="moments")
    assert not above_the_signal.recovered, above_the_signal.outcome


@pytest.mark.parametrize("gap", [1e-6, 1e-9])
def test_heads_that_noise_does_not_tell_apart_are_not_claimed(gap):
    task = pa.data.planted_softmax(300, 4, 4, n_heads=2, random_state=7)
    attn = np.stack([task.layer.attn[0], task.layer.attn[0] + gap * task.layer.attn[1]])
    close = pa.SoftmaxAttention(attn, task.layer.value)
    rng = np.random.default_rng(7)
    for noise in (0.0, 0.037):
        Y = close(task.X) + noise * rng.standard_normal(task.Y.shape)
        found = pa.learn_softmax(task.X, Y, 2, noise=0.037)
        assert not found.recovered, found.outcome
