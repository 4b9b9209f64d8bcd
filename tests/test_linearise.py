"""Linearised softmax heads: the layer, its errors, its invariances, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn import progress
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput, InvalidType
from polyattn.linearising import layer_view
from polyattn.reference import linearised as reference

MODES = ["full", "causal", "last"]
LENGTHS = [1, 3, 3, 5, 7, 7, 7, 2, 6, 6, 5, 4]


def some_layer(mode="full", bias=False, d=3, e=2, n_heads=2, seed=0):
    rng = np.random.default_rng(seed)
    width = d + bias
    attn = rng.standard_normal((n_heads, width, width))
    return pa.SoftmaxAttention(attn, rng.standard_normal((n_heads, width, e)), mode, bias)


def ragged(d=3, seed=1, times=2):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, d)) for n in LENGTHS * times]


def flat(outputs):
    return outputs if isinstance(outputs, np.ndarray) else np.concatenate(outputs)


def relative_error(wanted, found):
    return np.sum((wanted - found) ** 2) / np.sum((wanted - wanted.mean(axis=0)) ** 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("denominator", ["features", "tokens", "fitted"])
@pytest.mark.parametrize("window", [None, 2])
def test_the_layer_computes_what_the_reference_says(mode, denominator, window):
    X = ragged()
    layer = some_layer(mode, bias=True)
    result = pa.linearise(
        layer, X, "hedgehog", denominator=denominator, window=window, ridge=1e-3, joint=False
    )
    found = result.layer
    outputs = found(X)
    for i in (0, 1, 6):
        x = X[i]
        for t in [len(x) - 1] if mode == "last" else range(len(x)):
            wanted = by_reference(found, x, t)
            got = outputs[i] if mode == "last" else outputs[i][t]
            np.testing.assert_allclose(got, wanted, atol=1e-9)
    # Read-only arrays, one sequence, float32 and a batch give the same.
    single = X[6].astype(np.float32)
    single.setflags(write=False)
    np.testing.assert_allclose(found(single), outputs[6], atol=1e-5)
    np.testing.assert_allclose(found(np.stack([X[4], X[5]]))[1], outputs[5], atol=1e-12)


def by_reference(layer, x, t):
    """One output by explicit loops over heads, tokens and features."""
    total = layer.b_O + (0.0 if layer.skip is None else x[t] @ layer.skip)
    for h in range(layer.n_heads):
        q, k = x @ layer.W_Q[h] + layer.b_Q[h], x @ layer.W_K[h] + layer.b_K[h]
        v = x @ layer.W_V[h] + layer.b_V[h]
        phi = layer.feature_map.query.features(q, h)[t]
        psi = layer.feature_map.key.features(k, h)
        M, denominator = layer.mixing[h], layer.denominator
        if denominator == "fitted":
            v = np.column_stack([v, np.ones(len(v))])
        Z = reference.rows(
            psi, v, t, layer.mode, "features" if denominator == "features" else "tokens"
        )
        if layer.window is not None:
            Z = np.vstack([Z, reference.window_row(q, k, v, t, layer.mode, layer.window)])
        found = reference.output(phi, M, Z)
        if denominator == "fitted":
            found = found[:-1] / max(found[-1], 0.1)
        total = total + found @ layer.W_O[h]
    return total


@pytest.mark.parametrize("mode", MODES)
def test_errors_of_the_table_are_those_of_outputs(mode):
    layer, X, X_test = some_layer(mode), ragged(), ragged(seed=5)
    result = pa.linearise(layer, X, n_features=4, X_test=X_test)
    assert (result.n_training, result.n_held_out) == (len(X), len(X_test))
    for sequences, suffix in ((X, "_training"), (X_test, "")):
        wanted, found = flat(layer(sequences)), flat(result.layer(sequences))
        row = result.table[-1]
        assert row["head"] == "layer"
        assert row[f"fit{suffix}"] == pytest.approx(relative_error(wanted, found), rel=1e-6)
        tokens = np.concatenate([x[-1:] for x in sequences] if mode == "last" else sequences)
        if suffix:
            x = np.column_stack([tokens, np.ones(len(tokens))])
            best = x @ np.linalg.lstsq(x, wanted, rcond=None)[0]
            assert row[f"token_wise{suffix}"] == pytest.approx(
                relative_error(wanted, best), rel=1e-3
            )


def test_each_head_is_at_its_optimum_and_the_layer_no_worse_than_its_heads():
    layer, X = some_layer(d=4, e=4, n_heads=3), np.random.default_rng(0).standard_normal((80, 6, 4))
    options = {"n_features": 6, "ridge": 0.0}
    alone = pa.linearise(layer, X, skip=False, joint=False, **options)
    joint = pa.linearise(layer, X, skip=False, **options)
    both = pa.linearise(layer, X, **options)
    # Each head by itself has the same errors whether or not the layer is fitted jointly.
    np.testing.assert_allclose(alone.training[:-1], joint.training[:-1])
    assert joint.training[-1, 0] <= alone.training[-1, 0] * (1 + 1e-9)
    assert both.training[-1, 0] <= joint.training[-1, 0] * (1 + 1e-9)
    # With the linear map every head is at least as good as that map alone.
    assert np.all(both.training[:, 0] <= both.training[:, 1] * (1 + 1e-6))
    # No other M is better: neighbours of the optimum of the only head are worse.
    one = pa.linearise(some_layer(n_heads=1), ragged(), skip=False, joint=False, **options)
    rng = np.random.default_rng(0)
    wanted = np.concatenate(some_layer(n_heads=1)(ragged()))
    training = 1.0 * one.training[-1, 0]
    for _ in range(5):
        change = 0.05 * rng.standard_normal(one.layer.mixing.shape)
        other = replace(one.layer, mixing=one.layer.mixing + change)
        assert relative_error(wanted, np.concatenate(other(ragged()))) > 0.9 * training


def test_a_head_that_is_linear_attention_is_recovered():
    """exp(q.k) with logits so small that 1 + q.k is all there is of it."""
    rng = np.random.default_rng(0)
    layer = pa.SoftmaxAttention(
        1e-7 * rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 2))
    )
    X = rng.standard_normal((40, 6, 3))
    result = pa.linearise(layer, X, "linear", skip=False, ridge=0.0, joint=False)
    assert result.error < 1e-10
    assert result.outcome.name == "replacement"
    assert result.outcome.ok


@pytest.mark.parametrize("mode", MODES)
def test_a_window_over_all_tokens_is_softmax(mode):
    result = pa.linearise(some_layer(mode), ragged(), n_features=2, window=8, ridge=1e-10)
    assert result.error < 1e-6


def test_landmarks_at_all_queries_and_keys_are_exact():
    """Two tokens only: softmax attention takes two values of q, which are landmarks."""
    rng = np.random.default_rng(0)
    symbols = rng.standard_normal((2, 3))
    X = symbols[rng.integers(2, size=(60, 5))]
    result = pa.linearise(some_layer(), X, n_features=2, skip=False, ridge=0.0, joint=False)
    assert result.error < 1e-8


@pytest.mark.parametrize("maps", ["landmarks", "linear", "taylor", "hedgehog", "elu", "favor"])
def test_units_of_tokens_and_values_change_nothing(maps):
    layer, X = some_layer(), ragged()
    given = pa.interop.to_projections(layer)
    wanted = pa.linearise(given, X, maps, n_features=4)
    for tokens, values in ((1e5, 1.0), (1e-6, 1e5), (1.0, 1e-6)):
        scaled = replace(
            given, W_Q=given.W_Q / tokens, W_K=given.W_K / tokens, W_V=given.W_V * values / tokens
        )
        found = pa.linearise(scaled, [tokens * x for x in X], maps, n_features=4)
        np.testing.assert_allclose(found.held_out, wanted.held_out, rtol=1e-3, atol=1e-7)
        scale = np.abs(flat(layer(X))).max() * values
        outputs = flat(found.layer([tokens * x for x in X]))
        np.testing.assert_allclose(outputs, values * flat(wanted.layer(X)), atol=1e-3 * scale)


def test_landmarks_do_not_depend_on_the_basis_of_queries_and_keys():
    layer, X = some_layer(), ragged()
    given = pa.interop.to_projections(layer)
    turn = np.random.default_rng(3).standard_normal((given.head_dim,) * 2)
    turned = replace(
        given, W_Q=given.W_Q @ turn, W_K=given.W_K @ np.linalg.inv(turn).T,
    )  # fmt: skip
    results = [pa.linearise(each, X, n_features=3) for each in (layer, given, turned)]
    for other in results[1:]:
        np.testing.assert_allclose(other.held_out[:, 0], results[0].held_out[:, 0], rtol=1e-4)


def test_blocks_and_kept_memory_change_nothing(monkeypatch):
    layer, X = some_layer("causal"), ragged()
    wanted = pa.linearise(layer, X, n_features=3)
    monkeypatch.setattr(layer_view, "BLOCK_TOKENS", 5)
    monkeypatch.setattr("polyattn.linearising.candidate.KEPT_BYTES", 0)
    found = pa.linearise(layer, X, n_features=3)
    np.testing.assert_allclose(found.held_out, wanted.held_out, rtol=1e-6)
    seen = []
    with progress.listening(lambda done, total: seen.append((done, total))):
        pa.linearise(layer, X, n_features=3)
    assert any(done == total for done, total in seen)


def test_of_several_maps_the_best_is_taken_and_measured_on_other_sequences():
    layer, X = some_layer(), ragged(times=3)
    test, maps = X[-8:], ["linear", "landmarks", "elu"]
    result = pa.linearise(layer, X[:-8], maps, n_features=6, X_test=test)
    errors, name = dict(result.candidates), result.layer.feature_map.name
    assert set(errors) == set(maps)
    assert errors[name] == min(errors.values())
    assert result.n_held_out == 4
    for sequences, error in ((test[0::2], errors[name]), (test[1::2], result.error)):
        wanted, found = (np.concatenate(each(sequences)) for each in (layer, result.layer))
        lost = np.sum((wanted - found) ** 2) / np.sum((wanted - wanted.mean(axis=0)) ** 2)
        assert error == pytest.approx(lost, rel=1e-6)


def test_a_function_of_ones_own_is_a_map(tmp_path):
    result = pa.linearise(some_layer(), ragged(), lambda x: np.concatenate([x, x**2], axis=-1))
    assert result.layer.mixing.shape[1:] == (6, 6)
    assert result.layer.denominator == "tokens"
    with pytest.raises(InvalidType, match="a file holds no code"):
        pa.save(result, tmp_path / "result.safetensors")
    with pytest.raises(InvalidInput, match="must return features"):
        pa.linearise(some_layer(), ragged(), lambda x: x[..., 0])
    with pytest.raises(InvalidInput, match="finite"):
        pa.linearise(some_layer(), ragged(), lambda x: np.full_like(x, np.inf))


def test_fitted_denominators_give_weights_that_sum_to_one():
    layer, X = some_layer(), ragged()
    result = pa.linearise(layer, X, "hedgehog", denominator="fitted", skip=False)
    # Values that are all the same come out as they are, whatever the weights.
    same = replace(result.layer, W_V=0.0 * result.layer.W_V, b_V=result.layer.b_V * 0.0 + 1.0)
    wanted = result.layer.b_O + np.einsum("hve->e", result.layer.W_O)
    outputs = flat(same(X))
    inside = np.isclose(outputs, wanted, rtol=1e-9).all(axis=1)
    assert inside.mean() > 0.9
    # It is kept only if it is no worse than the unfitted map in training.
    assert np.all(result.training[:-1, 0] <= result.training[:-1, 3] * (1 + 1e-9))


def test_degenerate_sequences():
    one = pa.linearise(some_layer(), [np.ones((1, 3))], n_features=2)
    assert one.outcome.name == "not_held_out"
    assert one.error == 0.0
    assert len(one.held_out) == 0
    constant = pa.linearise(some_layer(), np.ones((6, 4, 3)), n_features=2)
    assert constant.error < 1e-9 or constant.error == 0.0
    narrow = pa.linearise(some_layer(d=1, e=1), ragged(d=1), n_features=2)
    assert np.isfinite(narrow.training).all()
    single = pa.linearise(some_layer(), [x[:1] for x in ragged()], n_features=2)
    # Of one token softmax is the token's value: a linear map.
    assert single.error < 1e-5


def test_the_same_seed_gives_the_same_layer():
    layer, X = some_layer(), ragged()
    first, again = (pa.linearise(layer, X, n_features=3, random_state=7) for _ in range(2))
    assert first.layer == again.layer
    assert hash(first.layer) == hash(again.layer)
    assert first.layer != pa.linearise(layer, X, n_features=3, random_state=8).layer


def test_what_cannot_be_used_is_refused():
    layer, X = some_layer(), ragged()
    refused = [
        ({"maps": "fourier"}, InvalidInput, "maps must be one of"),
        ({"maps": 3}, InvalidType, "maps must be a name"),
        ({"maps": []}, InvalidInput, "at least one map"),
        ({"n_features": 0}, InvalidInput, "n_features"),
        ({"denominator": "none"}, InvalidInput, "denominator must be one of"),
        ({"maps": "linear", "denominator": "features"}, InvalidInput, "above zero"),
        ({"window": 0}, InvalidInput, "window"),
        ({"ridge": "loo"}, InvalidInput, "ridge"),
        ({"ridge": -1.0}, InvalidInput, "ridge"),
        ({"adam": True, "denominator": "fitted"}, InvalidInput, "linear in M"),
        ({"X_test": [np.ones((2, 5))]}, InvalidInput, "X_test must have tokens of 3"),
    ]
    for options, error, message in refused:
        with pytest.raises(error, match=message):
            pa.linearise(layer, X, **options)
    with pytest.raises(InvalidType, match="attention must be"):
        pa.linearise(pa.data.random_layer(3), X)
    with pytest.raises(InvalidInput, match="linear already"):
        pa.linearise(pa.interop.to_projections(pa.data.random_layer(3)), X)
    with pytest.raises(InvalidInput, match="NaN"):
        pa.linearise(layer, [np.full((2, 3), np.nan)])


def test_files_predict_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layer, X = some_layer(), np.random.default_rng(0).standard_normal((20, 4, 3))
    result = pa.linearise(layer, X, n_features=3)
    np.save("X.npy", X)
    for thing, name in ((result, "result"), (result.layer, "layer")):
        pa.save(thing, f"{name}.safetensors")
        arguments = ["predict", f"{name}.safetensors", "X.npy", "-o", f"{name}.npy"]
        ended = CliRunner().invoke(cli, arguments)
        assert ended.exit_code == 0, ended.output
        np.testing.assert_allclose(np.load(f"{name}.npy"), result.layer(X), atol=1e-12)
        shown = CliRunner().invoke(cli, ["show", f"{name}.safetensors"])
        assert "landmarks" in shown.output
        loaded = pa.load(f"{name}.safetensors")
        assert getattr(loaded, "layer", loaded) == result.layer
    result.report("page.html")
    assert "What is lost" in (tmp_path / "page.html").read_text()
