"""Data in chunks: whatever they lie in, answers are those of the same sequences in memory."""

import contextlib
import gc
import itertools
import os
import resource
import tempfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import dask
import dask.array
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from oracle import contexts_for, forms, predicted, sequences, split_context
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, PolyattnError


def in_items(X, Y, w, size=4):
    """Triples of a few sequences each."""
    return [(X[i : i + size], Y[i : i + size], w[i : i + size]) for i in range(0, len(X), size)]


def as_shards(save):
    def write(X, Y, w, folder, chunk_bytes):
        for number, (x, y, own) in enumerate(in_items(X, Y, w, 9)):
            held = {"offsets": np.cumsum([0, *map(len, x)]), "weights": own}
            held["Y"] = y if np.ndim(y[0]) < 2 else np.concatenate(y)
            save(folder / f"{number}.npz", X=np.concatenate(x), **held)
        return pa.scan(str(folder / "*.npz"), chunk_bytes=chunk_bytes)

    return write


ROADS = {
    "arrays": lambda X, Y, w, _, size: pa.scan(X, Y, w, chunk_bytes=size),
    "shards": as_shards(np.savez), "packed shards": as_shards(np.savez_compressed),
    "delayed": lambda X, Y, w, *_: pa.scan(
        [dask.delayed((x, y)) for x, y, _ in in_items(X, Y, w)]),
    "an iterable": lambda X, Y, w, *_: pa.scan(dict(enumerate(in_items(X, Y, w))).values()),
    "a function": lambda X, Y, w, *_: pa.scan(lambda: iter(in_items(X, Y, w))),
    "a list": lambda X, Y, w, *_: pa.scan(in_items(X, Y, w)),
    "an iterator": lambda X, Y, w, *_: pa.scan(iter(in_items(X, Y, w))),
}  # fmt: skip
LAYER = pa.LinearAttention(np.array([[2, -1], [3, 1]]), np.array([[1, 4], [-2, 1]]), "causal")


