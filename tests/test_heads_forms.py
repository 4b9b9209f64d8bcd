"""Heads for every form: the same function, and as few heads as were planted."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.features.products import apply_coef
from polyattn.form.layout import Layout
from polyattn.form.pairs import fold_heads
from polyattn.heads import GramScale, best_heads, choose_heads, compress, factor, split_ranks
from polyattn.heads.data_scale import CoordinateUnits, SampleScale
from polyattn.heads.target import Target
from polyattn.stats import Moments
from polyattn.stats.rows import Rows

# name: form, n_dims, n_context_dims
FORMS = {
    "whole": (pa.Form(), 4, None),
    "disjoint": (pa.Form(query=[0, 1], key=[0, 1, 2], value=[3, 4]), 5, None),
    "one value": (pa.Form(query=range(4), value=[4]), 5, None),
    "one key": (pa.Form(key=[2]), 4, None),
    "one query": (pa.Form(query=[1]), 4, None),
    "one of all": (pa.Form(query=[0], key=[1], value=[2]), 3, None),
    "one shared": (pa.Form(key=[0, 1, 2], value=[2, 3]), 4, None),
    "overlapping": (pa.Form(key=[0, 1, 2], value=[1, 2, 3, 4]), 5, None),
    "keys among values": (pa.Form(key=[3, 1], value=[0, 1, 2, 3]), 4, None),
    "permuted": (pa.Form(key=[2, 0, 1], value=[0, 1, 2]), 3, None),
    "lags": (pa.Form(mode="causal", lags=2), 3, None),
    "decays": (pa.Form(mode="causal", decay=[0.5, 0.9], key=[0, 1, 2], value=[3]), 4, None),
    "linear terms": (pa.Form(skip=True, intercept=True), 3, None),
    "skip": (pa.Form(skip=True, key=[0, 1, 2], value=[1, 2, 3]), 4, None),
    "intercept": (pa.Form(mode="causal", intercept=True, decay=[0.5, 1.0], bias=True), 2, None),
    "context": (pa.Form(key=[0, 1]), 3, 4),
    "whole context": (pa.Form(mode="full", mean=True), 2, 3),
    "matrix": (pa.Form(key=np.eye(4)[:, :2] + 0.5, value=np.eye(4)[:, 1:]), 4, None),
}


def layout_of(name):
    return Layout.of(*FORMS[name])


def planted(layout, counts, n_outputs=3, seed=0):
    """Coefficients of random heads, ``counts`` for each scale, and of random linear terms."""
    rng = np.random.default_rng([seed, *counts])
    pairs, n_queries = layout.pairs, len(layout.query)
    coef = np.zeros((n_outputs, layout.n_sums, layout.n_queries))
    for scale, count in enumerate(counts):
        if count:
            attn = rng.standard_normal((count, n_queries, pairs.n_keys))
            value = rng.standard_normal((count, pairs.n_values, n_outputs))
            at = slice(scale * len(pairs), (scale + 1) * len(pairs))
            coef[:, at, :n_queries] = fold_heads(attn, value, pairs)
    if layout.form.skip:
        coef[:, layout.n_products, :n_queries] = rng.standard_normal((n_outputs, n_queries))
    if layout.form.intercept:
        coef[:, -1, -1] = rng.standard_normal(n_outputs)
    return coef


def one_each(layout, most=1):
    """The largest number of heads of each scale up to ``most`` that is not too many."""
    pairs = layout.pairs
    return [min(most, 3 * pairs.n_values, pairs.n_keys * len(layout.query))] * layout.n_scales


def rows_of(layout, n_sequences=150, seed=0, sizes=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, 6, layout.n_dims)) * sizes
    other = None
    if layout.n_context_dims is not None:
        other = rng.standard_normal((n_sequences, 6, layout.n_context_dims))
    return Rows.build(X, None, layout.form, None, other)


def require_same(found, coef, layout, tolerance=1e-8):
    changed = found.coef(layout)
    if layout.form.lags is not None:
        # Of lag 0 data see only a part: see test_heads_unseen.
        block = next(rows_of(layout).blocks())
        changed, coef = (apply_coef(each, block.sums, block.queries) for each in (changed, coef))
    assert np.linalg.norm(changed - coef) <= tolerance * np.linalg.norm(coef)


def excess_of(found, coef, gram, layout):
    difference = layout.select((found.coef(layout) - coef).reshape(len(coef), -1).T).T
    return float(np.sum(difference @ gram * difference))


# ---------------------------------------------------------------- the same function


@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("name", FORMS)
def test_planted_heads_are_found_again(name, n_heads):
    layout = layout_of(name)
    counts = one_each(layout, n_heads)
    coef = planted(layout, counts)
    found = compress(coef, layout=layout)
    require_same(found, coef, layout)
    assert np.bincount(found.head_scales, minlength=layout.n_scales).tolist() == counts
    proved = layout.form.lags is None or n_heads == 1
    assert ("no layer with fewer heads" in found.sentence) == proved
    assert (found.skip is None, found.intercept is None) == (
        not layout.form.skip,
        not layout.form.intercept,
    )


@pytest.mark.parametrize("name", FORMS)
def test_any_coefficients_are_factored(name):
    layout = layout_of(name)
    rng = np.random.default_rng(0)
    coef = layout.as_coef(rng.standard_normal((layout.n_features, 2)))
    require_same(factor(coef, layout=layout), coef, layout, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_any_coefficients_are_compressed(name):
    layout = layout_of(name)
    rng = np.random.default_rng(0)
    coef = layout.as_coef(rng.standard_normal((layout.n_features, 2)))
    found = compress(coef, layout=layout)
    require_same(found, coef, layout, 1e-9)
    assert found.n_heads <= factor(coef, layout=layout).n_heads


@pytest.mark.parametrize("name", FORMS)
def test_the_zero_function_is_one_zero_head(name):
    layout = layout_of(name)
    coef = np.zeros((2, layout.n_sums, layout.n_queries))
    for found in (compress(coef, layout=layout), best_heads(coef, 2, layout=layout)):
        assert not found.coef(layout).any()
        assert "The function is zero" in found.sentence
    if layout.form.skip:
        coef[:, layout.n_products] = 1.0
        found = compress(coef, layout=layout)
        assert np.all(found.skip == 1.0)
        assert not found.attn.any()
        assert "linear terms" in found.sentence


@pytest.mark.parametrize("name", ["disjoint", "one value", "one shared", "context"])
def test_without_a_fold_the_rank_is_the_number_of_heads(name):
    """Heads by the singular values alone: also where a search would be hopeless."""
    layout = layout_of(name)
    pairs, n_queries = layout.pairs, len(layout.query)
    most = min(3 * pairs.n_values, pairs.n_keys * n_queries)
    for n_heads in range(1, most + 1):
        found = compress(planted(layout, [n_heads]), layout=layout)
        assert found.n_heads == n_heads
        assert "no layer with fewer heads" in found.sentence


def test_a_scale_without_heads_has_none():
    layout = layout_of("lags")
    coef = planted(layout, [0, 2, 1])
    found = compress(coef, layout=layout)
    assert found.head_scales.tolist() == [1, 1, 2]
    require_same(found, coef, layout)


@pytest.mark.parametrize("name", ["overlapping", "disjoint", "decays", "linear terms"])
@pytest.mark.parametrize("size", [1e-8, 1e8])
def test_coordinates_of_any_size(name, size):
    """One coordinate is 1e8 times larger or smaller than the others."""
    layout = layout_of(name)
    sizes = np.ones(layout.n_dims)
    sizes[1] = size
    scale = SampleScale.of(rows_of(layout, sizes=sizes))
    coef = planted(layout, one_each(layout))
    # Outputs of the same size as in equal units, where the data are of size one.
    columns = np.append(sizes, 1.0) if layout.form.bias else sizes
    value, key = (columns[list(side)] for side in (layout.pairs.value, layout.pairs.key))
    first = layout.pairs.first
    products = np.tile(value[first[0]] * key[first[1]], layout.n_scales)
    n_queries = len(layout.query)
    coef[:, : layout.n_products, :n_queries] /= products[:, None] * columns[layout.query]
    if layout.form.skip:
        coef[:, layout.n_products, :n_queries] /= columns[layout.query]
    found = compress(coef, data=scale)
    assert found.n_heads == layout.n_scales
    assert found.output_error <= 1e-10
    change = scale.output_powers(found.coef(layout) - coef) / scale.output_powers(coef)
    assert np.sqrt(change.max()) <= 1e-9


def test_units_follow_the_columns():
    layout = layout_of("overlapping")
    sizes = 2.0 ** np.array([0, 10, -20, 5, 3])
    plain, units = (
        CoordinateUnits.of_inputs(SampleScale.of(rows_of(layout, sizes=each)), 1)
        for each in (np.ones(5), sizes)
    )
    shift = units.products - plain.products
    assert np.all(shift - shift[0] == (layout_products(layout, sizes) - 10))


def layout_products(layout, sizes):
    """log2 of the products of each pair; that of the first is 10."""
    exponents = np.log2(sizes)
    at_value, at_key = layout.pairs.first
    value, key = np.array(layout.pairs.value), np.array(layout.pairs.key)
    return exponents[value[at_value]] + exponents[key[at_key]]


# ---------------------------------------------------------------- a limited number of heads


@pytest.mark.parametrize("name", FORMS)
def test_enough_heads_are_met_with_moments(name):
    layout = layout_of(name)
    counts = one_each(layout)
    coef = planted(layout, counts)
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    found = best_heads(coef, sum(counts), gram, layout=layout)
    whole = excess_of(best_heads(0 * coef, 1, layout=layout), coef, gram, layout)
    assert excess_of(found, coef, gram, layout) <= 1e-15 * whole


@pytest.mark.parametrize("name", ["overlapping", "decays", "intercept"])
def test_the_gap_is_that_of_the_layer(name):
    layout = layout_of(name)
    coef = planted(layout, one_each(layout, 2))
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    found = best_heads(coef, layout.n_scales, gram, layout=layout)
    assert found.n_heads == layout.n_scales
    assert found.risk_gap == pytest.approx(excess_of(found, coef, gram, layout), rel=1e-8)
    nearest = best_heads(coef, layout.n_scales, layout=layout)
    assert found.risk_gap <= excess_of(nearest, coef, gram, layout)


@pytest.mark.parametrize("name", ["linear terms", "skip", "intercept"])
def test_linear_terms_are_the_best_for_the_heads(name):
    """No change of skip or intercept lowers the excess: its gradient is zero."""
    layout = layout_of(name)
    coef = planted(layout, one_each(layout, 2))
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    found = best_heads(coef, 1, gram, layout=layout)
    difference = layout.select((found.coef(layout) - coef).reshape(len(coef), -1).T).T
    slope = difference @ gram
    linear = slope[:, layout.n_products * len(layout.query) :]
    assert np.abs(linear).max() <= 1e-9 * np.abs(difference).max() * np.abs(gram).max()
    assert np.abs(slope).max() > 1e-3 * np.abs(difference).max()


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["decays", "intercept"])
def test_equal_singular_values_of_two_scales_are_not_one_head(name, weighted):
    """Both scales have the same heads, so that no singular value is above the others."""
    layout = layout_of(name)
    coef = planted(layout, [1, 0])
    n_pairs = len(layout.pairs)
    coef[:, n_pairs : 2 * n_pairs] = coef[:, :n_pairs]
    gram = np.eye(layout.n_features) if weighted else None
    for n_heads in (1, 2, 3):
        found = best_heads(coef, n_heads, gram, layout=layout)
        assert found.n_heads == n_heads
        assert (found.lost > 0.1) == (n_heads == 1)
        assert weighted or ("does not meet" in found.sentence) == (n_heads == 1)


def test_without_a_fold_the_nearest_layer_is_the_truncated_decomposition():
    layout = layout_of("disjoint")
    coef = planted(layout, [4])
    sigma = np.linalg.svd(Target.on(coef, layout=layout).tensor.reshape(6, 6), compute_uv=False)
    for n_heads in (1, 2, 3):
        found = best_heads(coef, n_heads, layout=layout)
        assert found.lost == pytest.approx(np.sqrt(np.sum(sigma[n_heads:] ** 2)), rel=1e-9)


@pytest.mark.parametrize("name", ["lags", "decays"])
def test_heads_go_to_the_scales_that_need_them(name):
    """All heads are of the last scale; moments couple it with the others."""
    layout = layout_of(name)
    counts = [0] * (layout.n_scales - 1) + [2]
    coef = planted(layout, counts)
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    found = best_heads(coef, 2, gram, layout=layout)
    require_same(found, coef, layout, 1e-6)
    assert found.head_scales.tolist() == [layout.n_scales - 1] * 2


@pytest.mark.parametrize("counts", [(2, 1, 0), (2, 2, 0), (1, 0, 2)])
def test_numbers_of_heads_that_singular_values_do_not_suggest(counts):
    """Of the token itself (lag 0) data see only a symmetric part, so sizes say little."""
    layout = layout_of("lags")
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    coef = planted(layout, counts, seed=1)
    whole = excess_of(best_heads(0 * coef, 1, layout=layout), coef, gram, layout)
    found = best_heads(coef, sum(counts), gram, layout=layout)
    assert excess_of(found, coef, gram, layout) <= 1e-14 * whole
    assert np.bincount(found.head_scales, minlength=3).tolist() == list(counts)


@pytest.mark.parametrize("name", ["disjoint", "overlapping", "decays", "skip", "whole context"])
def test_noise_decides_on_the_number_of_heads(name):
    layout = layout_of(name)
    counts = one_each(layout, 2 if layout.n_scales == 1 else 1)
    truth = planted(layout, counts)
    rng = np.random.default_rng(1)
    rows = rows_of(layout, 400)
    gram = GramScale.of(Moments.of(rows)).gram
    # The optimum of targets with Gaussian noise, and the squared errors it leaves.
    root = np.linalg.cholesky(gram)
    noise = 0.05 * np.linalg.solve(root.T, rng.standard_normal((layout.n_features, 3)))
    coef = truth + layout.as_coef(noise * layout.feature_weights[:, None])
    power = 0.05**2 * 3 * (rows.n_rows - layout.n_features)
    found = choose_heads(coef, gram, power, rows.n_rows, layout=layout)
    assert np.bincount(found.head_scales, minlength=layout.n_scales).tolist() == counts
    assert found.risk_gap == pytest.approx(excess_of(found, coef, gram, layout), rel=1e-6)


# ---------------------------------------------------------------- heads of limited rank


@pytest.mark.parametrize("name", ["whole", "disjoint", "overlapping", "decays", "linear terms"])
@pytest.mark.parametrize("weighted", [True, False])
def test_heads_of_limited_rank_beat_truncated_ones(name, weighted):
    layout = layout_of(name)
    coef = planted(layout, one_each(layout, 2))
    gram = GramScale.of(Moments.of(rows_of(layout))).gram if weighted else None
    n_heads = 2 * layout.n_scales
    free = best_heads(coef, n_heads, gram, layout=layout)
    found = best_heads(coef, n_heads, gram, layout=layout, head_rank=1)
    assert found.n_heads == n_heads
    sigma = np.linalg.svd(found.attn, compute_uv=False)
    assert np.all(sigma[:, 1:] <= 1e-12 * sigma[:, :1])
    weights = np.diag(layout.feature_weights**2) if gram is None else gram
    left, sizes, right = np.linalg.svd(free.attn, full_matrices=False)
    cut = pa.heads.Compression(
        left[:, :, :1] * sizes[:, None, :1] @ right[:, :1], free.value, 0.0, None, "",
        head_scales=free.head_scales, skip=free.skip, intercept=free.intercept,
    )  # fmt: skip
    gap = excess_of(found, coef, weights, layout)
    assert gap <= excess_of(cut, coef, weights, layout)
    if weighted:
        assert found.risk_gap == pytest.approx(gap, rel=1e-8)


def test_planted_heads_of_low_rank_are_found():
    layout = layout_of("whole")
    rng = np.random.default_rng(0)
    attn = rng.standard_normal((2, 4, 1)) @ rng.standard_normal((2, 1, 4))
    coef = fold_heads(attn, rng.standard_normal((2, 4, 3)))
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    found = best_heads(coef, 2, gram, head_rank=1)
    require_same(found, coef, layout, 1e-6)


def test_enough_heads_of_low_rank_lose_nothing():
    """One head of rank 3 is three of rank 1, and two of rank 2."""
    layout = layout_of("overlapping")
    coef = planted(layout, [1])
    gram = GramScale.of(Moments.of(rows_of(layout))).gram
    for n_heads, head_rank in ((3, 1), (2, 2), (5, 1)):
        found = best_heads(coef, n_heads, gram, layout=layout, head_rank=head_rank)
        require_same(found, coef, layout, 1e-8)
        assert max(np.linalg.matrix_rank(attn, 1e-9) for attn in found.attn) <= head_rank


@pytest.mark.parametrize("head_rank", [1, 2, 3, 9])
def test_a_limit_on_the_rank_alone_costs_nothing(head_rank):
    layout = layout_of("decays")
    coef = planted(layout, [1, 2])
    found = best_heads(coef, None, layout=layout, head_rank=head_rank)
    require_same(found, coef, layout)
    assert max(np.linalg.matrix_rank(attn) for attn in found.attn) <= head_rank
    assert found.n_heads == 3 * -(-3 // min(head_rank, 3))
    assert ("Split" in found.sentence) == (head_rank < 3)
    assert split_ranks(found, None) is found


# ---------------------------------------------------------------- arguments


def test_coefficients_and_moments_must_fit_the_layout():
    layout = layout_of("linear terms")
    coef = planted(layout, [1])
    with pytest.raises(InvalidInput, match=r"shape \(e, 7, 4\)"):
        compress(coef[:, :-1], layout=layout)
    with pytest.raises(InvalidInput, match="give its layout"):
        compress(coef)
    with pytest.raises(InvalidInput, match="gram must have shape"):
        best_heads(coef, 1, np.eye(28), layout=layout)
    with pytest.raises(InvalidInput, match="head_rank"):
        best_heads(coef, 1, layout=layout, head_rank=0)


def test_the_layout_of_the_data_is_taken():
    layout = layout_of("one shared")
    coef = planted(layout, [2])
    data = GramScale.of(Moments.of(rows_of(layout)))
    require_same(compress(coef, data=data), coef, layout)
    require_same(factor(coef, data), coef, layout)
