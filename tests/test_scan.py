"""scan: what is found in files, arrays and iterables, where it is cut, and what is refused."""

import os
import zipfile

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.array_files import array_places, read_range
from polyattn.sources import shards
from polyattn.sources.collected import collected
from source_cases import sent


def ragged_arrays(count=50, d=3, e=2, seed=0, per_token=False):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, count))])
    n_tokens = int(offsets[-1])
    return {
        "X": rng.standard_normal((n_tokens, d)), "offsets": offsets,
        "Y": rng.standard_normal((n_tokens if per_token else count, e)),
        "weights": rng.uniform(0.5, 2.0, count),
    }  # fmt: skip


def joined(source, mode="last"):
    """All chunks put together: tokens, lengths, targets, weights."""
    data = [chunk.read(mode) for chunk in source.chunks]
    targets = [getattr(each.targets, "values", each.targets) for each in data]
    return (
        np.concatenate([each.batch.values for each in data]),
        np.concatenate([each.batch.lengths for each in data]),
        np.concatenate(targets),
        np.concatenate([each.weights for each in data]),
    )


def assert_holds(source, arrays, mode="last"):
    X, lengths, Y, weights = joined(source, mode)
    np.testing.assert_array_equal(X, arrays["X"])
    np.testing.assert_array_equal(lengths, np.diff(arrays["offsets"]))
    np.testing.assert_array_equal(Y, arrays["Y"])
    np.testing.assert_array_equal(weights, arrays["weights"])


@pytest.mark.parametrize("chunk_bytes", [1, 333, 1000, 1 << 20])
@pytest.mark.parametrize("per_token", [False, True])
def test_ragged_shard_in_any_chunks_is_the_file(tmp_path, chunk_bytes, per_token):
    arrays = ragged_arrays(per_token=per_token)
    np.savez(tmp_path / "a.npz", **arrays)
    source = pa.scan(tmp_path / "a.npz", chunk_bytes=chunk_bytes)
    assert_holds(source, arrays, "causal" if per_token else "last")
    ends = [(each.identity.first, each.identity.stop) for each in source.chunks]
    assert [stop for _, stop in ends[:-1]] == [first for first, _ in ends[1:]]
    assert ends[0][0] == 0
    assert ends[-1][1] == 50
    assert source.n_bytes == pytest.approx(sum(each.nbytes for each in arrays.values()), rel=0.2)
    assert (len(source.chunks) == 1) == (chunk_bytes == 1 << 20)
    assert source.n_dims == 3
    assert source.n_outputs == 2


def test_one_sequence_per_chunk_at_least():
    with np.errstate(all="raise"):
        source = pa.scan(np.zeros((4, 3, 2)), chunk_bytes=1)
    assert [len(chunk.read_inputs().batch) for chunk in source.chunks] == [1, 1, 1, 1]


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i4", "|b1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_any_type_and_order(tmp_path, dtype, order):
    X = np.random.default_rng(0).integers(0, 2, (20, 4, 3)).astype(dtype, order=order)
    np.save(tmp_path / "x.npy", X)
    source = pa.scan(tmp_path / "x.npy", chunk_bytes=64)
    found = np.concatenate([chunk.read_inputs().batch.values for chunk in source.chunks])
    np.testing.assert_array_equal(found, X.reshape(-1, 3))
    assert found.dtype == X.dtype.newbyteorder("=")
    # Columns first cannot be cut by sequences.
    assert (len(source.chunks) == 1) == (order == "F")


def test_padded_equal_and_context_forms(tmp_path):
    rng = np.random.default_rng(0)
    X, lengths = rng.standard_normal((30, 5, 2)), rng.integers(1, 6, 30)
    borders = np.concatenate([[0], np.cumsum(rng.integers(1, 4, 30))])
    np.savez(
        tmp_path / "p.npz", X=X, lengths=lengths, Y=rng.standard_normal(30),
        context=rng.standard_normal((int(borders[-1]), 4)), context_offsets=borders,
    )  # fmt: skip
    whole = pa.scan(tmp_path / "p.npz").chunks[0].read("last")
    source = pa.scan(tmp_path / "p.npz", chunk_bytes=500)
    parts = [chunk.read("last") for chunk in source.chunks]
    assert len(parts) > 3
    assert source.n_context_dims == 4
    assert source.n_outputs == 1
    for name in ("batch", "context"):
        values = np.concatenate([getattr(part, name).values for part in parts])
        np.testing.assert_array_equal(values, getattr(whole, name).values)
    np.testing.assert_array_equal(np.concatenate([part.targets for part in parts]), whole.targets)


