"""Rotary positions are found: frequencies, planes, and heads that share keys, behind anything."""

import numpy as np
import pytest

import polyattn as pa
from polyattn import learn_from_queries
from polyattn.softmax.queries.rotary import Planes
from sublayers import layer_norm, planted, rms_norm, turned, visible

X = np.random.default_rng(9).standard_normal((3, 60, 6))
NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm, None: lambda X: X}


def worst_attn(found, true, offsets=(0, 1, 7, 50)):
    """The largest relative error of A(o) over heads in any order, and that of values."""
    apart = np.linalg.norm(found.value[:, None] - true.value[None], axis=(2, 3))
    order = np.argmin(apart, axis=0)
    assert sorted(order) == list(range(true.n_heads))
    of_value = np.max(apart[order, range(true.n_heads)] / np.linalg.norm(true.value, axis=(1, 2)))
    of_attn = [
        np.linalg.norm(found.attn_at(o)[order] - true.attn_at(o)) / np.linalg.norm(true.attn_at(o))
        for o in offsets
    ]
    return max(*of_attn, of_value)


@pytest.mark.parametrize("mode", ["full", "causal"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", [None, "rms_norm", "layer_norm"])
@pytest.mark.parametrize("groups", [1, 2])
def test_frequencies_and_heads_are_found(kind, residual, mode, groups):
    layer = turned(mode=mode, groups=groups)

    def oracle(X):
        return residual * X + layer(NORMS[kind](X))

    found = learn_from_queries(oracle, 6)
    assert found.recovered, found.outcome
    assert (found.residual, found.normalisation, found.layer.mode) == (residual, kind, mode)
    np.testing.assert_allclose(found.layer.frequencies, layer.frequencies, atol=1e-9)
    assert worst_attn(found.layer, visible(layer, kind == "layer_norm")) < 1e-6
    np.testing.assert_allclose(found.predict(X), oracle(X), atol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 30.0, 1e5])
def test_sizes_of_logits_do_not_matter(size):
    """Without normalisation of any size; behind it, where logits are large on all tokens."""
    layer = turned(size=size)
    assert worst_attn(learn_from_queries(layer, 6).layer, layer) < 1e-6
    if size == 30.0:
        found = learn_from_queries(lambda X: X + layer(rms_norm(X)), 6)
        assert found.recovered, found.outcome
        assert worst_attn(found.layer, layer) < 1e-6


def given_planes(frequencies, rank=None, n_dims=8, seed=3):
    rng = np.random.default_rng(seed)
    rank = rank or 2 * len(frequencies)
    query, key = rng.standard_normal((2, 2, n_dims, 2 * len(frequencies))) / n_dims**0.5
    query[:, :, rank:] = 0
    value = rng.standard_normal((2, n_dims, 5)) / n_dims**0.5
    return pa.SoftmaxAttention((query, key), value, "causal", rotary=frequencies)


@pytest.mark.parametrize(
    "frequencies",
    [[1.0, 0.0], [0.7, 0.7], [1.0, 1e-3, 1e-5], [np.pi, 0.2], [3.0, 0.5, 0.0, 0.0], [2.0]],
    ids=str,
)
def test_any_frequencies(frequencies):
    """Planes that do not turn, that turn alike, slowly, or by half a turn."""
    layer = given_planes(np.array(frequencies))
    found = learn_from_queries(layer, 8)
    assert found.recovered, found.outcome
    assert worst_attn(found.layer, layer) < 1e-7
    behind = learn_from_queries(lambda X: layer(rms_norm(X)), 8)
    assert behind.recovered, behind.outcome
    assert worst_attn(behind.layer, layer) < 1e-5


def test_a_plane_of_which_one_half_is_seen():
    layer = given_planes(np.array([1.0, 0.0]), rank=3)
    found = learn_from_queries(layer, 8)
    assert found.recovered, found.outcome
    assert worst_attn(found.layer, layer) < 1e-8


def test_heads_with_frequencies_of_their_own():
    """One array of frequencies holds those of all heads; planes that a head lacks are zero."""
    first, second = (given_planes(np.array(f), seed=s) for f, s in (([1.0, 0.3], 1), ([0.8], 2)))

    def oracle(X):
        return first(X) + second(X)

    found = learn_from_queries(oracle, 8)
    assert found.recovered, found.outcome
    assert found.n_heads == 4
    np.testing.assert_allclose(found.layer.frequencies, [1.0, 0.8, 0.3], atol=1e-9)
    tokens = np.random.default_rng(0).standard_normal((3, 50, 8))
    np.testing.assert_allclose(found.predict(tokens), oracle(tokens), atol=1e-7)


def test_coordinates_in_pairs_are_the_same_planes():
    """The layout of coordinates 2 i and 2 i + 1 is another order of columns, which nobody sees."""
    layer = turned()
    order = [0, 2, 1, 3]
    query, key = layer.query[:, :, order], layer.key[:, :, order]

    def oracle(X):
        outputs = np.zeros_like(X)
        for Q, K, V in zip(query, key, layer.value, strict=True):
            for t in range(X.shape[1]):
                turn = [pair_turns(layer.frequencies, t - s) for s in range(t + 1)]
                logits = np.stack(
                    [np.sum((X[:, t] @ Q @ turn[s]) * (X[:, s] @ K), axis=1) for s in range(t + 1)]
                )
                weights = np.exp(logits - logits.max(axis=0))
                weights /= weights.sum(axis=0)
                outputs[:, t] += np.einsum("sb,bsd->bd", weights, X[:, : t + 1]) @ V
        return outputs

    np.testing.assert_allclose(oracle(X[:, :9]), layer(X[:, :9]), atol=1e-12)
    found = learn_from_queries(oracle, 6)
    assert found.recovered
    assert worst_attn(found.layer, layer) < 1e-8


def pair_turns(frequencies, offset):
    turn = np.zeros((2 * len(frequencies),) * 2)
    for i, frequency in enumerate(frequencies):
        c, s = np.cos(offset * frequency), np.sin(offset * frequency)
        turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, s], [-s, c]]
    return turn


