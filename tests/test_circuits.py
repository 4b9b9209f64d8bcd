"""pa.interop.circuits: what heads read and write, and which heads read what others wrote."""

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

SCORES = ("copying", "positivity", "composition", "qk_effective_rank", "ov_effective_rank")


def layers_of(n_layers=3, n_heads=2, d=6, rank=3, bias=False, seed=0):
    rng = np.random.default_rng(seed)
    width = d + bias

    def product(n_columns):
        left, right = (n_heads, width, rank), (n_heads, rank, n_columns)
        return rng.standard_normal(left) @ rng.standard_normal(right)

    return [
        pa.SoftmaxAttention(product(width), product(d), "causal", bias) for _ in range(n_layers)
    ]


@pytest.mark.parametrize(
    ("d", "rank", "bias"),
    # Ranks of wide heads that a few random columns hold, some more, and none but all.
    [(6, 1, False), (6, 3, True), (6, 6, False), (72, 2, True), (72, 28, False), (72, 64, False)],
)
def test_scores_are_those_that_are_printed(d, rank, bias):
    layers = layers_of(3 if d == 6 else 2, 2, d, rank, bias)
    if d == 72:  # columns of very different size
        units = np.geomspace(1.0, 1e-7, d + bias)
        layers[1] = pa.SoftmaxAttention(layers[1].attn * units, layers[1].value, "causal", bias)
    found = pa.interop.circuits(layers)
    assert (found.n_layers, found.n_heads, found.n_dims) == (len(layers), 2 * len(layers), d)
    assert found.bias == bias
    heads = [
        (i, A[:d, :d], V[:d].T)
        for i, each in enumerate(layers)
        for A, V in zip(each.attn, each.value, strict=True)
    ]
    for h, (number, W_QK, W_OV) in enumerate(heads):
        assert (found.layers[h], found.heads[h]) == (number, h % 2)
        assert found.names[h] == f"{number}.{h % 2}"
        np.testing.assert_array_equal(found.qk[h], W_QK)
        np.testing.assert_array_equal(found.ov[h], W_OV.T)
        for sigma, effective, score, W in (
            (found.qk_singular, found.qk_effective_rank, found.positivity, W_QK),
            (found.ov_singular, found.ov_effective_rank, found.copying, W_OV),
        ):
            wanted = np.linalg.svd(W, compute_uv=False)
            np.testing.assert_allclose(sigma[h], wanted, rtol=0, atol=1e-13 * wanted[0])
            assert effective[h] == pytest.approx(oracle.effective_rank(W), rel=1e-10)
            assert score[h] == pytest.approx(oracle.eigenvalue_score(W), abs=1e-6)
        for g, (earlier, _, W_early) in enumerate(heads):
            wanted = [oracle.composition(late, W_early) for late in (W_QK.T, W_QK, W_OV)]
            wanted = wanted if earlier < number else np.zeros(3)
            np.testing.assert_allclose(found.composition[:, h, g], wanted, rtol=0, atol=1e-12)


HALF = np.diag([1.0, 1.0, 0.0, 0.0])  # the coordinates 0 and 1
MOVE = np.eye(4)[[2, 3, 0, 1]]  # 0 and 1 to 2 and 3


def test_planted_heads_copy_negate_or_do_neither():
    for value, score in (
        (np.eye(4), 1.0),
        (-np.eye(4), -1.0),
        (HALF, 1.0),
        (np.kron(np.eye(2), [[0.0, -1.0], [1.0, 0.0]]), 0.0),  # eigenvalues i and -i
        (np.diag([1.0, 1.0, 1.0, -1.0]), 0.5),
        (HALF @ MOVE, np.nan),  # written where nothing is read: nilpotent
        (np.zeros((4, 4)), np.nan),
        (np.diag(np.ones(3), 1), np.nan),
    ):
        found = pa.interop.circuits(pa.SoftmaxAttention(value, value))
        np.testing.assert_allclose(found.copying, [score], atol=1e-12)
        np.testing.assert_allclose(found.positivity, [score], atol=1e-12)
        shown = found.table()[0]["copying"]
        assert shown is None if np.isnan(score) else shown == pytest.approx(score)
    one = pa.interop.circuits(pa.SoftmaxAttention([[2.0]], [[-3.0]]))
    assert (one.copying[0], one.positivity[0], one.baseline) == (-1.0, 1.0, 1.0)
    wide = pa.interop.circuits(pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)), bias=True))
    assert (wide.n_dims, wide.n_outputs, wide.bias, len(wide.left_out)) == (2, 2, True, 1)
    assert np.isnan(pa.interop.circuits(pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)))).copying)


