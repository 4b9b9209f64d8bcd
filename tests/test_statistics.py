"""Statistics add: any order, any batches, any engine, any scale – and the two kinds agree."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import planted
import polyattn as pa
from planted import EPS
from polyattn.errors import FileFormatError, InvalidInput, OutOfRange
from polyattn.features import sequence_sums, summaries
from polyattn.form.layout import Layout
from polyattn.form.pairs import distance_position, n_features, pair_index
from polyattn.numerics.arrays import aligned_empty
from polyattn.reference import erm, layer
from polyattn.sequences import MODES
from polyattn.stats import moment_sums, moments, triangular_factor
from polyattn.stats.moment_sums import ExplicitSums, PairedSums

KINDS = (pa.Moments, pa.TriangularFactor)
ENGINES = {
    "explicit": ExplicitSums,
    "paired": PairedSums,
}


@dataclass(frozen=True)
class Data:
    """Ragged sequences with one block of target rows each, and how they are to be read."""

    X: list[NDArray]
    Y: list[NDArray]
    weights: NDArray | None
    mode: str
    bias: bool
    d: int
    e: int

    @property
    def targets(self):
        """The targets in the form that the mode wants."""
        if self.e == 0:
            return None
        return np.concatenate(self.Y) if self.mode == "last" else self.Y

    def part(self, start: int, stop: int) -> "Data":
        """Sequences start..stop."""
        weights = None if self.weights is None else self.weights[start:stop]
        return replace(self, X=self.X[start:stop], Y=self.Y[start:stop], weights=weights)

    def into(self, make):
        """The statistics of the data, by one update."""
        stats = make(self.d, self.e, self.mode, self.bias)
        return stats.update(self.X, self.targets, self.weights) if self.X else stats

    def reference(self):
        """psi (rows, p), targets (rows, e) and weights (rows,) by the reference."""
        tokens = [layer.with_constant(x) if self.bias else x for x in self.X]
        weights = np.ones(len(self.X)) if self.weights is None else self.weights
        return (
            erm.design(tokens, self.mode),
            np.concatenate(self.Y),
            np.repeat(weights, [len(y) for y in self.Y]),
        )


def make_data(lengths, d, e, mode, seed=0, weighted=False, bias=False) -> Data:
    """Gaussian data, and weights of any size."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((length, d)) for length in lengths]
    Y = [rng.standard_normal((1 if mode == "last" else length, e)) for length in lengths]
    weights = rng.uniform(0.1, 3, len(X)) if weighted else None
    return Data(X, Y, weights, mode, bias, d, e)


@st.composite
def random_data(draw):
    """Small random data of any mode, with or without weights, constant and targets."""
    return make_data(
        draw(st.lists(st.integers(1, 6), min_size=1, max_size=9)),
        d=draw(st.integers(1, 3)),
        e=draw(st.integers(0, 2)),
        mode=draw(st.sampled_from(MODES)),
        seed=draw(st.integers(0, 2**32)),
        weighted=draw(st.booleans()),
        bias=draw(st.booleans()),
    )


# Equal to sums over rows --------------------------------------------------------------------


@given(random_data())
def test_moments_are_the_sums_of_the_reference(data):
    psi, targets, weights = data.reference()
    stats = data.into(pa.Moments)
    weighted = psi * weights[:, None]
    assert_close(stats.gram, psi.T @ weighted)
    assert_close(stats.cross, weighted.T @ targets)
    assert_close(stats.target_gram, targets.T @ (targets * weights[:, None]))
    assert_close(stats.second_moment, psi.T @ weighted / weights.sum())
    assert_counts(stats, data)


@given(random_data())
def test_the_triangular_factor_squared_is_the_gram(data):
    psi, targets, weights = data.reference()
    stats = data.into(pa.TriangularFactor)
    R, projected = stats.scaled_factor(), stats.scaled_projection()
    assert R.shape == (min(len(psi), psi.shape[1]), psi.shape[1])
    np.testing.assert_array_equal(R, np.triu(R))
    weighted = psi * weights[:, None]
    assert_close(R.T @ R, psi.T @ weighted)
    assert_close(R.T @ projected, weighted.T @ targets)
    power = np.sum(projected**2) + stats.scaled_residual_power()
    assert power == pytest.approx(float(np.sum(targets**2 * weights[:, None])), rel=1e-9, abs=1e-15)
    assert_counts(stats, data)


