"""pa.linearise: the best linear attention in the place of softmax heads, and what that loses."""

import tracemalloc
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


def some_layer(mode="full", bias=False, size=1.0, rotary=None):
    rank = None if rotary is None else 4
    return pa.data.random_softmax_layer(3, 2, 2, 3 * size, rank, mode, bias=bias, rotary=rotary)


def ragged(seed=1, times=2):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((n, 3)) for n in [1, 3, 3, 5, 7, 7, 7, 2, 6, 6, 5, 4] * times]


def flat(outputs):
    return outputs if isinstance(outputs, np.ndarray) else np.concatenate(outputs)


def lost(wanted, found):
    return np.sum((wanted - found) ** 2) / np.sum((wanted - wanted.mean(axis=0)) ** 2)


def features(kind, x, P):
    """Features (F,) of one query or key x (r,)."""
    seen = x @ P
    if kind == "linear":
        return np.array([1.0, *seen])
    if kind == "quadratic":
        i, j = np.triu_indices(len(seen))
        return np.array([1.0, *x, *(seen[i] * seen[j] / np.where(i == j, 2**0.5, 1.0))])
    if kind == "elu":
        return np.where(seen > 0, seen + 1, np.exp(seen))
    found = np.exp(seen - (x @ x / 2 if kind == "gaussian" else 0.0))
    return found / found.sum() if kind == "softmax" else found


def rows_of(layer, maps, x, t, h):
    """phi_t and Z_t of a head, with the softmax of a window behind, and softmax over all tokens."""
    q, k, v = (x @ getattr(layer, f"W_{i}")[h] + getattr(layer, f"b_{i}")[h] for i in "QKV")
    if layer.frequencies is not None:
        turns = [oracle.rotation(layer.frequencies, t) for t in range(len(x))]
        q, k = (np.array([row @ R for row, R in zip(z, turns, strict=True)]) for z in (q, k))
    kinds, arrays = KINDS[maps], layer.arrays()
    if maps == "landmarks" and layer.denominator != "features":
        kinds = ("softmax", "softmax")
    phi = features(kinds[0], q[t], arrays["query_matrix"][h])
    psi = np.array([features(kinds[1], each, arrays["key_matrix"][h]) for each in k])
    if layer.denominator == "fitted":
        v = np.column_stack([v, np.ones(len(v))])
    by = "features" if layer.denominator == "features" else "tokens"
    Z, mode = oracle.key_rows(psi, v, t, layer.mode, by), layer.mode
    if layer.window is not None:
        Z = np.vstack([Z, oracle.window_row(q, k, v, t, mode, layer.window)])
    return phi, Z, oracle.window_row(q, k, v, t, mode, len(x))


def output(layer, maps, x, t):
    total = layer.b_O + (0.0 if layer.skip is None else x[t] @ layer.skip)
    for h in range(layer.n_heads):
        phi, Z, _ = rows_of(layer, maps, x, t, h)
        found = phi @ layer.mixing[h] @ Z
        if layer.denominator == "fitted":
            found = found[:-1] / max(found[-1], 0.1)
        total = total + found @ layer.W_O[h]
    return total


@pytest.mark.parametrize("mode", MODES)
def test_layers_and_modules_compute_what_is_printed(mode):
    X, plain = ragged(), some_layer(mode, bias=True)
    cases = [(plain, maps, {"window": 2}) for maps in KINDS]
    cases += [(plain, maps, {"denominator": "fitted"}) for maps in ("hedgehog", "landmarks")]
    cases += [(plain, "landmarks", {"denominator": "tokens", "skip": False})]
    cases += [(some_layer(mode, rotary=100.0), "landmarks", {"window": 3})]
    for given, maps, options in cases:
        layer = pa.linearise(given, X, maps, n_features=4, ridge=1e-3, **options).layer
        outputs, module = layer(X), pa.interop.to_torch(layer)
        for i in (0, 1, 6):
            at = oracle.predicted(len(X[i]), mode)
            wanted = np.array([output(layer, maps, X[i], t) for t in at])
            by_torch = module(torch.tensor(X[i])).detach().numpy()
            for found in (outputs[i], by_torch):
                found = np.atleast_2d(found)
                np.testing.assert_allclose(found, wanted, atol=1e-8, err_msg=f"{maps} {options}")
        np.testing.assert_allclose(layer(np.stack([X[4], X[5]]))[1], outputs[5], atol=1e-11)
        assert pa.interop.from_torch(module) == layer
        assert layer.describe().facts.get("window") == options.get("window")


