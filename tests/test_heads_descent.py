"""The algebra of heads and the descent: adjoints, derivatives, gauge, monotone decrease."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.form.pairs import fold_heads, fold_tensor, n_pairs, unfold_coef
from polyattn.heads import descent
from polyattn.heads.algebra import (
    balanced,
    jacobian,
    layer_tensor,
    pull_key,
    pull_value,
    split_heads,
    symmetrised,
)
from polyattn.heads.coordinates import reduce, whiten
from polyattn.heads.descent import Patience, descend
from polyattn.heads.head_search import fewest, random_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.metric import Metric, excess

sizes = st.tuples(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)


def drawn(size):
    """value (H, d, e), key (H, d, m), a symmetric tensor (e, d, d, m), and the generator."""
    n_dims, n_outputs, n_queries, n_heads, seed = size
    rng = np.random.default_rng(seed)
    value = rng.standard_normal((n_heads, n_dims, n_outputs))
    key = rng.standard_normal((n_heads, n_dims, n_queries))
    tensor = symmetrised(rng.standard_normal((n_outputs, n_dims, n_dims, n_queries)))
    return value, key, tensor, rng


def changed(value, key, step):
    return HeadSet.of_one_scale(value, key).change(step)


def moments(n_rows, n_features, seed=0):
    rows = np.random.default_rng(seed).standard_normal((n_rows, n_features))
    return rows.T @ rows


@given(sizes)
def test_pulls_are_the_adjoints_of_the_derivative(size):
    value, key, tensor, rng = drawn(size)
    value_step, key_step = rng.standard_normal(value.shape), rng.standard_normal(key.shape)
    forward = np.vdot(tensor, changed(value, key, np.r_[value_step.ravel(), key_step.ravel()]))
    backward = np.vdot(pull_value(tensor, key), value_step) + np.vdot(
        pull_key(tensor, value), key_step
    )
    scale = np.linalg.norm(tensor) * (np.linalg.norm(value) + np.linalg.norm(key)) * 10
    assert abs(forward - backward) <= 1e-14 * scale * np.linalg.norm(
        np.r_[value_step.ravel(), key_step.ravel()]
    )


@given(sizes)
def test_the_jacobian_is_the_derivative(size):
    value, key, _, rng = drawn(size)
    step = rng.standard_normal(value.size + key.size)
    value_step, key_step = (
        step[: value.size].reshape(value.shape),
        step[value.size :].reshape(key.shape),
    )
    along = np.tensordot(step, jacobian(value, key), 1)
    np.testing.assert_allclose(along, changed(value, key, step), atol=1e-12)
    # T is quadratic: the central difference is exact up to rounding.
    ahead, behind = (layer_tensor(value + s * value_step, key + s * key_step) for s in (1.0, -1.0))
    np.testing.assert_allclose(along, 0.5 * (ahead - behind), atol=1e-12)


@given(sizes)
def test_balancing_keeps_the_function_and_separates_the_heads(size):
    value, key, _, _ = drawn(size)
    new_value, new_key = balanced(value, key)
    np.testing.assert_allclose(
        layer_tensor(new_value, new_key), layer_tensor(value, key), atol=1e-12
    )
    for heads in (new_value, new_key):
        gram = heads.reshape(len(heads), -1) @ heads.reshape(len(heads), -1).T
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12 * max(1.0, gram.max()))
    np.testing.assert_allclose(
        np.linalg.norm(new_value, axis=(1, 2)), np.linalg.norm(new_key, axis=(1, 2)), atol=1e-7
    )


def test_the_layer_tensor_is_what_the_fold_sees():
    value, key, _, _ = drawn((4, 3, 4, 2, 0))
    coef = fold_heads(key.transpose(0, 2, 1), value)
    np.testing.assert_allclose(unfold_coef(coef), layer_tensor(value, key), atol=1e-13)


def test_split_heads_are_exact_and_truncation_is_not():
    _, _, tensor, _ = drawn((3, 3, 3, 1, 0))
    np.testing.assert_allclose(layer_tensor(*split_heads(tensor)), tensor, atol=1e-13)
    assert np.linalg.norm(layer_tensor(*split_heads(tensor, 2)) - tensor) > 0.1


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_loss_never_rises(dense, weighted, monkeypatch):
    monkeypatch.setattr(descent, "DENSE_ENTRIES", 10**9 if dense else 0)
    _, _, tensor, rng = drawn((4, 3, 4, 1, 5))
    metric = Metric(moments(60, n_pairs(4) * 4)) if weighted else Metric()
    heads = random_heads(tensor, (2,), metric, rng)
    losses = []
    for _ in range(12):
        found = descend(tensor, heads, metric, Patience(window=1, fraction=2.0))
        heads = found.heads
        losses.append(found.loss)
    residual = tensor - heads.tensor()
    measured = np.vdot(residual, metric(residual)) / np.vdot(tensor, metric(tensor))
    assert losses[-1] == pytest.approx(np.sqrt(measured), rel=1e-12)
    assert all(after <= before for before, after in pairwise(losses))
    assert losses[-1] < losses[0]


def test_dense_and_iterative_steps_reach_the_same_minimum(monkeypatch):
    _, _, tensor, rng = drawn((3, 2, 3, 1, 1))
    start, patience = random_heads(tensor, (1,), Metric(), rng), Patience(window=4, fraction=1e-9)
    metric = Metric(moments(40, n_pairs(3) * 3))
    losses = []
    for entries in (0, 10**9):
        monkeypatch.setattr(descent, "DENSE_ENTRIES", entries)
        losses.append(descend(tensor, start, metric, patience).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_work_is_limited():
    _, _, tensor, rng = drawn((4, 4, 4, 1, 1))
    start = random_heads(tensor, (3,), Metric(), rng)
    short = descend(tensor, start, Metric(), Patience(5, 0.0, work=1e7))
    assert 1e7 < short.work < 1e8
    longer = descend(tensor, start, Metric(), Patience(5, 0.0, work=1e8))
    assert 1e8 < longer.work < 1e9


def test_the_loss_of_a_start_is_relative_in_any_metric():
    _, _, tensor, rng = drawn((4, 3, 4, 1, 5))
    metric = Metric(1e3 * moments(60, n_pairs(4) * 4))
    start = random_heads(tensor, (2,), metric, rng)
    found = descend(tensor, start, metric, Patience(window=1, fraction=0.0, enough=10.0))
    residual = tensor - start.tensor()
    relative = np.vdot(residual, metric(residual)) / np.vdot(tensor, metric(tensor))
    assert found.loss == pytest.approx(np.sqrt(relative), rel=1e-12)
    assert found.work == 0.0


@pytest.mark.parametrize(("fraction", "finished"), [(0.01, False), (0.018, False), (0.05, True)])
def test_the_last_steps_decide_when_to_stop(fraction, finished):
    """Fast at first, and over the last four steps slower: by 2 percent in all."""
    history = [*np.logspace(0, -6, 12), 0.995e-6, 0.99e-6, 0.985e-6, 0.98e-6]
    patience = Patience(window=4, fraction=fraction)
    assert descent._finished(history, 0.0, patience, fast=False) == finished


def test_a_direction_without_curvature_ends_the_step():
    gradient = np.array([1.0, 2.0])
    step, left, rounds = descent._conjugate_gradients(np.zeros_like, gradient, np.ones(2), 0.1)
    np.testing.assert_array_equal(step, 0.0)
    np.testing.assert_array_equal(left, gradient)
    assert rounds == 1


@pytest.mark.parametrize("n_heads", [1, 2, 8, 32])
def test_random_starts_are_smaller_than_the_tensor_and_not_negligible(n_heads):
    tensor, rng = np.zeros((3, 4, 4, 5)), np.random.default_rng(n_heads)
    starts = [random_heads(tensor, (n_heads,), Metric(), rng) for _ in range(20)]
    sizes = [np.linalg.norm(start.tensor()) for start in starts]
    assert 0.05 < min(sizes) <= max(sizes) < 0.5


# ---------------------------------------------------------------- reduction and coordinates


def test_unused_directions_are_dropped_and_come_back():
    rng = np.random.default_rng(0)
    value, key = rng.standard_normal((2, 3, 2)), rng.standard_normal((2, 3, 4))
    dims, outputs, queries = (np.linalg.qr(rng.standard_normal((7, r)))[0] for r in (3, 2, 4))
    tensor = layer_tensor(dims @ value @ outputs.T, dims @ key @ queries.T)
    core, _, expand = reduce(tensor, 1e-12)
    assert core.shape == (2, 3, 3, 4)
    back = layer_tensor(*expand(*split_heads(core)))
    np.testing.assert_allclose(back, tensor, atol=1e-12)


@pytest.mark.parametrize("n_rows", [100, 10])
def test_the_metric_is_the_excess_risk(n_rows):
    _, _, tensor, _ = drawn((4, 3, 4, 1, 2))
    gram = moments(n_rows, n_pairs(4) * 4)
    direct = excess(tensor, gram)
    folded = fold_tensor(tensor).reshape(3, -1)
    assert direct == pytest.approx(sum(row @ gram @ row for row in folded), rel=1e-12)
    assert np.vdot(tensor, Metric(gram)(tensor)) == pytest.approx(direct, rel=1e-12)


def test_new_coordinates_keep_the_ratio_of_risks():
    """<T, M T> / <S, M S> is the same for S and for heads in either coordinates."""
    rng = np.random.default_rng(3)
    _, _, tensor, _ = drawn((4, 3, 4, 1, 3))
    tokens = rng.standard_normal((200, 5, 4)) * [1e3, 1.0, 1.0, 1e-3]
    tokens[..., 2] += tokens[..., 1]
    grams = np.einsum("ntj,ntk->njk", tokens, tokens)[:, *np.triu_indices(4)]
    features = (grams[:, :, None] * tokens[:, -1, None, :]).reshape(200, -1)
    gram = features.T @ features
    white, metric, restore = whiten(tensor, gram)
    value, key = rng.standard_normal((2, 4, 3)), rng.standard_normal((2, 4, 4))
    old = layer_tensor(*restore(value, key))
    new = layer_tensor(value, key)
    there = metric.power(new) / metric.power(white)
    assert excess(old, gram) / excess(tensor, gram) == pytest.approx(there, rel=1e-6)
    assert np.linalg.cond(metric.gram) < 1e-6 * np.linalg.cond(gram)


def test_directions_that_no_token_takes_are_dropped():
    _, _, tensor, _ = drawn((4, 3, 4, 1, 4))
    used = np.array([1.0, 1.0, 0.0, 1.0])
    rows, columns = np.triu_indices(4)
    mask = ((used[rows] * used[columns])[:, None] * used).ravel()
    white, _, _ = whiten(tensor, moments(100, 40) * mask * mask[:, None])
    assert white.shape == (3, 3, 3, 3)


# ---------------------------------------------------------------- the search over numbers


@pytest.mark.parametrize("true", range(1, 21))
def test_fewest_finds_the_smallest_success(true):
    tried = []

    def attempt(heads):
        tried.append(heads)
        zeros = HeadSet.of_one_scale(np.zeros((heads, 1, 1)), np.zeros((heads, 1, 1)))
        found = descent.HeadDescent(zeros, 0.0, 1.0)
        return (found if heads >= true else None), 1.0

    best = fewest(attempt, [1, 2, 4, 8, 16], 17, np.inf)
    assert (best is None) == (true > 16)
    assert best is None or len(best.heads) == true
    assert len(tried) <= 8
    assert fewest(attempt, [1, 2, 4, 8, 16], 17, 0.5) is None or true == 1
