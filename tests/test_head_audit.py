"""pa.audit of softmax heads: what attention of each order explains, held out."""

import numpy as np
import pytest

import polyattn as pa
from oracle import MODES, softmax_weights
from polyattn.errors import InvalidInput
from test_layers import normal as some


def sequences(n_sequences=240, n_tokens=5, n_dims=3, seed=0):
    return some(n_sequences, n_tokens, n_dims, seed=seed)


def layer(attn, mode="full", bias=False, n_outputs=2):
    attn = np.asarray(attn)
    attn = attn if attn.ndim == 3 else attn[None]
    return pa.SoftmaxAttention(attn, some(len(attn), attn.shape[1], n_outputs, seed=1), mode, bias)


# Orders: a linear map of the token; the mean of the values, less their mean over the training
# tokens; linear attention; all products of two coordinates of queries and of keys.


def shares_by_order(A, V, query, key, train, test, mode):
    """Shares (4,) of a head on ``train``, where it is fitted, and on ``test``, and their errors.

    query, key (D, r): by which coordinates queries and keys are seen
    """
    mean = np.concatenate(train).mean(axis=0)
    seen = [written_out(A, V, query, key, each, mean, mode) for each in (train, test)]
    centre, found, errors = seen[0][1].mean(axis=0), np.zeros((2, 4)), np.zeros(4)
    for order in range(4):
        fit = None
        for side, (own, outputs, orders) in enumerate(seen):
            maps = np.einsum("ti,ab->taib", own, np.eye(V.shape[1])).reshape(outputs.size, -1)
            pairs = (np.array([row[i] for row in orders]) for i in range(order))
            design = np.hstack([maps, *(each.reshape(outputs.size, -1) for each in pairs)])
            if fit is None:
                fit = np.linalg.lstsq(design, outputs.ravel(), rcond=1e-12)[0]
            missed = (outputs.ravel() - design @ fit).reshape(outputs.shape)
            # Of each sequence, if all are equally long: these are drawn independently.
            missed, total = (
                np.sum(each.reshape(n, -1) ** 2, axis=1) if len(outputs) % n == 0 else each**2
                for each, n in ((missed, len(test)), (outputs - centre, len(test)))
            )
            ratio = missed.sum() / total.sum()
            error = np.sqrt(np.sum((missed - ratio * total) ** 2) * len(test) / (len(test) - 1))
            found[side, order], errors[order] = 1.0 - ratio, error / total.sum()
    return *found, errors


def written_out(A, V, query, key, sequences, mean, mode):
    """[1, token] (T, D + 1), outputs (T, e), and mean_s phi_i(q) psi_j(k_s) v_s of three orders."""
    own, outputs, orders = [], [], []
    for x in sequences:
        for t in range(len(x)) if mode != "last" else [len(x) - 1]:
            attended = x[: t + 1] if mode == "causal" else x
            own.append([1.0, *x[t]])
            outputs.append(softmax_weights(A, x, t, mode) @ x @ V)
            phi, psi = products(x[t] @ query), np.array([products(k) for k in attended @ key])
            values, at = (attended - mean) @ V, [[], [], []]
            for i, j in np.ndindex(len(phi), psi.shape[1]):
                order = 2 if i > query.shape[1] or j > key.shape[1] else int(i > 0 or j > 0)
                at[order].append(phi[i] * np.mean(psi[:, j, None] * values, axis=0))
            orders.append([np.array(each).T for each in at])
    return np.array(own), np.array(outputs), orders


def products(x):
    """[1, x_i, x_i x_j for i <= j]."""
    return [1.0, *x, *(x[i] * x[j] for i in range(len(x)) for j in range(i, len(x)))]


