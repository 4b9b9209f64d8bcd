"""pa.interop.circuits: what heads read and write, and which heads read what others wrote."""

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

circuits = pa.interop.circuits


def layers_of(n_layers=3, n_heads=2, d=6, rank=3, bias=False):
    return [
        pa.data.random_softmax_layer(d, None, n_heads, d, rank, "causal", seed, bias=bias)
        for seed in range(n_layers)
    ]


@pytest.mark.parametrize(
    ("d", "rank", "bias"),
    # Ranks of wide heads that a few random columns hold, some more, and none but all.
    [(6, 1, False), (6, 3, True), (72, 2, True), (72, 28, False), (72, 64, False)],
)
def test_scores_are_those_that_are_printed(d, rank, bias):
    layers = layers_of(3 if d == 6 else 2, 2, d, rank, bias)
    if d == 72:  # columns of very different size
        units = np.geomspace(1.0, 1e-7, d + bias)
        layers[1] = pa.SoftmaxAttention(layers[1].attn * units, layers[1].value, "causal", bias)
    found = circuits(layers)
    assert (found.n_layers, found.n_heads, found.n_dims) == (len(layers), 2 * len(layers), d)
    assert (found.bias, len(found.left_out)) == (bias, bias)
    pairs = [(i, h) for i in range(len(layers)) for h in range(2)]
    heads = [(layers[i].attn[h, :d, :d], layers[i].value[h, :d].T) for i, h in pairs]
    assert found.names == tuple(f"{i}.{h}" for i, h in pairs)
    for h, (W_QK, W_OV) in enumerate(heads):
        for sigma, effective, score, W in (
            (found.qk_singular, found.qk_effective_rank, found.positivity, W_QK),
            (found.ov_singular, found.ov_effective_rank, found.copying, W_OV),
        ):
            wanted = np.linalg.svd(W, compute_uv=False)
            np.testing.assert_allclose(sigma[h], wanted, rtol=0, atol=1e-13 * wanted[0])
            assert effective[h] == pytest.approx(oracle.effective_rank(W), rel=1e-10)
            assert score[h] == pytest.approx(oracle.eigenvalue_score(W), abs=1e-6)
        for g, (_, W_early) in enumerate(heads):
            wanted = [oracle.composition(late, W_early) for late in (W_QK.T, W_QK, W_OV)]
            wanted = wanted if g // 2 < h // 2 else np.zeros(3)
            np.testing.assert_allclose(found.composition[:, h, g], wanted, rtol=0, atol=1e-12)
    assert found.baseline == pytest.approx(d**-0.5)  # the root mean square at random
    scores = [each["score"] for each in found.strongest(999)]
    assert len(scores) == 3 * (12 if d == 6 else 4)
    assert scores == sorted(found.composition.ravel(), reverse=True)[: len(scores)]


HALF = np.diag([1.0, 1.0, 0.0, 0.0])  # the coordinates 0 and 1
MOVE = np.eye(4)[[2, 3, 0, 1]]  # 0 and 1 to 2 and 3
TURN = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]


def test_planted_heads_copy_negate_or_do_neither():
    for value, score in (
        (np.eye(4), 1.0), (-np.eye(4), -1.0), (HALF, 1.0), (np.diag([1.0, 1.0, 1.0, -1.0]), 0.5),
        (np.kron(np.eye(2), [[0.0, -1.0], [1.0, 0.0]]), 0.0),  # eigenvalues i and -i
        # Written where nothing is read, also but for rounding; and nothing at all.
        (HALF @ MOVE, np.nan), (TURN @ HALF @ MOVE @ TURN.T, np.nan), (0 * HALF, np.nan),
    ):  # fmt: skip
        found = circuits(pa.SoftmaxAttention(value, value))
        np.testing.assert_allclose([found.copying, found.positivity], [[score]] * 2, atol=1e-12)
        shown = found.table()[0]["copying"]
        assert shown is None if np.isnan(score) else shown == pytest.approx(score)
    assert np.isnan(circuits(pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)))).copying)


def test_a_head_that_later_keys_read_is_the_strongest():
    """An induction circuit: keys of the second layer read what the first layer wrote."""
    first = pa.SoftmaxAttention(np.eye(4), HALF @ MOVE)  # writes to 2 and 3
    second = pa.SoftmaxAttention(HALF @ MOVE, HALF)  # queries of 0 and 1, keys of 2 and 3
    best = circuits([first, second]).strongest(1)
    wanted = {"kind": "K", "later": "1.0", "earlier": "0.0", "score": pytest.approx(0.5**0.5)}
    assert best == [wanted]


def test_layers_of_other_numbers_of_heads_and_rotary_positions():
    found = circuits([*layers_of(1, 1, rank=1), *layers_of(1, 3, rank=6), *layers_of(1, 2)])
    assert (found.layers.tolist(), found.heads.tolist()) == ([0, 1, 1, 1, 2, 2], [0, 0, 1, 2, 0, 1])
    layer = pa.data.random_softmax_layer(4, n_heads=2, rank=4, rotary=[1.0, 0.1], random_state=0)
    np.testing.assert_array_equal(circuits(layer).qk, layer.attn)
    assert (circuits(layer).rotary, len(circuits(layer).left_out)) == (True, 1)


def test_what_has_no_circuits_is_named():
    wide = pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)))
    for given, words in (
        ([], "layers"), ([wide, "x"], "layers"), (pa.data.random_layer(3), "SoftmaxAttention"),
        ([*layers_of(1, d=4), *layers_of(1, d=6)], "4.*6"), ([wide, wide], "3 -> 2"),
    ):  # fmt: skip
        with pytest.raises((InvalidInput, InvalidType), match=words):
            circuits(given)