@pytest.mark.parametrize("mode", MODES)
def test_each_head_is_the_least_squares_fit_and_the_layer_is_near_that_of_all(mode):
    given, X = some_layer(mode), ragged(times=6 if mode == "last" else 2)
    ends = [oracle.predicted(len(x), mode) for x in X]
    wanted = flat(given(X))
    own = np.concatenate([x[at] for x, at in zip(X, ends, strict=True)])
    own = np.kron(np.column_stack([own, np.ones(len(own))]), np.eye(2))
    for maps, window in (("landmarks", None), ("linear", 2), ("elu", 1), ("hedgehog", None)):
        options = {"n_features": 2, "window": window, "ridge": 1e-4, "X_test": ragged(seed=5)}
        alone = pa.linearise(given, X, maps, skip=False, joint=False, **options)
        together, designs = pa.linearise(given, X, maps, **options), [own]
        for h, W_O in enumerate(alone.layer.W_O):
            seen = [
                rows_of(alone.layer, maps, x, t, h)
                for x, at in zip(X, ends, strict=True)
                for t in at
            ]
            seen = [(phi, Z @ W_O, o @ W_O) for phi, Z, o in seen]
            best = oracle.fit_of_features(seen, 1e-4)
            np.testing.assert_allclose(alone.layer.mixing[h], best, rtol=1e-5, atol=1e-6)
            rows = [np.outer(phi, Z[:, a]).ravel() for phi, Z, _ in seen for a in range(2)]
            designs.append(np.array(rows))
        # All heads and the linear map together, without a ridge.
        design = np.hstack(designs)
        best = design @ np.linalg.lstsq(design, wanted.ravel(), rcond=1e-12)[0]
        least, found = lost(wanted, best.reshape(wanted.shape)), together.training[-1, 0]
        assert least * (1 - 1e-6) <= found <= 1.3 * least + 1e-3, (maps, least, found)
        assert found < alone.training[-1, 0]


@pytest.mark.parametrize("mode", MODES)
def test_errors_of_the_table_are_those_of_outputs_and_of_a_map_of_tokens(mode):
    given, train, test = some_layer(mode), ragged(), ragged(seed=5)
    result = pa.linearise(given, train, n_features=4, X_test=test)
    row, by_token = result.table[-1], None
    assert (row["head"], row["fit"], result.n_training) == ("layer", result.error, 24)
    for suffix, X in (("_training", train), ("", test)):
        ends = [(x, t) for x in X for t in oracle.predicted(len(x), mode)]
        own, wanted = np.array([[*x[t], 1.0] for x, t in ends]), flat(given(X))
        if by_token is None:
            by_token = np.linalg.lstsq(own, wanted, rcond=None)[0]
        assert row["fit" + suffix] == pytest.approx(lost(wanted, flat(result.layer(X))), rel=1e-6)
        assert row["token_wise" + suffix] == pytest.approx(lost(wanted, own @ by_token), rel=1e-6)