def test_both_kinds_agree_where_rows_stop_at_the_number_of_columns():
    """p, p + 1 and p + e rows: the places where the factor changes its shape."""
    rng = np.random.default_rng(0)
    for count in (1, 5, 6, 7, 8, 9, 30):
        X, Y = rng.standard_normal((count, 3, 2)), rng.standard_normal((count, 2))
        gram = pa.Moments(2, 2).update(X, Y)
        factor = pa.TriangularFactor(2, 2).update(X, Y)
        R = factor.scaled_factor()
        assert_close(R.T @ R, gram.gram)
        inside = np.sum(factor.scaled_projection() ** 2)
        assert inside + factor.scaled_residual_power() == pytest.approx(np.sum(Y**2))


# Merging ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", KINDS)
@given(data=random_data(), cuts=st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_merging_is_associative_and_commutative(make, data, cuts):
    first, second = sorted(cuts)
    a, b, c = (
        data.part(start, stop).into(make)
        for start, stop in ((0, first), (first, second), (second, len(data.X)))
    )
    whole = data.into(make)
    for merged in ((a + b) + c, a + (b + c), (c + a) + b, c + (b + a)):
        assert_same(merged, whole)


@pytest.mark.parametrize("make", KINDS)
@given(data=random_data(), size=st.integers(1, 4))
def test_updates_do_not_depend_on_batch_boundaries(make, data, size):
    stats = data.part(0, 0).into(make)
    for start in range(0, len(data.X), size):
        some = data.part(start, start + size)
        assert stats.update(some.X, some.targets, some.weights) is stats
    assert_same(stats, data.into(make))


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_without_weight_changes_only_the_counts(make, mode):
    """Whether a stream is cut so that one batch holds only zero weights must not matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 3, 2))
    Y = rng.standard_normal((6, 1) if mode == "last" else (6, 3, 1))
    weights = np.array([1.0, 2.0, 0.5, 0.0, 0.0, 0.0])
    whole = make(2, 1, mode).update(X, Y, weights)
    pieces = make(2, 1, mode).update(X[:3], Y[:3], weights[:3])
    pieces.update(X[3:], Y[3:], weights[3:])
    assert_same(pieces, whole)


@pytest.mark.parametrize("make", KINDS)
def test_merging_leaves_its_operands_alone(make):
    rng = np.random.default_rng(0)
    a = make(2, 1).update(rng.standard_normal((4, 3, 2)), rng.standard_normal(4))
    b = make(2, 1).update(1e100 * rng.standard_normal((4, 3, 2)), rng.standard_normal(4))
    before = [contents(a), contents(b)]
    merged = a + b
    merged.update(rng.standard_normal((4, 3, 2)), rng.standard_normal(4))
    for stats, (arrays, metadata) in zip((a, b), before, strict=True):
        now_arrays, now_metadata = contents(stats)
        assert now_metadata == metadata
        for name, array in arrays.items():
            np.testing.assert_array_equal(now_arrays[name], array)


@pytest.mark.parametrize("name", ["gram", "cross", "target_gram", "second_moment"])
def test_what_was_read_does_not_change_with_later_updates(name):
    rng = np.random.default_rng(0)
    stats = pa.Moments(2, 2).update(rng.standard_normal((9, 3, 2)), rng.standard_normal((9, 2)))
    seen = getattr(stats, name)
    before = seen.copy()
    stats.update(rng.standard_normal((9, 3, 2)), rng.standard_normal((9, 2)))
    np.testing.assert_array_equal(seen, before)


@pytest.mark.parametrize("make", KINDS)
def test_empty_statistics_are_the_neutral_element(make):
    rng = np.random.default_rng(0)
    for scale in (1e-100, 1.0, 1e100):
        full = make(2, 1).update(scale * rng.standard_normal((8, 3, 2)), rng.standard_normal(8))
        for merged in (make(2, 1) + full, full + make(2, 1)):
            assert contents(merged)[1] == contents(full)[1]
            assert_same(merged, full)


REFUSED_MERGES = {
    "n_dims": (pa.Moments(2, 1), pa.Moments(3, 1), "n_dims 2 and 3"),
    "n_outputs": (pa.Moments(2, 1), pa.Moments(2, 2), "n_outputs 1 and 2"),
    "mode": (pa.Moments(2, 1, "last"), pa.Moments(2, 1, "full"), "mode last and full"),
    "bias": (pa.Moments(2, 1, bias=True), pa.Moments(2, 1), "bias True and False"),
}


@pytest.mark.parametrize("name", REFUSED_MERGES)
def test_unlike_statistics_do_not_merge(name):
    a, b, words = REFUSED_MERGES[name]
    with pytest.raises(InvalidInput, match=words):
        a + b


def test_moments_and_factors_do_not_merge():
    with pytest.raises(TypeError):
        pa.Moments(2, 1) + pa.TriangularFactor(2, 1)


@pytest.mark.parametrize("make", KINDS)
def test_sum_adds_statistics_and_equal_sums_are_equal(make):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 5, 4, 2)), rng.standard_normal((3, 5, 1))
    parts = [make(2, 1).update(x, y) for x, y in zip(X, Y, strict=True)]
    assert sum(parts) == parts[0] + parts[1] + parts[2]
    assert sum(parts[:1]) == parts[0]
    assert sum(parts[:1]) is not parts[0]
    assert parts[0] == make(2, 1).update(X[0], Y[0])
    assert parts[0] != parts[1]
    assert parts[0] != make(2, 1, bias=True).update(X[0], Y[0])
    assert parts[0] != make(2, 1).update(X[0], 2 * Y[0])
    assert parts[0] != "sums"
    with pytest.raises(TypeError):
        1 + parts[0]
    with pytest.raises(TypeError, match="unhashable"):
        hash(parts[0])


@pytest.mark.parametrize("make", KINDS)
def test_sums_beyond_the_memory_are_refused_with_their_size(make):
    with pytest.raises(InvalidInput, match=r"features would take about .* TB.*'dual'"):
        make(5000)


# Engines and threads ------------------------------------------------------------------------


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


# Scales -------------------------------------------------------------------------------------

SCALES = (0.0, 1e-150, 1e-60, 1.0, 1e60, 1e150)


@pytest.mark.parametrize("make", KINDS)
def test_sums_at_powers_of_two_that_differ_a_little_merge_exactly(make):
    """Both parts count: each power that is taken out must come back in every sum."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 30, 3, 2)), rng.standard_normal((2, 30, 2))
    scales = (2.0**60, 2.0**62)
    a, b = (make(2, 2).update(s * x, s * y) for s, x, y in zip(scales, X, Y, strict=True))
    assert a.token_exponent != b.token_exponent
    both = make(2, 2).update(np.concatenate([X[0] / 4, X[1]]), np.concatenate([Y[0] / 4, Y[1]]))
    for merged in (a + b, b + a):
        found, expected = pa.fit(statistics=merged), pa.fit(statistics=both)
        assert planted.relative_error(found.coef * 2.0**124, expected.coef) < 1e-11
        assert found.risk == pytest.approx(expected.risk * 2.0**124, rel=1e-11)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "field", ["n_dims", "n_outputs", "n_rows", "n_positive", "n_sequences", "total_weight"]
)
def test_counts_below_zero_are_refused(make, field):
    record = make(2, 1).update(np.ones((3, 2, 2)), np.ones(3)).to_record()
    wrong = replace(record, metadata=record.metadata | {field: -1})
    with pytest.raises(FileFormatError, match=f"metadata.{field}"):
        make.from_record(wrong)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("first", SCALES)