def assert_holds(source, X, Y, w, mode):
    """The same sums, and for each sequence, in this order, the same outputs of a causal layer."""
    found = pa.Moments(2, 1, mode).update(source)
    expected = pa.Moments(2, 1, mode).update(X, Y, w)
    for name in ("gram", "cross", "target_gram", "n_sequences", "total_weight"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for one, other in zip(LAYER(source), LAYER(X), strict=True):
        np.testing.assert_array_equal(one, other)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=20), road=st.sampled_from(list(ROADS)),
    per_token=st.booleans(), chunk_bytes=st.sampled_from([1, 100, 333, 1 << 20]),
    dtype=st.sampled_from(["f8", "<f4", ">f8", "i2"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_whatever_holds_sequences_gives_their_sums_and_outputs(
    lengths, road, per_token, chunk_bytes, dtype, seed, tmp_path_factory
):
    rng = np.random.default_rng(seed)
    X = [rng.integers(-5, 6, (n, 2)).astype(dtype) for n in lengths]
    Y = [rng.integers(-5, 6, (n, 1)).astype(float) for n in lengths]
    Y = Y if per_token else np.array([y[0] for y in Y])
    w = rng.choice([1.0, 4.0, 9.0], len(X)) if road != "delayed" else np.ones(len(X))
    source = ROADS[road](X, Y, w, tmp_path_factory.mktemp("data"), chunk_bytes)
    assert (source.n_dims, source.n_outputs, source.n_context_dims) == (2, 1, None)
    assert_holds(source, X, Y, w, "causal" if per_token else "last")
    if road in ("arrays", "shards") and chunk_bytes == 1:
        assert len(source.chunks) == len(X)


def test_arrays_of_one_length_are_cut_by_sequences(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (40, 3, 2))
    Y, w = rng.integers(-3, 4, (40, 1)).astype(float), np.full(40, 4.0)
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(X, ">f8", order=order))
        source = pa.scan(tmp_path / "x.npy", chunk_bytes=100)
        # What lies column by column cannot be cut by sequences.
        assert (len(source.chunks) == 1) == (order == "F")
        np.testing.assert_array_equal(np.stack(list(LAYER(source))), LAYER(X))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    lazy = map(dask.array.from_array, (X, Y, w), ((7, 2, 2), (9, 1), 8))
    for source in (pa.scan(mapped, Y, w, chunk_bytes=300), pa.scan(*lazy)):
        assert len(source.chunks) > 3
        assert_holds(source, X, Y, w, "last")


def test_outputs_depend_on_the_mode(tmp_path):
    """An array (N, n) holds n targets for each sequence, or one for each of n tokens."""
    X = np.random.default_rng(0).standard_normal((10, 5, 2))
    for n in (4, 5):
        np.savez(tmp_path / f"{n}.npz", X=X[:, :n], Y=X[:, :n, 0])
    for source in (pa.scan(tmp_path / "4.npz"), pa.scan(X[:, :4], X[:, :4, 0])):
        assert pa.fit(source, mode="last", ridge=1.0).coef.shape[0] == 4
        assert pa.fit(source, mode="causal").coef.shape[0] == 1
    every = pa.scan(str(tmp_path / "*.npz"))
    assert pa.fit(every, mode="full", ridge=1.0).statistics.n_rows == 90
    with pytest.raises(InvalidInput, match=r"4|5"):
        pa.fit(every, mode="last")


def assert_same_outputs(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-11)


def test_chunks_lose_no_digits_where_features_nearly_depend():
    """Sums alone would: the rows are read again where that is seen."""
    for condition, noise in itertools.product((1.0, 1e4, 1e8), (1.0, 1e-6, 0.0)):
        rng = np.random.default_rng(1)
        turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        X = rng.standard_normal((300, 6, 3)) * np.geomspace(1, condition ** (-1 / 3), 3) @ turn
        layer = pa.LinearAttention(rng.standard_normal((2, 3, 3)), rng.standard_normal((2, 3, 2)))
        Y = layer(X) + noise * np.std(layer(X)) * rng.standard_normal((300, 2))
        wanted, found = pa.fit(X, Y), pa.fit(pa.scan(X, Y, chunk_bytes=5000))
        atol = 1e-10 * np.abs(wanted.coef).max()
        np.testing.assert_allclose(found.coef, wanted.coef, rtol=0, atol=atol)
        assert found.risk == pytest.approx(wanted.risk, rel=1e-9, abs=1e-25 * np.mean(Y**2))
        assert found.outcome.name == wanted.outcome.name


@settings(max_examples=12)
@given(
    fields=forms(), X=sequences(), seed=st.integers(0, 99), solver=st.sampled_from(["auto", "dual"]),
    kind=st.sampled_from([lambda x: x, np.rint, lambda x: np.rint(x) / 10]),
)  # fmt: skip
def test_fits_audits_and_certificates_of_chunks_are_those_of_arrays(fields, X, seed, solver, kind):
    """Of numbers that are exact, of integers, and of floats that look rounded."""
    (form, width), rng = split_context(fields), np.random.default_rng(seed)
    X, mode = [kind(4 * x) for x in X], form["mode"]
    Z, w = contexts_for(X, form, width), rng.integers(1, 4, len(X)) / 2.0
    Y = [rng.standard_normal((len(predicted(len(x), mode)), 1)) for x in X]
    Y, form = np.concatenate(Y) if mode == "last" else Y, pa.Form(**form)
    source, bare = (pa.scan(X, y, v, Z, chunk_bytes=100) for y, v in ((Y, w), (None, None)))
    options, beside = {"ridge": 0.1, "solver": solver}, {"context": Z, "sample_weight": w}
    wanted = pa.fit(X, Y, form=form, **options, **beside)
    found = pa.fit(source, form=form, **options)
    size = np.abs(wanted.coef).max()
    np.testing.assert_allclose(found.coef, wanted.coef, rtol=1e-8, atol=1e-8 * size)
    assert found.risk == pytest.approx(wanted.risk, rel=1e-8)
    assert found.outcome.name == wanted.outcome.name
    assert_same_outputs(found.predict(source), found.predict(X, Z))
    one, other = pa.audit(found, source), pa.audit(found, X, Y, **beside)
    for name in ("risk", "optimal_risk", "gap"):
        close = pytest.approx(getattr(other, name), rel=1e-8, abs=1e-9 * other.risk)
        assert getattr(one, name) == close, name
    assert one.certificate.verdict == other.certificate.verdict
    made, expected = pa.certify(bare, form=form), pa.certify(X, form=form, context=Z)
    for field in ("verdict", "digest", "method", "rank", "n_rows", "n_sequences"):
        assert getattr(made, field) == getattr(expected, field), field
    assert pa.verify(made, bare)
    assert pa.verify(expected, bare)
    assert pa.verify(made, X, context=Z)
    assert not pa.verify(made, pa.scan([x + 1 for x in X], None, None, Z, chunk_bytes=100))


def test_what_a_source_holds_is_not_given_beside_it():
    rng = np.random.default_rng(0)
    X, Y, w = rng.standard_normal((60, 4, 3)), rng.standard_normal((60, 2)), rng.random(60)
    source, bare = pa.scan(X, Y, w), pa.scan(X)
    result, fitted = pa.fit(X, Y), pa.LinearAttentionRegressor().fit(X, Y)
    for call, word in (
        (lambda: pa.fit(source, Y), "leave out Y"),
        (lambda: pa.fit(bare), "no targets"),
        (lambda: pa.fit(source, mode="causal"), "mode"),
        (lambda: pa.certify(source), "weights"),
        (lambda: pa.certify(bare, context=X), "context"),
        (lambda: pa.audit(result, source, Y), "Y"),
        (lambda: result.predict(bare, context=X), "context"),
        (lambda: pa.learning_curve(source, None), "at random"),
        (lambda: fitted.partial_fit(bare), "no targets"),
        (lambda: pa.Moments(3, 2).update(source, sample_weight=w), "sample_weight"),
        (lambda: pa.Moments(3, 2).update(source, chunk="x"), "chunk"),
        (lambda: pa.Moments(2, 2).update(source), "n_dims"),
    ):
        with pytest.raises(InvalidInput, match=word):
            call()


def write_shards(folder, count=3, **changed):
    rng = np.random.default_rng(0)
    for number in range(count):
        X = rng.standard_normal((8, 3, 2)) + number
        np.savez(folder / f"{number}.npz", **{"X": X, "Y": rng.standard_normal((8, 1))} | changed)
    return [str(folder / f"{number}.npz") for number in range(count)]


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_a_file_counts_once(kind, tmp_path):
    paths = write_shards(tmp_path)
    whole = kind(2, 1).update(pa.scan(paths[::-1]))
    assert whole == kind(2, 1).update(pa.scan(str(tmp_path / "*.npz")))  # in order of their names
    assert whole.n_sequences == 24
    for call in (
        lambda: whole.update(pa.scan(paths[1])),
        lambda: whole + kind(2, 1).update(pa.scan(paths[2])),
    ):
        with pytest.raises(InvalidInput, match=r"\.npz.*already counted"):
            call()
    # A file with other content is noticed, too.
    write_shards(tmp_path, 1, Y=np.zeros((8, 1)))
    with pytest.raises(InvalidInput, match="changed"):
        whole.update(pa.scan(paths[0]))
    (tmp_path / "link.npz").symlink_to(paths[1])
    os.link(paths[2], tmp_path / "z.npz")
    for one, other in ((1, paths[1]), (1, tmp_path / "link.npz"), (2, tmp_path / "z.npz")):
        with pytest.raises(InvalidInput, match="twice"):
            pa.scan([paths[one], other])
    items = [(np.ones((2, 3, 2)), np.ones(2))] * 2  # equal items are two of them
    sums = kind(2, 1).update(pa.scan(items))
    assert sums.n_sequences == 4
    with pytest.raises(InvalidInput, match="already counted"):
        sums.update(pa.scan(iter(items)))


BAD_CONTENT = (
    {"X": np.full((8, 3, 2), np.nan)}, {"X": np.ones((8, 3, 3))}, {"Y": np.ones((8, 2))},
    {"Y": np.ones((7, 1))}, {"weights": np.full(8, -1.0)}, {"weights": np.ones(3)},
    {"lengths": np.array([1, 2, 3, 4, 1, 1, 1, 1])},
    {"X": np.ones((6, 2)), "offsets": np.array([0, 5, 3, 6, 6, 6, 6, 6, 6])},
)  # fmt: skip


def test_a_bad_shard_is_named_and_leaves_nothing_behind(tmp_path):
    paths = write_shards(tmp_path)
    X = np.random.default_rng(1).standard_normal((8, 3, 2))
    good = {"X": X, "Y": np.ones((8, 1))}
    for bad, kind in itertools.product(BAD_CONTENT, (pa.Moments, pa.TriangularFactor)):
        sums = kind(2, 1).update(np.ones((2, 3, 2)), np.ones(2))
        before = sums.copy()
        np.savez(paths[1], **good | bad)
        with pytest.raises(PolyattnError, match=r"1\.npz"):
            sums.update(pa.scan(paths))
        assert sums == before
    # A place within the file, in a later chunk.
    X[5, 2, 1] = np.nan
    np.savez(paths[1], **good)
    with pytest.raises(InvalidInput, match=r"1\.npz.*sequence 5.*sequence 0, token 2, coord"):
        pa.Moments(2, 1).update(pa.scan(paths, chunk_bytes=4 * 3 * 2 * 8))
    np.savez(paths[1], X=np.zeros((2, 2)), offsets=[0, 2])
    with pytest.raises(FileFormatError, match=r"1\.npz"):  # which holds other arrays
        pa.scan(paths)


@pytest.mark.parametrize("chunk_bytes", [None, 2000])
def test_damaged_changed_and_removed_files_are_refused(chunk_bytes, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "a.npz"
    offsets = np.append(0, np.cumsum(rng.integers(2, 5, 100)))
    X, Y = rng.standard_normal((offsets[-1], 3)), rng.standard_normal((100, 1))
    np.savez(path, X=X, Y=Y, offsets=offsets)
    whole, source = path.read_bytes(), pa.scan(path, chunk_bytes=chunk_bytes)
    pa.fit(source)
    # One bit of one array, in the last chunk: only a checksum tells.
    for array in (X, Y, offsets):
        at = whole.index(array.tobytes()) + array.nbytes - 9
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(FileFormatError, match=r"a\.npz"):
            pa.fit(pa.scan(path, chunk_bytes=chunk_bytes))
    for change in (lambda: path.write_bytes(whole[:-100]), path.unlink):
        change()
        with pytest.raises(FileFormatError, match=r"a\.npz"):
            pa.fit(source)
    np.save(tmp_path / "x.npy", np.zeros((9, 2, 2)))
    os.truncate(tmp_path / "x.npy", 300)
    with pytest.raises(FileFormatError, match=r"x\.npy"):
        pa.scan(tmp_path / "x.npy")


def test_iterables_that_change_are_refused():
    X = np.random.default_rng(0).standard_normal((10, 3, 2))
    passes = ([(X, X[:, 0])] * 2, [(X, X[:, 0]), (2 * X, X[:, 0])], [(X, X[:, 0])])
    for later in passes[1:]:
        calls = iter((passes[0], later, later))
        source = pa.scan(lambda calls=calls: next(calls))
        with pytest.raises(InvalidInput, match="item 1"):
            pa.fit(source)


def test_a_wrong_item_is_named():
    one = np.random.default_rng(2).standard_normal((9, 5, 2))
    for item in (
        (one[:, :, :1], one[:, 0]), one, (one, one[:3, 0]), (one[0], one[:, 0]),
        (one, one[:, 0], 1, 2), (np.full((2, 2, 2), np.nan), one[:2, 0]), ("text", one[:, 0]),
        (one, np.array([object()] * 9)),
    ):  # fmt: skip
        items = [(one, one[:, 0]), item]
        for given_items in (iter(items), lambda items=items: items):
            with pytest.raises(PolyattnError, match="item 1"):
                pa.scan(given_items)


@contextlib.contextmanager
def full_disk(n_bytes):
    """Files may not grow beyond a limit: writing fails as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_iterators_are_kept_in_a_file_that_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gc.collect()
    descriptors, buffer = len(os.listdir("/proc/self/fd")), np.empty((7, 5, 2))

    def filling():  # an array that is used again
        for value in range(3):
            buffer[:] = value
            yield buffer, buffer[:, 0]

    source = pa.scan(filling())
    wanted = LAYER(np.arange(3.0)[:, None, None] * np.ones((3, 5, 2)))
    with ThreadPoolExecutor(4) as pool:
        for outputs in pool.map(LAYER, [source] * 8):
            np.testing.assert_array_equal(np.stack(outputs)[::7], wanted)
    with full_disk(1000), pytest.raises(OSError, match=r"item \d.*TMPDIR"):
        pa.scan(filling())
    del source, outputs
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_memory_is_that_of_one_item():
    peaks = []
    for count in (2, 20):
        items = ((np.full((500, 25, 4), float(i)), np.full((500, 1), 1.0)) for i in range(count))
        tracemalloc.start()
        pa.Moments(4, 1).update(pa.scan(items))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.slow
def test_summaries_that_memory_does_not_hold_cost_time_and_change_nothing(tmp_path, monkeypatch):
    """Passes of the iterative solver go over 4 million numbers, which may stand in a file."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((13_200, 120, 24)), rng.standard_normal((13_200, 1))
    options, sysconf = {"ridge": 1e3, "solver": "iterative"}, os.sysconf
    expected = pa.fit(*data, **options).coef
    few_pages = {"SC_PHYS_PAGES": 2000, "SC_AVPHYS_PAGES": 2000}
    monkeypatch.setattr(os, "sysconf", lambda name: few_pages.get(name) or sysconf(name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for disk in (contextlib.nullcontext(), full_disk(10**6)):
        with disk:
            found = pa.fit(*data, **options).coef
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("mode", "last"), [("last", 4), ("causal", 4), ("causal", 3)])
def test_predictions_are_written_as_they_are(mode, last, run, tmp_path):
    """Numbers to the last bit, of chunk after chunk."""
    rng, lengths = np.random.default_rng(0), [3] * 18 + [last] * 2
    X = [rng.standard_normal((n, 1)) for n in lengths]
    layer = pa.LinearAttention([[1.0]], [[1e-310, -1.0, 2 / 3, 1e300]], mode)
    pa.save(layer, tmp_path / "m.safetensors")
    ROADS["shards"](X, np.ones(20), np.ones(20), tmp_path, None)
    wanted = np.concatenate([np.atleast_2d(each) for each in layer(X)])
    n_rows = lengths if mode == "causal" else [1] * 20
    for out, read in (("p.parquet", pd.read_parquet), ("p.csv", partial(pd.read_csv, dtype=str))):
        assert run("predict", "m.safetensors", "*.npz", "-o", out).exit_code == 0
        table = read(out).astype(float)
        found = table[[f"prediction_{k}" for k in range(4)]]
        np.testing.assert_array_equal(found, wanted)
        assert table["sequence"].tolist() == np.repeat(np.arange(20), n_rows).tolist()
        if mode == "causal":
            assert table["token"].tolist() == [t for n in lengths for t in range(n)]
    # Arrays of one shape, or values and offsets; that lengths differ is seen across files, too.
    equal = len(set(n_rows)) == 1
    done = run("predict", "m.safetensors", "*.npz", "-o", "p.npy")
    assert (done.exit_code == 0) == (tmp_path / "p.npy").exists() == equal
    assert run("predict", "m.safetensors", "*.npz", "-o", "p.npz").exit_code == 0
    with np.load(tmp_path / "p.npz") as held:
        if equal:
            np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), held["Y"])
            np.testing.assert_array_equal(held["Y"], np.stack(layer(X)))
        else:
            np.testing.assert_array_equal(held["values"], wanted)
            np.testing.assert_array_equal(np.diff(held["offsets"]), lengths)
    # What fails behind some chunks leaves the earlier files as they are.
    np.savez("3.npz", X=np.full((8, 3, 1), np.nan))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for out in ("p.parquet", "p.csv", "p.npy", "p.npz"):
        assert run("predict", "m.safetensors", "*.npz", "-o", out).exit_code == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_cannot_be_scanned_is_refused(tmp_path):
    (a,) = write_shards(tmp_path, 1)
    (tmp_path / "t.docx").write_text("?")
    (tmp_path / "t.csv").write_text("who,a\n1,2\n")
    X = np.zeros((2, 2, 2))
    lazy, pair = dask.array.from_array(X), dask.delayed((X, X[:, 0]))
    for given_data, options, word in (
        (str(tmp_path / "none-*.npz"), {}, "none"), (str(tmp_path), {}, "folder"),
        (str(tmp_path / "t.docx"), {}, "t.docx"), (a, {"order": "t"}, "order"), (a, {"Y": [1]}, "Y"),
        ([a, str(tmp_path / "t.csv")], {}, "kind"), (a, {"chunk_bytes": 0}, "chunk_bytes"),
        (X, {"tokens": "x"}, "tokens"), (iter([]), {}, "nothing"), (list, {}, "nothing"),
        ((x for x in [1]), {}, "item 0"), (iter([]), {"Y": [1]}, "Y"), (pa.scan(a), {}, "source"),
        (X, {"Y": np.zeros(3)}, "3 targets"), (lazy, {"tokens": ["a"]}, "tokens"),
        (lazy, {"context": X}, "context"), (lazy, {"Y": X}, "dask arrays"),
        (lazy[lazy[:, 0, 0] > 0], {}, "compute_chunk_sizes"), (lazy, {"Y": lazy[:1]}, "number"),
        ([pair], {"Y": X}, "Y"), ([pair, pair], {}, "twice"), ([dask.delayed(X)], {}, "pair"),
    ):  # fmt: skip
        with pytest.raises((PolyattnError, InvalidType), match=word):
            pa.scan(given_data, **options)
    with pytest.raises(FileNotFoundError):
        pa.scan(str(tmp_path / "none.npz"))
    for other in ((X, X[:, 0, :1]), (X[:, :, :1], X[:, 0])):
        with pytest.raises(InvalidInput, match=r"1|coordinates"):
            pa.fit(pa.scan([pair, dask.delayed(other)]))
