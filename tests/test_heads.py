"""factor and compress: the same function, with as few heads as it needs."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.errors import InvalidInput, require_head_count
from polyattn.form.pairs import fold_heads, n_pairs
from polyattn.heads import Compression, compress, factor
from polyattn.heads.head_counts import generic_heads
from polyattn.heads.head_set import HeadSet
from polyattn.heads.target import Target

EPS = float(np.finfo(np.float64).eps)


def random_layer(n_dims, n_outputs, n_heads, seed=0):
    """attn (H, d, d) and value (H, d, e) with Gaussian entries."""
    rng = np.random.default_rng([n_dims, n_outputs, n_heads, seed])
    attn = rng.standard_normal((n_heads, n_dims, n_dims))
    return attn, rng.standard_normal((n_heads, n_dims, n_outputs))


def planted(n_dims, n_outputs, n_heads, seed=0):
    return fold_heads(*random_layer(n_dims, n_outputs, n_heads, seed))


def generic(n_dims, n_outputs, seed=0):
    rng = np.random.default_rng([n_dims, n_outputs, seed])
    return rng.standard_normal((n_outputs, n_pairs(n_dims), n_dims))


def same_coef(found, coef, tolerance):
    """Whether heads compute the coefficients: the comparer of this file."""
    difference = np.linalg.norm(fold_heads(found.attn, found.value) - coef)
    return bool(difference <= tolerance * np.linalg.norm(coef))


shapes = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))


# ---------------------------------------------------------------- factor


@given(shapes)
def test_factor_is_exact_within_the_bound_on_heads(shape):
    n_dims, n_outputs, seed = shape
    coef = generic(n_dims, n_outputs, seed)
    found = factor(coef)
    assert same_coef(found, coef, 100 * EPS * n_dims**2)
    assert found.lost <= 100 * EPS * n_dims**2
    assert found.n_heads <= min(n_outputs * n_dims, n_dims**2)
    assert found.risk_gap is None


def test_factor_balances_attn_and_value():
    found = factor(generic(4, 3))
    sizes = [
        np.linalg.norm(heads.reshape(len(heads), -1), axis=1) for heads in (found.attn, found.value)
    ]
    np.testing.assert_allclose(sizes[0], sizes[1], rtol=1e-12)


def test_one_head_already_needs_all_of_factor_and_one_of_compress():
    coef = planted(4, 4, 1)
    assert factor(coef).n_heads == 16
    assert compress(coef).n_heads == 1


# ---------------------------------------------------------------- compress: planted numbers

PLANTED = [
    (n_dims, n_outputs, n_heads)
    for n_dims in (1, 2, 3, 4, 5, 6, 8, 12, 16)
    for n_outputs in sorted({1, 2, n_dims})
    for n_heads in (1, 2, 3, 4)
]


@pytest.mark.parametrize(("n_dims", "n_outputs", "n_heads"), PLANTED)
def test_compress_finds_the_planted_number_of_heads(n_dims, n_outputs, n_heads):
    coef = planted(n_dims, n_outputs, n_heads)
    found = compress(coef)
    assert found.lost <= 1e-10
    assert same_coef(found, coef, 2e-10)
    if n_dims >= 4 and n_outputs == n_dims:
        assert found.n_heads == n_heads
    else:
        assert found.n_heads <= n_heads


@pytest.mark.slow
@pytest.mark.parametrize(("n_dims", "n_outputs", "n_heads"), PLANTED)
def test_compress_finds_the_planted_number_for_every_seed(n_dims, n_outputs, n_heads):
    for seed in range(30 if n_dims < 8 else 10):
        found = compress(planted(n_dims, n_outputs, n_heads, seed), random_state=seed)
        assert found.n_heads <= n_heads
        assert found.lost <= 1e-10


@pytest.mark.parametrize(
    ("n_dims", "n_outputs", "n_heads"),
    [(8, 8, 12), (12, 1, 7), pytest.param(12, 12, 20, marks=pytest.mark.slow)],
)
def test_compress_finds_many_heads_too(n_dims, n_outputs, n_heads):
    assert compress(planted(n_dims, n_outputs, n_heads)).n_heads == n_heads


@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32 - 1))
def test_compress_keeps_the_function_and_never_exceeds_the_layer(n_dims, n_outputs, n_heads, seed):
    coef = planted(n_dims, n_outputs, n_heads, seed)
    found = compress(coef)
    assert same_coef(found, coef, 2e-10)
    assert found.n_heads <= min(n_heads, factor(coef).n_heads)


def test_the_comparer_notices_wrong_heads():
    coef = planted(5, 5, 2)
    found = compress(coef)
    swapped = Compression(found.attn, found.value[::-1], 0.0, None, "")
    fewer = Compression(found.attn[:1], found.value[:1], 0.0, None, "")
    transposed = Compression(found.attn.transpose(0, 2, 1), found.value, 0.0, None, "")
    assert same_coef(found, coef, 2e-10)
    for wrong in (swapped, fewer, transposed):
        assert not same_coef(wrong, coef, 1e-2)


def test_lost_is_measured_not_assumed():
    coef = planted(5, 5, 2)
    target = Target.on(coef)
    heads = HeadSet.factored(target.tensor, target.layout.metric)
    assert target.finish(heads, "").lost <= 1e-12
    larger = replace(heads, value=1.01 * heads.value)
    assert target.finish(larger, "").lost == pytest.approx(0.01, rel=1e-6)


# ---------------------------------------------------------------- compress: structure


def test_zero_function_is_one_zero_head():
    for find in (factor, compress):
        found = find(np.zeros((2, 6, 3)))
        assert found.attn.shape == (1, 3, 3)
        assert found.value.shape == (1, 3, 2)
        assert not found.attn.any()
        assert not found.value.any()
        assert found.lost == 0.0


@pytest.mark.parametrize("entry", [(1, 0, 2), (1, 4, 2), (0, 20, 5)])
def test_a_single_coefficient_is_one_head(entry):
    coef = np.zeros((3, 21, 6))
    coef[entry] = -3.0
    found = compress(coef)
    assert found.n_heads == 1
    assert same_coef(found, coef, 1e-12)


def test_heads_that_share_attn_or_value_merge():
    attn, value = random_layer(6, 6, 3)
    shared = np.stack([attn[0], attn[0], -2.0 * attn[0]])
    assert compress(fold_heads(shared, value)).n_heads == 1
    shared = np.stack([value[0], value[0], value[2]])
    assert compress(fold_heads(attn, shared)).n_heads == 2


@pytest.mark.parametrize("width", [2, 4, 8])
def test_an_associative_memory_is_one_head(width):
    # Tokens are (key, value); the query's key is compared, the value is copied.
    attn, value = np.zeros((1, 2 * width, 2 * width)), np.zeros((1, 2 * width, width))
    attn[0, :width, :width] = np.eye(width)
    value[0, width:, :] = np.eye(width)
    found = compress(fold_heads(attn, value))
    assert found.n_heads == 1
    assert found.lost <= 1e-14


@pytest.mark.parametrize("n_heads", [2, 4, 6])
def test_sparse_and_permutation_heads(n_heads):
    rng = np.random.default_rng(n_heads)
    attn = np.stack([np.eye(8)[rng.permutation(8)] for _ in range(n_heads)])
    value = np.stack([np.eye(8)[rng.permutation(8)] for _ in range(n_heads)])
    assert compress(fold_heads(attn, value)).n_heads <= n_heads
    mask = rng.random(attn.shape) < 0.3
    assert compress(fold_heads(mask * rng.standard_normal(attn.shape), value)).n_heads <= n_heads


@pytest.mark.parametrize("rank", [1, 2])
def test_heads_of_low_rank(rank):
    rng = np.random.default_rng(rank)
    attn, value = (
        rng.standard_normal((4, 8, rank)) @ rng.standard_normal((4, rank, 8)) for _ in range(2)
    )
    assert compress(fold_heads(attn, value)).n_heads == 4


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-200, 1e-300])
def test_scale_changes_nothing_but_scale(scale):
    coef = planted(5, 3, 2)
    found = compress(coef * scale)
    assert found.n_heads == 2
    assert found.lost <= 1e-13
    root = np.sqrt(scale)
    np.testing.assert_allclose(
        fold_heads(found.attn / root, found.value / root), coef, atol=1e-11 * np.abs(coef).max()
    )
    assert factor(coef * scale).lost <= 1e-13


@pytest.mark.parametrize(
    ("n_dims", "n_outputs", "most"),
    [(3, 3, 4), (4, 4, 8), pytest.param(6, 6, 14, marks=pytest.mark.slow), (5, 1, 5)],
)
def test_functions_without_structure_need_about_as_many_heads_as_parameters_count(
    n_dims, n_outputs, most
):
    coef = generic(n_dims, n_outputs)
    found = compress(coef)
    assert found.n_heads <= most
    assert found.n_heads <= factor(coef).n_heads
    assert same_coef(found, coef, 2e-10)


def test_compress_is_deterministic():
    coef = generic(2, 2)
    first, second = compress(coef, random_state=3), compress(coef, random_state=3)
    np.testing.assert_array_equal(first.attn, second.attn)
    np.testing.assert_array_equal(first.value, second.value)
    assert not np.array_equal(first.attn, compress(coef, random_state=4).attn)


# ---------------------------------------------------------------- compress: tolerance


@pytest.mark.parametrize("noise", [1e-12, 1e-7])
def test_tolerance_sees_through_noise_below_it_and_not_above(noise):
    coef = planted(3, 3, 2)
    disturbance = generic(3, 3)
    coef = coef + noise * disturbance * np.linalg.norm(coef) / np.linalg.norm(disturbance)
    found = compress(coef, tolerance=3 * noise)
    assert found.n_heads == 2
    assert noise / 10 <= found.lost <= 3 * noise
    assert compress(coef, tolerance=noise / 100).n_heads > 2


@pytest.mark.parametrize(("noise", "absorbed"), [(1e-11, True), (1e-9, False)])
def test_what_is_lost_unless_a_tolerance_is_given(noise, absorbed):
    """1e-10: far above rounding, far below what anybody would call another function."""
    coef, disturbance = planted(3, 2, 1), generic(3, 2)
    coef = coef + noise * disturbance * np.linalg.norm(coef) / np.linalg.norm(disturbance)
    found = compress(coef)
    assert (found.n_heads == 1) == absorbed
    assert found.lost <= 1e-10


@pytest.mark.parametrize(("size", "n_heads"), [(0.5, 1), (1.5, 2)])
def test_a_head_just_above_the_tolerance_is_one_more(size, n_heads):
    large, small = planted(4, 3, 1), planted(4, 3, 1, seed=1)
    small *= 1e-6 * size * np.linalg.norm(large) / np.linalg.norm(small)
    found = compress(large + small, tolerance=1e-6)
    assert found.n_heads == n_heads
    assert found.lost <= 1e-6


def test_numbers_of_heads_are_tried_from_below(monkeypatch):
    tried, module = [], import_module("polyattn.heads.compress")  # the function has its name
    monkeypatch.setattr(module, "fewest", lambda _, ladder, *__: tried.append(ladder))
    monkeypatch.setattr(module, "descents", lambda *_: [])
    found = compress(generic(3, 3))
    (ladder,) = tried
    assert all(isinstance(count, int) for count in ladder)
    assert ladder == sorted(set(ladder))
    assert ladder[-1] >= 2 * generic_heads((3, 3, 3, 3))
    assert same_coef(found, generic(3, 3), 1e-12)  # by decomposition, when nothing was found


def test_the_sentence_claims_minimality_only_where_it_is_proved():
    proved = compress(planted(6, 6, 3)).sentence
    assert "no layer with fewer heads" in proved
    assert "3 heads" in proved
    assert "no layer with fewer heads" not in compress(generic(3, 3)).sentence
    assert "1 head " in compress(planted(6, 6, 1)).sentence


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("given_count", "kept"), [(None, None), ("auto", "auto"), (1, 1), (np.int64(7), 7)]
)
def test_head_counts_that_are_accepted(given_count, kept):
    assert require_head_count(given_count) == kept
    assert not isinstance(require_head_count(given_count), np.integer)


@pytest.mark.parametrize(
    "wrong", [0, -1, True, np.True_, 1.0, 2.5, "many", "", [1], np.array([1]), float("nan")]
)
def test_head_counts_that_are_refused(wrong):
    with pytest.raises(InvalidInput, match="n_heads must be"):
        require_head_count(wrong)


@pytest.mark.parametrize("find", [factor, compress])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 4, 2), (0, 3, 2), (1, 0, 0)])
def test_coefficients_of_a_wrong_shape_are_refused(find, shape):
    with pytest.raises(InvalidInput, match="coef must have shape"):
        find(np.ones(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_coefficients_that_are_not_finite_are_refused(bad):
    coef = planted(3, 2, 1)
    coef[0, 1, 2] = bad
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        compress(coef)


@pytest.mark.parametrize("tolerance", [0.0, -1e-3, 1.0, np.nan, "small"])
def test_tolerances_that_are_refused(tolerance):
    with pytest.raises(InvalidInput, match="tolerance must be"):
        compress(planted(3, 2, 1), tolerance=tolerance)
