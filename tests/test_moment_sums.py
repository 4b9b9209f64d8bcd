"""Both ways to add up moments agree, wherever blocks end and however many threads there are."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import polyattn as pa
from polyattn.features import sequence_sums, summaries
from polyattn.form.layout import Layout
from polyattn.form.pairs import distance_position, n_features, pair_index
from polyattn.numerics.arrays import aligned_empty
from polyattn.sequences import MODES
from polyattn.stats import moment_sums, moments, triangular_factor
from polyattn.stats.moment_sums import ExplicitSums, PairedSums
from statistics_cases import (
    KINDS,
    assert_close,
    assert_same,
    make_data,
)

ENGINES = {
    "explicit": ExplicitSums,
    "paired": PairedSums,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_both_gram_engines_agree(monkeypatch, d, bias, weighted, mode):
    data = make_data([1 + i % 4 for i in range(40)], d, 2, mode, d, weighted, bias)
    psi, targets, weights = data.reference()
    for make in ENGINES.values():
        monkeypatch.setattr(moments, "make_sums", make)
        stats = data.into(pa.Moments)
        assert_close(stats.gram, psi.T @ (psi * weights[:, None]))
        assert_close(stats.cross, psi.T @ (targets * weights[:, None]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tile_rows", [1, 2, 7, 10_000])
@pytest.mark.parametrize("width", [1, 3, 64, 65])
def test_tile_boundaries(monkeypatch, engine, tile_rows, width):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((131, 2, 3)), rng.standard_normal((131, 1))
    expected = pa.Moments(3, 1).update(X, Y).gram
    monkeypatch.setattr(moment_sums, "TILE_HEIGHT", tile_rows)
    monkeypatch.setattr(moment_sums, "TILE_WIDTH", width)
    monkeypatch.setattr(moment_sums, "EXPLICIT_NUMBERS", width * (n_features(3) + 1))
    monkeypatch.setattr(moments, "make_sums", ENGINES[engine])
    assert_close(pa.Moments(3, 1).update(X, Y).gram, expected)


def test_files_hold_paired_sums_in_the_order_of_the_pairs(monkeypatch):
    """The order in memory is for speed; that of files is part of the format."""
    monkeypatch.setattr(moments, "make_sums", ENGINES["paired"])
    X = np.random.default_rng(0).standard_normal((30, 2, 3))
    stored = pa.Moments(3).update(X).to_record().arrays["gram"]
    rows, columns = pair_index(3)
    g = np.einsum("ntj,ntk->njk", X, X)[:, rows, columns]
    x = np.einsum("nj,nk->njk", X[:, -1], X[:, -1])[:, rows, columns]
    first, second = pair_index(len(rows))
    assert_close(stored, x.T @ (g[:, first] * g[:, second]))


@pytest.mark.parametrize("written", ENGINES)
@pytest.mark.parametrize("read", ENGINES)
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_either_engine_reads_what_either_wrote(monkeypatch, tmp_path, written, read, d):
    X = np.random.default_rng(0).standard_normal((40, 3, d))
    monkeypatch.setattr(moments, "make_sums", ENGINES[written])
    stats = pa.Moments(d, d).update(X, X[:, 0])
    stats.save(tmp_path / "sums.safetensors")
    monkeypatch.setattr(moments, "make_sums", ENGINES[read])
    loaded = pa.Moments.load(tmp_path / "sums.safetensors")
    assert_close(loaded.gram, stats.gram)
    assert_close(loaded.cross, stats.cross)
    # And it goes on with them.
    assert_close(loaded.update(X, X[:, 0]).gram, 2 * stats.gram)


@pytest.mark.parametrize("n_dims", [1, 2, 3, 7])
def test_pairs_by_distance(n_dims):
    table = distance_position(n_dims)
    pairs = sorted(zip(*map(np.ndarray.tolist, pair_index(n_dims)), strict=True), key=_by_distance)
    assert [table[j, k] for j, k in pairs] == list(range(len(pairs)))
    assert np.array_equal(table, table.T)


def _by_distance(pair):
    return pair[1] - pair[0], pair[0]


@pytest.mark.parametrize("shape", [(1,), (3, 8), (2, 5)])
def test_aligned_memory_begins_with_a_cache_line(shape):
    for _ in range(8):
        memory = aligned_empty(*shape)
        assert memory.shape == shape
        assert memory.dtype == np.float64
        assert memory.ctypes.data % 64 == 0
        assert memory.flags.c_contiguous


@pytest.mark.parametrize("n_columns", [1, 255, 256, 257, 5000, 9316])
@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_cover_all_columns_once_and_shrink(n_columns, threads):
    with threadpool_limits(threads, user_api="blas"):
        tiles = list(moment_sums._tiles(n_columns))
    assert [first for first, _ in tiles] == [0, *(stop for _, stop in tiles[:-1])]
    assert tiles[-1][1] == n_columns
    heights = [stop - first for first, stop in tiles]
    assert all(0 < height <= moment_sums.TILE_HEIGHT for height in heights)
    assert heights == sorted(heights, reverse=True)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_summary_block_boundaries(monkeypatch, make, mode):
    data = make_data([1 + i % 7 for i in range(30)], 2, 2, mode, weighted=True)
    whole = data.into(make)
    for rows in (1, 4, 9):
        monkeypatch.setattr(summaries, "MIN_BLOCK_ROWS", rows)
        monkeypatch.setattr(summaries, "BLOCK_NUMBERS", 1)
        monkeypatch.setattr(sequence_sums, "TOKEN_BLOCK", 8)
        monkeypatch.setattr(triangular_factor, "BLOCK_NUMBERS", 8 * rows)
        assert_same(data.into(make), whole)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("d", [3, 12])
def test_threads_do_not_change_the_sums(monkeypatch, engine, mode, d):
    """Two workers share the tiles; d = 12 has many, and its engine is the paired one."""
    monkeypatch.setattr(moments, "make_sums", ENGINES[engine])
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, d))
    Y = rng.standard_normal((60, 2) if mode == "last" else (60, 3, 2))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(pa.Moments(d, 2, mode).update(X, Y))
    assert_close(found[0].gram, found[1].gram)
    assert_close(found[0].cross, found[1].cross)


def test_the_engine_is_chosen_by_width():
    assert isinstance(moments.make_sums(Layout.plain(4), 1), ExplicitSums)
    assert isinstance(moments.make_sums(Layout.plain(moments.PAIRED_FROM_QUERIES), 1), PairedSums)
    assert isinstance(moments.make_sums(Layout.plain(2, "full"), 1), PairedSums)


def test_the_caller_keeps_his_threads():
    rng = np.random.default_rng(0)
    with threadpool_limits(2, user_api="blas") as limited:
        before = [library["num_threads"] for library in limited._controller.info()]
        pa.Moments(3, 1).update(rng.standard_normal((500, 3, 3)), rng.standard_normal(500))
        after = [library["num_threads"] for library in limited._controller.info()]
    assert before == after
