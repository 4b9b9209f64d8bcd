"""Growth, restarts and search: exact where one descent is not, honest where nothing helps."""

import numpy as np
import pytest

from polyattn.model.softmax import softmax
from polyattn.softmax.examples import ExampleBlock, Examples
from polyattn.softmax.growth import grow, search_heads
from polyattn.softmax.growth.search_heads import best_descents
from polyattn.softmax.growth.starts import (
    adding,
    common_products,
    directions,
    random_heads,
    random_mixtures,
    splitting,
)
from polyattn.softmax.polish import polish, project
from polyattn_papers.tasks.softmax_methods import restarts


def layer(attn, value, keys):
    patterns = [softmax((keys @ A) @ keys.transpose(0, 2, 1)) for A in attn]
    return sum(p @ keys @ V for p, V in zip(patterns, value, strict=True))


def hard_heads(kind, rng, n_heads, n_dims, size):
    """Families on which descent from a random start often fails."""
    attn = rng.standard_normal((n_heads, n_dims, n_dims)) * size / n_dims
    value = rng.standard_normal((n_heads, n_dims, n_dims)) / np.sqrt(n_dims)
    if kind == "close":
        attn = attn[:1] + 0.1 * attn
    elif kind == "multiples of one":
        steps = np.arange(1, n_heads + 1)[:, None, None] / n_heads
        attn = size / np.sqrt(n_dims) * steps * np.eye(n_dims)
    elif kind == "same value":
        value[:] = value[0]
    elif kind == "value of rank one":
        value = value[:, :, :1] * value[:, :1, :] * np.sqrt(n_dims)
    elif kind == "values of three sizes":
        value *= 0.1 ** np.arange(n_heads)[:, None, None]
    return attn, value


def planted(seed, n_heads=2, n_dims=5, n_tokens=3, count=300, size=1.0, kind="plain"):
    rng = np.random.default_rng(seed)
    attn, value = hard_heads(kind, rng, n_heads, n_dims, size)
    keys = rng.choice([-1.0, 1.0], (count, n_tokens, n_dims))
    return rng, attn, value, keys


def examples_of(attn, value, keys):
    return Examples((ExampleBlock(keys, layer(attn, value, keys), None),))


def farthest(attn, found):
    distances = np.linalg.norm(attn[:, None] - found[None], axis=(2, 3))
    return float(np.max(distances.min(axis=1) / np.linalg.norm(attn, axis=(1, 2))))


def exact(found):
    return found.error < 1e-10


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_growth_from_nothing_is_exact(n_heads):
    rng, attn, value, keys = planted(n_heads, n_heads)
    examples = examples_of(attn, value, keys)
    heads, errors = attn[:0], []
    for _ in range(n_heads):
        here = grow(examples, heads, rng)
        heads = here.attn
        errors.append(here.error)
    assert errors == sorted(errors, reverse=True)
    assert farthest(attn, heads) < 1e-10


def test_restarts_are_the_control_and_succeed_on_easy_layers():
    rng, attn, value, keys = planted(4)
    control = restarts(examples_of(attn, value, keys), 2, rng)
    assert sum(exact(next(control)) for _ in range(3)) >= 2


@pytest.mark.parametrize(
    "kind",
    ["close", "multiples of one", "same value", "value of rank one", "values of three sizes"],
)
def test_search_solves_hard_families(kind):
    rng, attn, value, keys = planted(5, 3, 8, 4, 600, 4.0, kind)
    examples = examples_of(attn, value, keys)
    found = search_heads(examples, 3, rng, exact)
    assert exact(found)
    assert farthest(attn, found.attn) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("n_heads", [3, 4])
@pytest.mark.parametrize(
    "kind",
    ["close", "multiples of one", "same value", "value of rank one", "values of three sizes"],
)
def test_search_solves_sharp_hard_families(kind, n_heads):
    for seed in range(3):
        rng, attn, value, keys = planted(seed, n_heads, 8, 4, 2000, 10.0, kind)
        found = search_heads(examples_of(attn, value, keys), n_heads, rng, exact)
        assert exact(found)


