"""pa.linearise: the best linear attention in the place of softmax heads, and what that loses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import oracle
import polyattn as pa
from oracle import MODES
from polyattn.errors import InvalidInput, InvalidType

# What the maps see of queries, and of keys; keys of landmarks are bounded without "features".
KINDS = {
    "landmarks": ("softmax", "exponential"), "linear": ("linear", "linear"),
    "taylor": ("quadratic", "quadratic"), "hedgehog": ("softmax", "softmax"),
    "elu": ("elu", "elu"), "favor": ("gaussian", "gaussian"),
}  # fmt: skip


def some_layer(mode="full", bias=False, d=3, e=2, n_heads=2, seed=0):
    rng = np.random.default_rng(seed)
    attn = rng.standard_normal((n_heads, d + bias, d + bias))
    return pa.SoftmaxAttention(attn, rng.standard_normal((n_heads, d + bias, e)), mode, bias)


def ragged(d=3, seed=1, times=2):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, d)) for n in [1, 3, 3, 5, 7, 7, 7, 2, 6, 6, 5, 4] * times]


def flat(outputs):
    return outputs if isinstance(outputs, np.ndarray) else np.concatenate(outputs)


def lost(wanted, found):
    return np.sum((wanted - found) ** 2) / np.sum((wanted - wanted.mean(axis=0)) ** 2)


# ------------------------------------------------------------------ written out


def features(kind, x, P):
    """Features (F,) of one query or key x (r,)."""
    seen = x @ P
    if kind == "linear":
        return np.array([1.0, *seen])
    if kind == "quadratic":
        pairs = [
            seen[i] * seen[j] * (0.5**0.5 if i == j else 1.0)
            for i in range(len(seen))
            for j in range(i, len(seen))
        ]
        return np.array([1.0, *x, *pairs])
    if kind == "elu":
        return np.where(seen > 0, seen + 1, np.exp(seen))
    found = np.exp(seen - (x @ x / 2 if kind == "gaussian" else 0.0))
    return found / found.sum() if kind == "softmax" else found


def seen_by(layer, maps, x, h):
    """phi (n, F), psi (n, G), and queries, keys and values (n, .) of a head."""
    q, k, v = (x @ getattr(layer, f"W_{i}")[h] + getattr(layer, f"b_{i}")[h] for i in "QKV")
    if layer.frequencies is not None:
        turns = [oracle.rotation(layer.frequencies, t) for t in range(len(x))]
        q, k = (np.array([row @ R for row, R in zip(z, turns, strict=True)]) for z in (q, k))
    kinds, arrays = KINDS[maps], layer.arrays()
    if maps == "landmarks" and layer.denominator != "features":
        kinds = ("softmax", "softmax")
    sides = zip(kinds, (q, k), ("query_matrix", "key_matrix"), strict=True)
    phi, psi = (np.array([features(f, z, arrays[P][h]) for z in rows]) for f, rows, P in sides)
    return phi, psi, q, k, v


def rows_of(layer, maps, x, t, h):
    """phi_t and the rows Z_t of a head, with the softmax of a window behind them."""
    phi, psi, q, k, v = seen_by(layer, maps, x, h)
    if layer.denominator == "fitted":
        v = np.column_stack([v, np.ones(len(v))])
    by = "features" if layer.denominator == "features" else "tokens"
    Z = oracle.key_rows(psi, v, t, layer.mode, by)
    if layer.window is not None:
        Z = np.vstack([Z, oracle.window_row(q, k, v, t, layer.mode, layer.window)])
    return phi[t], Z


def output(layer, maps, x, t):
    total = layer.b_O + (0.0 if layer.skip is None else x[t] @ layer.skip)
    for h in range(layer.n_heads):
        phi, Z = rows_of(layer, maps, x, t, h)
        found = phi @ layer.mixing[h] @ Z
        if layer.denominator == "fitted":
            found = found[:-1] / max(found[-1], 0.1)
        total = total + found @ layer.W_O[h]
    return total


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("maps", KINDS)
def test_layers_and_modules_compute_what_is_printed(mode, maps):
    X, given = ragged(), some_layer(mode, bias=True)
    options = [{"window": 2}, {"denominator": "tokens", "skip": False}, {"denominator": "fitted"}]
    if maps == "landmarks":
        rng = np.random.default_rng(0)
        W_Q, W_K = 0.5 * rng.standard_normal((2, 2, 3, 4))
        value = rng.standard_normal((2, 3, 2))
        turned = pa.SoftmaxAttention((W_Q, W_K), value, mode, rotary=100.0)
        options += [{"window": 3, "given": turned}]
    for option in options:
        option = {"given": given, "n_features": 4, "ridge": 1e-3} | option
        layer = pa.linearise(option.pop("given"), X, maps, **option).layer
        outputs, module = layer(X), pa.interop.to_torch(layer)
        for i in (0, 1, 6):
            at = oracle.predicted(len(X[i]), mode)
            wanted = np.array([output(layer, maps, X[i], t) for t in at])
            found = np.atleast_2d(outputs[i])
            np.testing.assert_allclose(found, wanted, atol=1e-9, err_msg=str(option))
            by_torch = module(torch.tensor(X[i])).detach().numpy()
            np.testing.assert_allclose(np.atleast_2d(by_torch), wanted, atol=1e-8)
        single = X[6].astype(np.float32)
        np.testing.assert_allclose(layer(single), outputs[6], atol=1e-3)
        np.testing.assert_allclose(layer(np.stack([X[4], X[5]]))[1], outputs[5], atol=1e-11)
        assert pa.interop.from_torch(module) == layer


# ------------------------------------------------------------------ the best there is


@pytest.mark.parametrize("mode", MODES)
def test_each_head_is_the_least_squares_fit_and_the_layer_is_near_that_of_all(mode):
    given, X = some_layer(mode), ragged(times=6 if mode == "last" else 2)
    ends = [oracle.predicted(len(x), mode) for x in X]
    wanted = flat(given(X))
    for maps, window in (("landmarks", None), ("linear", 2), ("elu", 1), ("hedgehog", None)):
        options = {"n_features": 2, "window": window, "ridge": 1e-4, "X_test": ragged(seed=5)}
        alone = pa.linearise(given, X, maps, skip=False, joint=False, **options)
        together, designs = pa.linearise(given, X, maps, **options), []
        for h in range(2):
            positions, W_O = [], alone.layer.W_O[h]
            for x, at in zip(X, ends, strict=True):
                _, _, q, k, v = seen_by(alone.layer, maps, x, h)
                for t in at:
                    phi, Z = rows_of(alone.layer, maps, x, t, h)
                    o = oracle.window_row(q, k, v, t, mode, 99)
                    positions.append((phi, Z @ W_O, o @ W_O))
            best = oracle.fit_of_features(positions, 1e-4)
            np.testing.assert_allclose(alone.layer.mixing[h], best, rtol=1e-5, atol=1e-6)
            designs.append(
                [np.outer(p, Z[:, a]).ravel() for p, Z, _ in positions for a in range(2)]
            )
        # All heads and the linear map together, without a ridge.
        own = np.concatenate([x[at] for x, at in zip(X, ends, strict=True)])
        own = np.kron(np.column_stack([own, np.ones(len(own))]), np.eye(2))
        design = np.hstack([*map(np.array, designs), own])
        best = design @ np.linalg.lstsq(design, wanted.ravel(), rcond=1e-12)[0]
        least, found = lost(wanted, best.reshape(wanted.shape)), together.training[-1, 0]
        assert found == pytest.approx(lost(wanted, flat(together.layer(X))), rel=1e-6)
        assert least * (1 - 1e-6) <= found <= 1.3 * least + 1e-3, (maps, least, found)
        assert found < alone.training[-1, 0]
        np.testing.assert_allclose(together.ridges, 1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_errors_of_the_table_are_those_of_outputs_and_of_rivals_written_out(mode):
    given, X, X_test = some_layer(mode), ragged(), ragged(seed=5)
    heads = pa.interop.to_projections(given)
    result = pa.linearise(given, X, n_features=4, X_test=X_test)
    assert (result.n_training, result.n_held_out) == (len(X), len(X_test))
    row = result.table[-1]
    assert (row["head"], row["fit"]) == ("layer", result.error)
    tokens = [flat([x[oracle.predicted(len(x), mode)] for x in each]) for each in (X, X_test)]
    tokens = [np.column_stack([each, np.ones(len(each))]) for each in tokens]
    by_token = np.linalg.lstsq(tokens[0], flat(given(X)), rcond=None)[0]

    def rival(x, weigh):
        outputs = []
        for t in oracle.predicted(len(x), mode):
            z, total = x[: t + 1] if mode == "causal" else x, 0.0
            for W_Q, W_K, W_V, W_O in zip(heads.W_Q, heads.W_K, heads.W_V, heads.W_O, strict=True):
                w = np.array([weigh(x[t] @ W_Q, k) for k in z @ W_K])
                total = total + w @ z @ W_V @ W_O / w.sum()
            outputs.append(total)
        return np.array(outputs)

    def taylor(q, k):
        logit = q @ k / heads.scale
        return 1 + logit + logit**2 / 2

    def hedgehog(q, k):
        phi, psi = (np.exp([*z, *-z]) / np.exp([*z, *-z]).sum() for z in (q, k))
        return phi @ psi

    for sequences, own, suffix in ((X, tokens[0], "_training"), (X_test, tokens[1], "")):
        wanted = flat(given(sequences))
        found = {
            "fit": flat(result.layer(sequences)), "token_wise": own @ by_token,
            "taylor": flat([rival(x, taylor) for x in sequences]),
            "hedgehog": flat([rival(x, hedgehog) for x in sequences]),
        }  # fmt: skip
        for name, each in found.items():
            assert row[name + suffix] == pytest.approx(lost(wanted, each), rel=1e-6), name


def test_what_can_be_exact_is():
    """Logits so small that 1 + q.k is all of exp; windows over all tokens; all queries known."""
    rng, X = np.random.default_rng(0), ragged(times=4)
    tiny = pa.SoftmaxAttention(
        1e-7 * rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 2))
    )
    found = pa.linearise(tiny, X, "linear", skip=False, ridge=0.0, joint=False)
    assert (found.outcome.name, found.error < 1e-10) == ("replacement", True)
    for mode in MODES:
        found = pa.linearise(some_layer(mode), X, n_features=2, window=8, ridge=1e-10)
        assert found.error < 1e-6
        W_Q, W_K = 0.5 * rng.standard_normal((2, 2, 3, 4))
        value = rng.standard_normal((2, 3, 2))
        turned = pa.SoftmaxAttention((W_Q, W_K), value, mode, rotary=100.0)
        assert pa.linearise(turned, X, n_features=2, window=8, ridge=1e-10).error < 1e-6
    symbols = rng.standard_normal((2, 3))[rng.integers(2, size=(60, 5))]
    options = {"n_features": 2, "skip": False, "ridge": 0.0, "joint": False}
    assert pa.linearise(some_layer(), symbols, **options).error < 1e-8
    # Of one token softmax is the token's value: a linear map.
    assert pa.linearise(some_layer(), [x[:1] for x in X], n_features=2).error < 1e-5
    assert pa.linearise(some_layer(), np.ones((6, 4, 3)), n_features=2).error < 1e-9


def test_outcomes_say_what_is_lost_beside_a_map_of_tokens():
    X = np.random.default_rng(0).standard_normal((150, 6, 3))
    sharp = pa.SoftmaxAttention(30 * some_layer().attn, some_layer().value)
    for name, given, tokens, options in (
        ("replacement", some_layer(), X, {"n_features": 12}),
        ("starting_point", some_layer(), X, {"n_features": 1}),
        ("no_better", sharp, X[:6], {"maps": "linear", "ridge": 1e-8, "X_test": X[50:]}),
        ("not_held_out", some_layer(), X[:1], {"n_features": 2}),
    ):
        found = pa.linearise(given, tokens, **options)
        row = found.table[-1]
        assert (found.outcome.name, found.outcome.ok) == (name, name == "replacement")
        if name == "not_held_out":
            assert (found.n_held_out, len(found.held_out)) == (0, 0)
            continue
        assert (row["fit"] <= 0.05) == (name == "replacement")
        assert (row["fit"] < row["token_wise"]) == (name != "no_better")


# ------------------------------------------------------------------ what does not matter


@pytest.mark.parametrize("maps", KINDS)
def test_units_of_tokens_and_values_change_nothing(maps):
    layer, X = some_layer(), ragged()
    given = pa.interop.to_projections(layer)
    wanted = pa.linearise(given, X, maps, n_features=4)
    again = pa.linearise(given, X, maps, n_features=4)
    assert again.layer == wanted.layer
    assert hash(again.layer) == hash(wanted.layer)
    for tokens, values in ((1e5, 1.0), (1e-6, 1e5), (1.0, 1e-6)):
        scaled = replace(
            given, W_Q=given.W_Q / tokens, W_K=given.W_K / tokens, W_V=given.W_V * values / tokens
        )
        found = pa.linearise(scaled, [tokens * x for x in X], maps, n_features=4)
        np.testing.assert_allclose(found.held_out, wanted.held_out, rtol=1e-3, atol=1e-7)
        outputs, scale = flat(found.layer([tokens * x for x in X])), values * np.abs(flat(layer(X)))
        known = values * flat(wanted.layer(X))
        np.testing.assert_allclose(outputs, known, atol=1e-3 * scale.max())
    if maps == "landmarks":  # they prefer no basis of queries and keys
        turn = np.random.default_rng(3).standard_normal((given.head_dim,) * 2)
        turned = replace(given, W_Q=given.W_Q @ turn, W_K=given.W_K @ np.linalg.inv(turn).T)
        for each in (layer, turned):
            found = pa.linearise(each, X, maps, n_features=4).held_out[:, 0]
            np.testing.assert_allclose(found, wanted.held_out[:, 0], rtol=1e-4)
        assert pa.linearise(given, X, n_features=4, random_state=8).layer != wanted.layer


def test_of_several_maps_the_best_is_taken_and_measured_on_other_sequences():
    layer, X = some_layer(), ragged(times=3)
    test, maps = X[-8:], ["linear", "landmarks", "elu"]
    result = pa.linearise(layer, X[:-8], maps, n_features=6, X_test=test)
    errors, name = dict(result.candidates), result.layer.feature_map.name
    assert set(errors) == set(maps)
    assert (errors[name], result.n_held_out) == (min(errors.values()), 4)
    for sequences, error in ((test[0::2], errors[name]), (test[1::2], result.error)):
        assert error == pytest.approx(lost(flat(layer(sequences)), flat(result.layer(sequences))))


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_held_out_that_has_a_copy_in_the_fit(mode):
    rng, layer = np.random.default_rng(5), some_layer(mode, d=4)
    X = np.repeat(rng.standard_normal((12, 5, 4)), 10, axis=0)[rng.permutation(120)]
    result = pa.linearise(layer, X, ["landmarks", "linear"], n_features=10)
    fresh = rng.standard_normal((400, 5, 4))
    assert result.error > lost(flat(layer(fresh)), flat(result.layer(fresh))) / 4
    assert (result.n_training, result.n_held_out) == (100, 10)  # another ten chose the map
    alone = pa.linearise(layer, X[:1].repeat(5, axis=0), n_features=4)
    assert alone.outcome.name == "not_held_out"
    # Targets that no map follows want a large ridge, those that one follows a small one.
    sharp = pa.SoftmaxAttention(40 * layer.attn, layer.value, mode)
    small, large = (
        pa.linearise(each, X[:, :3], "linear", skip=False, joint=False).ridges.max()
        for each in (pa.SoftmaxAttention(1e-4 * layer.attn, layer.value, mode), sharp)
    )
    assert small < large


# ------------------------------------------------------------------ functions, modules, rivals


def test_a_function_of_ones_own_is_a_map(tmp_path):
    result = pa.linearise(some_layer(), ragged(), lambda x: np.concatenate([x, x**2], axis=-1))
    assert result.layer.mixing.shape[1:] == (6, 6)
    assert result.layer.denominator == "tokens"
    with pytest.raises(InvalidType, match="code"):
        pa.save(result, tmp_path / "result.safetensors")
    tanh = pa.linearise(some_layer(), ragged(), np.tanh).layer
    module = pa.interop.to_torch(tanh)
    x = ragged()[4]
    np.testing.assert_allclose(module(torch.tensor(x)).detach().numpy(), tanh(x), atol=1e-10)
    assert pa.interop.from_torch(module) == tanh


def test_fitted_denominators_give_weights_that_sum_to_one():
    X = ragged()
    result = pa.linearise(some_layer(), X, "hedgehog", denominator="fitted", skip=False)
    # Values that are all the same come out as they are, whatever the weights.
    same = replace(result.layer, W_V=0.0 * result.layer.W_V, b_V=result.layer.b_V * 0.0 + 1.0)
    wanted = result.layer.b_O + result.layer.W_O.sum(axis=(0, 1))
    assert np.isclose(flat(same(X)), wanted, rtol=1e-9).all(axis=1).mean() > 0.9
    # It is no worse in training than the unfitted map.
    assert np.all(result.training[:-1, 0] <= result.training[:-1, 3] * (1 + 1e-9))


def test_modules_are_trained_and_large_logits_stay_finite():
    X = np.random.default_rng(0).standard_normal((12, 20, 3))
    sharp = pa.SoftmaxAttention(400.0 * np.eye(3), np.eye(3), "causal")
    module = pa.linearise(sharp, X, n_features=4, window=3).to_torch()
    module(torch.tensor(X)).square().sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in module.parameters())
    given = some_layer()
    module = pa.linearise(given, X, "linear", skip=False).to_torch()
    adam, wanted, losses = torch.optim.Adam(module.parameters(), 3e-3), torch.tensor(given(X)), []
    for _ in range(40):
        adam.zero_grad()
        losses.append((module(torch.tensor(X)) - wanted).square().mean())
        losses[-1].backward()
        adam.step()
    assert losses[-1] < 0.95 * losses[0]
    trained = pa.interop.from_torch(module, "full")
    np.testing.assert_allclose(trained(X), module(torch.tensor(X)).detach().numpy(), atol=1e-10)
    with pytest.raises(InvalidInput, match="mode"):
        pa.interop.from_torch(module, "causal")
    with pytest.raises(InvalidInput, match="shape"):
        module(torch.zeros(2, 3, 5))


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 2])
def test_no_training_of_the_same_map_gets_below_the_fit(window):
    X = np.random.default_rng(0).standard_normal((12, 37, 3))
    result = pa.linearise(
        some_layer("causal"), X, n_features=4, window=window, ridge=1e-8, adam=True
    )
    row = result.table[-1]
    assert row["adam_10_training"] < 0.9
    assert row["fit_training"] <= row["adam_10_training"] * 1.05


LAYER, X = some_layer(), ragged()
MISUSES = [
    ({"maps": "fourier"}, "maps"), ({"maps": 3}, "maps"), ({"maps": []}, "maps"),
    ({"maps": lambda x: x[..., 0]}, "features"), ({"maps": lambda x: x * np.inf}, "finite"),
    ({"n_features": 0}, "n_features"), ({"denominator": "none"}, "denominator"),
    ({"maps": "linear", "denominator": "features"}, "denominator"), ({"window": 0}, "window"),
    ({"ridge": "loo"}, "ridge"), ({"ridge": -1.0}, "ridge"),
    ({"adam": True, "denominator": "fitted"}, "adam"),
    ({"X_test": [np.ones((2, 5))]}, "X_test"), ({"X": [np.full((2, 3), np.nan)]}, "NaN"),
    ({"attention": pa.data.random_layer(3)}, "attention"),
    ({"attention": pa.interop.to_projections(pa.data.random_layer(3))}, "linear"),
]  # fmt: skip


def test_misuse_is_named():
    for change, words in MISUSES:
        with np.errstate(invalid="ignore"), pytest.raises((InvalidInput, InvalidType), match=words):
            pa.linearise(**{"attention": LAYER, "X": X} | change)