def test_packed_shards_are_one_chunk_and_agree(tmp_path):
    arrays = ragged_arrays()
    np.savez_compressed(tmp_path / "c.npz", **arrays)
    source = pa.scan(tmp_path / "c.npz", chunk_bytes=100)
    assert len(source.chunks) == 1
    assert_holds(source, arrays)


def test_outputs_depend_on_the_mode(tmp_path):
    X = np.random.default_rng(0).standard_normal((10, 4, 2))
    np.savez(tmp_path / "a.npz", X=X, Y=X[:, :, 0])
    source = pa.scan(tmp_path / "a.npz")
    assert source.n_outputs_in("last") == 4
    assert source.n_outputs_in("causal") == 1
    assert pa.scan(X, X[:, :, 0]).n_outputs_in("full") == 1
    assert pa.fit(source, mode="causal").coef.shape[0] == 1
    assert pa.fit(source, mode="last").coef.shape[0] == 4


def test_chunks_travel_to_other_processes(tmp_path):
    arrays = ragged_arrays()
    np.savez(tmp_path / "a.npz", **arrays)
    chunks = pa.scan(tmp_path / "a.npz", chunk_bytes=400).chunks
    received = [sent(chunk) for chunk in chunks]
    assert all(n_bytes < 3000 for _, n_bytes in received)
    found = np.concatenate([chunk.read_inputs().batch.values for chunk, _ in received])
    np.testing.assert_array_equal(found, arrays["X"])


def test_files_in_order_of_their_names_and_none_twice(tmp_path):
    for name, seed in (("b", 1), ("a", 0)):
        np.savez(tmp_path / f"{name}.npz", **ragged_arrays(seed=seed))
    source = pa.scan([tmp_path / "b.npz", str(tmp_path / "a.npz")])
    assert [chunk.identity.source[-5:] for chunk in source.chunks] == ["a.npz", "b.npz"]
    assert [c.identity for c in pa.scan(str(tmp_path / "*.npz")).chunks] == [
        c.identity for c in source.chunks
    ]
    (tmp_path / "link.npz").symlink_to(tmp_path / "a.npz")
    os.link(tmp_path / "a.npz", tmp_path / "z.npz")
    for names in (["a.npz", "a.npz"], ["a.npz", "link.npz"], ["a.npz", "z.npz"], ["*.npz"]):
        with pytest.raises(InvalidInput, match="twice"):
            pa.scan([str(tmp_path / name) for name in names])


def test_what_cannot_be_scanned(tmp_path):
    np.savez(tmp_path / "a.npz", **ragged_arrays())
    np.save(tmp_path / "x.npy", np.zeros((3, 2, 2)))
    (tmp_path / "t.docx").write_text("?")
    a = str(tmp_path / "a.npz")
    for given, options, error, words in (
        (str(tmp_path / "none-*.npz"), {}, InvalidInput, "no file matches"),
        (str(tmp_path / "none.npz"), {}, FileNotFoundError, "there is no file"),
        (str(tmp_path), {}, InvalidInput, "is a folder"),
        (str(tmp_path / "t.docx"), {}, InvalidInput, "t.docx"),
        (a, {"order": "t"}, InvalidInput, "leave out order"),
        (a, {"Y": [1]}, InvalidInput, "leave out Y"),
        (a, {"chunk_bytes": 0}, InvalidInput, "chunk_bytes"),
        (np.zeros((2, 2, 2)), {"tokens": "x"}, InvalidInput, "leave out tokens"),
        (7, {}, InvalidType, "scan takes"),
        (iter([]), {}, InvalidInput, "nothing in the iterable.*gone through before"),
        ((x for x in [1]), {}, InvalidInput, "in item 0"),
        (iter([]), {"Y": [1]}, InvalidInput, "leave out Y"),
        (list, {}, InvalidInput, "nothing in the iterable"),
        (pa.scan(a), {}, InvalidType, "a source already"),
        (np.zeros((2, 2, 2)), {"Y": np.zeros(3)}, InvalidInput, "3 targets"),
        (np.full((2, 2, 2), np.nan), {}, InvalidInput, "NaN"),
    ):
        with pytest.raises(error, match=words):
            pa.scan(given, **options)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"d": 4}, "X has 4"),
        ({"e": 3}, "Y has 3"),
    ],
)
def test_shards_must_agree(tmp_path, other, words):
    np.savez(tmp_path / "a.npz", **ragged_arrays())
    np.savez(tmp_path / "b.npz", **ragged_arrays(**other))
    with pytest.raises(FileFormatError, match=words) as raised:
        pa.scan(str(tmp_path / "*.npz"))
    assert "b.npz" in str(raised.value)
    for name, width in (("a", ()), ("b", (3,))):  # one target each, and three
        np.savez(tmp_path / f"{name}.npz", X=np.zeros((2, 4, 2)), Y=np.zeros((2, *width)))
    with pytest.raises(FileFormatError, match="Y has 3"):
        pa.scan(str(tmp_path / "*.npz"))
    for name, n in (("a", 3), ("b", 5)):  # one for each token, or several for each sequence
        np.savez(tmp_path / f"{name}.npz", X=np.zeros((2, n, 2)), Y=np.zeros((2, n)))
    source = pa.scan(str(tmp_path / "*.npz"))
    assert collected(source, "causal").targets.n_dims == 1
    with pytest.raises(InvalidInput, match="3 coordinates in one part of the data and 5"):
        collected(source, "last")
    np.savez(tmp_path / "a.npz", **ragged_arrays())
    np.savez(tmp_path / "b.npz", X=np.zeros((2, 3)), offsets=[0, 2])
    with pytest.raises(FileFormatError, match="the same arrays"):
        pa.scan(str(tmp_path / "*.npz"))


