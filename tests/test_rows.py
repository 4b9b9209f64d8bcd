"""Rows in groups of blocks: everything once, in order, whoever reads it."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.features import summaries
from polyattn.progress import listening
from polyattn.sequences import MODES
from polyattn.stats import Moments, rows
from polyattn.stats.rows import Rows

LENGTHS = (1, 30, 2, 7, 1, 1, 12, 3, 55, 4, 2, 9)


def make_rows(mode, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((length, 3)) for length in LENGTHS]
    Y = [rng.standard_normal((1 if mode == "last" else length, 2)) for length in LENGTHS]
    weights = rng.uniform(0.1, 2.0, len(X))
    return Rows.build(X, np.concatenate(Y) if mode == "last" else Y, mode, False, weights)


def joined(blocks, name):
    return np.concatenate([getattr(block, name) for block in blocks], axis=1)


@pytest.fixture
def small_groups(monkeypatch):
    """Nothing is kept, groups hold some ten rows, and the longest sequence exceeds them."""
    monkeypatch.setattr(rows, "KEPT_NUMBERS", 0)
    monkeypatch.setattr(rows, "GROUP_NUMBERS", 130)
    monkeypatch.setattr(rows, "SHARED_FROM_NUMBERS", 0)
    monkeypatch.setattr(summaries, "BLOCK_NUMBERS", 1)
    monkeypatch.setattr(summaries, "MIN_BLOCK_ROWS", 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_groups_hold_everything_once_and_in_order(mode, threads, request):
    whole = list(make_rows(mode).blocks())
    request.getfixturevalue("small_groups")
    with threadpool_limits(threads, user_api="blas"):
        groups = list(make_rows(mode).groups())
    blocks = [block for group in groups for block in group]
    assert len(groups) > 1
    assert [block.first for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == make_rows(mode).n_rows
    for name in ("pairs", "queries", "targets"):
        np.testing.assert_allclose(joined(blocks, name), joined(whole, name), atol=1e-12)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("mode", MODES)
def test_progress_is_reported_to_the_end(mode):
    made, heard = make_rows(mode), []
    with listening(lambda done, total: heard.append((done, total))):
        list(made.groups())
    assert heard == sorted(heard)
    assert heard[-1] == (made.n_rows, made.n_rows)
    assert len(heard) > 1


@pytest.mark.parametrize("mode", MODES)
def test_kept_rows_are_read_once(mode):
    made = make_rows(mode)
    first, second = list(made.blocks()), list(made.blocks())
    assert all(a is b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("mode", MODES)
def test_moments_may_wait(mode):
    made = make_rows(mode)
    now, later = Moments.of(made), Moments.later(made)
    assert repr(now) == repr(later)
    for pair in ((now, later), (now + now, later + Moments.later(made))):
        for name in ("gram", "cross", "target_gram", "total_weight", "max_length"):
            expected, found = (getattr(each, name) for each in pair)
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-9)


def test_waiting_moments_take_more_data():
    made = make_rows("last")
    X, Y = np.ones((2, 3, 3)) * 1e90, np.ones((2, 2))
    found = Moments.later(made).update(X, Y)
    expected = Moments.of(made).update(X, Y)
    np.testing.assert_allclose(found.scaled_gram(), expected.scaled_gram(), rtol=1e-12)
    assert found.token_exponent == expected.token_exponent != 0
    assert isinstance(found, pa.Moments)


@pytest.mark.parametrize("n_dims", [1, 3, 11])
def test_grams_of_features_times_factors(n_dims):
    rng = np.random.default_rng(0)
    made = pa.Moments(n_dims).update(rng.standard_normal((40, 2, n_dims)))
    factors = rng.uniform(0.5, 2.0, made.n_features)
    expected = made.gram * np.outer(factors, factors)
    np.testing.assert_allclose(made.scaled_gram(factors), expected, rtol=1e-13)
    np.testing.assert_array_equal(made.scaled_feature_powers(), made.gram.diagonal())
