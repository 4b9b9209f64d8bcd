"""best_heads and choose_heads: few heads in the norm of the data."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import f as f_distribution

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.form.layout import Layout
from polyattn.form.pairs import fold_heads, n_features, n_pairs
from polyattn.heads import best_heads, choose_heads, factor
from polyattn.heads.choose import allowance, moments_rank
from polyattn.heads.head_counts import layer_dimension


def random_coef(n_dims, n_outputs, seed=0):
    rng = np.random.default_rng([n_dims, n_outputs, seed])
    return rng.standard_normal((n_outputs, n_pairs(n_dims), n_dims))


def random_gram(n_dims, n_rows, seed=0):
    rows = np.random.default_rng([n_rows, seed]).standard_normal((n_rows, n_features(n_dims)))
    return rows.T @ rows


def objective(attn, value, coef, gram):
    difference = (fold_heads(attn, value) - coef).reshape(len(coef), -1)
    return float(np.sum(difference @ gram * difference))


def regression(kind, n_dims, n_outputs, n_heads, noise, n_rows=400, seed=0):
    """Least squares on data from a layer: coef, gram, residual power, variance of the noise."""
    rng = np.random.default_rng([n_dims, n_outputs, n_heads, seed])
    tokens = rng.standard_normal((n_rows, 8, n_dims))
    if kind == "correlated":
        tokens = tokens @ (
            np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0] * np.logspace(0, -1, n_dims)
        )
    elif kind == "units":
        tokens = tokens * np.logspace(1, -1, n_dims)
    elif kind == "constant":
        tokens[..., -1] = 1.0
    elif kind == "unused":
        tokens[..., 0] = 0.0
    elif kind == "boolean":
        tokens = np.sign(tokens)
    grams = np.einsum("ntj,ntk->njk", tokens, tokens)[:, *np.triu_indices(n_dims)]
    features = (grams[:, :, None] * tokens[:, -1, None, :]).reshape(n_rows, -1)
    attn = rng.standard_normal((n_heads, n_dims, n_dims))
    value = rng.standard_normal((n_heads, n_dims, n_outputs))
    targets = features @ fold_heads(attn, value).reshape(n_outputs, -1).T
    deviation = noise * targets.std()
    targets = targets + deviation * rng.standard_normal(targets.shape)
    theta = np.linalg.lstsq(features, targets, rcond=1e-12)[0]
    power = float(np.sum((targets - features @ theta) ** 2))
    coef = theta.T.reshape(n_outputs, -1, n_dims)
    return coef, features.T @ features, power, deviation**2


# ---------------------------------------------------------------- best_heads

TINY = [
    (2, 1, 1, None),
    (2, 2, 1, 20),
    (3, 1, 1, None),
    (3, 2, 1, 40),
    (3, 2, 2, 40),
    (2, 3, 2, None),
]


@pytest.mark.parametrize(("n_dims", "n_outputs", "n_heads", "n_rows"), TINY)
def test_best_heads_is_as_good_as_a_general_optimiser_with_many_starts(
    n_dims, n_outputs, n_heads, n_rows
):
    coef = random_coef(n_dims, n_outputs)
    gram = None if n_rows is None else random_gram(n_dims, n_rows)
    weights = np.diag(Layout.plain(n_dims).feature_weights ** 2) if gram is None else gram
    cut = n_heads * n_dims**2
    rng = np.random.default_rng(0)

    def risk(x):
        attn, value = x[:cut].reshape(-1, n_dims, n_dims), x[cut:].reshape(-1, n_dims, n_outputs)
        return objective(attn, value, coef, weights)

    starts = rng.standard_normal((8, cut + n_heads * n_dims * n_outputs))
    rival = min(minimize(risk, start, method="BFGS").fun for start in starts)
    found = best_heads(coef, n_heads, gram)
    reached = objective(found.attn, found.value, coef, weights)
    assert reached <= rival * (1 + 1e-4)
    # The rival must be a real one: half the heads' worth of fit is not enough to pass.
    assert rival < 0.9 * objective(0 * found.attn, found.value, coef, weights)
    if gram is None:
        assert found.risk_gap is None
        assert found.lost == pytest.approx(
            np.sqrt(reached / objective(0 * found.attn, found.value, coef, weights))
        )
    else:
        assert found.risk_gap == pytest.approx(reached, rel=1e-9)


@pytest.mark.parametrize(
    "gram", [None, random_gram(4, 100), random_gram(4, 12)], ids=["plain", "full", "singular"]
)
def test_more_heads_are_never_worse_and_enough_are_exact(gram):
    coef = random_coef(4, 2)
    weights = np.diag(Layout.plain(4).feature_weights ** 2) if gram is None else gram
    risks = []
    for n_heads in (1, 2, 3, 5, 8, 11):
        found = best_heads(coef, n_heads, gram)
        assert found.attn.shape == (n_heads, 4, 4)
        assert found.value.shape == (n_heads, 4, 2)
        risks.append(objective(found.attn, found.value, coef, weights))
    scale = objective(0 * found.attn, found.value, coef, weights)
    assert all(more <= fewer + 1e-6 * scale for fewer, more in pairwise(risks))
    assert max(abs(risk) for risk in risks[-2:]) <= 1e-12 * scale
    assert risks[0] > 1e-3 * scale or gram is not None


@pytest.mark.parametrize(("n_dims", "n_outputs", "n_heads"), [(4, 4, 2), (6, 2, 3), (8, 8, 4)])
def test_best_heads_recovers_a_planted_layer_and_misses_it_with_one_head_less(
    n_dims, n_outputs, n_heads
):
    coef, gram, _, _ = regression("correlated", n_dims, n_outputs, n_heads, noise=0.0)
    for weights in (None, gram):
        assert best_heads(coef, n_heads, weights).lost <= 1e-6
        assert best_heads(coef, n_heads - 1, weights).lost > 1e-2


def test_the_gram_decides_what_is_best():
    coef, gram = random_coef(4, 3), random_gram(4, 60)
    plain, weighted = best_heads(coef, 1), best_heads(coef, 1, gram)
    assert plain.lost < weighted.lost
    assert weighted.risk_gap < 0.99 * objective(plain.attn, plain.value, coef, gram)


def test_best_heads_is_deterministic():
    coef, gram = random_coef(3, 2), random_gram(3, 30)
    first, second = (
        best_heads(coef, 1, gram, random_state=5),
        best_heads(coef, 1, gram, random_state=5),
    )
    np.testing.assert_array_equal(first.attn, second.attn)
    np.testing.assert_array_equal(first.value, second.value)


@pytest.mark.parametrize("weighted", [False, True])
def test_best_heads_without_a_number_keeps_the_function(weighted):
    coef, gram = random_coef(3, 2), random_gram(3, 30) if weighted else None
    rng = np.random.default_rng(0)
    assert best_heads(coef, None, gram, random_state=rng).lost < 1e-9
    with pytest.raises(InvalidInput, match="choose_heads"):
        best_heads(coef, "auto", gram)


@pytest.mark.parametrize("scale", [1e120, 1e-120])
def test_scale_of_coefficients_and_gram_is_free(scale):
    coef, gram = random_coef(3, 2), random_gram(3, 30)
    plain = best_heads(coef, 1, gram)
    scaled = best_heads(coef * scale, 1, gram / scale)
    assert scaled.risk_gap == pytest.approx(plain.risk_gap * scale, rel=1e-6)
    assert scaled.lost == pytest.approx(plain.lost, rel=1e-6)


def test_a_gap_beyond_float64_is_refused_with_a_cure():
    with pytest.raises(OutOfRange, match="divide the targets"):
        best_heads(random_coef(3, 2) * 1e200, 1, random_gram(3, 30))


def test_what_the_data_do_not_see_costs_nothing():
    coef = random_coef(3, 2)
    for gram in (np.zeros((18, 18)), random_gram(3, 30)):
        assert best_heads(np.zeros_like(coef), 2, gram).risk_gap == 0.0
    blind = best_heads(coef, 2, np.zeros((18, 18)))
    assert blind.risk_gap == 0.0
    assert blind.lost == pytest.approx(1.0)
    assert "see nothing" in blind.sentence
    assert best_heads(np.zeros_like(coef), 3).n_heads == 3


# ---------------------------------------------------------------- choose_heads


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["plain", "correlated", "units", "constant", "unused", "boolean"])
def test_choose_heads_finds_the_planted_number_in_noise(kind, noise):
    n_rows = 400
    coef, gram, power, _ = regression(kind, 5, 5, 2, noise, n_rows)
    found = choose_heads(coef, gram, power, n_rows)
    assert found.n_heads == 2
    assert "2 heads" in found.sentence
    assert found.risk_gap == pytest.approx(
        objective(found.attn, found.value, coef, gram), rel=1e-6, abs=1e-9
    )


@pytest.mark.parametrize(
    ("n_dims", "n_outputs", "n_heads"), [(4, 4, 1), (4, 2, 2), (6, 1, 2), (8, 8, 3)]
)
def test_choose_heads_over_shapes(n_dims, n_outputs, n_heads):
    coef, gram, power, _ = regression("plain", n_dims, n_outputs, n_heads, 0.05, 600)
    assert choose_heads(coef, gram, power, 600).n_heads == n_heads


def test_the_gap_of_the_true_number_is_chi_square():
    """Mean f and variance 2 f over 4 data sets: the distribution behind the choice."""
    freedom = 4 * n_features(4) - layer_dimension(2, (4, 4, 4, 4))
    scaled = []
    for seed in range(4):
        coef, gram, _, variance = regression("plain", 4, 4, 2, 0.05, 200, seed)
        scaled.append(best_heads(coef, 2, gram).risk_gap / variance)
    mean, spread = np.mean(scaled), np.sqrt(2 * freedom)
    assert abs(mean - freedom) <= 4 * spread / np.sqrt(len(scaled))
    # One head too few is far outside that distribution.
    assert best_heads(coef, 1, gram).risk_gap / variance > freedom + 100 * spread


def test_noise_is_allowed_up_to_its_quantile():
    allowed = allowance((3, 4, 4, 4), variance=0.01, rank=40, spare=200)
    for n_heads in (1, 2, 3):
        freedom = 3 * 40 - layer_dimension(n_heads, (3, 4, 4, 4))
        quantile = f_distribution.isf(1e-4, freedom, 200)
        assert allowed((n_heads,)) ** 2 == pytest.approx(0.01 * freedom * quantile, rel=1e-6)
    # Where layers fill the space nothing is left to explain but rounding.
    assert allowed((6,)) <= 1e-7


def test_noise_decides_how_many_heads_show():
    """A second head drowned in noise is not asked for."""
    coef, gram, power, _ = regression("plain", 4, 4, 2, 30.0, 400)
    assert choose_heads(coef, gram, power, 400).n_heads == 1
    coef, gram, power, _ = regression("plain", 4, 4, 2, 0.01, 400)
    assert choose_heads(coef, gram, power, 400).n_heads == 2


def test_without_spare_rows_the_function_is_kept():
    coef, gram, power, _ = regression("plain", 3, 3, 1, 0.1, n_rows=18)
    found = choose_heads(coef, gram, power, 18)
    assert "no estimate of the noise" in found.sentence
    assert found.lost <= 1e-9
    assert found.risk_gap <= 1e-12 * objective(0 * found.attn, found.value, coef, gram)


def test_a_function_without_structure_is_kept_whole():
    coef = random_coef(3, 3)
    found = choose_heads(coef, random_gram(3, 100), 1e-3, 100)
    assert found.lost <= 1e-9
    assert 1 < found.n_heads < factor(coef).n_heads


@pytest.mark.parametrize("n_rows", [5, 18, 40])
def test_the_rank_of_moments(n_rows):
    units = np.logspace(-6, 6, 18)
    gram = random_gram(3, n_rows) * units * units[:, None]
    assert moments_rank(gram) == min(n_rows, 18)
    gram[0] = gram[:, 0] = 0.0
    assert moments_rank(gram) == min(n_rows, 17)


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize("wrong", [0, "many", True, 1.5])
def test_best_heads_wants_a_number(wrong):
    with pytest.raises(InvalidInput, match="n_heads must be"):
        best_heads(random_coef(3, 2), wrong)


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.eye(17), "gram must have shape"),
        (np.full((18, 18), np.nan), "NaN or infinity"),
        (np.triu(np.ones((18, 18))), "must be symmetric"),
    ],
)
def test_grams_that_are_refused(gram, message):
    with pytest.raises(InvalidInput, match=message):
        best_heads(random_coef(3, 2), 1, gram)
    with pytest.raises(InvalidInput, match=message):
        choose_heads(random_coef(3, 2), gram, 1.0, 100)


@pytest.mark.parametrize("power", [-1.0, np.nan, np.inf])
def test_residual_powers_that_are_refused(power):
    with pytest.raises(InvalidInput, match="residual_power"):
        choose_heads(random_coef(3, 2), random_gram(3, 30), power, 100)