def test_bad_content_names_the_file_and_the_place(tmp_path):
    arrays = ragged_arrays()
    arrays["X"][-1, 1] = np.nan
    np.savez(tmp_path / "a.npz", **arrays)
    source = pa.scan(tmp_path / "a.npz", chunk_bytes=1000)
    source.chunks[0].read("last")
    with pytest.raises(InvalidInput, match=r"a\.npz.*from its sequence .*NaN"):
        source.chunks[-1].read("last")
    for change in ({"Y": np.zeros(7)}, {"offsets": np.array([0, 5, 3])}, {"weights": np.ones(3)}):
        np.savez(tmp_path / "a.npz", **{**ragged_arrays(), **change})
        chunks = pa.scan(tmp_path / "a.npz", chunk_bytes=1000).chunks
        with pytest.raises(InvalidInput, match=r"a\.npz"):
            [chunk.read("last") for chunk in chunks]


@pytest.mark.parametrize("chunk_bytes", [None, 2000])
@pytest.mark.parametrize("name", ["X", "Y", "offsets"])
def test_a_damaged_archive_is_refused(tmp_path, name, chunk_bytes):
    """One bit of one array, which is in the last chunk: only a checksum tells."""
    rng = np.random.default_rng(0)
    path, lengths = tmp_path / "a.npz", rng.integers(2, 5, 100)
    offsets = np.append(0, np.cumsum(lengths))
    X, Y = rng.standard_normal((offsets[-1], 3)), rng.standard_normal((100, 1))
    np.savez(path, X=X, Y=Y, offsets=offsets)
    whole = path.read_bytes()
    assert len(pa.scan(path, chunk_bytes=chunk_bytes).chunks) == (1 if chunk_bytes is None else 5)
    pa.fit(pa.scan(path, chunk_bytes=chunk_bytes))
    array = {"X": X, "Y": Y, "offsets": offsets}[name]
    at = whole.index(array.tobytes()) + array.nbytes - 9
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for use in (pa.fit, pa.certify, pa.Moments(3, 1).update):
        if name == "Y" and use is pa.certify:
            continue
        with pytest.raises(FileFormatError, match=r"a\.npz.*checksum|a\.npz.*CRC"):
            use(pa.scan(path, chunk_bytes=chunk_bytes))


def test_a_source_says_how_large_it_is(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((50, 2, 5)), Y=np.ones(50))
    assert repr(pa.scan(tmp_path / "a.npz")) == (
        "ShardSource(1 chunk of 4 KB in all, tokens of 5 coordinates, 1 output)"
    )


def test_changed_truncated_and_removed_files_are_refused(tmp_path):
    path, arrays = tmp_path / "a.npz", ragged_arrays()
    np.savez(path, **arrays)
    source = pa.scan(path, chunk_bytes=1000)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(FileFormatError, match=r"a\.npz.*changed since it was listed"):
        source.chunks[0].read("last")
    with pytest.raises(FileFormatError, match=r"a\.npz.*truncated"):
        pa.scan(path)
    path.unlink()
    with pytest.raises(FileFormatError, match="is gone"):
        source.chunks[0].read("last")
    np.save(tmp_path / "x.npy", np.zeros((9, 2, 2)))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-8])
    with pytest.raises(FileFormatError, match=r"x\.npy.*there are"):
        pa.scan(tmp_path / "x.npy")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("how", ["append", "replace", "touch"])
