"""The mode of a layer that was queried: heads show in the last row, masks in the others."""

import numpy as np
import pytest

import polyattn as pa
from polyattn import learn_from_queries


def planted(mode="full", bias=False, seed=5):
    layer = pa.data.random_softmax_layer(5 + bias, n_heads=2, n_outputs=4, random_state=seed)
    return pa.SoftmaxAttention(layer.attn, layer.value, mode, bias)


def all_rows_agree(found, oracle):
    X = np.random.default_rng(1).standard_normal((6, 7, 5))
    return np.allclose(found.layer(X), oracle(X), atol=1e-6)


def masked(layer, allowed):
    """Row t attends to the tokens that ``allowed(t, n)`` names."""
    last = pa.SoftmaxAttention(layer.attn, layer.value, "last", layer.bias)

    def answers(X):
        n_tokens = X.shape[1]
        # The query comes last; attention does not depend on the order.
        orders = [[s for s in allowed(t, n_tokens) if s != t] + [t] for t in range(n_tokens)]
        return np.stack([last(X[:, order]) for order in orders], axis=1)

    return answers


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", ["full", "causal"])
def test_the_mode_is_found(mode, bias):
    layer = planted(mode, bias)
    found = learn_from_queries(layer, 5, bias=bias)
    assert found.recovered, found.outcome
    assert found.outcome.ok
    assert found.layer.mode == mode
    assert all_rows_agree(found, layer)
    assert "last row only" not in found.outcome.sentence
    assert f"other rows as in {mode}" in str(found.phases[-1])


def test_rows_one_by_one_are_those_of_both_modes():
    """Positive control of ``masked``: the two masks that are modes are found as such."""
    layer = planted()
    full = learn_from_queries(masked(layer, lambda _t, n: range(n)), 5)
    causal = learn_from_queries(masked(layer, lambda t, _n: range(t + 1)), 5)
    assert (full.layer.mode, causal.layer.mode) == ("full", "causal")
    assert full.recovered
    assert causal.recovered


@pytest.mark.parametrize(
    "allowed",
    [
        lambda t, n: [s for s in range(n) if s != 0 or t in (0, n - 1)],
        lambda t, n: range(n) if t == n - 1 else range(max(0, t - 1), t + 1),
        lambda t, n: range(n) if t == n - 1 else [t],
    ],
    ids=["first token hidden", "window of two", "themselves alone"],
)
def test_another_mask_is_no_mode(allowed):
    layer = planted()
    oracle = masked(layer, allowed)
    found = learn_from_queries(oracle, 5)
    assert found.outcome.name == "other_rows_differ"
    assert not found.outcome.ok
    assert not found.recovered
    assert "of the last row only" in found.outcome.sentence
    assert "those of neither a full nor a causal layer" in found.outcome.sentence
    assert found.layer.mode == "last"
    X = np.random.default_rng(2).standard_normal((6, 7, 5))
    np.testing.assert_allclose(found.layer(X), oracle(X)[:, -1], atol=1e-8)
    # Who needs no other row says so.
    alone = learn_from_queries(oracle, 5, mode="last")
    assert alone.recovered
    assert alone.outcome.ok
    assert "of the last row only" in alone.outcome.sentence


@pytest.mark.parametrize("other", [np.nan, np.inf, 0.0, 1e300])
def test_other_rows_that_hold_anything(other):
    """Before, too, only the last row had to be finite; nothing is claimed of the others."""
    layer = planted()

    def oracle(X):
        outputs = layer(X)
        outputs[:, :-1] = other
        return outputs

    found = learn_from_queries(oracle, 5)
    assert found.outcome.name == "other_rows_differ"
    assert found.layer.mode == "last"
    assert learn_from_queries(oracle, 5, mode="last").recovered


def test_slightly_other_rows_are_noticed():
    """Rows that deviate by a millionth part of attention are neither rounding nor a mode."""
    layer = planted()

    def oracle(X, part):
        outputs = layer(X)
        outputs[:, :-1] *= 1 + part
        return outputs

    assert learn_from_queries(lambda X: oracle(X, 1e-4), 5).outcome.name == "other_rows_differ"
    assert learn_from_queries(lambda X: oracle(X, 1e-12), 5).recovered


@pytest.mark.parametrize(("given", "true"), [("full", "causal"), ("causal", "full")])
def test_a_mode_that_the_rows_contradict(given, true, tmp_path):
    layer = planted(true)
    found = learn_from_queries(layer, 5, mode=given)
    assert found.outcome.name == "other_rows_differ"
    assert f"those of mode={true!r}, not of mode={given!r}" in found.outcome.sentence
    assert "Leave mode out" in found.outcome.next_step
    assert found.layer.mode == given
    assert learn_from_queries(layer, 5, mode=true).recovered
    path = tmp_path / "found.safetensors"
    pa.save(found, path)
    assert pa.load(path).outcome == found.outcome


@pytest.mark.parametrize("mode", ["full", "causal"])
def test_rounded_answers_and_other_units_show_the_mode(mode):
    layer = planted(mode)
    rounded = learn_from_queries(lambda X: layer(X).astype(np.float32), 5)
    assert rounded.layer.mode == mode
    assert rounded.outcome.name != "other_rows_differ"
    large = learn_from_queries(lambda X: 1e120 * layer(1e-90 * X), 5)
    assert large.recovered
    assert large.layer.mode == mode


def test_what_was_not_compared_is_a_layer_of_the_last_row():
    layer = planted("causal")
    short = learn_from_queries(layer, 5, max_queries=60)
    assert short.outcome.name == "budget"
    assert short.layer.mode == "last"
    assert learn_from_queries(layer, 5, max_queries=60, mode="causal").layer.mode == "causal"


def test_one_head_that_attends_to_all_alike_has_a_mode():
    value = np.random.default_rng(3).standard_normal((1, 5, 4))
    for mode in ("full", "causal"):
        layer = pa.SoftmaxAttention(np.zeros((1, 5, 5)), value, mode)
        found = learn_from_queries(layer, 5)
        assert found.recovered
        assert found.layer.mode == mode
    # Nothing tells the modes of a layer apart that answers nothing.
    silent = learn_from_queries(pa.SoftmaxAttention(np.zeros((1, 5, 5)), 0 * value, "causal"), 5)
    assert silent.recovered
    assert silent.layer.mode == "full"


def test_comparing_costs_no_query():
    layer = planted()
    auto, last = (learn_from_queries(layer, 5, mode=mode) for mode in ("auto", "last"))
    assert auto.n_queries == last.n_queries
    np.testing.assert_array_equal(auto.layer.attn, last.layer.attn)
