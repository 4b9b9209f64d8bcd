"""Descent over heads: normal equations by the reference, exact at the end, noise at its bound."""

import numpy as np
import pytest

from polyattn.reference.layer import softmax_forward, softmax_jacobian, softmax_weights
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.polish import enough, polish, project
from polyattn.softmax.polish.projection import normal_equations
from polyattn_papers.tasks.softmax_methods import restarts

EPS = np.finfo(float).eps


def planted_heads(rng, n_heads, n_dims, n_outputs, size=1.0):
    attn = rng.standard_normal((n_heads, n_dims, n_dims)) * size / n_dims
    value = rng.standard_normal((n_heads, n_dims, n_outputs)) / np.sqrt(n_dims)
    return attn, value


def planted_examples(rng, attn, value, sizes, mode="full", noise=0.0):
    """One block of Boolean sequences for each (number, length), with targets by the reference."""
    groups = []
    for count, length in sizes:
        keys = rng.choice([-1.0, 1.0], (count, length, attn.shape[1]))
        targets = np.array([softmax_forward(attn, value, X, mode) for X in keys])
        targets = targets.reshape(count, -1, value.shape[2])
        targets = targets + noise * rng.standard_normal(targets.shape)
        hidden = ~np.tri(length, dtype=bool) if mode == "causal" else None
        groups.append(ExampleBlock(keys, targets, hidden))
    return Examples(tuple(groups))


def dense_rows(examples, projection, mode):
    """Features Z, Jacobian (rows, e, m d^2) and targets, row by row from the reference."""
    features, slopes, targets = [], [], []
    for group in examples.groups:
        for X, Y in zip(group.keys, group.targets, strict=True):
            positions = [len(X) - 1] if mode == "last" else range(len(X))
            for t, target in zip(positions, Y, strict=True):
                features.append([softmax_weights(A, X, t, mode) @ X for A in projection.attn])
                both = zip(projection.attn, projection.value, strict=True)
                slopes.append([softmax_jacobian(A, V, X, t, mode) for A, V in both])
                targets.append(target)
    features = np.array(features).reshape(len(features), -1)
    jacobian = np.array(slopes).reshape(len(slopes), -1, projection.value.shape[2])
    return features, jacobian.transpose(0, 2, 1), np.array(targets)


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_normal_equations_are_those_of_the_dense_jacobian(mode, n_outputs, monkeypatch):
    monkeypatch.setattr("polyattn.softmax.polish.projection.BLOCK_NUMBERS", 1 << 9)
    rng = np.random.default_rng(0)
    attn, value = planted_heads(rng, 2, 3, n_outputs)
    examples = planted_examples(rng, attn, value, [(13, 2), (17, 4)], mode, noise=0.3)
    here = project(examples, attn + 0.2 * rng.standard_normal(attn.shape))
    features, jacobian, targets = dense_rows(examples, here, mode)
    basis = np.linalg.qr(features)[0]
    off = jacobian - np.einsum("rq,sq,sep->rep", basis, basis, jacobian)
    residual = targets - basis @ (basis.T @ targets)
    equations = normal_equations(examples, here)
    scale = len(features) * np.abs(jacobian).max() ** 2
    np.testing.assert_allclose(
        equations.hessian, np.einsum("rep,req->pq", off, off), atol=1e3 * EPS * scale
    )
    np.testing.assert_allclose(
        equations.gradient, np.einsum("rep,re->p", jacobian, residual), atol=1e3 * EPS * scale
    )
    assert here.error == pytest.approx(np.linalg.norm(residual) / np.linalg.norm(targets))


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
def test_descent_from_nearby_is_exact(mode):
    rng = np.random.default_rng(1)
    attn, value = planted_heads(rng, 2, 4, 3)
    sizes = [(60, 3), (80, 4)] if mode != "last" else [(150, 3), (150, 4)]
    examples = planted_examples(rng, attn, value, sizes, mode)
    found = polish(examples, attn + 0.1 * rng.standard_normal(attn.shape))
    assert found.error < 1e-14
    assert np.linalg.norm(found.attn - attn) < 1e-11 * np.linalg.norm(attn)
    assert np.linalg.norm(found.value - value) < 1e-11 * np.linalg.norm(value)
    assert list(found.errors) == sorted(found.errors, reverse=True)


def test_one_example_too_few_is_not_exact():
    """The negative control of exactness: other heads explain a handful of examples too."""
    rng = np.random.default_rng(2)
    attn, value = planted_heads(rng, 2, 4, 3)
    examples = planted_examples(rng, attn, value, [(3, 4)])
    found = polish(examples, attn + 0.1 * rng.standard_normal(attn.shape))
    assert found.error < 1e-10
    assert np.linalg.norm(found.attn - attn) > 1e-3


def test_descent_on_few_then_all_ends_on_all():
    rng = np.random.default_rng(3)
    attn, value = planted_heads(rng, 1, 4, 4)
    examples = planted_examples(rng, attn, value, [(600, 4)], noise=0.1)
    few = enough(examples, 1)
    assert 2 * len(few) < len(examples)
    found = next(restarts(examples, 1, rng))
    best = polish(examples, attn)
    assert found.error == pytest.approx(best.error, rel=1e-10)
    assert found.error == pytest.approx(project(examples, found.attn).error, rel=1e-12)


def test_steps_stay_within_the_given_span():
    rng = np.random.default_rng(4)
    attn, value = planted_heads(rng, 2, 4, 4)
    examples = planted_examples(rng, attn, value, [(150, 4)])
    span = np.linalg.qr(attn.reshape(2, -1).T)[0].T.reshape(2, 4, 4)
    mixed = np.tensordot(np.array([[0.8, 0.3], [-0.2, 0.9]]), attn, axes=1)
    found = polish(examples, mixed, within=span)
    outside = found.attn - np.einsum("hab,sab,scd->hcd", found.attn, span, span)
    assert np.linalg.norm(outside) < 1e-12
    assert found.error < 1e-12


def test_a_callback_ends_descent_by_raising():
    class StopHere(Exception):
        pass

    def stop(_):
        raise StopHere

    rng = np.random.default_rng(5)
    attn, value = planted_heads(rng, 1, 3, 2)
    examples = planted_examples(rng, attn, value, [(40, 3)])
    with pytest.raises(StopHere):
        polish(examples, np.zeros_like(attn), on_step=stop)


def test_equal_heads_and_zero_targets_do_no_harm():
    rng = np.random.default_rng(6)
    attn, value = planted_heads(rng, 1, 3, 2)
    examples = planted_examples(rng, attn, value, [(60, 3)])
    twice = polish(examples, np.concatenate([attn, attn]))
    assert twice.error < 1e-13
    nothing = Examples((ExampleBlock(examples.groups[0].keys, np.zeros((60, 3, 2)), None),))
    assert polish(nothing, attn).error == 0.0


def test_noise_costs_what_information_allows():
    """The error of attn is the Cramér–Rao bound, up to chance."""
    noise = 0.01
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        attn, value = planted_heads(rng, 2, 4, 4)
        examples = planted_examples(rng, attn, value, [(300, 4)], noise=noise)
        found = polish(examples, attn + 0.05 * rng.standard_normal(attn.shape))
        hessian = normal_equations(examples, project(examples, attn)).hessian
        bound = noise**2 * np.trace(np.linalg.inv(hessian))
        ratios.append(np.sum((found.attn - attn) ** 2) / bound)
    assert 0.4 < np.mean(ratios) < 2.0