def test_change_while_it_is_read_is_refused(tmp_path, monkeypatch, how, packed):
    path, arrays = tmp_path / "a.npz", ragged_arrays()
    (np.savez_compressed if packed else np.savez)(path, **arrays)
    chunk = pa.scan(path, chunk_bytes=1000).chunks[0]
    chunk.read("last")  # the control: without a change it is read
    state, name = path.stat(), "read_arrays" if packed else "read_range"

    real = getattr(shards, name)

    def reading(*given):
        found = real(*given)
        if how == "append":
            with path.open("ab") as file:
                file.write(b"x")
        elif how == "replace":  # another file of the same size and time
            (tmp_path / "new").write_bytes(path.read_bytes())
            os.utime(tmp_path / "new", ns=(state.st_atime_ns, state.st_mtime_ns))
            (tmp_path / "new").rename(path)
        else:
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
        return found

    monkeypatch.setattr(shards, name, reading)
    with pytest.raises(FileFormatError, match=r"a\.npz.*changed"):
        chunk.read("last")


def test_ranges_are_read_where_local_headers_are_longer(tmp_path):
    """Members of an archive may have extra fields before their data, that the directory lacks."""
    X = np.random.default_rng(0).standard_normal((40, 3, 2))
    np.save(tmp_path / "X.npy", X)
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w") as archive,
        archive.open("X.npy", "w", force_zip64=True) as member,
    ):
        member.write((tmp_path / "X.npy").read_bytes())
    place = array_places(tmp_path / "a.npz")["X"]
    with (tmp_path / "a.npz").open("rb", buffering=0) as file:
        np.testing.assert_array_equal(read_range(file, place, 5, 9), X[5:9])
        assert read_range(file, place, 9, 9).shape == (0, 3, 2)


def test_arrays_memmaps_and_iterables(tmp_path):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 3, 2)), rng.standard_normal((40, 2))
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    pairs = [(X[i : i + 10], Y[i : i + 10]) for i in range(0, 40, 10)]

    class Again:
        def __iter__(self):
            return iter(pairs)

    reference = pa.fit(X, Y).coef
    for source in (
        pa.scan(X, Y, chunk_bytes=300), pa.scan(mapped, Y, chunk_bytes=300), pa.scan(pairs),
        pa.scan(Again()), pa.scan(lambda: iter(pairs)),
        pa.scan(lambda: ((x, y, np.ones(10)) for x, y in pairs)),
    ):  # fmt: skip
        assert len(source.chunks) > 1
        for _ in range(2):
            found = np.concatenate([chunk.read("last").targets for chunk in source.chunks])
            np.testing.assert_array_equal(found, Y)
        np.testing.assert_allclose(pa.fit(source).coef, reference, rtol=1e-10)
    backwards = [chunk.read("last").targets for chunk in pa.scan(pairs).chunks[::-1]]
    np.testing.assert_array_equal(np.concatenate(backwards[::-1]), Y)


def test_iterables_that_change_are_refused():
    X, calls = np.random.default_rng(0).standard_normal((10, 3, 2)), []

    def items():
        calls.append(1)
        yield X * len(calls), X[:, 0]

    source = pa.scan(items)
    with pytest.raises(InvalidInput, match="item 0 is not what it was"):
        source.chunks[0].read("last")
    passes = []

    def fewer():
        passes.append(1)
        return [(X, X[:, 0])] * (3 - len(passes))

    shorter = pa.scan(fewer)
    with pytest.raises(InvalidInput, match="item 1"):
        shorter.chunks[1].read("last")
    with pytest.raises(InvalidInput, match="item 1 has n_dims"):
        pa.scan([(X, X[:, 0]), (X[..., :1], X[:, 0])])
    with pytest.raises(InvalidInput, match="in item 0"):
        pa.scan([(X, X[:3, 0])])


def test_identity_is_of_content():
    X = np.random.default_rng(0).standard_normal((10, 3, 2))
    first, same, other = (pa.scan(each).chunks[0].identity for each in (X, X.copy(), X + 1.0))
    assert first == same
    assert first != other
    changed = pa.scan(X, sample_weight=np.full(10, 2.0)).chunks[0].identity
    assert changed != first
