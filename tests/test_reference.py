"""The reference agrees with itself, and the fast code with it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planted
from polyattn.features import products, sequence_sums, summaries
from polyattn.form import pairs
from polyattn.form.layout import Layout
from polyattn.model import LinearAttention, by_heads
from polyattn.model import layer as blocks
from polyattn.model.forward import coef_forward
from polyattn.reference import erm, features, layer
from polyattn.sequences import MODES, SequenceBatch

SHAPES = [(1, 1, 1), (1, 4, 2), (3, 1, 4), (2, 3, 2), (5, 2, 3)]  # n, d, e


@st.composite
def random_case(draw):
    """Heads and ragged sequences of small random sizes."""
    d, e, n_heads = (draw(st.integers(1, 4)) for _ in range(3))
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = [rng.standard_normal((length, d)) for length in lengths]
    return rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e)), X


def assert_close(found, expected, scale=1.0):
    """Equal up to rounding, relative to the largest expected number (or ``scale``)."""
    expected = np.asarray(expected)
    size = max(scale, float(np.max(np.abs(expected), initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e4 * planted.EPS * size)


# The reference with itself --------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d", "e"), SHAPES)
def test_rows_and_columns_are_one_formula(n, d, e):
    rng = np.random.default_rng(n * d + e)
    attn, value = rng.standard_normal((2, d, d)), rng.standard_normal((2, d, e))
    X = rng.standard_normal((n, d))
    V, Q = value.transpose(0, 2, 1), attn.transpose(0, 2, 1)
    assert_close(layer.forward(attn, value, X, "full"), layer.forward_columns(V, Q, X.T).T)
    assert_close(layer.forward(attn, value, X, "last"), layer.forward_last_column(V, Q, X.T))


@given(random_case())
def test_causal_is_last_of_every_prefix(case):
    attn, value, X = case
    for sequence in X:
        outputs = layer.forward(attn, value, sequence, "causal")
        for t, output in enumerate(outputs):
            assert_close(layer.forward(attn, value, sequence[: t + 1], "last"), output)


@pytest.mark.parametrize("mode", MODES)
@given(case=random_case())
def test_a_layer_is_linear_in_cubic_features(mode, case):
    attn, value, X = case
    P = features.fold(features.tensor(attn, value))
    for sequence in X:
        outputs = np.atleast_2d(layer.forward(attn, value, sequence, mode))
        assert_close(erm.predict(P, [sequence], mode), outputs)


@given(random_case())
def test_fold_inverts_unfold_and_heads(case):
    attn, value, _ = case
    P = features.fold(features.tensor(attn, value))
    assert_close(features.fold(features.unfold(P)), P)
    svd_attn, svd_value = erm.heads(P)
    assert len(svd_attn) <= attn.shape[1] ** 2
    assert_close(features.fold(features.tensor(svd_attn, svd_value)), P)


def test_an_antisymmetric_part_is_invisible():
    T = np.random.default_rng(0).standard_normal((2, 3, 3, 3))
    assert_close(features.fold(T - T.transpose(0, 2, 1, 3)), np.zeros((2, 6, 3)))
    assert not np.allclose(features.fold(T), 0.0)


@given(random_case())
def test_kernel_is_the_inner_product_in_the_norm_of_t(case):
    _, _, X = case
    (G, x), (H, z) = (features.summaries(X[i], "last")[0] for i in (0, -1))
    s = features.norm_weights(len(x))
    product = (features.cubic_features(G, x) / s) @ (features.cubic_features(H, z) / s)
    assert_close(product, features.kernel(G, x, H, z), scale=abs(product) + 1.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", planted.KINDS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_algorithm_1_finds_planted_answers(kind, mode, ridge):
    task = planted.problem(kind, mode, ridge=ridge)
    targets = task.Y.reshape(task.n_rows, -1)
    P = erm.fit(list(task.X), targets, mode, ridge)
    assert planted.relative_error(P, task.coef) < task.tolerance()
    risk = erm.risk(P, list(task.X), targets, mode)
    assert risk == pytest.approx(task.risk, rel=1e-6, abs=1e-20)


@pytest.mark.parametrize("kind", planted.KINDS)
def test_algorithm_1_with_one_coordinate(kind):
    task = planted.problem(kind, n_dims=1, n_outputs=1)
    P = erm.fit(list(task.X), task.Y, "last")
    assert planted.relative_error(P, task.coef) < task.tolerance()
    assert task.rank == (0 if kind == "flat" else 1)


def test_algorithm_1_is_not_fooled_by_a_wrong_answer():
    """Negative control: the comparison above tells neighbouring coefficients apart."""
    task = planted.problem("tall")
    assert planted.relative_error(task.coef * (1 + 1e-6), task.coef) > task.tolerance()


def test_weights_count_like_repetitions():
    task = planted.problem("tall", "last", noise=0.5)
    weights = np.arange(len(task.X)) % 3
    repeated = np.repeat(task.X, weights, axis=0), np.repeat(task.Y, weights, axis=0)
    weighted = erm.fit(list(task.X), task.Y, "last", weights=weights)
    assert planted.relative_error(weighted, erm.fit(list(repeated[0]), repeated[1], "last")) < 1e-9


def test_ranks_of_the_domains():
    """Gaussian, Boolean, one-hot tokens and single tokens: 18, 12, 9 and 10 at d = 3."""
    ranks = {kind: planted.problem(kind).rank for kind in ("tall", "boolean", "one_hot", "single")}
    assert ranks == {"tall": 18, "boolean": 12, "one_hot": 9, "single": 10}


def test_second_moment_is_definite_exactly_when_the_rank_is_full():
    for kind in ("tall", "flat"):
        task = planted.problem(kind)
        eigenvalues = np.linalg.eigvalsh(erm.second_moment(list(task.X), "last"))
        tolerance = 1e-12 * eigenvalues[-1]
        assert (eigenvalues[0] > tolerance) == (task.rank == task.n_features) == (kind == "tall")


# The fast code with the reference -----------------------------------------------------------------


def law_summaries(X, mode, bias):
    """vech(G) (q, rows) and queries (d, rows) by the reference."""
    tokens = [layer.with_constant(x) if bias else x for x in X]
    rows = [row for x in tokens for row in features.summaries(x, mode)]
    return np.array([features.vech(G) for G, _ in rows]).T, np.array([x for _, x in rows]).T


def fast_summaries(X, mode, bias, block_rows=None):
    """The same by the library, its blocks put together again."""
    batch = SequenceBatch.from_sequences(X)
    seen = summaries.SeenSequences(Layout.plain(batch.n_dims, mode, bias), batch)
    blocks = list(seen.blocks(block_rows))
    borders = [0] + [block.stop for block in blocks]
    assert [block.first for block in blocks] == borders[:-1]
    assert all(block.sums.shape[1] == block.stop - block.first for block in blocks)
    return tuple(
        np.concatenate([getattr(block, part) for block in blocks], axis=1)
        for part in ("sums", "queries")
    )


@pytest.mark.parametrize("mode", MODES)
@given(case=random_case(), bias=st.booleans(), block_rows=st.sampled_from([None, 1, 2, 3, 7]))
def test_summaries(mode, case, bias, block_rows):
    X = case[2]
    expected = law_summaries(X, mode, bias)
    for found, wanted in zip(fast_summaries(X, mode, bias, block_rows), expected, strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [1, 2, 8, 9, 20])
@pytest.mark.parametrize("block_rows", [1, 5, 8, 100])
def test_summaries_of_equal_lengths(mode, length, block_rows):
    X = list(np.random.default_rng(length).standard_normal((7, length, 3)))
    expected = law_summaries(X, mode, False)
    for found, wanted in zip(fast_summaries(X, mode, False, block_rows), expected, strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(11,) * 4, (1, 11, 3, 25), (4, 4, 30)])
def test_summaries_across_token_blocks(monkeypatch, mode, lengths):
    monkeypatch.setattr(sequence_sums, "TOKEN_BLOCK", 10)
    monkeypatch.setattr(summaries, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(summaries, "MIN_BLOCK_ROWS", 6)
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((length, 2)) for length in lengths]
    for found, wanted in zip(
        fast_summaries(X, mode, True), law_summaries(X, mode, True), strict=True
    ):
        assert_close(found, wanted)


@given(random_case())
def test_pairs_and_folds(case):
    attn, value, _ = case
    d = attn.shape[1]
    assert list(zip(*pairs.pair_index(d), strict=True)) == features.pairs(d)
    assert pairs.n_pairs(d) == len(features.pairs(d))
    assert pairs.n_features(d) == len(features.norm_weights(d))
    np.testing.assert_array_equal(Layout.plain(d).feature_weights, features.norm_weights(d))
    for index, (j, k) in enumerate(features.pairs(d)):
        assert pairs.pair_position(d)[j, k] == pairs.pair_position(d)[k, j] == index
    T = features.tensor(attn, value)
    P = features.fold(T)
    assert_close(pairs.fold_tensor(T), P)
    assert_close(pairs.fold_heads(attn, value), P)
    assert_close(pairs.unfold_coef(P), features.unfold(P))


@given(random_case())
def test_cubic_features_and_their_products(case):
    attn, value, X = case
    G, x = law_summaries(X, "causal", False)
    psi = erm.design(X, "causal")
    assert_close(products.all_products(G, x), psi.T)
    P = features.fold(features.tensor(attn, value))
    outputs = erm.predict(P, X, "causal")
    assert_close(products.apply_coef(P, G, x), outputs.T)
    correlation = (psi.T @ outputs).reshape(*P.shape[1:], -1)
    assert_close(products.correlate(G, x, outputs.T), correlation)


@given(random_case(), st.sampled_from([1, 2, 512]))
def test_kernels(case, column_block):
    X = case[2]
    G, x = law_summaries(X, "causal", False)
    rows = [row for sequence in X for row in features.summaries(sequence, "causal")]
    expected = np.array([[features.kernel(*first, *second) for second in rows] for first in rows])
    layout = Layout.plain(len(x))
    assert_close(products.kernel(layout, G, x, G, x), expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "COLUMN_BLOCK", column_block)
        assert_close(np.tril(products.kernel_lower(layout, G, x)), np.tril(expected))


@pytest.mark.parametrize("mode", MODES)
@given(case=random_case(), bias=st.booleans(), small_blocks=st.booleans())
def test_forward(mode, case, bias, small_blocks):
    attn, value, X = case
    inputs = [x[:, :-1] for x in X] if bias and attn.shape[1] > 1 else X
    bias = bias and attn.shape[1] > 1
    tokens = [layer.with_constant(x) if bias else x for x in inputs]
    expected = [np.atleast_2d(layer.forward(attn, value, x, mode)) for x in tokens]
    rows = np.concatenate(expected)
    batch = SequenceBatch.from_sequences(inputs)
    with pytest.MonkeyPatch.context() as patch:
        if small_blocks:
            patch.setattr(by_heads, "CHUNK", 2)
            patch.setattr(blocks, "BLOCK_TOKENS", 3)
        P = features.fold(features.tensor(attn, value))
        layout = Layout.plain(batch.n_dims, mode, bias)
        heads = by_heads.heads_by_scale(layout.form, attn, value, np.zeros(len(attn)))
        assert_close(by_heads.by_heads(summaries.SeenSequences(layout, batch), heads), rows)
        assert_close(coef_forward(batch, P, layout), rows)
        found = LinearAttention(attn, value, mode, bias)(inputs)
    if mode == "last":
        assert_close(found, rows)
    else:
        for got, wanted in zip(found, expected, strict=True):
            assert_close(got, wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "d", "e"), [*SHAPES, (31, 2, 2), (32, 2, 2), (33, 2, 2), (70, 3, 1)])
@pytest.mark.parametrize("n_heads", [1, 12])
def test_forward_of_arrays(mode, n, d, e, n_heads):
    """Shapes in and out, lengths around a chunk, and both forms (few heads, many heads)."""
    rng = np.random.default_rng(n + d + e)
    attn, value = rng.standard_normal((n_heads, d, d)), rng.standard_normal((n_heads, d, e))
    X = rng.standard_normal((3, n, d))
    made = LinearAttention(attn, value, mode)
    expected = np.array([layer.forward(attn, value, x, mode) for x in X])
    assert made(X).shape == expected.shape == ((3, e) if mode == "last" else (3, n, e))
    assert_close(made(X), expected)
    assert_close(made(X[1]), expected[1])
    assert_close(made.coef, features.fold(features.tensor(attn, value)))


@pytest.mark.parametrize(
    "table",
    [
        lambda: pairs.pair_index(3)[0],
        lambda: pairs.pair_index(3)[1],
        lambda: pairs.pair_position(3),
        lambda: pairs.distance_position(3),
        lambda: Layout.plain(3).norm_weights,
        lambda: Layout.plain(3).feature_weights,
    ],
)
def test_tables_that_are_kept_cannot_be_written_to(table):
    with pytest.raises(ValueError, match="read-only"):
        table()[0] = 7
