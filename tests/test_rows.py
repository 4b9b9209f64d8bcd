"""Rows in groups of blocks: everything once, in order, whoever reads it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.features import summaries
from polyattn.form import Form
from polyattn.progress import listening
from polyattn.sequences import MODES
from polyattn.stats import row_groups, rows
from polyattn.stats.rows import Rows

LENGTHS = (1, 30, 2, 7, 1, 1, 12, 3, 55, 4, 2, 9)


def make_rows(mode, seed=0):
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((length, 3)) for length in LENGTHS]
    Y = [rng.standard_normal((1 if mode == "last" else length, 2)) for length in LENGTHS]
    weights = rng.uniform(0.1, 2.0, len(X))
    return Rows.build(X, np.concatenate(Y) if mode == "last" else Y, Form(mode), weights)


def joined(blocks, name):
    return np.concatenate([getattr(block, name) for block in blocks], axis=1)


@pytest.fixture
def small_groups(monkeypatch):
    """Nothing is kept, groups hold some ten rows, and the longest sequence exceeds them."""
    monkeypatch.setattr(rows, "KEPT_NUMBERS", 0)
    monkeypatch.setattr(row_groups, "GROUP_NUMBERS", 130)
    monkeypatch.setattr(rows, "SHARE_NUMBERS", 0)
    monkeypatch.setattr(rows, "SHARE_ROWS", 1)
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
    for name in ("sums", "queries", "targets"):
        np.testing.assert_allclose(joined(blocks, name), joined(whole, name), atol=1e-12)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("mode", ["causal", "full"])
def test_of_a_sequence_longer_than_a_group_one_block_is_in_memory(mode):
    groups = list(make_rows(mode).groups())
    largest = max(sum(block.sums.shape[1] for block in group) for group in groups)
    assert largest <= 130 // make_rows(mode).numbers_per_row < max(LENGTHS)


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
def test_what_is_made_of_kept_rows_is_read_anew(mode):
    made = make_rows(mode)
    whole = list(made.blocks())
    part = made.part(2, 7)
    alone = list(part.blocks())
    first, stop = part.base, part.base + part.n_rows
    assert (alone[0].first, alone[-1].stop) == (first, stop)
    for name in ("sums", "queries", "targets"):
        expected = joined(whole, name)[:, first:stop]
        np.testing.assert_allclose(joined(alone, name), expected, atol=1e-12)
    halved = list(made.with_exponents(1, None).blocks())
    np.testing.assert_array_equal(joined(halved, "queries"), joined(whole, "queries") / 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("threads", [1, 2])
def test_shares_and_portions_are_parts_in_order(mode, threads, monkeypatch):
    monkeypatch.setattr(rows, "SHARE_NUMBERS", 0)
    monkeypatch.setattr(rows, "SHARE_ROWS", 1)
    made = make_rows(mode)
    with threadpool_limits(threads, user_api="blas"):
        assert len(made.shares()) >= threads
        for parts in (made.shares(), list(made.portions(130))):
            assert parts[0].base == 0
            assert sum(part.n_rows for part in parts) == made.n_rows
            for part, following in pairwise(parts):
                assert part.base + part.n_rows == following.base
            np.testing.assert_array_equal(np.concatenate([p.targets for p in parts]), made.targets)


def test_many_rows_are_shared_out_in_few_parts():
    """As many as workers could want: what is added up depends on the parts."""
    X = np.random.default_rng(0).standard_normal((30_000, 1, 3))
    shares = Rows.build(X, np.zeros((30_000, 1)), Form("last")).shares()
    assert [share.n_rows for share in shares] == [30_000 // rows.MOST_SHARES] * rows.MOST_SHARES


@pytest.mark.parametrize("n_dims", [1, 3, 11])
def test_grams_of_features_times_factors(n_dims):
    rng = np.random.default_rng(0)
    made = pa.Moments(n_dims).update(rng.standard_normal((40, 2, n_dims)))
    factors = rng.uniform(0.5, 2.0, made.n_features)
    expected = made.gram * np.outer(factors, factors)
    np.testing.assert_allclose(made.scaled_gram(factors), expected, rtol=1e-13)
    np.testing.assert_array_equal(made.scaled_feature_powers(), made.gram.diagonal())