@pytest.mark.parametrize("mode", MODES)
def test_shares_are_those_of_features_written_out(mode):
    X, others = sequences(60, 4, 2), sequences(20, 4, 2, seed=5) + 0.2
    soft, every = layer(1.3 * some(2, 2), mode), np.eye(2)
    found = pa.audit(soft, X, X_test=others)
    by_hand = [soft.attn[0], soft.value[0], every, every]
    training, shares, errors = shares_by_order(*by_hand, X, others, mode)
    np.testing.assert_allclose(found.training_shares[0], training, atol=1e-7)
    np.testing.assert_allclose(found.shares[0], shares, atol=1e-5)
    np.testing.assert_allclose(found.errors[0], errors, atol=1e-5)
    by_hand[2] = every[:, :1]  # other features are seen to be others
    assert abs(shares_by_order(*by_hand, X, others, mode)[0] - training)[2] > 1e-3
    # A of rank one with biases and unequal lengths: keys have two directions, queries one.
    rng = np.random.default_rng(3)
    X, others = (
        [rng.standard_normal((n, 3)) + 0.5 for n in lengths]
        for lengths in ([3, 1, 5, 4] * 20, [2, 5, 6])
    )
    left, right, offset = rng.standard_normal((3, 4))
    left[-1] = 0.0
    attn = np.outer(left, right)
    attn[-1] += offset
    soft = layer(attn, mode, bias=True)
    found = pa.audit(soft, X, X_test=others)
    query, key = left[:, None], np.column_stack([right, offset])
    query[-1] = key[-1] = 0.0  # of a coordinate that is 1 nothing but constants
    wide = [[np.column_stack([x, np.ones(len(x))]) for x in each] for each in (X, others)]
    training, shares, _ = shares_by_order(soft.attn[0], soft.value[0], query, key, *wide, mode)
    np.testing.assert_allclose(found.training_shares[0], training, atol=1e-6)
    np.testing.assert_allclose(found.shares[0], shares, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_planted_heads_are_of_the_order_that_was_planted(mode):
    X, attn = sequences(), some(3, 3)
    found, smaller = (pa.audit(layer(size * attn, mode), X) for size in (0.02, 0.002))
    token, mean, linear, second = found.shares[0]
    assert (found.outcome.name, token < 0.6) == ("linear", True)
    assert 0.99 < mean <= linear + 1e-4
    assert second > 0.99
    # What is left shrinks with the square of the logits.
    assert 1.0 - smaller.shares[0, 2] < 0.02 * (1.0 - linear)
    uniform = pa.audit(layer(np.zeros((3, 3)), mode), X)
    assert (uniform.level(0), uniform.shares[0, 0] < 0.6) == ("mean", True)
    np.testing.assert_allclose(uniform.shares[0, 1:], 1.0, atol=1e-9)
    # Tokens of length one, none of which are alike: each sees itself.
    alone = sequences(120, 5, 6)
    alone /= np.linalg.norm(alone, axis=2, keepdims=True)
    own = pa.audit(layer(2e4 * np.eye(6), mode), alone)
    assert own.level(0) == "token"
    np.testing.assert_allclose(own.shares[0, 0], 1.0, atol=1e-4)


def test_sharp_heads_heads_of_keys_and_constant_heads():
    sharp = pa.audit(layer(50.0 * some(2, 6, 6, seed=2)), sequences(300, 10, 6))
    assert (sharp.outcome.name, sharp.level(0), sharp.level(1)) == ("not_linear", None, None)
    # Logits that only the key sees have no directions of queries.
    attn = np.outer([0, 0, 0, 1], [0.3, -0.2, 0.1, 0])
    keys = pa.audit(layer(attn, bias=True), sequences(300, 6, 3) + 1.0)
    assert keys.level(0) in {"mean", "linear"}
    assert keys.shares[0, 3] > max(keys.shares[0, 1], 0.95)
    # Outputs that are zero, and those of tokens that do not differ, are explained.
    value = np.stack([np.zeros((3, 2)), some(3, 2)])
    silent = pa.audit(pa.SoftmaxAttention(some(2, 3, 3), value), sequences(40))
    np.testing.assert_array_equal(silent.shares[0], 1.0)
    np.testing.assert_allclose(silent.sizes, [0.0, 1.0])
    same = [np.full((4 + i % 3, 3), 1e8 / 3) for i in range(9)]
    np.testing.assert_array_equal(pa.audit(layer(some(3, 3)), same).shares, 1.0)


def test_some_heads_are_linear_and_few_sequences_decide_nothing():
    soft = layer(some(3, 3, 3) * [[[1e-3]], [[0.0]], [[9.0]]])
    found = pa.audit(soft, sequences())
    assert (found.outcome.name, found.outcome.ok) == ("partly_linear", True)
    assert found.explains("linear").tolist() == [True, True, False]
    assert found.explains("token").tolist() == [False, False, False]
    assert [found.level(h) for h in range(3)] == ["mean", "mean", None]
    # The splits are those of the random state.
    assert not np.array_equal(pa.audit(soft, sequences(), random_state=1).shares, found.shares)
    few = pa.audit(layer(3.0 * some(4, 4, seed=8), n_outputs=1), sequences(8, 2, 4))
    assert few.training_shares[0, 2] > 0.99
    assert (few.outcome.name, few.outcome.ok) == ("undecided", False)


def test_the_whole_layer_is_the_sum_of_its_heads():
    A, V, X = some(3, 3), some(3, 2), sequences()
    found = pa.audit(pa.SoftmaxAttention(np.stack([0.0 * A, 2.0 * A]), np.stack([V, V])), X)
    assert found.shares[1, 2] < found.layer_shares[0, 2] < found.shares[0, 2]
    alone = pa.audit(pa.SoftmaxAttention(2.0 * A, V), X)
    for each in (alone.shares, alone.layer_shares):
        np.testing.assert_allclose(each[0], found.shares[1], atol=1e-9)
    np.testing.assert_allclose(alone.layer_errors[0], found.errors[1], atol=1e-9)
    twice = pa.audit(pa.SoftmaxAttention(np.stack([A, A]), np.stack([V, V])), X)
    np.testing.assert_allclose(twice.layer_shares[0], twice.shares[0], atol=1e-9)
    np.testing.assert_allclose(twice.sizes, 0.5)


def test_constants_and_logits_have_their_sizes():
    soft, X = layer(some(4, 4), bias=True), sequences()
    value = soft.value.copy()
    value[:, -1] += 100.0
    near, far = pa.audit(soft, X), pa.audit(pa.SoftmaxAttention(soft.attn, value, bias=True), X)
    np.testing.assert_allclose(far.shares, near.shares, atol=1e-9)
    assert far.constant_shares[0] > 0.95 > near.constant_shares[0]
    sizes = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.05, 0.02])
    found = pa.audit(layer(np.diag(sizes)), sequences(200, 5, 8))
    assert 0.97 < found.logit_shares[0] < 1.0
    assert found.logit_sizes[0] == pytest.approx(np.linalg.norm(sizes), rel=0.2)