def test_a_head_that_later_keys_read_is_the_strongest():
    """An induction circuit: keys of the second layer read what the first layer wrote."""
    first = pa.SoftmaxAttention(np.eye(4), HALF @ MOVE)  # writes to 2 and 3
    second = pa.SoftmaxAttention(HALF @ MOVE, HALF)  # queries of 0 and 1, keys of 2 and 3
    found = pa.interop.circuits([first, second])
    # Two equal directions.
    np.testing.assert_allclose(found.composition[:, 1, 0], [0, 0.5**0.5, 0], atol=1e-15)
    best, *others = found.strongest()
    assert (best["kind"], best["later"], best["earlier"]) == ("K", "1.0", "0.0")
    assert (best["score"], len(others)) == (pytest.approx(0.5**0.5), 2)
    assert "1.0" in found.sentence
    many = pa.interop.circuits(layers_of())
    scores = [each["score"] for each in many.strongest(7)]
    assert scores == sorted(many.composition.ravel(), reverse=True)[:7]
    assert len(many.strongest(999)) == 3 * (2 * 2 + 4 * 2)


def test_the_baseline_is_that_of_random_turns():
    late, early = layers_of(2, 1, d=6, rank=2)
    rng, squares = np.random.default_rng(0), []
    for _ in range(3000):
        turn, upper = np.linalg.qr(rng.standard_normal((6, 6)))
        turn *= np.sign(np.diag(upper))
        squares.append(oracle.composition(late.attn[0], turn @ early.value[0].T) ** 2)
    found = pa.interop.circuits([early, late])
    assert found.baseline == pytest.approx(6**-0.5)
    spread = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(found.baseline**2, abs=4 * spread)


def test_sizes_and_the_order_of_heads_do_not_matter():
    layers = layers_of(2, 3)
    one, order = pa.interop.circuits(layers), [2, 1, 0, 5, 4, 3]
    for size in (1e-6, 1e5, 1e-200, 1e150):
        scaled = [pa.SoftmaxAttention(size * e.attn, e.value / size, "causal") for e in layers]
        other = pa.interop.circuits(scaled)
        for name in SCORES:
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-12)
        relative = other.qk_singular / size / one.qk_singular[:, :1]
        np.testing.assert_allclose(relative, one.qk_singular / one.qk_singular[:, :1], atol=1e-13)
    turned = [pa.SoftmaxAttention(e.attn[::-1], e.value[::-1], "causal") for e in layers]
    other = pa.interop.circuits(turned)
    np.testing.assert_allclose(other.copying, one.copying[order], atol=1e-13)
    np.testing.assert_allclose(other.composition, one.composition[:, order][..., order], atol=1e-13)
    mixed = [*layers_of(1, 1, rank=1), *layers_of(1, 3, rank=6), *layers_of(1, 2)]
    found = pa.interop.circuits(mixed)
    assert found.layers.tolist() == [0, 1, 1, 1, 2, 2]
    assert found.heads.tolist() == [0, 0, 1, 2, 0, 1]
    assert np.count_nonzero(found.composition) == 3 * (3 * 1 + 2 * 4)


def test_rotary_positions_are_left_out():
    layer = pa.data.random_softmax_layer(4, n_heads=2, rank=4, rotary=[1.0, 0.1], random_state=0)
    found = pa.interop.circuits(layer)
    np.testing.assert_array_equal(found.qk, layer.attn)
    assert (found.rotary, len(found.left_out)) == (True, 1)
    assert not pa.interop.circuits(layers_of(1)).rotary


def test_what_has_no_circuits_is_named():
    wide = pa.SoftmaxAttention(np.eye(3), np.ones((3, 2)))
    for given, kind, words in (
        ([], InvalidInput, "layers"),
        ([wide, "x"], InvalidType, "layers"),
        (pa.data.random_layer(3), InvalidType, "SoftmaxAttention"),
        ([*layers_of(1, d=4), *layers_of(1, d=6)], InvalidInput, "4.*6"),
        ([wide, wide], InvalidInput, "3 -> 2"),
    ):
        with pytest.raises(kind, match=words):
            pa.interop.circuits(given)