def test_what_can_be_exact_is():
    """Logits so small that 1 + q.k is all of exp; windows over all tokens; all queries known."""
    X, options = ragged(times=4), {"skip": False, "ridge": 0.0, "joint": False}
    found = pa.linearise(some_layer(size=1e-7), X, "linear", **options)
    assert (found.outcome.name, found.error < 1e-10) == ("replacement", True)
    for mode in MODES:
        for given in (some_layer(mode), some_layer(mode, rotary=100.0)):
            assert pa.linearise(given, X, n_features=2, window=8, ridge=1e-10).error < 1e-6
    rng = np.random.default_rng(0)
    symbols = rng.standard_normal((2, 3))[rng.integers(2, size=(60, 5))]
    assert pa.linearise(some_layer(), symbols, n_features=2, **options).error < 1e-8
    # Of one token softmax is the token's value: a linear map.
    assert pa.linearise(some_layer(), [x[:1] for x in X], n_features=2).error < 1e-5


def test_outcomes_say_what_is_lost_beside_a_map_of_tokens():
    X = np.random.default_rng(0).standard_normal((150, 6, 3))
    for name, size, tokens, options in (
        ("replacement", 1, X, {"n_features": 12}), ("starting_point", 1, X, {"n_features": 1}),
        ("no_better", 30, X[:6], {"maps": "linear", "ridge": 1e-8, "X_test": X[50:]}),
        ("not_held_out", 1, X[:1], {"n_features": 2}),
    ):  # fmt: skip
        found = pa.linearise(some_layer(size=size), tokens, **options)
        assert (found.outcome.name, found.outcome.ok) == (name, name == "replacement")
        assert (found.n_held_out == 0) == (len(found.held_out) == 0) == (name == "not_held_out")
        if found.n_held_out:
            row = found.table[-1]
            assert (row["fit"] < row["token_wise"]) == (name != "no_better")


@pytest.mark.parametrize("maps", KINDS)
def test_units_of_tokens_and_values_change_nothing(maps):
    """Nor does the basis of queries and keys, for landmarks."""
    X, given = ragged(), pa.interop.to_projections(some_layer())
    wanted = pa.linearise(given, X, maps, n_features=4)
    assert pa.linearise(given, X, maps, n_features=4).layer == wanted.layer
    for tokens, values in ((1e5, 1e-6), (1e-6, 1e5)):
        W_Q, W_K, W_V = (each / tokens for each in (given.W_Q, given.W_K, given.W_V * values))
        scaled, Z = replace(given, W_Q=W_Q, W_K=W_K, W_V=W_V), [tokens * x for x in X]
        found = pa.linearise(scaled, Z, maps, n_features=4)
        np.testing.assert_allclose(found.held_out, wanted.held_out, rtol=1e-3, atol=1e-7)
        assert lost(flat(wanted.layer(X)), flat(found.layer(Z)) / values) < 1e-6
    if maps == "landmarks":
        turn = np.random.default_rng(3).standard_normal((given.head_dim,) * 2)
        turned = replace(given, W_Q=given.W_Q @ turn, W_K=given.W_K @ np.linalg.inv(turn).T)
        for each in (some_layer(), turned):
            found = pa.linearise(each, X, n_features=4)
            np.testing.assert_allclose(found.held_out[:, 0], wanted.held_out[:, 0], rtol=1e-4)
        assert pa.linearise(given, X, n_features=4, random_state=8).layer != wanted.layer


@pytest.mark.parametrize("mode", MODES)
def test_the_best_map_is_taken_and_nothing_judges_that_was_fitted_or_chose(mode):
    layer, maps = some_layer(mode), ["linear", "landmarks", "elu"]
    X, test = ragged(times=3), ragged(seed=5)[:8]
    result = pa.linearise(layer, X, maps, n_features=6, X_test=test)
    errors, name = dict(result.candidates), result.layer.feature_map.name
    assert list(errors) == maps
    assert (errors[name], result.n_held_out) == (min(errors.values()), 4)
    for part, error in ((test[0::2], errors[name]), (test[1::2], result.error)):
        assert error == pytest.approx(lost(flat(layer(part)), flat(result.layer(part))))
    # Logits that the map follows want a small ridge, others a large one.
    X = np.random.default_rng(5).standard_normal((120, 3, 3))
    small, large = (
        pa.linearise(some_layer(mode, size=size), X, "linear", skip=False, joint=False)
        for size in (1e-4, 40.0)
    )
    assert small.ridges.max() < large.ridges.max()