@pytest.mark.parametrize(
    ("n_heads", "n_dims", "n_tokens"), [(1, 1, 2), (2, 1, 3), (6, 3, 4), (2, 4, 2), (2, 2, 6)]
)
def test_degenerate_sizes(n_heads, n_dims, n_tokens):
    rng, attn, value, _ = planted(6, n_heads, n_dims, n_tokens)
    keys = rng.standard_normal((300, n_tokens, n_dims))
    found = search_heads(examples_of(attn, value, keys), n_heads, rng, exact, effort=2)
    assert found.attn.shape == attn.shape
    assert exact(found)


def test_search_is_deterministic():
    _, attn, value, keys = planted(7, kind="multiples of one", size=4.0)
    examples = examples_of(attn, value, keys)
    twice = [search_heads(examples, 2, np.random.default_rng(1), exact).attn for _ in range(2)]
    np.testing.assert_array_equal(*twice)


def test_too_few_heads_are_not_accepted():
    """The negative control: what one head cannot do, search does not claim."""
    rng, attn, value, keys = planted(8, 2, size=3.0)
    found = search_heads(examples_of(attn, value, keys), 1, rng, exact, effort=1)
    assert found.error > 0.1


def test_what_a_callback_raises_comes_through():
    class Enough(Exception):
        pass

    def stop(_):
        raise Enough

    rng, attn, value, keys = planted(9)
    with pytest.raises(Enough):
        search_heads(examples_of(attn, value, keys), 2, rng, exact, on_step=stop)


def test_directions_of_splitting_point_along_the_difference_of_merged_heads():
    """Chance would be 0.2 in 25 dimensions."""
    _, attn, value, keys = planted(10, count=2000, size=0.6)
    value[1] = value[0]
    examples = examples_of(attn, value, keys)
    merged = polish(examples, attn[:1])
    difference = (attn[1] - attn[0]) / np.linalg.norm(attn[1] - attn[0])
    found = splitting(examples, merged, 0, 1)
    assert all(np.linalg.norm(D) == pytest.approx(1.0) for D in found)
    assert max(abs(float(np.vdot(D, difference))) for D in found) > 0.5


def test_direction_of_a_first_head_is_its_own():
    _, attn, value, keys = planted(11, n_heads=1, count=3000, size=0.3)
    # A head and its uniform shadow: linear functions see nothing of them.
    both = np.concatenate([attn, 0 * attn])
    examples = examples_of(both, np.concatenate([value, -value]), keys)
    found = adding(examples, None, 1)
    own = attn[0] / np.linalg.norm(attn[0])
    assert max(abs(float(np.vdot(D, own))) for D in found) > 0.6


def test_halving_returns_the_best_and_different_ones():
    rng, attn, value, keys = planted(12, size=3.0)
    examples = examples_of(attn, value, keys)
    starts = [random_heads(rng, 1, 5, scale) for scale in (0.3, 1.0, 3.0, 3.0)]
    first = best_descents(examples, starts, count=3)
    assert first[0].error <= min(project(examples, start).error for start in starts)
    errors = [descent.error for descent in first]
    assert np.all(np.diff(errors) > 1e-5 * np.array(errors[:-1]))


def test_common_products_keep_what_heads_ask_for():
    rng = np.random.default_rng(13)
    key = rng.standard_normal(6)
    heads = np.array([np.outer(rng.standard_normal(6), key) for _ in range(2)])
    products = common_products(100 * heads, 0.01)
    assert len(products) == 2
    flat = products.reshape(2, -1)
    np.testing.assert_allclose(flat @ flat.T, np.eye(2), atol=1e-12)
    inside = (heads.reshape(2, -1) @ flat.T) @ flat
    np.testing.assert_allclose(inside, heads.reshape(2, -1), atol=1e-10)
    mixture = random_mixtures(rng, 2, directions(heads), 2.0)
    assert np.linalg.matrix_rank(mixture.reshape(2, -1)) == 2