def test_files_keep_a_turned_layer(tmp_path):
    found = learn_from_queries(lambda X: X + turned()(rms_norm(X)), 6)
    pa.save(found, tmp_path / "found.safetensors")
    again = pa.load(tmp_path / "found.safetensors")
    np.testing.assert_array_equal(again.predict(X), found.predict(X))
    np.testing.assert_array_equal(again.layer.frequencies, found.layer.frequencies)
    assert "rotary" in str(again.layer)


def biased(layer, slope=0.3):
    """Logits less by a slope times the distance: positions that turn nothing."""

    def answers(X):
        behind = np.abs(np.subtract.outer(np.arange(X.shape[1]), np.arange(X.shape[1])))
        outputs = 0
        for A, V in zip(layer.attn, layer.value, strict=True):
            logits = X @ A @ X.transpose(0, 2, 1) - slope * behind
            weights = np.exp(logits - logits.max(axis=2, keepdims=True))
            outputs = outputs + weights / weights.sum(axis=2, keepdims=True) @ X @ V
        return outputs

    return answers


def with_biases(layer, size=0.3):
    rng = np.random.default_rng(0)
    pair = [
        np.concatenate([each, size * rng.standard_normal((2, 1, 4))], axis=1)
        for each in (layer.query, layer.key)
    ]
    value = np.concatenate([layer.value, np.ones((2, 1, 6))], axis=1)
    return pa.SoftmaxAttention(pair, value, layer.mode, True, layer.frequencies)


OTHER = {
    "rotary=None": (turned(), {"rotary": None}, "other_structure", "order of the tokens"),
    "rotary=None behind": (
        lambda X: X + turned()(rms_norm(X)),
        {"rotary": None},
        "other_structure",
        "order of the tokens",
    ),
    "biases unknown": (with_biases(turned()), {}, "bias_needed", "biases"),
    "slopes": (biased(planted()), {}, "not_attention", "positions may matter"),
    "added": (lambda X: planted()(X + np.arange(X.shape[1])[:, None]), {}, "not_attention", "copy"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_positions_are_named(name):
    oracle, given, outcome, words = OTHER[name]
    found = learn_from_queries(oracle, 6, **given)
    assert found.outcome.name == outcome, found.outcome
    assert words in found.outcome.sentence
    assert found.outcome.next_step


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", [None, "rms_norm", "layer_norm"])
def test_biases_of_queries_keys_and_values(kind, residual):
    """That of keys is visible, but for planes that do not turn: zero is written there."""
    layer = with_biases(turned())

    def oracle(X):
        return residual * X + layer(NORMS[kind](X))

    found = learn_from_queries(oracle, 6, bias=True)
    assert found.recovered, found.outcome
    assert (found.residual, found.normalisation) == (residual, kind)
    np.testing.assert_allclose(found.predict(X), oracle(X), atol=1e-7)
    assert "in planes that do not turn" in found.outcome.sentence


def test_large_biases_are_not_taken_for_other_positions():
    layer = with_biases(turned(), size=5.0)
    found = learn_from_queries(layer, 6, bias=True)
    assert found.outcome.name in ("recovered", "not_recovered", "imprecise")
    if found.recovered:
        np.testing.assert_allclose(found.predict(X), layer(X), atol=1e-6)


def test_positions_that_turn_nothing_behind_a_normalisation():
    inner = biased(planted())
    found = learn_from_queries(lambda X: X + inner(rms_norm(X)), 6)
    assert not found.recovered
    assert not found.outcome.ok


def test_more_planes_than_coordinates_are_not_taken_for_turned():
    layer = turned(n_dims=4, rank=6, groups=1)
    found = learn_from_queries(layer, 4)
    assert found.outcome.name == "not_attention"
    assert "more planes than tokens have coordinates" in found.outcome.sentence


def test_planes_of_one_head_by_hand():
    """K(o) = Q R(o) K^T with R written out; a matrix that is no turn has no planes."""
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 4, 4))
    frequencies = np.array([1.1, 0.05])
    cores = {}
    for offset in (1, 2, 16):
        c, s = np.diag(np.cos(offset * frequencies)), np.diag(np.sin(offset * frequencies))
        cores[offset] = query @ np.block([[c, s], [-s, c]]) @ key.T
    planes = Planes.of(cores, 0.0)
    np.testing.assert_allclose(planes.frequencies, frequencies, atol=1e-12)
    assert planes.misfit(cores) < 1e-11
    assert planes.misfit(cores | {16: cores[16] + 1e-3}) > 1e-5
    assert Planes.of(cores | {2: 1.5 * cores[2]}, 0.0) is None