@pytest.mark.parametrize("second", SCALES)
def test_merging_across_scales_keeps_the_larger(make, first, second):
    """Six powers beside 1 a scale of 1e-60 is nothing; alone it counts in full."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 30, 3, 2)), rng.standard_normal((2, 30, 1))
    a, b = (make(2, 1).update(s * x, s * y) for s, x, y in zip((first, second), X, Y, strict=True))
    largest = max(first, second)
    expected = make(2, 1)
    for scale, x, y in zip((first, second), X, Y, strict=True):
        expected.update((scale / largest if largest else 0.0) * x, (scale / (largest or 1.0)) * y)
    for merged in (a + b, b + a, make(2, 1).update(first * X[0], first * Y[0]) + b):
        ours = pa.fit(statistics=merged)
        reference = pa.fit(statistics=expected)
        unit = largest**-2 if largest else 1.0
        assert planted.relative_error(ours.coef / unit, reference.coef) < 1e-9
        assert ours.outcome.name == reference.outcome.name


@pytest.mark.parametrize("make", KINDS)
def test_exponents_follow_the_largest_data(make):
    one = np.ones((1, 1, 1))
    stats = make(1, 1)
    assert (stats.token_exponent, stats.target_exponent) == (None, None)
    stats.update(0 * one, [0.0])
    assert (stats.token_exponent, stats.target_exponent) == (None, None)
    stats.update(1e-100 * one, [1e-100])
    tiny = stats.token_exponent
    assert tiny < -300
    assert stats.target_exponent == tiny
    stats.update(one, [1.0])
    assert (stats.token_exponent, stats.target_exponent) == (0, 0)
    stats.update(1e-100 * one, [1e-100])
    assert (stats.token_exponent, stats.target_exponent) == (0, 0)
    stats.update(1e100 * one, [1.0])
    assert stats.token_exponent > 300
    assert stats.target_exponent == 0


@pytest.mark.parametrize("scale", [1e-50, 1e50])
def test_moments_of_scaled_data_in_true_units(scale):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 3, 2)), rng.standard_normal((9, 2))
    plain = pa.Moments(2, 2).update(X, Y)
    scaled = pa.Moments(2, 2).update(scale * X, Y / scale**2)
    assert_close(scaled.gram / scale**3 / scale**3, plain.gram)
    assert_close(scaled.cross / scale, plain.cross)
    assert_close(scaled.target_gram * scale**2 * scale**2, plain.target_gram)


def test_moments_that_float64_cannot_hold_are_refused_with_advice():
    stats = pa.Moments(1, 1).update(np.full((2, 1, 1), 1e100), [1.0, 2.0])
    with pytest.raises(OutOfRange, match=r"moments.*1e\+60\d.*multiply"):
        stats.gram  # noqa: B018


# What a factor sees and a Gram does not -----------------------------------------------------


@pytest.mark.parametrize("delta", [1e-4, 1e-10])
def test_small_eigenvalues_survive_in_the_factor_only(delta):
    """d = 1 + bias: features (x^2 + 1) x etc.; sequences chosen so that psi takes two values.

    With tokens +-1 and a weight delta^2 on the second, the Gram has the eigenvalues of
    diag(1, delta^2) times 8: 1e-20 of the largest for delta = 1e-10.
    """
    X = np.array([[[1.0]], [[-1.0]]])
    weights = np.array([1.0, delta**2])
    psi = erm.design([layer.with_constant(x) for x in X], "last") * np.sqrt(weights)[:, None]
    truth = np.linalg.svd(psi, compute_uv=False)[:2] ** 2
    factor = pa.TriangularFactor(1, 0, bias=True)
    gram = pa.Moments(1, 0, bias=True)
    for x, weight in zip(X, weights, strict=True):
        factor = factor + pa.TriangularFactor(1, 0, bias=True).update(x[None], None, [weight])
        gram = gram + pa.Moments(1, 0, bias=True).update(x[None], None, [weight])
    found = np.linalg.svd(factor.scaled_factor(), compute_uv=False)[:2] ** 2
    assert found[1] / found[0] == pytest.approx(
        truth[1] / truth[0], rel=1e-6 if delta < 1e-6 else 1e-9
    )
    assert found[1] / found[0] == pytest.approx(delta**2, rel=1.0)
    eigenvalues = np.sort(np.linalg.eigvalsh(gram.gram))[::-1][:2]
    survives = abs(eigenvalues[1] / eigenvalues[0] / (truth[1] / truth[0]) - 1.0) < 0.5
    assert survives == (delta > 1e-8)


# Files, copies, refusals --------------------------------------------------------------------


@pytest.mark.parametrize("make", KINDS)
@given(data=random_data())
@settings(max_examples=20)
def test_saved_statistics_continue_as_if_nothing_had_happened(make, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("stats") / "stats.safetensors"
    stats = data.into(make)
    stats.save(path)
    loaded = make.load(path)
    assert type(loaded) is make
    assert contents(loaded)[1] == contents(stats)[1]
    for each in (stats, loaded):
        each.update(data.X, data.targets, data.weights)
    for name, array in contents(stats)[0].items():
        np.testing.assert_array_equal(contents(loaded)[0][name], array)


@pytest.mark.parametrize("make", KINDS)
def test_empty_statistics_are_saved_too(make, tmp_path):
    make(3, 2, "full", bias=True).save(tmp_path / "empty")
    loaded = make.load(tmp_path / "empty")
    assert (loaded.n_dims, loaded.n_outputs, loaded.mode, loaded.bias) == (3, 2, "full", True)
    assert (loaded.n_rows, loaded.token_exponent) == (0, None)


def test_one_kind_is_not_loaded_as_the_other(tmp_path):
    pa.Moments(2, 1).save(tmp_path / "m")
    with pytest.raises(OSError, match=r"'moments'.*'triangular_factor'"):
        pa.TriangularFactor.load(tmp_path / "m")


@pytest.mark.parametrize("make", KINDS)
def test_a_copy_is_independent(make):
    rng = np.random.default_rng(0)
    stats = make(2, 1).update(rng.standard_normal((9, 3, 2)), rng.standard_normal(9))
    before = contents(stats)
    stats.copy().update(rng.standard_normal((9, 3, 2)), rng.standard_normal(9))
    for name, array in before[0].items():
        np.testing.assert_array_equal(contents(stats)[0][name], array)


ONE = np.ones((2, 3, 2))

REFUSED_UPDATES = {
    "width": (ONE[..., :1], np.ones((2, 1)), "2 coordinates.*got 1"),
    "outputs": (ONE, np.ones((2, 3)), "Y must have 1 output; got 3"),
    "targets per token": (ONE, np.ones((2, 3, 1)), "mode 'last'"),
    "no targets": (ONE, None, "n_outputs=1.*Y is missing"),
    "nan": (ONE * np.nan, np.ones((2, 1)), "NaN"),
    "count": (ONE, np.ones((3, 1)), "2 sequences.*3 targets"),
}


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", REFUSED_UPDATES)
def test_a_refused_update_changes_nothing(make, name):
    X, Y, words = REFUSED_UPDATES[name]
    stats = make(2, 1).update(ONE, np.ones((2, 1)))
    before = contents(stats)
    with pytest.raises(InvalidInput, match=words):
        stats.update(X, Y)
    assert contents(stats)[1] == before[1]
    for array_name, array in before[0].items():
        np.testing.assert_array_equal(contents(stats)[0][array_name], array)


@pytest.mark.parametrize("make", KINDS)
def test_statistics_of_inputs_alone(make):
    stats = make(2, mode="causal").update(ONE)
    assert (stats.n_outputs, stats.n_rows) == (0, 6)
    with pytest.raises(InvalidInput, match=r"n_outputs=0.*take no Y"):
        stats.update(ONE, np.ones((2, 3, 1)))
    with pytest.raises(InvalidInput, match="no targets"):
        pa.fit(statistics=stats)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0,), "n_dims.*at least 1.*0"),
        ((2.5,), "n_dims.*2.5"),
        ((True,), "n_dims.*True"),
        ((2, -1), "n_outputs.*at least 0.*-1"),
        ((2, 1, "bidirectional"), "mode.*'last'.*'bidirectional'"),
    ],
)
def test_sizes_are_checked(make, arguments, words):
    with pytest.raises(InvalidInput, match=words):
        make(*arguments)


def test_empty_moments_have_no_second_moment():
    with pytest.raises(InvalidInput, match=r"empty.*update"):
        pa.Moments(2, 1).second_moment  # noqa: B018


def test_the_spectrum_decides_identifiability():
    """Ranks of Gaussian and one-hot tokens at d = 3: 18 and 9 of 18 [THEORY: 3]."""
    for kind, rank in (("tall", 18), ("one_hot", 9)):
        stats = pa.Moments(3).update(planted.problem(kind).X)
        values = stats.spectrum()
        assert np.all(np.diff(values) >= 0)
        assert np.count_nonzero(values > 1e-12 * values[-1]) == rank


@pytest.mark.parametrize("make", KINDS)
def test_repr(make):
    assert repr(make(2, 1, "causal", bias=True).update(ONE, np.ones((2, 3)))) == (
        f"{make.__name__}(2 sequences, 6 predicted positions, 18 features, 1 output, "
        "mode 'causal', bias)"
    )


# Helpers ------------------------------------------------------------------------------------


def contents(stats):
    """Copies of the arrays, and the plain metadata."""
    record = stats.to_record()
    return {name: array.copy() for name, array in record.arrays.items()}, record.metadata


def assert_close(found, expected, least=0.0):
    """Equal up to the rounding of a few hundred additions, relative to the largest entry.

    Sums that cancel keep the rounding of their terms, which are of size ``least`` or more.
    """
    size = float(np.max(np.abs(expected), initial=least))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1000 * EPS * size)


def assert_counts(stats, data):
    """The counts beside the sums."""
    _, targets, weights = data.reference()
    assert (stats.n_rows, stats.n_sequences) == (len(targets), len(data.X))
    assert stats.max_length == max(map(len, data.X))
    assert stats.total_weight == pytest.approx(weights.sum())


def assert_same(found, expected):
    """The same statistics up to rounding; factors are compared by their squares."""
    for key, value in contents(expected)[1].items():
        assert contents(found)[1][key] == (
            pytest.approx(value) if isinstance(value, float) else value
        ), key
    if isinstance(expected, pa.Moments):
        for name, array in contents(expected)[0].items():
            # The explicit Gram keeps its lower triangle only.
            assert_close(np.tril(contents(found)[0][name]), np.tril(array), least=1.0)
        return
    one, other = (contents(stats)[0]["factor"] for stats in (found, expected))
    assert_close(one.T @ one, other.T @ other)