@pytest.mark.slow
def test_standard_errors_are_those_of_other_sequences():
    soft, train = layer(1.5 * some(3, 3, seed=4)), sequences(400)
    drawn = [pa.audit(soft, train, X_test=sequences(60, seed=9 + i)) for i in range(30)]
    spread = np.std([each.shares[0] for each in drawn], axis=0)
    said = np.mean([each.errors[0] for each in drawn], axis=0)
    assert np.all((0.6 * spread < said) & (said < 1.6 * spread))


@pytest.mark.slow
def test_many_positions_of_causal_layers_are_thinned_evenly():
    """Fits of late positions alone do not hold at all of them."""
    soft = pa.data.random_softmax_layer(4, n_heads=1, random_state=4, mode="causal")
    few, many = (pa.audit(soft, sequences(n, 12, 4)) for n in (450, 3000))
    np.testing.assert_allclose(many.shares[0, :3], few.shares[0, :3], atol=0.03)
    assert np.all(np.diff(many.shares[0]) > 0)


def test_units_turns_order_and_what_softmax_does_not_see_do_not_matter():
    soft, X = layer(some(2, 3, 3, seed=6) * [[[0.5]], [[2.0]]]), sequences()
    attn, value, others = soft.attn, soft.value, sequences(50, seed=7)
    units, order = np.array([1e-6, 1.0, 7e5]), np.random.default_rng(0).permutation(50)
    turn, of_outputs = (np.linalg.qr(some(n, n))[0] for n in (3, 2))
    shifted = np.pad(attn, ((0, 0), (0, 1), (0, 1)))
    shifted[:, :3, 3] = 5.0
    constant = np.concatenate([value, np.ones((2, 1, 2))], axis=1)
    scaled = pa.SoftmaxAttention(attn / units[:, None] / units, 1e-3 * value / units[:, None])
    turned = pa.SoftmaxAttention(turn.T @ attn @ turn, turn.T @ value @ of_outputs)
    known = pa.audit(soft, X, X_test=others)
    for name, given, train, test in (
        ("units", scaled, X * units, others * units),
        ("turns", turned, X @ turn, others @ turn),
        ("shifted logits", pa.SoftmaxAttention(shifted, constant, bias=True), X, others),
        ("order", soft, X[::-1, ::-1], others[order, ::-1]),
        ("projections", pa.interop.to_projections(soft), list(X), others),
        ("module", pa.interop.to_torch(soft), X, others),
    ):
        found = pa.audit(given, train, X_test=test)
        for figure in ("shares", "layer_shares", "errors", "sizes"):
            wanted = getattr(known, figure)
            np.testing.assert_allclose(getattr(found, figure), wanted, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(found.logit_sizes, known.logit_sizes, rtol=1e-4)


def test_rotary_heads_are_seen_by_turned_queries_and_keys():
    """Planes that are not turned change nothing; small turned logits are linear attention."""
    query, key = some(2, 2, 3, 4)
    value, lengths = some(2, 3, 2), [x[: 2 + i % 4] for i, x in enumerate(sequences(80))]
    for mode in MODES:
        still = pa.SoftmaxAttention((query, key), value, mode, rotary=[0.0, 0.0])
        plain = pa.SoftmaxAttention(query @ key.swapaxes(1, 2), value, mode)
        known, found = pa.audit(plain, lengths), pa.audit(still, lengths)
        np.testing.assert_allclose(found.shares, known.shares, atol=1e-6)
        np.testing.assert_allclose(found.logit_sizes, known.logit_sizes, rtol=1e-9)
    query, key = some(2, 1, 3, 4)
    query[:, -1] = key[:, -1] = [1.0, 0.0, 0.0, 0.0]  # of the constant: logits by offset
    value = np.vstack([some(2, 2), np.zeros((1, 2))])[None]
    soft = pa.SoftmaxAttention((0.3 * query, key), value, bias=True, rotary=[0.7, 0.1])
    mean, linear = pa.audit(soft, 0.3 * sequences(300, 8, 2)).shares[0, 1:3]
    assert mean < 0.97  # offsets decide
    assert linear > 0.985


def test_several_layers_are_each_layer_by_itself():
    layers = [layer(0.1 * some(2, 3, 3)), layer(np.eye(2), "causal")]
    X = [sequences(60), sequences(60, 4, 2)]
    both = pa.audit(layers, X)
    alone = [pa.audit(each, own) for each, own in zip(layers, X, strict=True)]
    for name in ("shares", "errors", "sizes", "logit_sizes", "layer_shares", "layer_errors"):
        wanted = np.concatenate([getattr(each, name) for each in alone])
        np.testing.assert_array_equal(getattr(both, name), wanted)
    assert (both.n_layers, both.n_heads, both.modes) == (2, 3, ("full", "causal"))
    assert (both.head_layers.tolist(), both.heads_of(0).tolist()) == ([0, 0, 1], [0, 1])
    assert len({both.name_of(h) for h in range(3)}) == 3


SOFT, X = layer(np.eye(3)), sequences(9)
MISUSES = [
    ({"layer": pa.LinearAttention(np.eye(3), np.eye(3))}, "Softmax"), ({"layer": []}, "empty"),
    ({"layer": [SOFT]}, "X must be a list of 1"), ({"layer": [SOFT], "X": [X, X]}, "got 2"),
    ({"X": X[:1]}, "X"), ({"X": X[..., :2]}, "3 coordinates"), ({"X_test": X[..., :2]}, "X_test"),
    ({"mode": "full"}, "mode"), ({"bias": True}, "bias"), ({"domain": "boolean"}, "domain"),
    ({"sample_weight": np.ones(9)}, "sample_weight"),
]  # fmt: skip


def test_misuse_is_named():
    for change, words in MISUSES:
        with pytest.raises(InvalidInput, match=words):
            pa.audit(**{"layer": SOFT, "X": X} | change)
