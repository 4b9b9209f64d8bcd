"""Layers with biases: a constant beside each token, up to what no input shows of it."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.estimators import SoftmaxAttentionRegressor
from polyattn.interop import from_torch
from polyattn.softmax import find_heads
from polyattn.softmax.examples import ExampleBlock, Examples, count_unknowns
from polyattn.softmax.identifiability import identifiable_heads
from polyattn.softmax.judging.alternatives import share_of_constant
from polyattn.softmax.judging.uncertainty import open_on_generic_inputs, uncertainty
from polyattn.softmax.polish import polish, project
from polyattn.softmax.polish.projection import normal_equations


def planted(seed=0, n_heads=2, n_dims=4, n_tokens=4, count=300, mode="full"):
    """Sequences, their outputs, and the layer in the form in which it is returned."""
    rng = np.random.default_rng(seed)
    attn = rng.standard_normal((n_heads, n_dims + 1, n_dims + 1)) / np.sqrt(n_dims)
    value = rng.standard_normal((n_heads, n_dims + 1, 3))
    attn[:, :, -1] = 0.0
    value[:, -1] = value[:, -1].mean(axis=0)
    layer = pa.SoftmaxAttention(attn, value, mode, bias=True)
    X = rng.standard_normal((count, n_tokens, n_dims))
    return X, layer(X), layer


def distance(one, other):
    """The largest difference between parameters, heads in the best order of two."""
    orders = ([0, 1], [1, 0]) if one.n_heads == 2 else ([*range(one.n_heads)],)
    return min(
        max(np.abs(one.attn[o] - other.attn).max(), np.abs(one.value[o] - other.value).max())
        for o in orders
    )


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
@pytest.mark.parametrize("n_heads", [2, "auto"])
def test_a_planted_layer_is_recovered(mode, n_heads):
    X, Y, layer = planted(count=900 if mode == "last" else 300, mode=mode)
    found = pa.learn_softmax(X, Y, n_heads, mode=mode, bias=True)
    assert found.recovered, found.outcome
    assert "which no input shows" in str(found.outcome)
    assert found.layer.bias
    assert (found.layer.n_dims, found.n_heads) == (4, 2)
    assert distance(found.layer, layer) < 1e-10
    assert np.all(found.layer.attn[:, :, -1] == 0.0)
    assert np.all(found.layer.value[:, -1] == found.layer.value[0, -1])
    assert identifiable_heads(found.layer, X).verdict == "identifiable"


def test_error_bars_leave_out_what_no_input_shows():
    X, Y, layer = planted(n_dims=2, count=200)
    rng = np.random.default_rng(1)
    found = pa.learn_softmax(X, Y + 0.02 * rng.standard_normal(Y.shape), 2, bias=True, noise=0.02)
    assert found.recovered, found.outcome
    order = min([0, 1], [1, 0], key=lambda o: np.abs(found.layer.attn - layer.attn[o]).max())
    attn = (found.layer.attn - layer.attn[order])[:, :, :-1] / found.attn_std[:, :, :-1]
    value = (found.layer.value - layer.value[order]) / found.value_std
    assert 0.5 < np.mean(np.concatenate([attn.ravel(), value.ravel()]) ** 2) < 2.0
    assert np.all(found.attn_std[:, :, -1] == 0.0)
    assert np.all(found.attn_std[:, :, :-1] > 0.0)
    assert np.all(np.isfinite(found.value_std))
    assert np.all(np.isfinite(found.attn_error))


def test_error_bars_are_as_large_as_errors():
    """Of one head brought to rest, without the search for it, on many draws of the noise."""
    X, Y, layer = planted(n_heads=1, n_dims=3, count=120)
    rng = np.random.default_rng(2)
    scores = []
    for _ in range(12):
        noisy = Y + 0.02 * rng.standard_normal(Y.shape)
        examples = Examples((ExampleBlock(X, noisy, None),)).with_constant()
        found = polish(examples, layer.attn)
        bars = uncertainty(examples, found, 0.02)
        shown = bars.attn > 0
        assert np.array_equal(shown, np.broadcast_to([True] * 3 + [False], shown.shape))
        scores.append(((found.attn - layer.attn)[shown] / bars.attn[shown]) ** 2)
        scores.append((((found.value - layer.value) / bars.value) ** 2).ravel())
    assert 0.75 < np.mean(np.concatenate(scores)) < 1.3


@pytest.mark.parametrize("n_heads", [2, None])
def test_a_multihead_attention_with_biases_is_recovered(n_heads):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_bias.normal_()
        module.out_proj.bias.normal_()
    X = np.random.default_rng(0).standard_normal((400, 5, 6))
    tokens = torch.tensor(X)
    Y = module(tokens, tokens, tokens, need_weights=False)[0].detach().numpy()
    found = pa.learn_softmax(X, Y, n_heads, bias=True)
    assert found.recovered, found.outcome
    assert found.validation_error < 1e-13
    assert pa.same_function(found.layer, from_torch(module))


def test_without_bias_the_next_step_is_to_try_it(monkeypatch):
    monkeypatch.setattr(find_heads, "FULL_EFFORT", 1)
    X, Y, _ = planted(n_dims=2, count=80)
    for options in ({"method": "moments", "n_heads": 1}, {"max_seconds": 1e-9, "n_heads": 2}):
        found = pa.learn_softmax(X, Y, **options)
        assert not found.recovered
        assert "Try bias=True" in found.outcome.next_step


def test_a_layer_without_biases_needs_no_constant():
    """Neither heads that are too few ask for one, nor is one made up where it is allowed."""
    task = pa.data.planted_softmax(300, 4, 5, n_heads=3, random_state=0)
    found = pa.learn_softmax(task.X, task.Y, 1, max_seconds=0.5)
    assert not found.recovered
    assert "bias" not in str(found.outcome)
    found = pa.learn_softmax(task.X, task.Y, 3, bias=True)
    assert found.recovered, found.outcome
    assert np.abs(found.layer.attn[:, -1]).max() < 1e-12
    assert np.abs(found.layer.value[:, -1]).max() < 1e-12


def test_what_tokens_do_not_show_beside_the_constant_stays_open():
    X, _, layer = planted()
    X[:, :, 0] = 2.0
    found = pa.learn_softmax(X, layer(X), 2, bias=True)
    assert found.outcome.name == "recovered_on_these_inputs"
    assert np.all(np.isinf(found.value_error))


def test_one_hot_tokens_do_not_show_a_constant():
    rng = np.random.default_rng(3)
    X = np.eye(4)[rng.integers(4, size=(400, 5))]
    layer = planted(3)[2]
    found = pa.learn_softmax(X, layer(X), 2, bias=True)
    assert found.outcome.name == "recovered_on_these_inputs"


def test_two_tokens_leave_the_signs_of_heads_open():
    """Heads whose values add up to nothing, but for the constant, which is a matter of sharing."""
    _, _, layer = planted(4)
    value = layer.value.copy()
    value[1, :-1] = -value[0, :-1]
    X = np.random.default_rng(4).standard_normal((400, 2, 4))
    layer = pa.SoftmaxAttention(layer.attn, value, bias=True)
    found = pa.learn_softmax(X, layer(X), 2, bias=True)
    assert found.outcome.name == "recovered_on_these_inputs"
    assert "signs of heads" in found.outcome.sentence


def test_merged_and_idle_heads():
    X, _, layer = planted(5)
    attn = np.stack([layer.attn[0], layer.attn[0]])
    twice = pa.SoftmaxAttention(attn, layer.value, bias=True)
    found = pa.learn_softmax(X, twice(X), bias=True)
    assert found.recovered, found.outcome
    assert found.n_heads == 1


def test_files_keep_the_bias_and_old_ones_load(tmp_path):
    X, Y, _ = planted(n_heads=1)
    found = pa.learn_softmax(X, Y, 1, bias=True)
    pa.save(found, tmp_path / "heads.safetensors")
    loaded = pa.load(tmp_path / "heads.safetensors")
    assert loaded.layer == found.layer
    assert loaded.layer.bias
    record = found.to_record()
    del record.metadata["bias"]
    assert not type(found).from_record(record).layer.bias


def test_the_estimator_and_the_command_line(tmp_path):
    X, Y, _ = planted(n_heads=1, n_dims=2)
    estimator = SoftmaxAttentionRegressor(bias=True).fit(X, Y)
    assert estimator.recovered_
    assert estimator.n_features_in_ == 2
    assert estimator.score(X, Y) > 1 - 1e-12
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    arguments = ["learn-softmax", str(tmp_path / "data.npz"), "--bias", "--heads"]
    for heads in ("auto", "1"):
        result = CliRunner().invoke(cli, [*arguments, heads])
        assert result.exit_code == 0, result.output
        assert "bias" in result.output


def test_sizes_of_tokens_do_not_matter():
    X, Y, _ = planted(n_heads=1)
    here = pa.learn_softmax(X, Y, 1, bias=True)
    there = pa.learn_softmax(2.0**40 * X, Y, 1, bias=True)
    assert there.recovered, there.outcome
    np.testing.assert_allclose(there.layer.attn[0, -1, :-1] * 2.0**40, here.layer.attn[0, -1, :-1])
    with pytest.raises(pa.errors.OutOfRange, match="similar size"):
        pa.learn_softmax(2.0**500 * X, Y, 1, bias=True)


def test_bias_is_a_flag():
    X, Y, _ = planted(count=50)
    with pytest.raises(pa.errors.InvalidType, match="bias must be True or False"):
        pa.learn_softmax(X, Y, bias=1)


@pytest.mark.parametrize("bias", [False, True])
def test_unknowns_are_the_rank_of_the_jacobian(bias):
    X, Y, _ = planted(count=60)
    examples = Examples((ExampleBlock(X, Y, None),))
    examples = examples.with_constant() if bias else examples
    rng = np.random.default_rng(0)
    projection = project(examples, rng.standard_normal((2, examples.width, examples.width)))
    equations = normal_equations(examples, projection)
    rank = np.linalg.matrix_rank(equations.hessian) + projection.whitening.shape[1] * 3
    assert rank == count_unknowns(2, 4 + bias, 3, bias)
    bars = uncertainty(examples, projection, 1.0)
    assert (bars.n_open, bars.n_parameters) == (0, rank)
    assert not open_on_generic_inputs(projection, bias)
    if not bias:
        assert share_of_constant(examples, projection) > 0.1