def test_a_function_of_ones_own_is_a_map(tmp_path):
    result = pa.linearise(some_layer(), ragged(), lambda x: np.concatenate([x, x**2], axis=-1))
    assert (result.layer.mixing.shape[1:], result.layer.denominator) == ((6, 6), "tokens")
    with pytest.raises(InvalidType, match="code"):
        pa.save(result, tmp_path / "result.safetensors")
    tanh, x = pa.linearise(some_layer(), ragged(), np.tanh).layer, ragged()[4]
    module = pa.interop.to_torch(tanh)
    np.testing.assert_allclose(module(torch.tensor(x)).detach().numpy(), tanh(x), atol=1e-10)


def test_fitted_denominators_give_weights_that_sum_to_one():
    X = ragged()
    result = pa.linearise(some_layer(), X, "hedgehog", denominator="fitted", skip=False)
    # Values that are all the same come out as they are, whatever the weights.
    same = replace(result.layer, W_V=0.0 * result.layer.W_V, b_V=result.layer.b_V * 0.0 + 1.0)
    wanted = result.layer.b_O + result.layer.W_O.sum(axis=(0, 1))
    assert np.isclose(flat(same(X)), wanted, rtol=1e-9).all(axis=1).mean() > 0.9
    # It is no worse in training than the unfitted map, and here far better.
    assert np.all(result.training[:-1, 0] <= 0.9 * result.training[:-1, 3])


def test_modules_of_large_logits_are_finite_and_refuse_what_they_are_not():
    X = np.random.default_rng(0).standard_normal((12, 20, 3))
    sharp = pa.SoftmaxAttention(400.0 * np.eye(3), np.eye(3), "causal")
    module = pa.linearise(sharp, X, n_features=4, window=3).to_torch()
    module(torch.tensor(X)).square().sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in module.parameters())
    with pytest.raises(InvalidInput, match="mode"):
        pa.interop.from_torch(module, "full")
    with pytest.raises(InvalidInput, match="shape"):
        module(torch.zeros(2, 3, 5))


LAYER, X = some_layer(), ragged()
MISUSES = [
    ({"maps": "fourier"}, "maps"), ({"maps": []}, "maps"), ({"n_features": 0}, "n_features"),
    ({"maps": lambda x: x[..., 0]}, "features"), ({"maps": lambda x: x * np.inf}, "finite"),
    ({"maps": "linear", "denominator": "features"}, "denominator"), ({"window": 0}, "window"),
    ({"ridge": -1.0}, "ridge"), ({"X_test": [np.ones((2, 5))]}, "X_test"),
    ({"attention": pa.data.random_layer(3)}, "attention"),
    ({"attention": pa.interop.to_projections(pa.data.random_layer(3))}, "linear"),
]  # fmt: skip


def test_long_sequences_take_memory_in_proportion_to_their_length():
    layer = pa.linearise(some_layer("causal"), ragged(), n_features=4).layer
    X = np.random.default_rng(0).standard_normal((1, 20_000, 3))
    tracemalloc.start()
    found = layer(X)
    assert tracemalloc.get_traced_memory()[1] < 50e6  # one table of all pairs: 3200e6
    tracemalloc.stop()
    np.testing.assert_allclose(found[:, :100], layer(X[:, :100]), rtol=1e-9)
    # One that is larger than a block is a block of its own.
    layer, X = pa.linearise(some_layer("causal"), ragged(), "taylor").layer, np.tile(X, (1, 8, 1))
    np.testing.assert_allclose(layer(X)[:, :100], layer(X[:, :100]), rtol=1e-9)


def test_misuse_is_named():
    for change, words in MISUSES:
        with np.errstate(invalid="ignore"), pytest.raises((InvalidInput, InvalidType), match=words):
            pa.linearise(**{"attention": LAYER, "X": X} | change)
